import { asNumber } from './data'
import { duration, span } from './format'
import { best, type Baseline, type Edge, type Graph, type Seconds, type Side, type Usual } from './types'

// Whether an edge is slower than it was in its own past hour.

export type Heat = 'calm' | 'warm' | 'hot'

export interface Pace {
  heat: Heat
  /** Which quantile was compared; undefined where nothing could be. */
  quantile?: Quantile
  now?: number
  before?: number
  /** How many times as long it takes. */
  times?: number
}

type Quantile = 'p99' | 'p90' | 'p50'

/** Of so many transactions in both times on, a quantile has ten above it, and is compared. */
const LEAST: [Quantile, number][] = [['p99', 1000], ['p90', 100], ['p50', 20]]

const [WARM, HOT] = [2, 4]
/** A difference of less, in seconds, is no matter of colour. */
const SMALL = 3e-4

/** The pace of an edge's side against its past hour, by the highest quantile that chance does not make. */
export function paceOf(now?: Side, before?: Usual): Pace {
  const count = Math.min(now?.transactions ?? 0, before?.transactions ?? 0)
  for (const [quantile, least] of LEAST) {
    if (count < least) continue
    const [a, b] = [asNumber(now![quantile] as Seconds | undefined), asNumber(before![quantile])]
    if (!(b >= 0) || !(a >= 0)) continue
    if (!Number.isFinite(b)) return { heat: 'calm', quantile, now: a, before: b }
    const times = a / Math.max(b, 1e-6)
    const slower = a - b >= SMALL
    return { heat: slower && times >= HOT ? 'hot' : slower && times >= WARM ? 'warm' : 'calm', quantile, now: a, before: b, times }
  }
  return { heat: 'calm' }
}

/** A past of fewer seconds says nothing of what is usual. */
const LEAST_PAST = 60

/** How much earlier than the window its past may end, in ms: it is kept for a minute, and large stores answer of a moment nearby. */
const NEAR = 15 * 60_000

/** Whether a past is the one before a window, and not before one that was shown earlier. */
export function isBefore(past: Pick<Baseline, 'to'>, window: Pick<Graph, 'from'>): boolean {
  const gap = Date.parse(window.from) - Date.parse(past.to)
  return gap > -1000 && gap < NEAR
}

/** What is usual for an edge; undefined where too little of its past hour is there. */
export const usualOf = (e: Edge, baseline?: Baseline): Usual | undefined => (baseline && baseline.covered_seconds >= LEAST_PAST ? baseline.edges[e.id] : undefined)

/** The pace of each edge. */
export function pacesOf(edges: Edge[], baseline?: Baseline): Map<string, Pace> {
  return new Map(edges.map((e) => [e.id, paceOf(best(e), usualOf(e, baseline))]))
}

/** The absolute numbers of a pace: "p99 14.2 ms, 4.1 × the 3.46 ms of its past hour"; '' where nothing was compared. */
export function paceText(p: Pace | undefined, baseline?: Baseline): string {
  if (!p?.quantile || p.now === undefined || p.before === undefined) return ''
  const seconds = (v: number): Seconds => (Number.isFinite(v) ? v : '+Inf')
  const times = p.times === undefined || !Number.isFinite(p.times) ? 'against' : `${timesOf(p.times)} × the`
  return `${p.quantile} ${duration(seconds(p.now))}, ${times} ${duration(seconds(p.before))} of its ${pastOf(baseline)}`
}

/** "4.1", "12". */
export const timesOf = (times: number): string => (times >= 10 ? times.toFixed(0) : times.toFixed(1))

/** What the past is that edges are compared with: "past hour", or "past 4 min" where no more is there. */
export function pastOf(baseline?: Baseline): string {
  const covered = baseline?.covered_seconds ?? 0
  return covered >= 3540 ? 'past hour' : `past ${span(covered)}`
}

/** What the legend says of colours. */
export function paceLegend(baseline?: Baseline): { warm: string; hot: string } | undefined {
  return baseline && baseline.covered_seconds >= LEAST_PAST ? { warm: `${WARM} × slower`, hot: `${HOT} × slower than its own ${pastOf(baseline)}` } : undefined
}
