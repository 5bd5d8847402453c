import { clock, floorPercent, format, missing, span } from './format'
import { endsOf } from './matrix'
import { ENDS_MEANING, SIDE_MEANING, USAGE_MEANING } from './numbers'
import type { Completeness, Edge, Graph, Node, NumberInfo, Seconds } from './types'

// What is said of a number to who points at it: what it is, how it is computed, how far it holds.

export interface Explanation {
  title: string
  /** The number as it is shown. */
  value?: string
  /** In plain words. */
  what?: string
  formula?: string
  /** PromQL that tells nearly the same, where there is PromQL. */
  query?: string
  error?: string
  /** The share of what happened that it is of. */
  seen?: string
  window?: string
  /** What a click does. */
  action?: string
}

/** The lines of an explanation after its title, each with a name. */
export const linesOf = (e: Explanation): [string, string][] =>
  ([['', e.what], ['Formula', e.formula], ['PromQL', e.query], ['Error', e.error], ['Seen', e.seen], ['Window', e.window], ['Click', e.action]] as const)
    .flatMap(([name, text]) => (text ? [[name, text] as [string, string]] : []))

/** How far a number is off at most. bound is the greatest relative error of a quantile, ends what is known of both ends together. */
export function errorOf(n: Pick<NumberInfo, 'key' | 'unit'>, scope: string, bound: number, ends?: Record<string, Seconds | undefined>): string {
  const percent = (v: number) => `${(v * 100).toFixed(1)} %`
  const clocks = ends?.[n.key.replace(/^wire_/, 'delay_').replace(/_p\d+$/, '_error')]
  if (/^network_(reordered|duplicated|repeated)$/.test(n.key)) return 'none of the packets that were observed; of all it is an estimate'
  if (/^(delay|wire)_(there|back)_p/.test(n.key) && clocks !== undefined) return `±${format(clocks, 's')}: the hosts have clocks of their own`
  if (/^(sender|receiver)_stack_/.test(n.key)) return 'none: of the packets that both hosts sampled, by one clock'
  if (/^(above_minimum|matched|at_cards)_|^wire_above_|^delay_.*_error$/.test(n.key)) return 'none: of the packets that both hosts sampled'
  if (/(^|_)p\d+$/.test(n.key)) return `at most ±${percent(bound)}; ±${percent((1 + bound) ** 2 - 1)} by PromQL, which interpolates`
  if (n.key === 'network_seconds') return `each p50 at most ±${percent(bound)}: a small difference of large numbers is uncertain`
  if (scope === 'ends' && n.unit === 's') return 'none of the mean: a sum over a count, both exact, of the packets that were timed'
  if (/^(mean|jitter|network_jitter|rtt_min)$/.test(n.key)) return 'none: a sum over a count, both exact'
  if (scope === 'usage' && /bytes$|threads$|quota/.test(n.key) && !/network|disk/.test(n.key)) return 'none: a level, read from the kernel’s files each second'
  return 'none: counted, not sampled'
}

/** What of the events a graph has, in few words. */
export function seenOf(c: Completeness, more: string[] = []): string {
  if (c.state === 'complete') return 'all of it'
  return more.length ? `${more[0]}${more.length > 1 ? `; and ${more.length - 1} more, see Health` : ''}` : 'incomplete, see Health'
}

/** Numbers of the packets that one end has observed, and those of both ends that are of them. */
const OBSERVED = /^network_(reordered|duplicated|repeated|delay_p\d+|jitter)$/
const OBSERVED_ENDS = /^(delay|jitter|network)_(there|back)(_p\d+|_seconds)?$/

/** Of how many packets a number is that is of a sample of them, in words; undefined for others. */
export function sampleOf(key: string, scope: string, edge: Edge): string | undefined {
  const way = OBSERVED_ENDS.exec(key)?.[2]
  const matched = way === undefined ? undefined : valueOf(endsOf(edge), `matched_${way}`)
  if (scope === 'ends' && matched !== undefined) return `${format(matched, '')} packets of the last 10 s that both hosts sampled`
  const server = scope === 'ends' ? way === 'there' : scope === 'server'
  if (scope === 'ends' ? !way : !OBSERVED.test(key)) return undefined
  const side = server ? edge.server_side : edge.client_side
  const [observed, arrived] = [valueOf(side, 'network_observed'), valueOf(side, server ? 'network_request_packets' : 'network_response_packets')]
  if (typeof observed !== 'number' || typeof arrived !== 'number' || arrived === 0) return undefined
  return `${format(Math.min(observed, arrived), '')} of ${format(arrived, '')} packets that arrived were observed`
}

