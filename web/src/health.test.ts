import { describe, expect, it } from 'vitest'
import { adviceOf, answersOf, BUDGET, boundsOf, costsOf, incompleteEdges, lastOf, lineMetrics, linesOf, METRICS, programsOf, quotasOf, refusalsOf, silentOf, verdict, wordsOf } from './health'
import type { LabelledRow } from './data'
import type { Graph, Quota, Refusal, Status } from './types'

const completeness = { window_seconds: 300, covered_seconds: 300, state: 'complete', tables: [], sinks: [] }
const status = (more: Partial<Status> = {}): Status => ({ version: '1', now: '', sources: [], hosts: [], features: [], drops: [], programs: [], completeness, ...more }) as Status
const graph = (more: Partial<Graph> = {}): Graph => ({ nodes: [], edges: [], counted_share: {}, completeness, ...more }) as unknown as Graph
const on = (value: number, more: Record<string, string> = {}) => ({ metric: { host: 'vm', ...more }, value })

describe('what is lost', () => {
  const drops = [
    { host: 'vm', name: 'edges', count: 12, used: 2048, capacity: 2048 },
    { host: 'vm', name: 'cgroups', count: 9, used: 13, capacity: 1024 },
    { host: 'vm', name: 'listeners', count: 0, used: 90, capacity: 100 },
    { host: 'vm', name: 'processes', count: 0, used: 1, capacity: 100 },
    { host: 'server', name: 'ingest/queue-bytes', count: 4 },
  ]
  it('is told by table, that of the window first', () => {
    const b = boundsOf(status({ drops }), graph({ completeness: { ...completeness, tables: [{ host: 'vm', name: 'edges', dropped: 7 }] } as Graph['completeness'] }))
    expect(b.lost.map((x) => [x.name, x.dropped, x.total])).toEqual([['edges', 7, 12], ['ingest/queue-bytes', undefined, 4]])
    expect(b.before.map((x) => x.name)).toEqual(['cgroups'])
    expect(b.near.map((x) => x.name)).toEqual(['listeners'])
    expect(b.roomy).toBe(1)
  })
  it('comes with what to do, for every table of an agent and a server', () => {
    const names = ['missed_events', 'cgroups', 'cgroup_events', 'thread_states', 'datagram_peers', 'datagram_flows', 'dns_queries', 'endpoints', 'other_endpoints', 'edges', 'edge_clients', 'connections', 'connection_pairs', 'listeners', 'untold_closes', 'packet_samples', 'multipath_transfers', 'forwarded_clients', 'forwarders', 'proxies', 'packet_drops', 'http2_streams', 'http2_connections', 'http2_paths', 'edge_histograms', 'container/containers', 'container/groups', 'container/open-files', 'store/series', 'store/label-bytes', 'store/unread-series', 'store/refused-samples', 'store/waiting-queries', 'store/query-samples', 'store/bytes', 'store/disk-space', 'recorder/ticks', 'recorder/flight-bytes', 'recorder/anomaly-bytes', 'network idle edges', 'network identities', 'processes', 'agent/sink-store', 'tls_calls', 'kubernetes/services', 'export/spool-bytes', 'export/retries', 'export/refused-batches', 'ingest/queue-bytes', 'ingest/in-flight-bytes', 'ingest/poison-messages']
    const plain = adviceOf('something new')
    for (const name of names) expect(adviceOf(name).means, name).not.toBe(plain.means)
  })
})

describe('what watching costs', () => {
  it('is over the budget that the agent tells, or else over that of the design', () => {
    expect(costsOf({ cpu: [on(0.004)], memory: [on(40 << 20)] })).toMatchObject([{ host: 'vm', over: false, then: '' }])
    expect(costsOf({ cpu: [on(0.02)], memory: [on(40 << 20)] })[0]).toMatchObject({ over: true, then: expect.stringContaining('--flight 0') })
    expect(costsOf({ memory: [on(BUDGET.bytes + 1)] })[0]).toMatchObject({ over: true, then: expect.stringContaining('--max-edges') })
    expect(costsOf({ cpu: [on(0.02)], budget: [on(0.7)] })[0]!.over).toBe(false)
    expect(costsOf({ cpu: [on(0.001)], sent: [on(1500)] })[0]!.sent).toBe(1500)
  })
  it('tells what was shed', () => {
    const [c] = costsOf({ cpu: [on(0.001)], budget: [on(1)], shed: [on(1, { feature: 'endpoints' }), on(0, { feature: 'ticks' })] })
    expect(c).toMatchObject({ shed: ['endpoints'], then: expect.stringContaining('--budget') })
  })
  it('is told by program, where the kernel counts', () => {
    const list = programsOf({ runs: [on(1000, { program: 'a' }), on(10, { program: 'b' }), on(0, { program: 'c' })], time: [on(0.0005, { program: 'a' }), on(0.01, { program: 'b' })], missed: [on(0, { program: 'a' }), on(2, { program: 'd' })] })
    expect(list.map((p) => [p.name, p.runs, p.perRun, p.missed])).toEqual([['b', 10, 0.001, 0], ['a', 1000, 5e-7, 0], ['d', undefined, undefined, 2]])
  })
})

