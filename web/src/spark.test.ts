import { describe, expect, it } from 'vitest'
import { columnQuery, edgeColumns, nodeColumns, nodeIdOf, onSteps, ratioOf, sparkPath, sparkStep, stretchOf, tailOf } from './spark'
import type { Edge, Node, NumberInfo } from './types'

const cpu: NumberInfo = { key: 'cpu_cores', title: 'CPU', unit: 'cores', query: 'sum(rate(container_cpu_usage_seconds_total{$match}[$window]))' }
const p99: NumberInfo = { key: 'p99', title: 'p99', unit: 's', query: 'histogram_quantile(0.99, sum(rate(outsight_edge_transaction_duration_seconds{$match}[$window])))' }
const faults: NumberInfo = { key: 'minor', title: 'x', unit: '/s', query: 'sum(rate(faults{$match,type="minor"}[$window])) / sum(rate(all{$match}[$window]))' }
const node = (id: string) => ({ id }) as Node
const long = (c: string) => c.repeat(64)

describe('the query of a column', () => {
  it('is one for all rows', () => expect(columnQuery(cpu, 'usage', 'container', 4)).toBe('sum by (host, id) (rate(container_cpu_usage_seconds_total{host!=""}[10s]))'))
  it('is by the side that counted', () =>
    expect(columnQuery(p99, 'served', 'container', 30)).toBe('histogram_quantile(0.99, sum by (host, server_id) (rate(outsight_edge_transaction_duration_seconds{side="server"}[30s])))'))
  it('keeps other matchers, and divides by the same labels', () =>
    expect(columnQuery(faults, 'usage', 'host', 60)).toBe('sum by (host) (rate(faults{host!="",type="minor"}[60s])) / sum by (host) (rate(all{host!=""}[60s]))'))
  it('names few rows, and their ids are no patterns', () => {
    expect(columnQuery(cpu, 'usage', 'container', 10, [node(long('a')), node('host/vm'), node('/system.slice/a+b.service')])).toContain(
      'id=~"/system\\\\.slice/a\\\\+b\\\\.service|aaaaaaaaaaaa.*|host"')
    expect(columnQuery(cpu, 'usage', 'container', 10, Array.from({ length: 500 }, (_, i) => node(String(i))))).not.toContain('id=~')
  })
  it('is not there for what has no such series', () => expect(columnQuery(cpu, 'usage', 'process', 10)).toBeUndefined())
})

it('knows whose series it is', () => {
  expect(nodeIdOf({ host: 'vm', id: 'host' }, 'usage', 'container')).toBe('host/vm')
  expect(nodeIdOf({ host: 'vm', server_id: 'abc' }, 'served', 'container')).toBe('abc')
  expect(nodeIdOf({ host: 'vm', client_id: 'host', client_process: 'curl' }, 'called', 'process')).toBe('host/vm/curl')
  expect(nodeIdOf({ server_namespace: 'shop', server_workload: 'cart', server_workload_kind: 'Deployment' }, 'served', 'workload')).toBe('workload/shop/Deployment/cart')
  expect(nodeIdOf({ host: 'vm' }, 'usage', 'host')).toBe('all/vm')
})

it('draws the last part of a long window, with few points', () => {
  for (const [window, tail] of [[60, 60], [300, 300], [900, 300], [3600, 900], [21600, 5400]] as const) {
    expect(tailOf(window)).toBe(tail)
    expect(tail / sparkStep(tail)).toBeLessThanOrEqual(40)
  }
})

describe('the query of numbers of edges', () => {
  const edge = (client: string, server: string) => ({ id: `${client}>${server}`, client, server }) as Edge
  it('is one for all of them, by the side that knows more', () => {
    const [c] = edgeColumns([p99], ['p99', 'unknown'], [edge('a.b', long('c')), edge('host/vm', long('c'))])
    const side = (name: string) => `(histogram_quantile(0.99, sum by (host, client_id, server_id, transport) (rate(outsight_edge_transaction_duration_seconds{side="${name}",client_id=~"a\\\\.b|host",server_id=~"cccccccccccc.*"}[20s]))))`
    expect(c!.query(20)).toBe(`${side('client')} or ${side('server')}`)
    expect(c!.of({ host: 'vm', client_id: 'host', server_id: 'x', transport: 'udp' })).toBe('host/vm>x/udp')
    expect(c!.of({ host: 'vm', client_id: 'y', server_id: 'x', transport: 'tcp' })).toBe('y>x')
  })
  it('is not asked for too many, or none', () => expect([[], Array.from({ length: 500 }, (_, i) => edge(`a${i}`, 'b'))].map((list) => edgeColumns([p99], ['p99'], list).length)).toEqual([0, 0]))
})

it('begins with the first sample, and moves on by whole steps', () => {
  expect(stretchOf(1000, 1300, 300)).toEqual({ begin: 1000, end: 1300, step: 10, points: 31 })
  expect(stretchOf(1004, 1304, 300)).toEqual({ begin: 1010, end: 1300, step: 10, points: 30 })
  expect(stretchOf(1000, 1300, 45)).toEqual({ begin: 1260, end: 1300, step: 10, points: 5 })
  expect(stretchOf(1000, 1300, 3)).toBeUndefined()
})

it('asks for the numbers that there are', () => {
  const columns = nodeColumns({ usage: [cpu], side: [p99], endpoint: [] }, ['usage.cpu_cores', 'served.p99', 'usage.unknown'], 'container', [])
  expect(columns.map((c) => [c.key, c.of({ host: 'vm', id: 'a', server_id: 'b' })])).toEqual([['usage.cpu_cores', 'a'], ['served.p99', 'b']])
  expect(columns[0]!.query(4)).toBe(columnQuery(cpu, 'usage', 'container', 4))
})

describe('a line', () => {
  it('over another has gaps where the other has none', () => {
    expect(ratioOf([1, 2, null, 4], [2, 0, 1, null])).toEqual([0.5, null, null, null])
    expect(ratioOf([1, 2], undefined)).toEqual([null, null])
  })
  it('has its values on steps', () => expect(onSteps([[100, '1'], [104, '3'], [106, 'NaN'], [200, '9']], 100, 2, 4)).toEqual([1, null, 3, null]))
  it('goes from 0 up, and leaves gaps out', () => {
    expect(sparkPath([0, 2, null, 1, 1], 42, 12)).toBe('M1 11L11 1M31 6L41 6')
    expect(sparkPath([0, 0], 42, 12)).toBe('M1 11L41 11')
    expect(sparkPath([3, null], 42, 12)).toBe('')
    expect(sparkPath([], 42, 12)).toBe('')
  })
})