/** The window of a graph's numbers. */
export const windowOf = (g: Pick<Graph, 'from' | 'to' | 'covered_seconds'> & { completeness: Completeness }): string =>
  `${clock(Date.parse(g.from) / 1000)} – ${clock(Date.parse(g.to) / 1000)}, ${span(g.covered_seconds)} of ${span(g.completeness.window_seconds)} seen`

/** A query as it is sent: with its matchers and its window. */
export const expand = (query: string, match: string, seconds: number): string =>
  query.replaceAll('$match', match).replaceAll('$window', `${Math.max(2, Math.round(seconds))}s`)

const WAYS: Record<string, string> = { served: 'of requests that it served', called: 'of requests that it made', client: 'as the client counted it', server: 'as the server counted it' }

const valueOf = (of: unknown, key: string): Seconds | undefined => (of as Record<string, Seconds> | undefined)?.[key]

/** The explanation of a number of a node ("usage.cpu_cores") or of an edge ("client.p99"). */
export function explainNumber(g: Graph, path: string, node?: Node, edge?: Edge): Explanation | undefined {
  const [scope, key] = path.split('.') as [string, string]
  const n = (scope === 'usage' ? g.numbers.usage : scope === 'ends' ? g.numbers.ends : g.numbers.side).find((n) => n.key === key)
  const of = scope === 'ends' ? edge && endsOf(edge) : scope === 'client' ? edge?.client_side : scope === 'server' ? edge?.server_side : scope === 'usage' ? node?.usage : scope === 'served' ? node?.served : node?.called
  if (!n || (!node && !edge)) return undefined
  const known = edge && g.edge_matches[edge.id]
  const match = edge ? known && (scope === 'ends' ? known : `${known},side="${scope}"`) : (g.matches[node!.id] as Record<string, string> | undefined)?.[scope]
  const share = edge && (of as { completeness?: number } | undefined)?.completeness
  const words = (scope === 'usage' ? USAGE_MEANING : scope === 'ends' ? ENDS_MEANING : SIDE_MEANING)[key]
  return {
    title: `${n.title}${edge ? '' : ` · ${node!.name}`}`,
    value: format(valueOf(of, key), n.unit),
    what: [words, WAYS[scope]].filter(Boolean).join(', ') || undefined,
    query: match && n.query ? expand(n.query, match, g.covered_seconds) : undefined,
    error: errorOf(n, scope, g.error_bound, edge && endsOf(edge)),
    seen: (edge && sampleOf(key, scope, edge)) ?? (share !== undefined ? `${floorPercent(share)} of the received bytes` : seenOf(g.completeness, missing(g))),
    window: windowOf(g),
    action: 'shows a chart',
  }
}

/** The explanation of a number of an endpoint: "rate", "p50", "p99" or "errors". */
export function explainEndpoint(g: Graph, edge: Edge, protocol: string, name: string, key: string): Explanation | undefined {
  const n = g.numbers.endpoint.find((n) => n.key === ({ rate: 'requests_per_second', errors: 'errors_per_second' }[key] ?? key))
  const e = edge.endpoints?.find((e) => e.protocol === protocol && e.name === name)
  if (!n || !e) return undefined
  const side = edge.server_side ? 'server' : 'client'
  const known = g.edge_matches[edge.id]
  return {
    title: `${n.title} · ${name}`,
    value: format((e as unknown as Record<string, Seconds | undefined>)[n.key], n.unit),
    what: `of ${protocol} requests that were recognised, as the ${side} counted them`,
    query: known && n.query ? expand(n.query, `${known},side="${side}",protocol=${JSON.stringify(protocol)},endpoint=${JSON.stringify(name)}`, g.covered_seconds) : undefined,
    error: errorOf(n, 'endpoint', g.error_bound),
    seen: seenOf(g.completeness, missing(g)),
    window: windowOf(g),
    action: 'shows a chart',
  }
}
