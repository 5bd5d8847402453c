import { describe, expect, it } from 'vitest'
import { drawable, hostsOf, linesPath, ratioOf, sparkPath, sparkStep, stretchOf, tailOf } from './spark'

const long = (c: string) => c.repeat(64)
const stretch = { begin: 1000, end: 1300, step: 10, points: 30 }
const asked = (...a: Parameters<typeof linesPath>) => new URL(linesPath(...a), 'http://x').searchParams

describe('the request of lines', () => {
  it('is one for a table, with the beginning of ids', () => {
    const p = asked({ numbers: ['usage.cpu_cores', 'served.p99'], by: 'container', nodes: [long('a'), 'host/vm', long('a')], edges: [`${long('b')}>${long('c')}/udp`], hosts: ['vm'] }, stretch)
    expect(p.toString()).toBe('numbers=usage.cpu_cores%2Cserved.p99&from=1000&to=1300&points=30&node=aaaaaaaaaaaa&node=host%2Fvm&edge=bbbbbbbbbbbb%3Ecccccccccccc%2Fudp&host=vm')
    expect(asked({ numbers: ['a'], by: 'pod' }, stretch).get('by')).toBe('pod')
  })
  it('names as many rows as fit into an address', () => {
    const path = linesPath({ numbers: ['a'], nodes: Array.from({ length: 5000 }, (_, i) => `node-${i}`) }, stretch)
    expect(path.length).toBeGreaterThan(4000)
    expect(path.length).toBeLessThan(6000)
  })
  it('is of the hosts that are enough', () => {
    expect(hostsOf([{ host: 'b' }, { host: 'a' }, { host: 'b' }])).toEqual(['a', 'b'])
    expect(hostsOf([{ host: 'b' }, {}])).toBeUndefined()
  })
})

it('draws the last part of a long window, with few points', () => {
  for (const [window, tail] of [[60, 60], [300, 300], [900, 300], [3600, 900], [21600, 5400]] as const) {
    expect(tailOf(window)).toBe(tail)
    expect(tail / sparkStep(tail)).toBeLessThanOrEqual(40)
  }
})

it('begins with the first frame, and moves on by whole steps', () => {
  expect(stretchOf(1000, 1300, 300)).toEqual({ begin: 1000, end: 1300, step: 10, points: 30 })
  expect(stretchOf(1004, 1304, 300)).toEqual({ begin: 1010, end: 1300, step: 10, points: 29 })
  expect(stretchOf(1000, 1300, 45)).toEqual({ begin: 1260, end: 1300, step: 10, points: 4 })
  expect(stretchOf(1000, 1300, 3)).toBeUndefined()
})

describe('a line', () => {
  it('over another has gaps where the other has none', () => {
    expect(ratioOf([1, 2, null, 4], [2, 0, 1, null])).toEqual([0.5, null, null, null])
    expect(ratioOf([1, 2], undefined)).toEqual([null, null])
  })
  it('has no height for what is past the end of a histogram', () => expect(drawable([1, '+Inf', null])).toEqual([1, null, null]))
  it('goes from 0 up, and leaves gaps out', () => {
    expect(sparkPath([0, 2, null, 1, 1], 42, 12)).toBe('M1 11L11 1M31 6L41 6')
    expect(sparkPath([0, 0], 42, 12)).toBe('M1 11L41 11')
    expect(sparkPath([3, null], 42, 12)).toBe('')
    expect(sparkPath([], 42, 12)).toBe('')
  })
})
