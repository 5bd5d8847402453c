import { describe, expect, it } from 'vitest'
import { barsOf, firstLimit, formerOf, limitOf, nodeFor, ofRequest, wholeOf } from './path'
import type { Graph, Hop, PathAnswer, Resource } from './types'

const resource = (more: Partial<Resource> = {}): Resource => ({ node: 'c1', name: 'catalogue', cpu_cores: 0.2, parallel: 1, parallel_by: 'threads', utilisation: 0.2, ...more })

describe('the first limit', () => {
  const cpus = resource({ node: 'cpus/vm', name: 'CPUs of vm', parallel: 1.6, parallel_by: 'left' })
  const answer = (more: Partial<PathAnswer>) => ({ resources: [cpus, resource()], arrival_rate: 117, bottleneck: 'cpus/vm', saturation_rate: 541, extrapolation: 4.62, ...more }) as PathAnswer
  it('is told with its rate, and with a caveat beyond four times', () => {
    expect(firstLimit(answer({}))).toEqual({ name: 'CPUs of vm', text: 'run out at about 541/s, 4.6 times what comes in now.', far: true })
    expect(firstLimit(answer({ bottleneck: 'c1', extrapolation: 4 }))).toEqual({ name: 'catalogue', text: 'is used up (1.0 busy threads) at about 541/s, 4.0 times what comes in now.', far: false })
  })
  it('is not shown where it is not known', () => {
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

describe('the critical path', () => {
  const hop = (name: string, weight: number, of?: [number, number, number]): Hop => ({ node: name, name, weight, served: weight, of_request: of && { calls: 1, network: of[0], own: of[1], others: of[2] } })
  const mean = { statistic: 'mean', whole: 8, hops: [hop('web', 8, [0, 1, 1]), hop('app', 5, [1, 2, 0]), hop('db', 3, [0.5, 2.5, 0])] }
  it('has parts that fill the whole, one after the other', () => {
    const bars = barsOf(mean)
    expect(bars.map((b) => b.map((p) => [p.key, p.x, p.width]))).toEqual([
      [['network', 0, 0], ['own', 0, 12.5], ['others', 12.5, 12.5]], [['network', 25, 12.5], ['own', 37.5, 25], ['others', 62.5, 0]], [['network', 62.5, 6.25], ['own', 68.75, 31.25], ['others', 100, 0]],
    ])
    expect(mean.hops.reduce((sum, h) => sum + ofRequest(h)!, 0)).toBe(8)
    expect(wholeOf(mean)).toBe('the mean: a request to web takes 8.00 s, and the parts below add up to it.')
  })
  it('has one statistic, and no sum, by a percentile', () => {
    const p99 = { statistic: 'p99', whole: 8, hops: [hop('web', 8), hop('app', 4), hop('db', NaN)] }
    expect(barsOf(p99)).toEqual([[{ key: 'own', x: 0, width: 100 }], [{ key: 'own', x: 0, width: 50 }], []])
    expect(ofRequest(p99.hops[0]!)).toBeUndefined()
    expect(wholeOf(p99)).toMatch(/^p99 of each call; .* is 8.00 s\. .*do not add up/)
  })
  it('has no bars where nothing is known', () => {
    expect(barsOf({ ...mean, whole: '+Inf' })).toEqual([[], [], []])
    expect(barsOf({ ...mean, whole: undefined })).toEqual([[], [], []])
    expect(barsOf({ statistic: 'p99', hops: [{ node: 'a', name: 'a' }] })).toEqual([[]])
  })
  it('is told to the server, as what is kept unless another is ahead', () => {
    const id = '0123456789abcdef'.repeat(4)
    expect(formerOf({ ...mean, hops: [hop(id, 1), hop('a b', 1)] })).toBe('0123456789ab,a%20b')
    expect(formerOf({ ...mean, hops: Array.from({ length: 200 }, () => hop(id, 1)) })).toBe('')
    expect(formerOf(undefined)).toBe('')
  })
})
