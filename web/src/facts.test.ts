import { describe, expect, it } from 'vitest'
import { factsOf, labelOf, look, pairing, recognised, seen, spokenOf, statuses } from './facts'
import udp from './testdata/udp.json'
import type { Edge, Endpoint, Graph, NumberInfo, Side } from './types'

const info = (key: string, unit: NumberInfo['unit'] = ''): NumberInfo => ({ key, title: key, unit, query: key })
const numbers = [info('p50', 's'), info('transactions'), info('rtt_min', 's'), info('resets'), info('held'), info('pushes'), info('unseen_bytes', 'B'), info('new')]
const edge = (client: Partial<Side>, rest: Partial<Edge> = {}) => ({ transport: 'tcp', paired: false, confidence: 'none', client_side: client, ...rest }) as Edge
const shown = (e: Edge) => factsOf(e, numbers).map((g) => `${g.title}: ${g.rows.map((r) => r.key)}`)

describe('facts of an edge', () => {
  it('are in groups, without those that are 0 or not there', () =>
    expect(shown(edge({ transactions: 5, p50: 0.1, resets: 0, pushes: 3 }))).toEqual(['Requests: transactions', 'Latency: p50', 'Not timed as requests: pushes']))
  it('are shown where one side has them', () =>
    expect(shown(edge({ resets: 0 }, { server_side: { resets: 2 } as Side }))).toEqual(['What went wrong: resets']))
  it('keep durations that are too short to tell', () => expect(shown(edge({ p50: 0 }))).toEqual(['Latency: p50']))
  it('keep numbers of a newer server', () => expect(shown(edge({ new: 1 } as unknown as Side))).toEqual(['Others: new']))
})

describe('worth of an edge', () => {
  it('tells what was not seen', () => {
    expect(seen(edge({}, { server_side: {} as Side }))).toBeUndefined()
    expect(seen(edge({ completeness: 1 }, { server_side: {} as Side }))).toMatch(/^Counted 100 %/)
    expect(seen(edge({ completeness: 0.9999 }))).toMatch(/^Counted 99.9 %/)
    expect(seen(edge({ completeness: 1 }, { server_side: { completeness: 0.5 } as Side }))).toMatch(/^Counted 50 %/)
  })
  it('tells how the ends were found', () => {
    expect(pairing(edge({}, { paired: true, server_side: {} as Side }))).toMatch(/^Paired/)
    expect(pairing(edge({}, { confidence: 'listener' }))).toMatch(/^Seen from the client only.*listens/)
    expect(pairing(edge({}))).toMatch(/^Seen from the client only: the server is not on this host/)
  })
})

// Recorded from a run: a container that asks another one by DNS, and sends counters to a third.
describe('a map with UDP', () => {
  const graph = udp as unknown as Graph
  const node = (id: string) => graph.nodes.find((n) => n.id === id)!
  const to = (name: string, from = 'shop') => graph.edges.find((e) => node(e.server).name === name && node(e.client).name === from)!
  const ends = (e: Edge) => [node(e.client), node(e.server)] as const
  it('labels DNS by queries and other UDP by packets', () => {
    expect(labelOf(to('resolver'), graph.covered_seconds)).toBe('48.6 queries/s')
    expect(labelOf(to('statsd'), graph.covered_seconds)).toMatch(/^\d+(\.\d+)? packets\/s$/)
  })
  it('draws it dashed, and what is not paired lighter', () => {
    expect(look(to('resolver'), ...ends(to('resolver')))).toBe(' udp')
    expect(look(to('statsd'), ...ends(to('statsd')))).toBe(' udp unsure')
    expect(look(edge({}, { paired: true, confidence: 'exact' }))).toBe('')
    // Nobody can count outside.
    expect(look(to('statsd', 'others'), ...ends(to('statsd', 'others')))).toBe(' udp')
  })
  it('says so to who cannot see it', () => {
    expect(spokenOf(to('resolver'), graph.covered_seconds, ...ends(to('resolver')))).toMatch(/^shop to resolver: UDP \(dashed\), 48.6 queries\/s, p99 \d/)
    expect(spokenOf(to('statsd'), graph.covered_seconds, ...ends(to('statsd')))).toMatch(/Lighter because: Seen from the client only/)
  })
  it('has the endpoints of DNS with their codes', () => {
    const e = to('resolver')
    expect(e.endpoints!.map((x) => [x.protocol, x.name, statuses(x)])).toEqual([['dns', 'A shop.example', 'ok'], ['dns', 'A nothere.example', 'nxdomain']])
    expect(recognised(e)).toBe(1)
  })
})

describe('the label of an edge', () => {
  it('has requests and p99, else bytes, else nothing', () => {
    const rate = { transactions_per_second: 12, request_bytes_per_second: 10, response_bytes_per_second: 90 }
    expect(labelOf(edge({ ...rate, p99: 0.002 }), 10)).toBe('12.0/s · 2.00 ms')
    expect(labelOf(edge(rate), 10)).toBe('100 B/s')
    expect(labelOf(edge({}), 10)).toBe('idle')
    expect(labelOf(edge({ request_packets: 30, response_packets: 20 }, { transport: 'udp' }), 10)).toBe('5.00 packets/s')
    expect(labelOf(edge({ request_packets: 30 }, { transport: 'udp' }), 0)).toBe('–')
  })
})

describe('endpoints', () => {
  const asked = (counts: Record<string, number>) => ({ requests: Object.values(counts).reduce((a, b) => a + b, 0), statuses: counts }) as Endpoint
  it('tell their statuses, the most frequent first', () => {
    expect(statuses(asked({ '5xx': 1, '2xx': 199 }))).toBe('2xx 99.5 %, 5xx 0.50 %')
    expect(statuses(asked({ '': 3 }))).toBe('status not known')
    expect(statuses(asked({ '': 1, ok: 3 }))).toBe('ok 75.0 %, not known 25.0 %')
  })
  it('are a share of what was asked, others among them', () => {
    expect(recognised(edge({ transactions: 100 }, { endpoints: [asked({ ok: 40 })], other_endpoints: asked({ ok: 10 }) }))).toBe(0.5)
    expect(recognised(edge({ transactions: 100 }))).toBe(0)
    expect(recognised(edge({ transactions: 0 }))).toBeUndefined()
  })
})

it('what the page does not know comes last', () => {
  const more = ['p999', 'failures_refused', 'duration_p99', 'window_limited_seconds', 'novel'].map((key) => info(key))
  const side = Object.fromEntries(more.map((n) => [n.key, 1])) as unknown as Side
  expect(factsOf(edge(side), more).map((g) => `${g.title}: ${g.rows.map((r) => r.key)}`)).toEqual([
    'Path: window_limited_seconds', 'Connections: duration_p99', 'What went wrong: failures_refused', 'Others: p999,novel',
  ])
})
