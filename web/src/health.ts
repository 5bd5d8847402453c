import type { LabelledRow } from './data'
import { bytes, digits, floorPercent, format, span } from './format'
import { drawable, ratioOf, type Line, type Lines } from './spark'
import type { Edge, Graph, Node, Quota, Refusal, Status } from './types'

// What is lost, over budget or missing, and what to do about each.

/** What it means when a table had no room, and what to do; the first that fits. */
const ADVICE: [RegExp, string, string][] = [
  [/^cgroups$/, 'CPU time of groups without a room counts as “other”.', 'Start the agent with a greater --max-groups.'],
  [/^(edges|edge_histograms)$/, 'Connections without a room are in no edge of their own; their bytes are summed up.', 'Start the agent with a greater --max-edges, or group what makes so many clients.'],
  [/^edge_clients$/, 'Some edges name no client.', 'Start the agent with a greater --max-edges.'],
  [/^(endpoints|other_endpoints)$/, 'Requests beyond the bound count under “other”; none is lost.', 'Nothing, unless you need their names: --max-edges makes this table greater, too.'],
  [/^http2_(streams|connections)$/, 'Some requests on HTTP/2 connections are not counted; their bytes are.', 'Find what holds very many HTTP/2 streams open, or restart it.'],
  [/^container\/postponed-threads$/, 'Threads of containers with very many are looked at later: how many cores such a container can use is known later.', 'Nothing.'],
  [/^http2/, 'Some requests have no name, or their connection became a stream.', 'Nothing: bytes still count. Restart what holds very many HTTP/2 streams open to have them named.'],
  [/^container-(edges|listeners|endpoints|connection_pairs)\//, 'This container is over its quota: what it has beyond that counts under “others”. Its sums and other containers’ numbers are exact.', 'Find what in it opens so many connections, or start the agent with a greater --max-edges.'],
  [/^container-new-(edges|endpoints)\//, 'This container has made more new edges or endpoints than its quota of an hour: those beyond count under “others” or “other”.', 'Nothing: its sums are exact, and they get names of their own again as the hour goes on. Or start with a greater --max-edges and --max-series.'],
  [/^tls_(probes|container_share|mappings|reading)$/, 'Some programs are not probed, or later: a container has used its share.', 'Nothing: their requests are timed without a name. Look at which container maps so many libraries.'],
  [/^tls_/, 'Some requests of TLS connections have no name.', 'Nothing: they are timed all the same.'],
  [/^dns_queries$|^datagram/, 'Some UDP exchanges count as unanswered.', 'Nothing, unless the DNS numbers matter: fewer peers per socket.'],
  [/^untold_closes$/, 'Ends of connections were found later than they happened.', 'Nothing: counts are right, durations a little long.'],
  [/^packet_samples$/, 'Fewer of the packets between hosts are timed than might be.', 'Nothing: after a second fewer are sampled.'],
  [/^multipath_transfers$/, 'Data of multipath TCP connections is not seen.', 'Turn multipath off where it is not meant (GODEBUG=multipathtcp=0 in Go).'],
  [/^packet_drops$/, 'Some packets that the kernel dropped are not counted.', 'Nothing: places that are not used for a minute are freed. Many of them: network namespaces or devices come and go fast.'],
  [/^proxies$/, 'Of some programs that send requests on it is not known how long that takes.', 'Nothing: at most 64 kinds of programs are timed.'],
  [/^forwarders$/, 'Of some containers that forward packets it is not known how long that takes.', 'Nothing: at most 64 network namespaces are timed.'],
  [/^forwarded_clients$/, 'It is not known which client is behind Docker’s userland proxy.', 'Start dockerd with --userland-proxy=false.'],
  [/^missed_events$/, 'The kernel did not run a program, because it was already running on that CPU.', 'Nothing in small numbers: a switch within a switch.'],
  [/^thread_states/, 'What some threads waited for a CPU until the next reading is not counted.', 'Nothing: they are found within a second. Many of them: less memory was left than the kernel needed.'],
  [/^(connection|listeners)/, 'Some connections are counted together.', 'Start the agent with a greater --max-edges, or find what opens so many connections.'],
  [/^container\/open-files$/, 'Files are opened anew at each reading: it costs more, and loses nothing.', 'Raise the limit of open files (ulimit -n).'],
  [/^container\//, 'Some containers or groups are counted together, or have no name.', 'Fewer containers per host, or look at what makes and removes so many groups.'],
  [/^cgroup_events$/, 'A container may have been found later than it began.', 'Nothing: the next look finds it.'],
  [/^recorder\/anomaly-bytes$/, 'Older anomalies made room for newer ones.', 'Write what you want to keep: outsight record --anomaly N -d DIRECTORY.'],
  [/^recorder\//, 'Ticks of the flight recorder are missing.', 'Keep a shorter time (--flight 5m), or leave it out (--flight 0).'],
  [/^store\/(series|unwritten)/, 'New series are not stored.', 'Give --max-series, or find which labels have so many values.'],
  [/^store\/label-bytes$/, 'New series are not stored: the labels of those in memory take all the bytes that they may.', 'Find who sends long labels; or give --max-label-bytes, and the memory for it.'],
  [/^store\/unread-series$/, 'When the server started, its log had more labels than fit into memory; the series with the longest were left out, with what was stored of them since the last block.', 'Find who sends such labels; or give --max-label-bytes, and the memory for it.'],
  [/^store\/refused-samples$/, 'Samples were too old, or contradicted what is stored.', 'Compare the clocks of the hosts; see that no two agents have one name.'],
  [/^store\/(waiting-queries|query)/, 'Queries were turned away: too many, too large or too slow.', 'Ask for shorter windows; see who asks (Grafana panels that refresh each second).'],
  [/^store\/(bytes|disk-space)/, 'The disk is full or its bound is reached: the oldest blocks go, or nothing more is kept.', 'Give --max-bytes or a shorter --retention, or make room.'],
  [/^store\//, 'Part of an answer or of what was to be stored was left out.', 'Look at the server’s log.'],
  [/^network new /, 'So many new edges or endpoints appeared in an hour that some have no row of their own.', 'Find which container makes them (Health names those over a quota).'],
  [/^network /, 'Older edges or names were forgotten.', 'Nothing: they are found anew when they are used.'],
  [/^frame\//, 'Rows of what ended were added up under “others”, or before their time: sums are exact, names are lost.', 'Find what starts and ends so many containers or connections.'],
  [/^processes$/, 'Some processes have no name.', 'Nothing: their container has.'],
  [/^agent\/sink/, 'Snapshots did not reach a sink: charts lack points, counts go on in the next one.', 'Look at why the sink is slow: its disk, or the way to the server.'],
  [/^export\/retries$/, 'Batches were sent more than once: the server was away, or busy.', 'Nothing is lost; if it goes on, look at the way to the server.'],
  [/^export\/(refused|rejected)/, 'The server refused what was sent.', 'Look at the agent’s log for the reason: a wrong token, an old clock, or too many series.'],
  [/^export\//, 'The agent’s spool had no room, and the oldest batches went.', 'Give --spool-bytes or room on the disk, or mend the way to the server.'],
  [/\/(unauthenticated-)?connections$/, 'There were more connections than the address takes: the oldest of the client with the most were closed.', 'Find who opens so many (ss -tn); clients that are in order connect anew.'],
  [/\/slow-readers$/, 'A reader did not take its answer, and was cut off.', 'Nothing, unless it is one of yours: ask for less at a time.'],
  [/^kubernetes\//, 'Names of some pods or services are not known.', 'Look at the agent’s rights in the cluster (docs/kubernetes.md).'],
  [/^ingest\/poison/, 'Messages that could not be stored were set aside.', 'Look at the server’s log for the reason; they are kept in the queue.'],
  [/^ingest\//, 'The server’s queue was full: senders were asked to try again.', 'Nothing is lost while they do. If it lasts, the disk is too slow: --queue-bytes gives time, not speed.'],
]

/** What it means when something found no room in a table, and what to do. */
export function adviceOf(name: string): { means: string; then: string } {
  const found = ADVICE.find(([pattern]) => pattern.test(name))
  return found ? { means: found[1], then: found[2] } : { means: 'Updates found no room in it.', then: 'outsight doctor on that host says more.' }
}

export interface Bound {
  host: string
  name: string
  /** In the window; undefined where only the sum since the start is known. */
  dropped?: number
  /** Since the agent or server began. */
  total: number
  used?: number
  capacity?: number
}

/** From which share of its capacity on a table is said to be nearly full. */
const NEAR = 0.8

/** Tables that dropped, those that are nearly full, and how many have room. */
export function boundsOf(status: Status, graph?: Graph): { lost: Bound[]; before: Bound[]; near: Bound[]; roomy: number } {
  const inWindow = new Map([...(graph?.completeness.tables ?? []), ...(graph?.completeness.sinks ?? [])].map((l) => [`${l.host} ${l.name}`, l.dropped]))
  const all = status.drops.map((d): Bound => ({ host: d.host, name: d.name, total: d.count, dropped: inWindow.get(`${d.host} ${d.name}`), used: d.used, capacity: d.capacity }))
  // A server's own are not in the window of its agents.
  const lost = all.filter((b) => (b.dropped ?? 0) > 0 || (b.host === 'server' && b.total > 0)).sort((a, b) => (b.dropped ?? b.total) - (a.dropped ?? a.total))
  const before = all.filter((b) => b.total > 0 && !lost.includes(b)).sort((a, b) => b.total - a.total)
  const near = all.filter((b) => b.total === 0 && b.capacity && (b.used ?? 0) / b.capacity >= NEAR)
  return { lost, before, near, roomy: all.length - lost.length - before.length - near.length }
}

interface Words {
  /** What was refused, for a line. */
  what: string
  means: string
  then: string
}

/** What refusals mean, by what was refused and why. */
const REFUSALS: Record<string, Words> = {
  'requests/unauthorized': { what: 'requests of senders without a valid token', means: 'They showed no token, a wrong one, or that of another tenant. Their data are not here.', then: 'Give the sender a token of the server’s file (outsight agent --token-file). Expected of scanners.' },
  'requests/malformed': { what: 'requests that are not OTLP', means: 'What arrived could not be read.', then: 'Look at the answer to the sender; see that it exports OTLP metrics to /v1/metrics.' },
  'requests/too_large': { what: 'requests that are too large', means: 'They have more bytes or points than a request may.', then: 'Let the sender make smaller batches.' },
  'requests/unsupported': { what: 'requests of another kind', means: 'Their method, type or compression is not that of OTLP over HTTP.', then: 'Set the sender to protobuf or JSON, with gzip, zstd or no compression.' },
  'requests/busy': { what: 'requests while too much was under way', means: 'Senders were asked to try again; nothing is lost while they do.', then: 'If it lasts: fewer senders at a time, or a larger server.' },
  'requests/queue_full': { what: 'requests while the queue was full', means: 'Senders were asked to try again; nothing is lost while they do.', then: 'If it lasts, the disk is too slow: --queue-bytes gives time, not speed.' },
  'requests/rate': { what: 'requests of tenants that send too fast', means: 'Their tenant sent more samples in a second than its quota; senders were told when to try again.', then: 'Let the sender send less often, or raise samples_per_second in the file of --tenant-quotas.' },
  'requests/failed': { what: 'requests that the server could not keep', means: 'Its queue did not take them, or the sender went away meanwhile.', then: 'Look at the server’s log; senders come again.' },
  'points/delta': { what: 'data points of delta temporality', means: 'Such points have no sum to add them to.', then: 'Let the sender export cumulative ones (OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=cumulative).' },
  'points/too_old': { what: 'data points that are too old', means: 'They are from before what is still taken, or have no time.', then: 'Compare the clocks. What waited longer with a sender than the server takes is lost.' },
  'points/future': { what: 'data points from the future', means: 'The sender’s clock is ahead of the server’s.', then: 'Set the clock of the sender’s host (NTP).' },
  'points/labels': { what: 'data points with unusable labels', means: 'Labels are too many, doubled, or have names that cannot be stored.', then: 'Let the sender leave such attributes out.' },
  'points/name': { what: 'data points of metrics without a usable name', means: 'The metric has no name, or one that cannot be stored.', then: 'Name it in the sender.' },
  'points/histogram': { what: 'histograms that make no sense', means: 'They contradict themselves, or have too many buckets.', then: 'Look at the sender’s library; fewer buckets.' },
  'points/no_room': { what: 'data points of new series without room', means: 'The series that are there go on; new ones are not stored. The answer to the sender says which.', then: 'Find which labels have so many values; or give --max-series, or raise the tenant’s quota.' },
  'points/store': { what: 'data points that the store refused', means: 'They are too old, contradict what is stored, or are of new series that found no room.', then: 'Compare the clocks; see that no two agents have one name; give --max-series.' },
  'readers/forbidden': { what: 'requests of readers whose token may not', means: 'The token lacks the role that was needed.', then: 'Give the token that role in the server’s file of tokens.' },
  'readers/foreign-page': { what: 'requests of pages of other sites', means: 'A browser sent them for a page that is not Outsight’s.', then: 'Expected of hostile pages; if the page is yours, name its host with --allow-host.' },
  'readers/foreign-host': { what: 'requests by a foreign name', means: 'They called this server by a name that it does not know, as a page does that rebinds DNS.', then: 'If the name is right, give it with --allow-host.' },
  'readers/unauthorized': { what: 'requests of readers without a valid token', means: 'A client asked for the page or the API without the right token.', then: 'Expected of scanners; else give the token to who asks: a page left open asks again and again.' },
}

/** What a refusal is, what it means and what to do. */
export const wordsOf = (r: Refusal): Words =>
  REFUSALS[`${r.what}/${r.reason}`] ?? { what: `${r.what === 'points' ? 'data points' : 'requests'} (${r.reason})`, means: 'The server did not take them.', then: 'Look at the answer to the sender.' }

/** What was refused from a time on, in Unix seconds, and what only before; the latest first. */
export function refusalsOf(status: Status, from: number): { now: Refusal[]; before: Refusal[] } {
  // Want of room is listed with the tables, where there are any.
  const listed = status.drops.some((d) => d.name === 'ingest/queue-bytes') ? ['busy', 'queue_full'] : []
  const at = (r: Refusal) => (r.last ? Date.parse(r.last) / 1000 : Infinity)
  const all = (status.refusals ?? []).filter((r) => r.count > 0 && !listed.includes(r.reason)).sort((a, b) => at(b) - at(a) || 0)
  return { now: all.filter((r) => at(r) >= from), before: all.filter((r) => at(r) < from) }
}

/** What a quota is of: how it is called, and the unit of its numbers. */
export const QUOTA: Record<Quota['what'], { name: string; unit: '' | 'B' }> = {
  series: { name: 'series', unit: '' },
  label_bytes: { name: 'bytes of labels', unit: 'B' },
  in_flight_bytes: { name: 'bytes of requests', unit: 'B' },
  samples_per_second: { name: 'samples a second', unit: '' },
  queries_running: { name: 'queries that run', unit: '' },
  query_milliseconds_per_minute: { name: 'ms of queries in a minute', unit: '' },
  query_memory_bytes: { name: 'bytes of queries and answers', unit: 'B' },
}

/** Quotas that refused something or are nearly used come first, the others by tenant. */
export function quotasOf(status: Status): { tight: Quota[]; roomy: Quota[] } {
  const tight: Quota[] = []
  const roomy: Quota[] = []
  for (const q of status.quotas ?? []) (q.refused > 0 || q.used >= NEAR * q.limit ? tight : roomy).push(q)
  tight.sort((a, b) => b.refused - a.refused || b.used / (b.limit || 1) - a.used / (a.limit || 1))
  return { tight, roomy }
}

/** When and from where the last one was: "12 s ago from 10.0.0.7". */
export function lastOf(r: Refusal, now: number): string {
  const ago = r.last ? Math.max(0, now - Date.parse(r.last) / 1000) : undefined
  return [ago === undefined ? '' : ago < 5 ? 'just now' : `${span(ago)} ago`, r.from ? `from ${r.from}` : ''].filter(Boolean).join(' ')
}

/** One number of a series, with its labels. */
export interface Sample {
  metric: Record<string, string>
  value: number
}

/** The series that say what watching costs, by what they are shown as. */
export const METRICS = {
  cpu: 'outsight_agent_cpu_seconds_total',
  memory: 'outsight_agent_resident_memory_bytes',
  read: 'outsight_agent_read_seconds',
  sent: 'outsight_agent_sent_bytes_total',
  cost: 'outsight_cost_ratio',
  limit: 'outsight_budget_ratio',
  shed: 'outsight_feature_shed',
  runs: 'outsight_program_runs_total',
  time: 'outsight_program_run_seconds_total',
  missed: 'outsight_program_missed_events_total',
} as const

/** PromQL that tells nearly the same, for who wants it in Grafana. */
export const QUERIES = {
  cpu: `rate(${METRICS.cpu}[5m])`, memory: METRICS.memory, read: METRICS.read, sent: `sum by (host) (rate(${METRICS.sent}[5m]))`,
  budget: `sum by (host) (${METRICS.cost}) / on (host) ${METRICS.limit}`, runs: `rate(${METRICS.runs}[5m])`, time: `rate(${METRICS.time}[5m])`, missed: `rate(${METRICS.missed}[5m])`,
} as const

/** The window of numbers that have none in their table, in s. */
export const RATES = 300

/** The bounds' own series, for lines. */
const BOUNDS = ['outsight_drops_total', 'outsight_entries'] as const

const programKey = (labels: Record<string, string>) => `${labels.host ?? ''}/${labels.program ?? ''}`
export const boundKey = (b: Pick<Bound, 'host' | 'name'>): string => `${b.host}/${b.name}`

/** A counter's rate, or a level. */
const numberOf = (r: LabelledRow): number | undefined => r.per_second ?? r.value

/** What the series say, by what they are shown as, and who was silent at a time (in Unix seconds). sent and budget are one number of each host. */
export function answersOf(rows: LabelledRow[], silent: NonNullable<Status['silent']>, at: number): Answers {
  const of = (metric: string): Sample[] => rows.flatMap((r) => { const v = numberOf(r); return r.metric === metric && v !== undefined ? [{ metric: { ...r.labels, host: r.host }, value: v }] : [] })
  const byHost = (list: Sample[]) => {
    const sums = new Map<string, number>()
    for (const s of list) sums.set(s.metric.host!, (sums.get(s.metric.host!) ?? 0) + s.value)
    return sums
  }
  const cost = byHost(of(METRICS.cost))
  const sample = ([host, value]: [string, number]): Sample => ({ metric: { host }, value })
  return {
    cpu: of(METRICS.cpu), memory: of(METRICS.memory), read: of(METRICS.read), sent: [...byHost(of(METRICS.sent))].map(sample),
    budget: [...byHost(of(METRICS.limit))].flatMap(([host, limit]) => (cost.has(host) && limit > 0 ? [sample([host, cost.get(host)! / limit])] : [])),
    shed: of(METRICS.shed), runs: of(METRICS.runs), time: of(METRICS.time), missed: of(METRICS.missed),
    silent: silent.map((h) => sample([h.name, at - Date.parse(h.last_heard) / 1000])).filter((s) => s.value >= 0 && s.value <= FORGOTTEN),
  }
}

/** The metrics that lines of the tables are of. */
export const lineMetrics = (programs: Program[], bounds: Bound[]): string[] => [
  METRICS.cpu, METRICS.memory, METRICS.read, METRICS.sent, METRICS.cost, METRICS.limit,
  ...(programs.length > 0 ? [METRICS.runs, METRICS.time, METRICS.missed] : []), ...(bounds.some((b) => b.host !== 'server') ? BOUNDS : []),
]

const summed = (a: Line | undefined, b: Line): Line => (a ? a.map((v, i) => (v === null || b[i] == null ? v : v + b[i]!)) : b)

/** The lines of the tables, by what they are shown as. That of the time per run is what programs take over how often they run. */
export function linesOf(rows: LabelledRow[]): Lines {
  const lines: Lines = new Map()
  const add = (name: string, key: string, line: Line) => {
    if (!lines.has(name)) lines.set(name, new Map())
    lines.get(name)!.set(key, summed(lines.get(name)!.get(key), line))
  }
  const shown: Record<string, string> = { [BOUNDS[0]]: 'dropped', [BOUNDS[1]]: 'used', ...Object.fromEntries(Object.entries(METRICS).map(([name, metric]) => [metric, name])) }
  for (const r of rows) {
    const name = shown[r.metric]
    if (!name || !r.values) continue
    const key = r.labels.program !== undefined ? programKey({ ...r.labels, host: r.host }) : r.labels.name !== undefined ? boundKey({ host: r.host, name: r.labels.name }) : r.host
    add(name, key, drawable(r.values))
  }
  const ratio = (name: string, a: string, b: string) => lines.set(name, new Map([...(lines.get(a) ?? [])].map(([key, line]) => [key, ratioOf(line, lines.get(b)?.get(key))])))
  ratio('run', 'time', 'runs')
  ratio('budget', 'cost', 'limit')
  return lines
}

/** A host that was not heard of for so many seconds is taken to be gone for good. */
const FORGOTTEN = 3600

/** From so many seconds on a host that writes each second is said to be silent. */
const SILENT = 60

/** Hosts whose agents fell silent within the last hour, the longest first. */
export const silentOf = (a: Answers): { host: string; seconds: number }[] =>
  (a.silent ?? []).filter((s) => s.value >= SILENT).map((s) => ({ host: s.metric.host ?? '', seconds: s.value })).sort((x, y) => y.seconds - x.seconds)

export type Answers = { [name in keyof typeof QUERIES | 'shed' | 'silent']?: Sample[] }

/** What the design promises unless the user says otherwise. */
export const BUDGET = { cores: 0.005, bytes: 50 * 1024 * 1024 }

export interface Cost {
  host: string
  cpu?: number
  memory?: number
  read?: number
  /** Bytes per second that it sends, to whomever. */
  sent?: number
  /** What it takes over what it may, where the agent says. */
  budget?: number
  shed: string[]
  over: boolean
  then: string
}

/** What watching costs each host, and whether that is too much. */
export function costsOf(a: Answers): Cost[] {
  const hosts = [...new Set([a.cpu, a.memory, a.budget].flatMap((list) => (list ?? []).map((s) => s.metric.host ?? '')))].sort()
  const of = (list: Sample[] | undefined, host: string) => list?.find((s) => s.metric.host === host)?.value
  return hosts.map((host) => {
    const [cpu, memory, budget] = [of(a.cpu, host), of(a.memory, host), of(a.budget, host)]
    const shed = (a.shed ?? []).filter((s) => s.metric.host === host && s.value === 1).map((s) => s.metric.feature ?? s.metric.name ?? '')
    const over = budget !== undefined ? budget > 1 : (cpu ?? 0) > BUDGET.cores || (memory ?? 0) > BUDGET.bytes
    const then = shed.length > 0 ? 'It has left features out to keep its budget; raise --budget to have them back.'
      : !over ? ''
      : (cpu ?? 0) > BUDGET.cores ? '--flight 0 leaves the flight recorder out, which is about half of it; --times-only times requests without reading them.'
      : 'Smaller tables (--max-edges, --max-groups) and --flight 0 take less memory.'
    return { host, cpu, memory, read: of(a.read, host), sent: of(a.sent, host), budget, shed, over, then }
  })
}

export interface Program {
  host: string
  name: string
  /** Runs per second, seconds of CPU per run, CPUs that it takes. */
  runs?: number
  perRun?: number
  cores?: number
  missed: number
}

/** The kernel programs by what they cost; those that never ran are left out. */
export function programsOf(a: Answers): Program[] {
  const key = (s: Sample) => `${s.metric.host ?? ''}\0${s.metric.program ?? ''}`
  const all = new Map<string, Program>()
  const get = (s: Sample) => {
    const p = all.get(key(s)) ?? { host: s.metric.host ?? '', name: s.metric.program ?? '', missed: 0 }
    all.set(key(s), p)
    return p
  }
  for (const s of a.runs ?? []) get(s).runs = s.value
  for (const s of a.time ?? []) get(s).cores = s.value
  for (const s of a.missed ?? []) if (s.value > 0) get(s).missed = s.value
  for (const p of all.values()) if (p.runs && p.cores !== undefined) p.perRun = p.cores / p.runs
  return [...all.values()].filter((p) => (p.runs ?? 0) > 0 || p.missed > 0).sort((x, y) => (y.cores ?? 0) - (x.cores ?? 0) || (y.runs ?? 0) - (x.runs ?? 0))
}

/** Edges of which not all was seen, those with the least first. */
export function incompleteEdges(g: Graph): { edge: Edge; share: number; client?: Node; server?: Node }[] {
  const node = new Map(g.nodes.map((n) => [n.id, n]))
  return g.edges
    .flatMap((edge) => {
      const shares = [edge.client_side, edge.server_side].flatMap((s) => s?.completeness ?? [])
      const share = shares.length ? Math.min(...shares) : 1
      return share < 1 ? [{ edge, share, client: node.get(edge.client), server: node.get(edge.server) }] : []
    })
    .sort((a, b) => a.share - b.share)
}

/** Names of what counts refusals and not want of room. */
const REFUSED = /refus|reject|poison/

/** The parts of the view, in their order. */
export type Part = 'refused' | 'lost' | 'missing' | 'complete' | 'cost'

export interface Finding {
  text: string
  /** Which part says more. */
  part: Part
}

/** All of it in a line for each thing that is wrong, what is wrong with the data first; empty where nothing is. now is in Unix seconds. */
export function verdict(status: Status, graph: Graph | undefined, a: Answers, from: number, now: number): Finding[] {
  const { lost } = boundsOf(status, graph)
  const list: Finding[] = []
  const add = (part: Part, text: string) => list.push({ part, text })
  for (const s of silentOf(a)) add('missing', `${s.host} has not been heard of for ${span(s.seconds)}`)
  for (const r of refusalsOf(status, from).now) add('refused', `${wordsOf(r).what} were refused: ${format(r.count, '')}${r.last ? `, the last ${lastOf(r, now)}` : ''}`)
  for (const b of lost) {
    const n = format(b.dropped ?? b.total, '')
    add('lost', REFUSED.test(b.name) ? `${n} were refused by ${b.host}: “${b.name}”` : `${n} updates found no room in “${b.name}” of ${b.host}`)
  }
  const c = graph?.completeness
  if (c && c.covered_seconds === 0) add('missing', `no agent was heard of in these ${span(c.window_seconds)}`)
  else if (c && c.covered_seconds < c.window_seconds - 2) add('complete', `${span(c.covered_seconds)} of ${span(c.window_seconds)} were watched`)
  for (const cost of costsOf(a)) {
    if (cost.over) add('cost', `the agent on ${cost.host} takes ${cost.budget !== undefined ? `${digits(cost.budget * 100)} % of its budget` : `${digits((cost.cpu ?? 0) * 100)} % of a core and ${bytes(cost.memory ?? 0)}`}`)
    if (cost.shed.length > 0) add('cost', `${cost.shed.length} feature${cost.shed.length > 1 ? 's are' : ' is'} shed on ${cost.host}`)
  }
  for (const f of status.features) if (f.state === 'absent' && f.required) add('missing', `${f.purpose} cannot be had on ${f.host}`)
  for (const [host, share] of Object.entries(graph?.counted_share ?? {})) if (share < 0.999) add('complete', `${floorPercent(share)} of the bytes received on ${host} are counted`)
  return list
}
