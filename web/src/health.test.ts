import { describe, expect, it } from 'vitest'
import { adviceOf, BUDGET, boundsOf, costsOf, incompleteEdges, programsOf, verdict } from './health'
import type { Graph, Status } from './types'

const completeness = { window_seconds: 300, covered_seconds: 300, state: 'complete', tables: [], sinks: [], ended_omitted: 0 }
const status = (more: Partial<Status> = {}): Status => ({ version: '1', now: '', sources: [], hosts: [], features: [], drops: [], programs: [], completeness, ...more }) as Status
const graph = (more: Partial<Graph> = {}): Graph => ({ nodes: [], edges: [], counted_share: {}, completeness, ...more }) as unknown as Graph
const on = (value: number, more: Record<string, string> = {}) => ({ metric: { host: 'vm', ...more }, value })

describe('what is lost', () => {
  const drops = [
    { host: 'vm', name: 'edges', count: 12, used: 2048, capacity: 2048 },
    { host: 'vm', name: 'cgroups', count: 9, used: 13, capacity: 1024 },
    { host: 'vm', name: 'listeners', count: 0, used: 90, capacity: 100 },
    { host: 'vm', name: 'processes', count: 0, used: 1, capacity: 100 },
    { host: 'server', name: 'api/refused-requests', count: 4 },
  ]
  it('is told by table, that of the window first', () => {
    const b = boundsOf(status({ drops }), graph({ completeness: { ...completeness, tables: [{ host: 'vm', name: 'edges', dropped: 7 }] } as Graph['completeness'] }))
    expect(b.lost.map((x) => [x.name, x.dropped, x.total])).toEqual([['edges', 7, 12], ['api/refused-requests', undefined, 4]])
    expect(b.before.map((x) => x.name)).toEqual(['cgroups'])
    expect(b.near.map((x) => x.name)).toEqual(['listeners'])
    expect(b.roomy).toBe(1)
  })
  it('comes with what to do, for every table of an agent and a server', () => {
    const names = ['missed_events', 'cgroups', 'cgroup_events', 'thread_states', 'datagram_peers', 'datagram_flows', 'dns_queries', 'endpoints', 'other_endpoints', 'edges', 'edge_clients', 'connections', 'connection_pairs', 'listeners', 'untold_closes', 'multipath_transfers', 'forwarded_clients', 'http2_streams', 'http2_connections', 'http2_paths', 'edge_histograms', 'container/containers', 'container/groups', 'container/open-files', 'store/series', 'store/refused-samples', 'store/waiting-queries', 'store/query-samples', 'store/bytes', 'store/disk-space', 'recorder/ticks', 'recorder/flight-bytes', 'recorder/anomaly-bytes', 'network idle edges', 'network identities', 'processes', 'agent/sink-store', 'tls_calls', 'kubernetes/services', 'export/spool-bytes', 'export/retries', 'export/refused-batches', 'ingest/queue-bytes', 'ingest/unauthorized-requests', 'ingest/rejected-points', 'api/refused-requests']
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

describe('the verdict', () => {
  it('is empty where all is well', () => expect(verdict(status(), graph(), { cpu: [on(0.001)] })).toEqual([]))
  it('has a line for each thing that is wrong', () => {
    const s = status({ drops: [{ host: 'server', name: 'queue', count: 3 }, { host: 'server', name: 'api/refused-requests', count: 2 }], features: [{ host: 'vm', name: 'x', purpose: 'CPU time', state: 'absent', required: true }] })
    expect(verdict(s, graph({ counted_share: { vm: 0.5 } }), { cpu: [on(0.02)], memory: [on(1024)], shed: [on(1, { feature: 'e' })] })).toEqual([
      '3 updates found no room in “queue” of server', '2 were refused by server: “api/refused-requests”', 'the agent on vm takes 2.00 % of a core and 1.00 KiB', '1 feature is shed on vm', 'CPU time cannot be had on vm', '50 % of the bytes received on vm are counted'])
  })
})
