import { asNumber } from './data'
import { expand, seenOf, type Explanation } from './explain'
import { clock, format, missing, NONE, span } from './format'
import { limitOf } from './path'
import { columnQuery, nodeColumns, nodeIdOf, ratioOf, windowOf, type Line, type LineColumn, type Lines } from './spark'
import type { Grouping } from './state'
import { unnamed, type Graph, type Node, type Seconds, type Service, type ServiceColumn, type Services } from './types'

// The table of operational analysis: its numbers, its order, and what is said of each.

/** Watts by the id of a node. */
export type Power = Map<string, number>

/** The greatest relative error of a host's power where it is a model's estimate, by the name of the host; NaN where it is not known. */
export type Estimates = Map<string, number>

/** The error of a row's power where it is an estimate; undefined where a meter measures it. What is of no host alone may be of any. */
export function estimateOf(s: Pick<Service, 'host'>, estimates: Estimates): number | undefined {
  return s.host !== undefined && s.host !== '' ? estimates.get(s.host) : estimates.size ? Math.max(...estimates.values()) : undefined
}

/** What is said of an estimate: "an estimate from how busy the CPUs are, up to 45 % off". */
export const estimateText = (error: number): string => `an estimate from how busy the CPUs are, ${Number.isFinite(error) ? `up to ${Math.round(error * 100)} % off` : 'how far off is not known'}`

/** The number of a column; undefined where it could not be had. */
export function valueOf(s: Service, key: string, power: Power): Seconds | undefined {
  switch (key) {
    case 'utilisation':
      return s.parallel > 0 ? s.utilisation : undefined
    case 'http_p50':
    case 'http_p99':
    case 'tcp_p50':
    case 'tcp_p99':
      return s[key.slice(0, 4).replace('_', '') as 'http' | 'tcp']?.[key.slice(-3) as 'p50' | 'p99']
    case 'power':
      return power.get(s.node)
  }
  return (s as unknown as Record<string, Seconds | undefined>)[key]
}

/** Which line is beside a column: that of a number that nodes have, or one of the table's own. */
export const LINES: Record<string, string> = {
  utilisation: 'usage.cpu_cores', arrival_rate: 'served.transactions_per_second', threads: 'usage.threads', latency: 'served.mean', tcp_p50: 'served.p50', tcp_p99: 'served.p99',
  demand: 'service.demand', max_arrival_rate: 'service.max_arrival_rate', power: 'service.power', http_p50: 'service.http_p50', http_p99: 'service.http_p99', error_share: 'service.error_share',
}

/** The number of a node that is charted for a column; undefined where only the table has it. */
export const chartOf = (key: string): string | undefined => (LINES[key]?.startsWith('service.') ? undefined : LINES[key])

const [CPUS, ARRIVAL] = ['cpus', 'arrival']

/** The labels that distinguish the power of a grouping. */
export function powerLabels(by: Grouping): string {
  switch (by) {
    case 'host':
    case 'namespace':
      return by
    case 'pod':
      return 'namespace, pod'
    case 'workload':
      return 'namespace, workload_kind, workload'
  }
  return 'host, id'
}

/** What lines of a table of operational analysis are made of. */
export interface Analysed {
  numbers: Graph['numbers']
  by: Grouping
  rows: Node[]
  /** Keys of the columns that are shown, and what the server says of them where it says more. */
  keys: string[]
  columns: ServiceColumn[]
  /** The query of the arrival rate at the entries. */
  arrival?: string
  /** Whether the CPUs of a host are a row. */
  cpus: boolean
}