it('lists edges of which not all was seen', () => {
  const edge = (id: string, client?: number, server?: number) => ({ id, client: 'a', server: 'b', client_side: client === undefined ? undefined : { completeness: client }, server_side: server === undefined ? undefined : { completeness: server } })
  const g = graph({ edges: [edge('x', 1, 1), edge('y', 1, 0.5), edge('z', 0.2), edge('w')] as unknown as Graph['edges'] })
  expect(incompleteEdges(g).map((e) => [e.edge.id, e.share])).toEqual([['z', 0.2], ['y', 0.5]])
})

it('lists quotas that are nearly used, or refused something, before the others', () => {
  const of = (tenant: string, used: number, refused = 0): Quota => ({ tenant, what: 'series', used, limit: 100, guaranteed: 25, refused })
  const { tight, roomy } = quotasOf(status({ quotas: [of('a', 10), of('b', 85), of('c', 5, 3), of('d', 100)] }))
  expect(tight.map((q) => q.tenant)).toEqual(['c', 'd', 'b'])
  expect(roomy.map((q) => q.tenant)).toEqual(['a'])
  expect(quotasOf(status())).toEqual({ tight: [], roomy: [] })
})

describe('what was refused', () => {
  const now = Date.parse('2026-11-22T07:05:00Z') / 1000
  const r = (more: Partial<Refusal>): Refusal => ({ what: 'requests', reason: 'unauthorized', count: 3, last: '2026-11-22T07:04:48Z', from: '10.0.0.7', said: 'a token is needed', ...more })
  it('is of this time or of before, the latest first', () => {
    const s = status({ refusals: [r({}), r({ reason: 'malformed', last: '2026-11-22T06:00:00Z' }), r({ what: 'points', reason: 'future', last: '2026-11-22T07:04:59Z' }), r({ reason: 'failed', count: 0 })] })
    const { now: in_, before } = refusalsOf(s, now - 300)
    expect([in_.map((x) => x.reason), before.map((x) => x.reason)]).toEqual([['future', 'unauthorized'], ['malformed']])
    expect(refusalsOf(status(), now)).toEqual({ now: [], before: [] })
  })
  it('is told once: want of room with the tables, where there are any', () => {
    const refusals = [r({ reason: 'queue_full' })]
    expect(refusalsOf(status({ refusals }), 0).now).toHaveLength(1)
    expect(refusalsOf(status({ refusals, drops: [{ host: 'server', name: 'ingest/queue-bytes', count: 3 }] }), 0).now).toHaveLength(0)
  })
  it('comes with what to do, whatever the reason', () => {
    const plain = wordsOf(r({ reason: 'something new' }))
    for (const [what, reasons] of [['requests', ['unauthorized', 'malformed', 'too_large', 'unsupported', 'busy', 'queue_full', 'rate', 'failed']], ['points', ['delta', 'too_old', 'future', 'labels', 'name', 'histogram', 'store', 'no_room']], ['readers', ['unauthorized']]] as const)
      for (const reason of reasons) expect(wordsOf(r({ what, reason })).means, `${what}/${reason}`).not.toBe(plain.means)
  })
  it('is told with when and from where the last one came', () => {
    expect(lastOf(r({}), now)).toBe('12 s ago from 10.0.0.7')
    expect(lastOf(r({ last: undefined, from: undefined }), now)).toBe('')
    expect(lastOf(r({ last: '2026-11-22T07:05:09Z', from: undefined }), now)).toBe('just now')
  })
})

it('tells of hosts that fell silent', () =>
  expect(silentOf({ silent: [on(3), on(70, { host: 'b' }), on(900, { host: 'c' })] })).toEqual([{ host: 'c', seconds: 900 }, { host: 'b', seconds: 70 }]))

