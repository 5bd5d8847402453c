import type { Values } from './data'
import { short, type Grouping } from './state'
import type { Node } from './types'

// Sparklines: a small line beside a number, of the last part of the window. One request answers a
// table, for all of its rows.

/** The last part of a window, in seconds: all of a short one, a quarter of a long one. */
export const tailOf = (seconds: number): number => Math.min(seconds, Math.max(300, seconds / 4))

/** How many points a line has at most. */
export const POINTS = 40

/** A round step, in seconds, that a tail has so many points of. */
export function sparkStep(seconds: number): number {
  for (const s of [2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600]) if (seconds / s <= POINTS) return s
  return Math.ceil(seconds / POINTS / 3600) * 3600
}

/** Values at the ends of steps; null where there is none. */
export type Line = (number | null)[]

/** Lines by the paths of their numbers, then by whose they are. */
export type Lines = Map<string, Map<string, Line>>

/** What lines are asked for: numbers by their paths, of some nodes, edges or hosts of a grouping. */
export interface Asked {
  /** As "usage.cpu_cores", "edge.p99", "service.demand", "host.cpu_cores". */
  numbers: string[]
  by?: Grouping
  /** Of which nodes and edges; all where there are none. */
  nodes?: string[]
  edges?: string[]
  /** Which hosts are enough for them; all where none is named. */
  hosts?: string[]
}

/** How many bytes of names a request has at most: the rows beyond have no line. */
const NAMES = 5000

/** The request of lines: one for a whole table. */
export function linesPath(a: Asked, s: Stretch): string {
  const p = new URLSearchParams({ numbers: a.numbers.join(), from: String(s.begin), to: String(s.end), points: String(s.points) })
  if (a.by && a.by !== 'container') p.set('by', a.by)
  let room = NAMES
  for (const [name, list] of [['node', a.nodes], ['edge', a.edges], ['host', a.hosts]] as const) {
    for (const id of new Set(list?.map(short))) if ((room -= encodeURIComponent(id).length + name.length + 2) >= 0) p.append(name, id)
  }
  return '/api/outsight/lines?' + p
}

/** The hosts that are enough for some nodes; undefined where one of them is of none. */
export const hostsOf = (rows: (Pick<Node, 'host'> | undefined)[]): string[] | undefined => (rows.every((r) => r?.host) ? [...new Set(rows.map((r) => r!.host!))].sort() : undefined)

/** How often lines are read anew at most, in s. */
const LEAST = 10

/** What is drawn of a window: so many points, the first of them a step after begin; in Unix seconds. */
export interface Stretch {
  begin: number
  end: number
  step: number
  points: number
}

/** What is drawn of a window of which so many seconds were seen; undefined where it is too short for a line. */
export function stretchOf(from: number, to: number, covered: number): Stretch | undefined {
  const tail = tailOf(to - from)
  const step = sparkStep(tail)
  const every = Math.max(LEAST, step)
  const end = Math.floor(to / every) * every
  // Before the first frame there is nothing to draw.
  const first = Math.max(end - tail, Math.ceil((to - covered) / step) * step)
  const points = Math.floor((end - first) / step)
  return points < 2 ? undefined : { begin: end - points * step, end, step, points }
}

/** One line over another, point by point; a gap where the other is not above 0. */
export const ratioOf = (a: Line, b: Line | undefined): Line => a.map((v, i) => (v !== null && (b?.[i] ?? 0) > 0 ? v / b![i]! : null))

/** What can be drawn of values: what is past the end of a histogram has no height. */
export const drawable = (values: Values): Line => values.map((v) => (typeof v === 'number' ? v : null))

/** The path of a line from 0 up in a box; gaps stay gaps. Empty where there are fewer than two values. */
export function sparkPath(values: Line, width: number, height: number): string {
  const most = values.reduce<number>((m, v) => Math.max(m, v ?? 0), 0)
  // A value between two gaps would be a dot.
  if (!values.some((v, i) => v !== null && values[i + 1] != null)) return ''
  const x = (i: number) => Math.round((i / (values.length - 1)) * (width - 2) * 10) / 10 + 1
  const y = (v: number) => Math.round((height - 1 - (most > 0 ? v / most : 0) * (height - 2)) * 10) / 10
  let path = ''
  values.forEach((v, i) => {
    if (v !== null && (values[i - 1] != null || values[i + 1] != null)) path += `${i > 0 && values[i - 1] !== null ? 'L' : 'M'}${x(i)} ${y(v)}`
  })
  return path
}
