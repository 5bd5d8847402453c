import { asNumber, type LabelledRow } from './data'
import { expand, seenOf, type Explanation } from './explain'
import { clock, format, missing, NONE, span } from './format'
import { limitOf } from './path'
import { drawable, type Asked, type Line } from './spark'
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

/** Which line is beside a column. */
export const lineOf = (key: string): string => `service.${key}`

/** The number of a node that is charted for a column; undefined where only the table has it. */
const CHARTS: Record<string, string> = { utilisation: 'usage.cpu_cores', arrival_rate: 'served.transactions_per_second', threads: 'usage.threads', latency: 'served.mean', tcp_p50: 'served.p50', tcp_p99: 'served.p99' }
export const chartOf = (key: string): string | undefined => CHARTS[key]

/** The lines of a table of operational analysis: those of power are of other series. */
export const linesOf = (keys: string[], by: Grouping, rows: Node[], more: string[] = []): Asked => ({
  // Demand is by what comes in at all entries, so that all hosts are read.
  numbers: keys.filter((k) => k !== 'power').map(lineOf), by, nodes: [...rows.map((r) => r.id), ...more],
})

/** The series of energy and of what measures it. */
export const ENERGY = ['container_energy_joules_total', 'outsight_energy_meter', 'outsight_energy_meter_error_ratio'] as const

/** One number or line by node of the domains of its energy. They contain each other: a package its cores, the whole system (psys) everything. */
function domainsOf<T>(rows: LabelledRow[], of: (r: LabelledRow) => T | undefined, add: (a: T, b: T) => T): Map<string, T> {
  const all = new Map<string, T>()
  for (const domains of [['core'], ['psys'], ['package', 'dram']]) {
    const sums = new Map<string, T>()
    for (const r of rows) {
      const v = of(r)
      if (r.metric !== ENERGY[0] || r.node === undefined || v === undefined || !domains.includes(r.labels.domain ?? '')) continue
      const sum = sums.get(r.node)
      sums.set(r.node, sum === undefined ? v : add(sum, v))
    }
    for (const [node, sum] of sums) all.set(node, sum)
  }
  return all
}

/** Watts by node. */
export const powerOf = (rows: LabelledRow[]): Power => domainsOf(rows, (r) => r.per_second, (a, b) => a + b)

/** The same over time. */
export const powerLines = (rows: LabelledRow[]): Map<string, Line> =>
  domainsOf(rows, (r) => r.values && drawable(r.values), (a, b) => a.map((v, i) => (v === null || b[i] == null ? v : v + b[i]!)))

/** The hosts whose power a model estimates, with its greatest relative error. */
export function estimatesOf(rows: LabelledRow[]): Estimates {
  const off = new Map(rows.filter((r) => r.metric === ENERGY[2]).map((r) => [r.host, r.value ?? NaN]))
  return new Map(rows.filter((r) => r.metric === ENERGY[1] && r.labels.source === 'model').map((r) => [r.host, off.get(r.host) ?? NaN]))
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

/** PromQL of the watts of what matches. */
export function powerQuery(match: string, window: string): string {
  const sum = (domain: string) => `sum(rate(container_energy_joules_total{${match},domain=~"${domain}"}[${window}]))`
  return `${sum('package|dram')} or ${sum('psys')} or ${sum('core')}`
}

/** What a cell is: the query has what is the service's own. */
export function explainCell(c: ServiceColumn, s: Service, a: Services, g: Graph, power: Power, estimates: Estimates): Explanation {
  const estimate = c.key === 'power' ? estimateOf(s, estimates) : undefined
  const match = g.matches[s.node]
  const parallel = s.parallel_by === 'threads' ? `clamp(sum(container_busy_threads{${match?.usage ?? ''}}), 1, ${a.cores[s.host ?? ''] ?? 1})` : String(s.parallel)
  const known = match && c.query && (match.usage || !/\$usage|\$parallel/.test(c.query)) && (match.served || !c.query.includes('$served'))
  const query = known ? expand(c.query!.replaceAll('$usage', match.usage).replaceAll('$served', match.served).replaceAll('$parallel', parallel), '', a.covered_seconds) : undefined
  const source = power.size > 0 && c.key === 'power' && match?.usage ? powerQuery(match.usage, `${Math.max(10, Math.round(a.covered_seconds))}s`) : undefined
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