describe('what the series say', () => {
  const row = (metric: string, value: number, more: Partial<LabelledRow> = {}): LabelledRow => ({ metric, host: 'vm', labels: {}, value, ...more })
  it('is one number of each host of what is sent, and of the budget', () => {
    const a = answersOf([row(METRICS.sent, 9, { labels: { to: 'a' }, per_second: 3 }), row(METRICS.sent, 9, { labels: { to: 'b' }, per_second: 4 }), row(METRICS.cost, 0.01, { labels: { plane: 'own' } }), row(METRICS.cost, 0.02, { labels: { plane: 'kernel' } }),
      row(METRICS.limit, 0.02), row(METRICS.cost, 1, { host: 'b' }), row(METRICS.cpu, 5, { per_second: 0.5 })], [], 0)
    expect(a).toMatchObject({ sent: [on(7)], budget: [on(1.5)], cpu: [on(0.5)], memory: [], silent: [] })
  })
  it('is who was silent at that time, if not for too long', () => {
    const host = (name: string, ago: number) => ({ name, last_heard: new Date(1_790_000_000_000 - ago * 1000).toISOString() })
    expect(answersOf([], [host('a', 2), host('b', 300), host('c', 5000), host('d', -60)], 1_790_000_000).silent!.map((s) => [s.metric.host, s.value])).toEqual([['a', 2], ['b', 300]])
  })
})

describe('lines', () => {
  it('are of what is shown', () => {
    expect(lineMetrics([], [{ host: 'server', name: 'queue', total: 1 }])).toEqual(['cpu', 'memory', 'read', 'sent', 'cost', 'limit'].map((k) => METRICS[k as 'cpu']))
    expect(lineMetrics([{ host: 'vm', name: 'on_switch', missed: 0 }], [{ host: 'vm', name: 'edges', total: 1 }])).toContain('outsight_drops_total')
  })
  it('are by host, program or table; the time per run is that over the runs', () => {
    const row = (metric: string, values: (number | null)[], labels: Record<string, string> = {}): LabelledRow => ({ metric, host: 'vm', labels, values })
    const lines = linesOf([row(METRICS.sent, [1, null, 3], { to: 'a' }), row(METRICS.sent, [1, 1, 1], { to: 'b' }), row(METRICS.time, [0.5, 1, null], { program: 'p' }), row(METRICS.runs, [10, 0, 4], { program: 'p' }), row('outsight_drops_total', [0, 5, 0], { name: 'edges' })])
    expect(lines.get('sent')!.get('vm')).toEqual([2, null, 4])
    expect(lines.get('run')!.get('vm/p')).toEqual([0.05, null, null])
    expect(lines.get('dropped')!.get('vm/edges')).toEqual([0, 5, 0])
  })
})

describe('the verdict', () => {
  const now = Date.parse('2026-11-22T07:05:00Z') / 1000
  it('is empty where all is well', () => expect(verdict(status(), graph(), { cpu: [on(0.001)], silent: [on(1)] }, now - 300, now)).toEqual([]))
  it('says that nobody was heard of', () =>
    expect(verdict(status(), graph({ completeness: { ...completeness, covered_seconds: 0 } as Graph['completeness'] }), {}, now - 300, now)).toEqual([{ part: 'missing', text: 'no agent was heard of in these 5 min' }]))
  it('has a line for each thing that is wrong', () => {
    const s = status({ drops: [{ host: 'server', name: 'queue', count: 3 }, { host: 'server', name: 'store/refused-samples', count: 2 }],
      refusals: [{ what: 'requests', reason: 'unauthorized', count: 4, last: '2026-11-22T07:04:48Z', from: '10.0.0.7' }, { what: 'points', reason: 'future', count: 9, last: '2026-11-22T05:00:00Z' }], features: [{ host: 'vm', name: 'x', purpose: 'CPU time', state: 'absent', required: true }] })
    const found = verdict(s, graph({ counted_share: { vm: 0.5 } }), { cpu: [on(0.02)], memory: [on(1024)], shed: [on(1, { feature: 'e' })], silent: [on(200, { host: 'b' })] }, now - 300, now)
    expect(found.map((f) => `${f.part}: ${f.text}`)).toEqual([
      'missing: b has not been heard of for 3 min 20 s', 'refused: requests of senders without a valid token were refused: 4, the last 12 s ago from 10.0.0.7',
      'lost: 3 updates found no room in “queue” of server', 'lost: 2 were refused by server: “store/refused-samples”', 'cost: the agent on vm takes 2.00 % of a core and 1.00 KiB',
      'cost: 1 feature is shed on vm', 'missing: CPU time cannot be had on vm', 'complete: 50 % of the bytes received on vm are counted'])
  })
})
