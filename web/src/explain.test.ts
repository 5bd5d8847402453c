import { describe, expect, it } from 'vitest'
import { errorOf, expand, explainEndpoint, explainNumber, linesOf, sampleOf, seenOf } from './explain'
import type { Completeness, Edge, Graph, Node } from './types'

const complete: Completeness = { window_seconds: 300, covered_seconds: 300, state: 'complete', tables: [], sinks: [] }
const node = { id: 'a', name: '<b>cart</b>', kind: 'container', usage: { cpu_cores: 0.5 }, served: { p99: 0.002 } } as unknown as Node
const edge = { id: 'a>b', client: 'a', server: 'b', client_side: { p99: '+Inf', completeness: 0.9999 }, endpoints: [{ protocol: 'http', name: 'GET /"x"', requests: 3, requests_per_second: 1.5 }] } as unknown as Edge
const graph = {
  from: '2026-11-22T07:00:00Z', to: '2026-11-22T07:05:00Z', covered_seconds: 300, error_bound: 0.011, nodes: [node], edges: [edge], completeness: complete, counted_share: {},
  numbers: {
    usage: [{ key: 'cpu_cores', title: 'CPU', unit: 'cores', query: 'sum(rate(cpu{$match}[$window]))' }],
    side: [{ key: 'p99', title: 'p99', unit: 's', query: 'histogram_quantile(0.99, sum(rate(d{$match}[$window])))' }],
    ends: [{ key: 'loss_ratio', title: 'Lost both ways', unit: 'ratio', query: 'a{$match,side="client"} / b{$match}' }],
    endpoint: [{ key: 'requests_per_second', title: 'Requests', unit: '/s', query: 'sum(rate(r{$match}[$window]))' }],
  },
  matches: { a: { usage: 'id="a"', served: 'server_id="a",side="server"', called: '' } }, edge_matches: { 'a>b': 'client_id="a"' },
} as unknown as Graph

describe('an explanation', () => {
  it('has what it is, its query, its error, what was seen, and the window', () => {
    const e = explainNumber(graph, 'usage.cpu_cores', node)!
    expect(e).toMatchObject({ title: 'CPU · <b>cart</b>', value: '0.500', query: 'sum(rate(cpu{id="a"}[300s]))', error: 'none: counted, not sampled', seen: 'all of it' })
    expect(linesOf(e).map(([name]) => name)).toEqual(['', 'PromQL', 'Error', 'Seen', 'Window', 'Click'])
  })
  it('tells of a quantile how far it is off', () => {
    expect(explainNumber(graph, 'served.p99', node)!.error).toBe('at most ±1.1 %; ±2.2 % by PromQL, which interpolates')
    expect(errorOf({ key: 'memory_bytes', unit: 'B' }, 'usage', 0.011)).toMatch(/level/)
    expect(errorOf({ key: 'mean', unit: 's' }, 'client', 0.011)).toMatch(/^none/)
  })
  it('is of both ends together, with the sides in its query', () => {
    const both = { ...edge, network: { loss_ratio: 0.02 } } as Edge
    expect(explainNumber(graph, 'ends.loss_ratio', undefined, both)).toMatchObject({ value: '2.00 %', query: 'a{client_id="a",side="client"} / b{client_id="a"}', error: 'none: counted, not sampled' })
  })
  it('tells how far the clocks of two hosts put a delay off', () => {
    const ends = { delay_there_p50: 0.003, delay_there_error: 0.002, above_minimum_there_p50: 0.001 }
    expect(errorOf({ key: 'delay_there_p50', unit: 's' }, 'ends', 0.011, ends)).toBe('±2.00 ms: the hosts have clocks of their own')
    expect(errorOf({ key: 'delay_back_p50', unit: 's' }, 'ends', 0.011, ends)).toMatch(/^at most/)
    expect(errorOf({ key: 'wire_there_p50', unit: 's' }, 'ends', 0.011, ends)).toMatch(/^±2.00 ms: /)
    expect(errorOf({ key: 'sender_stack_there_p50', unit: 's' }, 'ends', 0.011, ends)).toMatch(/^none: .* one clock$/)
    expect(errorOf({ key: 'wire_above_minimum_there_p99', unit: 's' }, 'ends', 0.011, ends)).toMatch(/^none: of the packets/)
    expect(errorOf({ key: 'above_minimum_there_p50', unit: 's' }, 'ends', 0.011, ends)).toBe('none: of the packets that both hosts sampled')
  })
  it('tells of how many packets a number of a sample is', () => {
    const sides = { client_side: { network_observed: 5, network_response_packets: 50 }, server_side: { network_observed: 30, network_request_packets: 1000 } }
    const local = { ...edge, ...sides, network: { delay_there_p50: 0.001 } } as unknown as Edge
    for (const key of ['delay_there_p50', 'jitter_there', 'network_there_seconds']) expect(sampleOf(key, 'ends', local)).toBe('30 of 1,000 packets that arrived were observed')
    expect(sampleOf('delay_back_p99', 'ends', local)).toBe('5 of 50 packets that arrived were observed')
    expect(sampleOf('network_reordered', 'server', local)).toBe('30 of 1,000 packets that arrived were observed')
    expect(sampleOf('network_delay_p50', 'client', local)).toBe('5 of 50 packets that arrived were observed')
    for (const key of ['network_request_packets', 'p99']) expect(sampleOf(key, 'server', local)).toBeUndefined()
    expect(sampleOf('loss_ratio', 'ends', local)).toBeUndefined()
    expect(sampleOf('delay_there_p50', 'ends', edge)).toBeUndefined()
    const across = { ...edge, ...sides, network: { delay_there_p50: 0.001, matched_there: 42 } } as unknown as Edge
    expect(sampleOf('delay_there_p50', 'ends', across)).toBe('42 packets of the last 10 s that both hosts sampled')
    expect(errorOf({ key: 'network_reordered', unit: '' }, 'server', 0.011)).toMatch(/estimate$/)
  })
  it('is of the side that counted, with what that side has seen', () => {
    const e = explainNumber(graph, 'client.p99', undefined, edge)!
    expect(e).toMatchObject({ value: '> 68.7 s', query: 'histogram_quantile(0.99, sum(rate(d{client_id="a",side="client"}[300s])))', seen: '99.9 % of the received bytes' })
  })
  it('quotes the name of an endpoint', () => expect(explainEndpoint(graph, edge, 'http', 'GET /"x"', 'rate')!.query).toContain('endpoint="GET /\\"x\\""'))
  it('is absent for what is not known', () => {
    expect(explainNumber(graph, 'usage.constructor', node)).toBeUndefined()
    expect(explainNumber(graph, 'usage.cpu_cores')).toBeUndefined()
    expect(explainEndpoint(graph, edge, 'http', 'GET /y', 'p99')).toBeUndefined()
  })
})

it('says what was lost, in few words', () => {
  expect(seenOf({ ...complete, state: 'incomplete' }, ['7 updates found no room'])).toBe('7 updates found no room')
  expect(seenOf({ ...complete, state: 'incomplete' }, ['a', 'b', 'c'])).toBe('a; and 2 more, see Health')
})

it('gives a query a window of at least two seconds', () => expect(expand('x{$match}[$window]', 'a="b"', 0.3)).toBe('x{a="b"}[2s]'))
