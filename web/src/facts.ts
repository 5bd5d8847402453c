import { duration, floorPercent, format } from './format'
import { SIDE_GROUPS, TROUBLE } from './numbers'
import { best, bytesPerSecond, type Edge, type Endpoint, type Node, type NumberInfo, type Seconds, type Side } from './types'

/** The number of a side by its key; undefined where it could not be had. */
export const numberOf = (s: Side | undefined, key: string): Seconds | undefined => (s as Record<string, Seconds> | undefined)?.[key]

/** Whether a number means trouble. */
export const trouble = (key: string): boolean => TROUBLE.has(key)

/** What is there to show of an edge: groups with rows, without those that say nothing or 0. */
export function factsOf(edge: Edge, numbers: NumberInfo[]): { title: string; rows: NumberInfo[] }[] {
  const isShown = (n: NumberInfo) => [edge.client_side, edge.server_side].some((s) => {
    const v = numberOf(s, n.key)
    // A duration of 0 is one that is too short to measure.
    return v !== undefined && (v !== 0 || n.unit === 's')
  })
  const groups: [string, NumberInfo[]][] = SIDE_GROUPS.map(([title, keys]) => [title, keys.flatMap((k) => numbers.filter((n) => n.key === k))])
  const known = new Set(groups.flatMap(([, of]) => of))
  groups.push(['Others', numbers.filter((n) => !known.has(n))])
  return groups.map(([title, of]) => ({ title, rows: of.filter(isShown) })).filter((g) => g.rows.length > 0)
}

/** How the ends of an edge were found, in words. */
export function pairing(edge: Edge): string {
  if (edge.paired) return 'Paired: both ends counted the same connections.'
  if (edge.client_side && edge.server_side) return 'Both ends counted, but it is not sure that they counted the same connections, so they are not subtracted.'
  const [seen, other] = edge.client_side ? ['client', 'server'] : ['server', 'client']
  return `Seen from the ${seen} only: ${FOUND[edge.confidence](other)}`
}

const FOUND: Record<Edge['confidence'], (other: string) => string> = {
  exact: (other) => `the kernel saw who the ${other} is, but the ${other} has counted nothing.`,
  listener: (other) => `the ${other} is known by where it listens.`,
  address: (other) => `the ${other} is a guess from its address.`,
  none: (other) => `the ${other} is not on this host, or in no container that is known.`,
}

/** Whether an edge is less sure than others: its ends are watched, and yet not paired. */
export function unsure(edge: Edge, client?: Node, server?: Node): boolean {
  if (client?.kind === 'outside' || server?.kind === 'outside') return false // such an end cannot count
  return !edge.paired || edge.confidence === 'none'
}

/** How an edge is drawn, as classes: dashed for UDP, lighter where it is unsure. */
export const look = (edge: Edge, client?: Node, server?: Node): string =>
  (edge.transport === 'udp' ? ' udp' : '') + (unsure(edge, client, server) ? ' unsure' : '')

/** Whether all that was recognised on an edge are DNS queries. */
const dns = (edge: Edge): boolean => Boolean(edge.endpoints?.length) && edge.endpoints!.every((e) => e.protocol === 'dns')

/** What the label of an edge says; covered is the time that counts are of, in seconds. */
export function labelOf(edge: Edge, covered: number): string {
  const s = best(edge)
  if (!s) return 'idle'
  if (dns(edge) && s.transactions > 0) return format(s.transactions_per_second, '/s').replace('/s', ' queries/s')
  const packets = (s.request_packets ?? 0) + (s.response_packets ?? 0)
  if (edge.transport === 'udp' && packets > 0) return format(covered > 0 ? packets / covered : undefined, '/s').replace('/s', ' packets/s')
  if (s.p99 !== undefined) return `${format(s.transactions_per_second, '/s')} · ${duration(s.p99)}`
  return bytesPerSecond(s) > 0 ? format(bytesPerSecond(s), 'B/s') : 'idle'
}

/** The same in full, for pointers and for readers of the screen. */
export function spokenOf(edge: Edge, covered: number, client?: Node, server?: Node): string {
  const s = best(edge)
  const list = [edge.transport === 'udp' ? `UDP (dashed), ${labelOf(edge, covered)}` : `${format(s?.transactions_per_second, '/s')} requests`]
  if (s?.p99 !== undefined) list.push(`p99 ${duration(s.p99)}`)
  if (failed(s)) list.push('with failures')
  const text = `${client?.name} to ${server?.name}: ${list.join(', ')}`
  return unsure(edge, client, server) ? `${text}. Lighter because: ${pairing(edge)}` : text
}

export const failed = (s?: Side): boolean => (s?.failures ?? 0) + (s?.aborted ?? 0) > 0

/** The counts by status of an endpoint, the most frequent first: "2xx 97.0 %, 5xx 3.00 %". */
export function statuses(e: Endpoint): string {
  const list = Object.entries(e.statuses).sort(([a, x], [b, y]) => y - x || a.localeCompare(b))
  if (list.length === 1) return list[0]![0] || 'status not known'
  return list.map(([status, n]) => `${status || 'not known'} ${format(n / e.requests, 'ratio')}`).join(', ')
}

/** The share of an edge's transactions whose request was recognised, 0 to 1; undefined without transactions. */
export function recognised(edge: Edge): number | undefined {
  const all = (edge.server_side ?? edge.client_side)?.transactions ?? 0
  const named = [...(edge.endpoints ?? []), ...(edge.other_endpoints ? [edge.other_endpoints] : [])].reduce((sum, e) => sum + e.requests, 0)
  return all > 0 ? Math.min(1, named / all) : undefined
}

/** The share of the received bytes that the ends saw, of the end that saw less; undefined where nothing was received. */
export function countedOf(edge: Edge): number | undefined {
  const shares = [edge.client_side, edge.server_side].flatMap((s) => s?.completeness ?? [])
  return shares.length ? Math.min(...shares) : undefined
}

/** What the ends saw of the bytes that they received, in words. */
export function seen(edge: Edge): string | undefined {
  const share = countedOf(edge)
  if (share === undefined) return undefined
  return share < 1 ? `Counted ${floorPercent(share)} of the received bytes; others were spliced, or never read.` : 'Counted 100 % of the received bytes.'
}
