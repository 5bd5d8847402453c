import type { Edge, NumberInfo, Seconds, Side } from './types'

/** The number of a side by its key; undefined where it could not be had. */
export const numberOf = (s: Side | undefined, key: string): Seconds | undefined => (s as Record<string, Seconds> | undefined)?.[key]

/** The numbers of an edge, in the order in which people ask for them. */
const GROUPS: [string, string[]][] = [
  ['Requests', ['transactions_per_second', 'transactions', 'in_flight', 'aborted', 'continued', 'request_bytes_per_second', 'response_bytes_per_second', 'request_bytes', 'response_bytes', 'request_packets', 'response_packets']],
  ['Latency', ['p50', 'p75', 'p90', 'p99', 'mean', 'first_byte_p50', 'first_byte_p99']],
  ['Connection', ['rtt_p50', 'rtt_p99', 'rtt_min', 'jitter', 'window_limited_seconds', 'duration_p50', 'duration_p99', 'connections_open', 'connections_opened', 'connections_closed', 'failures', 'retransmits', 'resets', 'timed_out']],
  ['Streams', ['transfers', 'held', 'pushes', 'one_way']],
  ['Completeness', ['unseen_bytes']],
]

/** Numbers that tell of trouble. */
export const TROUBLE = new Set(['aborted', 'continued', 'failures', 'retransmits', 'resets', 'timed_out', 'unseen_bytes'])

/** What is there to show of an edge: groups with rows, without those that say nothing or 0. */
export function factsOf(edge: Edge, numbers: NumberInfo[]): { title: string; rows: NumberInfo[] }[] {
  const told = (n: NumberInfo) => [edge.client_side, edge.server_side].some((s) => {
    const v = numberOf(s, n.key)
    // A duration of 0 is one that is shorter than can be told.
    return v !== undefined && (v !== 0 || n.unit === 's')
  })
  const known = new Set(GROUPS.flatMap(([, keys]) => keys))
  const groups: [string, NumberInfo[]][] = GROUPS.map(([title, keys]) => [title, keys.flatMap((k) => numbers.filter((n) => n.key === k))])
  groups.push(['Others', numbers.filter((n) => !known.has(n.key))])
  return groups.map(([title, of]) => ({ title, rows: of.filter(told) })).filter((g) => g.rows.length > 0)
}

/** How the ends of an edge were found, in words. */
export function pairing(edge: Edge): string {
  if (edge.paired) return 'Paired: both ends counted the same connections.'
  if (edge.client_side && edge.server_side) return 'Both ends counted, but it is not sure that they counted the same connections, so they are not subtracted.'
  return `Only the ${edge.client_side ? 'client' : 'server'} side was counted; ${FOUND[edge.confidence]}`
}

const FOUND = {
  exact: 'the kernel saw who the other end is.',
  listener: 'the other end is known by where it listens.',
  address: 'the other end is known by its address.',
  none: 'the other end is in no container that is known, or outside of the watched hosts.',
}

/** What the ends saw of the bytes that they received: undefined where all of them. */
export function unseen(edge: Edge): string | undefined {
  const least = Math.min(...[edge.client_side, edge.server_side].map((s) => s?.completeness ?? 1))
  return least < 1 ? `${Math.floor(least * 1000) / 10} % of the received bytes were seen; the rest was spliced, or never read.` : undefined
}