/** One query for each column; demand and what could be served are made of those of others (analysedLines). */
export function lineColumns(a: Analysed): LineColumn[] {
  const list = nodeColumns(a.numbers, [...new Set(a.keys.flatMap((k) => chartOf(k) ?? []))], a.by, a.rows)
  const cpu = a.numbers.usage.find((n) => n.key === 'cpu_cores')
  if (a.cpus && cpu) list.push({ key: CPUS, query: (s) => columnQuery(cpu, 'usage', 'host', s), of: (labels) => `cpus/${labels.host ?? ''}` })
  for (const c of a.columns) {
    if (!a.keys.includes(c.key) || chartOf(c.key) || !c.query || c.query.includes('$usage')) continue
    const query = c.query.replaceAll('$served', '$match')
    list.push({ key: LINES[c.key]!, query: (s) => columnQuery({ query }, 'served', a.by, s, a.rows), of: (labels) => nodeIdOf(labels, 'served', a.by) })
  }
  if (a.keys.includes('power')) list.push({ key: LINES.power!, query: (s) => powerQuery('', windowOf(s), powerLabels(a.by)), of: (labels) => nodeIdOf(labels, 'usage', a.by) })
  if (a.arrival && a.keys.includes('demand')) list.push({ key: ARRIVAL, query: (s) => a.arrival!.replaceAll('$window', windowOf(s)), of: () => '' })
  return list
}

/** The lines with those that follow from others: D = U / λ and λᵢ / U, both up to how much CPU a row could use, which is the same at all times. */
export function analysedLines(lines: Lines): Lines {
  const cpu = new Map([...(lines.get(LINES.utilisation!) ?? []), ...(lines.get(CPUS) ?? [])])
  const [arrival, served] = [lines.get(ARRIVAL)?.get(''), lines.get(LINES.arrival_rate!)]
  const each = (of: Map<string, Line> | undefined, over: (id: string) => Line | undefined) =>
    new Map([...(of ?? [])].flatMap(([id, line]) => { const b = over(id); return b ? [[id, ratioOf(line, b)] as const] : [] }))
  return new Map(lines).set(LINES.utilisation!, cpu).set(LINES.demand!, each(cpu, () => arrival)).set(LINES.max_arrival_rate!, each(served, (id) => cpu.get(id)))
}

/** The columns that are shown: power only where it is known of some. */
export const columnsOf = (a: Services, power: Power): ServiceColumn[] => a.columns.filter((c) => c.key !== 'power' || power.size > 0)

/** Whether a row says nothing: a container that ended without a request, or that has no known name. */
export const idle = (s: Service, node?: Node): boolean => node?.gone === true && !s.tcp && (unnamed(node) || !(s.utilisation > 0))

/** Rows in the order of a column ("-service.demand" sorts down); what has no number comes last. */
export function ordered(list: Service[], sort: string, power: Power): Service[] {
  const down = sort.startsWith('-')
  const key = sort.replace(/^-?service\./, '').replace(/^-/, '')
  return [...list].sort((a, b) => {
    if (key === 'name') return (down ? -1 : 1) * a.name.localeCompare(b.name)
    const [x, y] = [asNumber(valueOf(a, key, power)), asNumber(valueOf(b, key, power))]
    if (Number.isNaN(x) || Number.isNaN(y)) return Number(Number.isNaN(x)) - Number(Number.isNaN(y)) || a.name.localeCompare(b.name)
    return (down ? y - x : x - y) || a.name.localeCompare(b.name)
  })
}

const ERROR: Record<string, string> = {
  utilisation: 'CPU time is exact; busy threads are over ten seconds, so that U may be off where load comes and goes',
  demand: 'as far as U holds, and CPU time grows as requests do',
  max_arrival_rate: 'an estimate: the better the nearer U is to 100 %; locks, pools and disks may be the limit before',
  arrival_rate: 'none: counted, not sampled',
  threads: 'none: a level, read each second',
  error_share: 'none: counted; of requests that are not recognised, only those without a reply',
}

/** What a column is, for its heading. */
export const explainColumn = (c: ServiceColumn, a: Services): Explanation => ({
  title: c.title,
  formula: c.formula,
  query: c.query,
  error: c.bounded ? `at most ±${(a.error_bound * 100).toFixed(1)} %` : ERROR[c.key],
  action: 'sorts by it',
})

