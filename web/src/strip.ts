import { digits } from './format'
import type { State } from './state'
import type { Flight, Mark } from './types'

// What the strip of the last minutes is drawn from: ticks of its clock, labels of saturations and
// their places, ranges. Times are in ms, since any common begin.

export type Range = [number, number]

/** What closes the strip. */
export const CLOSED: Partial<State> = { strip: undefined, zoom: undefined, mark: undefined, lanes: undefined, kept: undefined }

const MOST = 3_600_000 // ms that the server answers at a time

/** The page's window for a strip that is opened on it, where it is held still and not too long. */
export const pastOf = (s: State): Range | undefined =>
  s.from !== undefined && s.to !== undefined && s.to - s.from <= 600 ? [Math.floor(s.from * 1000), Math.ceil(s.to * 1000)] : undefined

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 3_600_000]

/** Round times of a range, as many as there is room for. base is where a minute begins. */
export function ticksOf([from, to]: Range, width: number): { step: number; at: number[] } {
  const room = Math.max(1, Math.floor(width / 100))
  const step = STEPS.find((s) => (to - from) / s <= room) ?? STEPS[STEPS.length - 1]!
  const at: number[] = []
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) at.push(t)
  return { step, at }
}

/** A time of day, with milliseconds where the step is less than a second. */
export function clockOf(unixMS: number, step: number): string {
  const text = new Date(Math.floor(unixMS)).toLocaleTimeString('en-GB')
  return step >= 1000 ? text : `${text}.${String(Math.floor(unixMS) % 1000).padStart(3, '0')}`
}

/** A length of time in ms: "85 ms", "1.25 s", "5 min". */
export function lengthOf(ms: number): string {
  if (ms < 1000) return `${ms < 10 ? digits(ms) : Math.round(ms)} ms`
  if (ms < 120_000) return `${ms % 1000 === 0 ? ms / 1000 : digits(ms / 1000)} s`
  return `${Number((ms / 60_000).toFixed(1))} min`
}

export const KIND: Record<Mark['kind'], string> = {
  'host-cpu': 'all CPUs busy',
  'cpu-quota': 'at its CPU quota',
  'one-cpu': 'one thread’s CPU',
  'run-queue': 'waited for a CPU',
  'memory-limit': 'at its memory limit',
  'disk-time': 'disk busy',
  stall: 'stood still',
}

/** What a saturation was, how long, and who took the CPU. */
export function labelOf(m: Mark): string {
  const length = lengthOf(m.duration_ms)
  if (m.kind === 'host-cpu') return `${KIND[m.kind]} ${length} · ${m.container} took ${digits(cpusOf(m, m.container))}`
  const taker = m.kind === 'run-queue' ? m.cpu.find((s) => s.container !== m.container) : undefined
  return `${m.container} ${KIND[m.kind]} ${length}${taker ? ` · ${taker.container} took ${digits(taker.cpus)}` : ''}`
}

const cpusOf = (m: Mark, container: string) => m.cpu.find((s) => s.container === container)?.cpus ?? 0

/** How a saturation is called in the URL. */
export const keyOf = (m: Mark, base: number): string => `${m.kind}@${Math.round(base + m.from_ms)}`

/** The saturation of a key. With more ticks around it, its begin may be another: then it is the one that lasts at that time. */
export function markOf(f: Flight | undefined, key: string | undefined): Mark | undefined {
  const [kind, at] = (key ?? '').split('@')
  const begin = (m: Mark) => f!.base_ms + m.from_ms - Number(at)
  const off = (m: Mark) => Math.abs(begin(m))
  const lasts = (m: Mark) => begin(m) <= 0 && Number(at) < f!.base_ms + m.to_ms
  return f?.marks.filter((m) => m.kind === kind && (off(m) <= f.interval_ms || lasts(m))).sort((a, b) => off(a) - off(b))[0]
}

export interface Placed {
  mark: Mark
  row: number
  /** The bar, from the saturation's begin to its end, in px. */
  x: number
  width: number
  /** Where its label begins; absent where there is no room for it. */
  label?: number
}

/** How many rows of labels there are at most; below them is one of bars without label. */
export const ROWS = 4

/** Saturations of all of the host, which a busy one has many of; those of one container say more. */
const common = (m: Mark) => m.kind === 'host-cpu' || m.kind === 'run-queue'

/**
 * Places saturations on rows, and those last that are to lie on top. Those of one container come first,
 * then those that made others wait the longest. A label is in its bar, right or left of it.
 */
export function place(marks: Mark[], range: Range, width: number, textWidth: (text: string) => number): Placed[] {
  const x = (t: number) => Math.max(0, Math.min(width, ((t - range[0]) / (range[1] - range[0])) * width))
  const rows: Range[][] = Array.from({ length: ROWS }, () => [])
  const placed = [...marks].sort((a, b) => Number(common(a)) - Number(common(b)) || b.waited_ms - a.waited_ms).map((mark): Placed => {
    const left = x(mark.from_ms)
    const bar = Math.max(3, x(mark.to_ms) - left)
    const text = textWidth(labelOf(mark)) + 6
    const right = left + bar + 5
    const places = bar > text + 4 ? [left + 5] : [right, left - text].filter((at) => at >= 0 && at + text <= width)
    for (let row = 0; row < ROWS; row++) {
      for (const label of places) {
        const [from, to]: Range = [Math.min(left, label), Math.max(left + bar, label + text)]
        if (!rows[row]!.every(([a, b]) => to + 8 <= a || from >= b + 8)) continue
        rows[row]!.push([from, to])
        return { mark, row, x: left, width: bar, label }
      }
    }
    return { mark, row: ROWS, x: left, width: bar }
  })
  // Rows that nothing is on are left out.
  const used = [...new Set(placed.map((p) => p.row))].sort((a, b) => a - b)
  return placed.map((p) => ({ ...p, row: used.indexOf(p.row) })).reverse()
}

/** Four times as much, around the same middle, of what is kept. */
export function widen([from, to]: Range, kept: Range): Range {
  const length = Math.min((to - from) * 4, kept[1] - kept[0], MOST)
  const begin = Math.max(kept[0], Math.min((from + to) / 2 - length / 2, kept[1] - length))
  return [Math.floor(begin), Math.ceil(begin + length)]
}

/** A saturation with as much before and after it. */
export const around = (m: Mark): Range => {
  const margin = Math.max(m.duration_ms, 100)
  return [Math.floor(m.from_ms - margin), Math.ceil(m.to_ms + margin)]
}

/** The index of the last time at or before t, -1 if there is none. */
export function indexAt(times: number[], t: number): number {
  let [low, high] = [0, times.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (times[middle]! <= t) low = middle + 1
    else high = middle
  }
  return low - 1
}
