import { expect, it } from 'vitest'
import { linesOf, numberOf, sureOf, timesOf, whatOf } from './changes'
import { agoOf, parse } from './state'
import type { ChangeOf, Graph } from './types'

const change = (more: Partial<ChangeOf> = {}): ChangeOf => ({ edge: 'a>b', name: 'a → b', what: 'mean', unit: 's', before: 0.002, after: 0.005, deviations: 5.2, sure: true, ...more })
const told = (c: ChangeOf) => [whatOf(c), numberOf(c, 'before'), numberOf(c, 'after'), timesOf(c), sureOf(c)]

it('says what changed, from what to what, how many times, and how surely', () => {
  expect(told(change())).toEqual(['Mean latency', '2.00 ms', '5.00 ms', '× 2.50', '5.2 deviations'])
  expect(told(change({ what: 'rate', unit: '/s', before: 120, after: 30, deviations: 1.21, sure: false }))).toEqual(['Requests', '120/s', '30.0/s', '÷ 4.00', '1.2 deviations'])
  expect(told(change({ what: 'memory', unit: 'B', before: 1 << 20, after: 3 << 20, deviations: 0 }))).toEqual(['Memory', '1.00 MiB', '3.00 MiB', '× 3.00', 'sure'])
  expect(told(change({ what: 'failures', unit: '/s', before: 0, after: 2, deviations: 250 }))).toEqual(['Failed connects', '0/s', '2.00/s', 'from 0', '> 100 deviations'])
  expect(timesOf(change({ after: 0 }))).toBe('to 0')
  expect(whatOf(change({ what: 'jitter' }))).toBe('jitter')
})

it('says what came and what went, without numbers', () => {
  expect(told(change({ what: 'presence', unit: '', before: undefined, after: 1, deviations: 0 }))).toEqual(['New', 'absent', 'there', '–', 'sure'])
  expect(whatOf(change({ what: 'presence', unit: '', before: 1, after: undefined, deviations: 0 }))).toBe('Gone')
})

it('compares with the window before where the two would overlap', () => {
  expect(['#ago=1h', '#window=1h&ago=1h', '#window=6h&ago=1h', '#window=6h&ago=1d', '#from=0&to=90000&ago=1d', '#from=0&to=90000&ago=7d'].map((hash) => agoOf(parse(hash)))).toEqual(['1h', '1h', '', '1d', '', '7d'])
})

it('asks for one line for each kind of number, of what is listed and of its hosts alone', () => {
  const g = { nodes: [{ id: 'a', host: 'one' }, { id: 'b', host: 'two' }, { id: '192.0.2.1', kind: 'outside' }], edges: [{ id: 'a>b', client: 'a', server: 'b' }, { id: 'a>192.0.2.1', client: 'a', server: '192.0.2.1' }] } as unknown as Graph
  const list = [change(), change({ what: 'p99' }), change({ edge: undefined, node: 'a', what: 'cpu' }), change({ what: 'presence', edge: 'x>y' })]
  expect(linesOf(list, g, 'container')).toEqual({ numbers: ['edge.mean', 'edge.p99', 'usage.cpu_cores'], by: 'container', nodes: ['a'], edges: ['a>b', 'a>b'], hosts: ['one', 'two'] })
  expect(linesOf([change({ edge: 'a>192.0.2.1' })], g, 'container').hosts).toEqual(['one'])
  expect(linesOf([], g, 'container').numbers).toEqual([])
})
