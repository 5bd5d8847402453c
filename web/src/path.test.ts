import { describe, expect, it } from 'vitest'
import { firstLimit, limitOf, longest, nodeFor, partsOf } from './path'
import type { Graph, Hop, PathAnswer, Resource } from './types'

const resource = (more: Partial<Resource> = {}): Resource => ({ node: 'c1', name: 'catalogue', cpu_cores: 0.2, parallel: 1, parallel_by: 'threads', utilisation: 0.2, ...more })
const hop = (own: number, next: number, others: number, more: Partial<Hop> = {}): Hop => ({ node: 'c1', name: 'catalogue', served: own + next + others, own, next, others, ...more })

describe('the first limit', () => {
  const cpus = resource({ node: 'cpus/vm', name: 'CPUs of vm', parallel: 1.6, parallel_by: 'left' })
  const answer = (more: Partial<PathAnswer>) => ({ resources: [cpus, resource()], arrival_rate: 117, bottleneck: 'cpus/vm', saturation_rate: 541, extrapolation: 4.62, ...more }) as PathAnswer
  it('is told with its rate, and with a caveat beyond four times', () => {
    expect(firstLimit(answer({}))).toEqual({ name: 'CPUs of vm', text: 'run out at about 541/s, 4.6 times what comes in now.', far: true })
    expect(firstLimit(answer({ bottleneck: 'c1', extrapolation: 4 }))).toEqual({ name: 'catalogue', text: 'is used up (1.0 busy threads) at about 541/s, 4.0 times what comes in now.', far: false })
  })
  it('is not told where it is not known', () => {
    expect(firstLimit(answer({ saturation_rate: undefined, extrapolation: undefined, bottleneck: undefined }))).toBeUndefined()
    expect(firstLimit(answer({ resources: [] }))).toBeUndefined()
  })
  it('says what bounds a resource', () => {
    expect([resource(), resource({ parallel_by: 'quota', parallel: 0.25 }), cpus, resource({ parallel_by: 'cores' }), resource({ parallel_by: 'cores', parallel: 2 }), resource({ parallel_by: 'cores', parallel: 0 })].map(limitOf))
      .toEqual(['1.0 busy threads', 'a quota of 0.25 cores', '1.60 cores that others leave', '1 core', '2 cores', '–'])
  })
  it('leads to the node, and from CPUs to the host', () => {
    const graph = { nodes: [{ id: 'host/vm' }, { id: 'c1' }] } as Graph
    expect([cpus, resource(), resource({ node: 'cpus/other' })].map((r) => nodeFor(graph, r)?.id)).toEqual(['host/vm', 'c1', undefined])
  })
})

describe('the bar of a hop', () => {
  const widths = (h: Hop, whole: number) => partsOf(h, whole).map((p) => [p.key, p.x, p.width])
  it('has parts one after the other, on the scale of the longest', () => {
    expect(longest([hop(1, 3, 0), hop(2, 0, 0, { served: '+Inf' }), hop(0, 0, 0, { served: undefined })])).toBe(4)
    expect(widths(hop(1, 2, 1), 8)).toEqual([['own', 0, 12.5], ['next', 12.5, 25], ['others', 37.5, 12.5]])
  })
  it('is as long as the answer takes where it waits for several at a time', () => {
    expect(widths(hop(0, 3, 1, { served: 2, concurrent: true }), 4)).toEqual([['own', 0, 0], ['next', 0, 37.5], ['others', 37.5, 12.5]])
  })
  it('is empty where nothing is known', () => {
    for (const h of [hop(0, 0, 0, { served: undefined }), hop(0, 0, 0), hop(1, 1, 0, { served: '+Inf' })]) expect(partsOf(h, 4).map((p) => p.width)).toEqual([0, 0, 0])
    expect(partsOf(hop(1, 1, 0), 0).map((p) => p.width)).toEqual([0, 0, 0])
  })
})
