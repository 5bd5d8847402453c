import { describe, expect, it } from 'vitest'
import { chartOf, columnsOf, ENERGY, estimatesOf, explainCell, idle, linesOf, ordered, powerLines, powerOf, summaryOf, textOf, valueOf } from './services'
import type { Graph, Node, Service, ServiceColumn, Services } from './types'

const service = (name: string, more: Partial<Service> = {}): Service =>
  ({ node: name, name, kind: 'container', host: 'vm', cpu_cores: 0.2, parallel: 1, parallel_by: 'threads', utilisation: 0.2, reached: true, failed: 0, aborted: 0, ...more }) as Service
const column = (key: string, more: Partial<ServiceColumn> = {}): ServiceColumn => ({ key, title: key, unit: '', formula: '', ...more })
const answer = (more: Partial<Services> = {}): Services =>
  ({ from: '2026-11-22T07:00:00Z', to: '2026-11-22T07:05:00Z', covered_seconds: 300, error_bound: 0.011, entries: [], arrival_rate: 0, services: [], cores: { vm: 2 }, completeness: { window_seconds: 300, covered_seconds: 300, state: 'complete', tables: [], sinks: [] }, columns: [column('utilisation', { unit: 'ratio' }), column('power', { unit: 'W' })], ...more }) as Services
const none = new Map<string, number>()
const measured = new Map<string, number>()

describe('a number of a service', () => {
  it('is absent where it could not be had', () => {
    expect(valueOf(service('a', { parallel: 0, utilisation: 0 }), 'utilisation', none)).toBeUndefined()
    expect(textOf(column('http_p99', { unit: 's' }), service('a'), none, measured)).toBe('–')
    expect(textOf(column('demand', { unit: 's' }), service('a'), none, measured)).toBe('–')
  })
  it('is of HTTP or of all transactions', () => {
    const s = service('a', { http: { requests: 5, p99: 0.002 }, tcp: { requests: 9, p50: 0.001, p99: '+Inf' } })
    expect(['http_p50', 'http_p99', 'tcp_p50', 'tcp_p99'].map((k) => valueOf(s, k, none))).toEqual([undefined, 0.002, 0.001, '+Inf'])
  })
  it('is in watts where power is known', () => {
    expect(columnsOf(answer(), none).map((c) => c.key)).toEqual(['utilisation'])
    const power = new Map([['a', 1.234]])
    expect(columnsOf(answer(), power).map((c) => c.key)).toEqual(['utilisation', 'power'])
    expect(textOf(column('power', { unit: 'W' }), service('a'), power, measured)).toBe('1.23 W')
    expect(textOf(column('power', { unit: 'W' }), service('a'), power, new Map([['vm', 0.45]]))).toBe('≈ 1.23 W')
    expect(textOf(column('power', { unit: 'W' }), { ...service('a'), host: 'other' }, power, new Map([['vm', 0.45]]))).toBe('1.23 W')
  })
})

describe('lines of the table', () => {
  it('are of its own numbers, and of the CPUs of hosts', () =>
    expect(linesOf(['utilisation', 'demand', 'power'], 'pod', [{ id: 'a' } as Node], ['cpus/vm'])).toEqual({ numbers: ['service.utilisation', 'service.demand'], by: 'pod', nodes: ['a', 'cpus/vm'] }))
  it('are charted where a node has the number', () => expect([chartOf('utilisation'), chartOf('demand'), chartOf('http_p50'), chartOf('parallel')]).toEqual(['usage.cpu_cores', undefined, undefined, undefined]))
})

describe('power', () => {
  const row = (node: string, domain: string, per_second: number, values?: (number | null)[]) => ({ metric: ENERGY[0], host: 'vm', node, labels: { domain }, per_second, values })
  it('is of the domains that contain the others', () => {
    expect([...powerOf([row('a', 'package', 5), row('a', 'core', 3), row('a', 'dram', 1), row('b', 'psys', 7), row('b', 'core', 2), row('c', 'core', 4)])]).toEqual([['a', 6], ['b', 7], ['c', 4]])
    expect(powerLines([row('a', 'package', 0, [1, null, 2]), row('a', 'package', 0, [1, 1, null])]).get('a')).toEqual([2, null, 2])
  })
  it('is an estimate where a model tells it', () => {
    const meter = (host: string, source: string) => ({ metric: ENERGY[1], host, labels: { source }, value: 1 })
    expect([...estimatesOf([meter('a', 'model'), meter('b', 'rapl'), meter('c', 'model'), { metric: ENERGY[2], host: 'a', labels: { source: 'model' }, value: 0.45 }])]).toEqual([['a', 0.45], ['c', NaN]])
  })
})

it('orders services, and those without a number last in both directions', () => {
  const list = [service('b', { demand: 0.1 }), service('a'), service('c', { demand: 0.3 })]
  expect(ordered(list, '-service.demand', none).map((s) => s.name)).toEqual(['c', 'b', 'a'])
  expect(ordered(list, 'service.demand', none).map((s) => s.name)).toEqual(['b', 'c', 'a'])
  expect(ordered(list, 'name', none).map((s) => s.name)).toEqual(['a', 'b', 'c'])
})

it('leaves out what ended and says nothing', () => {
  const gone = (name: string) => ({ id: name, name, gone: true }) as Node
  expect(idle(service('a'))).toBe(false)
  expect(idle(service('0123456789ab'), gone('0123456789ab'))).toBe(true)
  expect(idle(service('job', { utilisation: 0.01 }), gone('job'))).toBe(false)
  expect(idle(service('job', { utilisation: 0 }), gone('job'))).toBe(true)
  expect(idle(service('job', { utilisation: 0, tcp: { requests: 1 } }), gone('job'))).toBe(false)
})

it('fills in the query of a cell', () => {
  const g = { matches: { a: { usage: 'id="a"', served: 'server_id="a",side="server"', called: '' } }, completeness: answer().completeness } as unknown as Graph
  const c = column('utilisation', { unit: 'ratio', query: 'sum(rate(cpu{$usage}[$window])) / $parallel + sum(x{$served})' })
  expect(explainCell(c, service('a'), answer(), g, none, measured).query).toBe('sum(rate(cpu{id="a"}[300s])) / clamp(sum(container_busy_threads{id="a"}), 1, 2) + sum(x{server_id="a",side="server"})')
  expect(explainCell(c, service('a', { parallel_by: 'quota', parallel: 0.5 }), answer(), g, none, measured).query).toContain('/ 0.5 +')
  // Where PromQL has no series of edges, or none at all, nothing is told that could not be asked.
  const without = { ...g, matches: { a: { usage: 'id="a"', served: '', called: '' } } } as unknown as Graph
  expect(explainCell(c, service('a'), answer(), without, none, measured).query).toBeUndefined()
  expect(explainCell(c, service('a'), answer(), { ...g, matches: {} } as unknown as Graph, none, measured).query).toBeUndefined()
  expect(explainCell(column('error_share'), service('a', { failed: 3, aborted: 1, error_share: 0.1 }), answer(), g, none, measured).what).toBe('3 replies say that it failed, 1 requests had no reply')
})

it('says what runs out first', () => {
  expect(summaryOf(answer())).toMatch(/^No requests arrived/)
  expect(summaryOf(answer({ entries: [{ node: 'web', name: 'web', arrival_rate: 100, clients: [] }], arrival_rate: 100, saturation_rate: 250, extrapolation: 2.5, bottleneck: 'db', bottleneck_name: 'db' }))).toBe(
    'λ = 100/s come in at web. First to run out: db, at λ_sat ≈ 250/s, 2.5 times as much.')
})