/** Watts. Domains contain each other: a package its cores, the whole system (psys) everything. */
export function powerQuery(match: string, window: string, by = ''): string {
  const sum = (domain: string) => `sum${by && ` by (${by}) `}(rate(container_energy_joules_total{${match}${match && ','}domain=~"${domain}"}[${window}]))`
  return `${sum('package|dram')} or ${sum('psys')} or ${sum('core')}`
}

/** What a cell is: the query has what is the service's own. */
export function explainCell(c: ServiceColumn, s: Service, a: Services, g: Graph, power: Power, estimates: Estimates): Explanation {
  const estimate = c.key === 'power' ? estimateOf(s, estimates) : undefined
  const match = g.matches[s.node]
  const parallel = s.parallel_by === 'threads' ? `clamp(sum(container_busy_threads{${match?.usage ?? ''}}), 1, ${a.cores[s.host ?? ''] ?? 1})` : String(s.parallel)
  const query = match && c.query ? expand(c.query.replaceAll('$usage', match.usage).replaceAll('$served', match.served).replaceAll('$parallel', parallel), '', a.covered_seconds) : undefined
  const source = power.size > 0 && c.key === 'power' && match ? powerQuery(match.usage, `${Math.max(10, Math.round(a.covered_seconds))}s`) : undefined
  return {
    title: `${c.title} · ${s.name}`,
    value: textOf(c, s, power, estimates),
    what: estimate === undefined ? wordsOf(c, s) : estimateText(estimate),
    formula: c.formula,
    query: source ?? query,
    error: estimate !== undefined ? estimateText(estimate) : c.bounded ? `at most ±${(a.error_bound * 100).toFixed(1)} %` : ERROR[c.key],
    seen: seenOf(a.completeness, missing(g)),
    window: `${clock(Date.parse(a.from) / 1000)} – ${clock(Date.parse(a.to) / 1000)}, ${span(a.covered_seconds)} seen`,
  }
}

function wordsOf(c: ServiceColumn, s: Service): string | undefined {
  if (c.key === 'utilisation') return s.parallel > 0 ? `${format(s.cpu_cores, 'cores')} CPUs of ${limitOf(s)}` : 'its CPU time is not known'
  if (c.key === 'demand' && !s.reached) return 'no request that comes in from outside leads here'
  if (c.key === 'error_share' && s.error_share !== undefined) return `${format(s.failed, '')} replies say that it failed, ${format(s.aborted, '')} requests had no reply`
  if (c.key.startsWith('http') && !s.http) return 'no HTTP request was recognised'
  if (c.key.startsWith('http')) return `${format(s.http!.requests, '')} requests`
  if (c.key.startsWith('tcp') && s.tcp) return `${format(s.tcp.requests, '')} transactions`
  return undefined
}

/** What comes in and what runs out first, in a sentence. */
export function summaryOf(a: Services): string {
  if (a.entries.length === 0) return 'No requests arrived from outside of the containers in this time, so that no demand is known.'
  const come = `λ = ${format(a.arrival_rate, '/s')} come in at ${a.entries.slice(0, 3).map((e) => e.name).join(', ')}${a.entries.length > 3 ? ` and ${a.entries.length - 3} more` : ''}.`
  if (a.saturation_rate === undefined || !a.bottleneck_name) return `${come} No CPU time was seen of what they reach.`
  return `${come} First to run out: ${a.bottleneck_name}, at λ_sat ≈ ${format(a.saturation_rate, '/s')}, ${(a.extrapolation ?? 0).toFixed(1)} times as much.`
}

/** The text of a cell. */
export const textOf = (c: ServiceColumn, s: Service, power: Power, estimates: Estimates): string => {
  const v = valueOf(s, c.key, power)
  return v === undefined ? NONE : c.key === 'power' && estimateOf(s, estimates) !== undefined ? `≈ ${format(v, c.unit)}` : format(v, c.unit)
}
