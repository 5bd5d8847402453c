import { short, type Grouping } from './state'
import type { Edge, Graph, Node, NumberInfo } from './types'

// Sparklines: a small line beside a number, of the last part of the window. One query answers a
// column, for all of its rows.

export type Scope = 'usage' | 'served' | 'called'

/** The last part of a window, in seconds: all of a short one, a quarter of a long one. */
export const tailOf = (seconds: number): number => Math.min(seconds, Math.max(300, seconds / 4))

/** How many points a line has at most. */
export const POINTS = 40

/** A round step, in seconds, that a tail has so many points of. */
export function sparkStep(seconds: number): number {
  for (const s of [2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600]) if (seconds / s <= POINTS) return s
  return Math.ceil(seconds / POINTS / 3600) * 3600
}

/** The labels that distinguish a column's series; undefined where nodes have none in common. */
function labelsOf(scope: Scope, by: Grouping): string[] | undefined {
  const end = scope === 'usage' ? '' : scope === 'served' ? 'server_' : 'client_'
  switch (by) {
    case 'container':
      return ['host', `${end}id`]
    case 'process':
      return scope === 'usage' ? undefined : ['host', `${end}id`, `${end}process`]
    case 'host':
      return ['host']
    case 'pod':
      return [`${end}namespace`, `${end}pod`]
    case 'workload':
      return [`${end}namespace`, `${end}workload_kind`, `${end}workload`]
    case 'namespace':
      return [`${end}namespace`]
  }
}

const BARE: Record<Scope, string> = { usage: 'host!=""', served: 'side="server"', called: 'side="client"' }

/** How many rows are named in a query; more are asked for without. */
const NAMED = 80

/** Values on steps; null where there is none. */
export type Line = (number | null)[]

/** Lines by the keys of their columns, then by whose they are. */
export type Lines = Map<string, Map<string, Line>>

/** A column of lines: one query answers it, for all of its rows. */
export interface LineColumn {
  key: string
  /** With rates over so many seconds; undefined where there is none. */
  query: (seconds: number) => string | undefined
  /** Whose line a series is. */
  of: (labels: Record<string, string>) => string
}

/** The columns of numbers that nodes have, by their paths, as "usage.cpu_cores". */
export function nodeColumns(numbers: Graph['numbers'], paths: string[], by: Grouping, rows: Node[]): LineColumn[] {
  return paths.flatMap((path) => {
    const [scope, key] = path.split('.') as [Scope, string]
    const n = (scope === 'usage' ? numbers.usage : numbers.side).find((n) => n.key === key)
    return n ? [{ key: path, query: (seconds: number) => columnQuery(n, scope, by, seconds, rows), of: (labels: Record<string, string>) => nodeIdOf(labels, scope, by) }] : []
  })
}

/** How often lines are read anew at most, in s. */
const LEAST = 10

/** What is drawn of a window of which so many seconds were seen, in Unix seconds; undefined where it is too short for a line. */
export function stretchOf(from: number, to: number, covered: number): { begin: number; end: number; step: number; points: number } | undefined {
  const tail = tailOf(to - from)
  const step = sparkStep(tail)
  const every = Math.max(LEAST, step)
  const end = Math.floor(to / every) * every
  // Before the first sample there is nothing to draw.
  const begin = Math.max(end - tail, Math.ceil((to - covered) / step) * step)
  const points = Math.floor((end - begin) / step) + 1
  return points < 2 ? undefined : { begin, end, step, points }
}

/** One line over another, point by point; a gap where the other is not above 0. */
export const ratioOf = (a: Line, b: Line | undefined): Line => a.map((v, i) => (v !== null && (b?.[i] ?? 0) > 0 ? v / b![i]! : null))

/** The window of a rate: with fewer than ten seconds one would be of too few samples. */
export const windowOf = (seconds: number): string => `${Math.max(10, Math.round(seconds))}s`

/** The query of a column of numbers; undefined where there is none for this grouping. */
export function columnQuery(n: Pick<NumberInfo, 'query'>, scope: Scope, by: Grouping, seconds: number, rows: Node[] = []): string | undefined {
  const labels = labelsOf(scope, by)
  if (!labels) return undefined
  let match = BARE[scope]
  if (by === 'container' && rows.length > 0 && rows.length <= NAMED) {
    match += `,${labels[1]}=~${anyOf(rows.map((r) => r.id))}`
  }
  // On a window of seconds "sum" is by node; what is around it goes by the same labels.
  const query = n.query.replaceAll('$match', match).replaceAll('$window', windowOf(seconds))
  return query.replace(/\b(sum|min|max)\(/g, `$1 by (${labels.join(', ')}) (`)
}

/** A pattern that a text alone fits. */
export const literal = (id: string): string => id.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')

/** What of a query selects ids: the beginning of one is enough, and keeps the address short. */
const anyOf = (ids: string[]): string =>
  JSON.stringify([...new Set(ids.map((id) => (id.startsWith('host/') ? 'host' : literal(short(id)) + (/^[0-9a-f]{64}$/.test(id) ? '.*' : ''))))].sort().join('|'))

/** The columns of numbers of edges between containers, by their keys, as "p99": as the client counted them, or else the server. */
export function edgeColumns(numbers: NumberInfo[], keys: string[], edges: Edge[]): LineColumn[] {
  if (edges.length === 0 || edges.length > NAMED) return []
  const ends = `client_id=~${anyOf(edges.map((e) => e.client))},server_id=~${anyOf(edges.map((e) => e.server))}`
  const by = (query: string, side: string, seconds: number) =>
    query.replaceAll('$match', `side="${side}",${ends}`).replaceAll('$window', windowOf(seconds)).replace(/\b(sum|min|max)\(/g, '$1 by (host, client_id, server_id, transport) (')
  const id = (labels: Record<string, string>, end: string) => (labels[end] === 'host' ? `host/${labels.host ?? ''}` : (labels[end] ?? ''))
  return keys.flatMap((key) => {
    const n = numbers.find((n) => n.key === key)
    return n ? [{
      key: `edge.${key}`,
      query: (seconds: number) => `(${by(n.query, 'client', seconds)}) or (${by(n.query, 'server', seconds)})`,
      of: (labels: Record<string, string>) => `${id(labels, 'client_id')}>${id(labels, 'server_id')}${labels.transport === 'udp' ? '/udp' : ''}`,
    }] : []
  })
}

/** The id of the node that a series of a column is of. */
export function nodeIdOf(labels: Record<string, string>, scope: Scope, by: Grouping): string {
  const end = scope === 'usage' ? '' : scope === 'served' ? 'server_' : 'client_'
  const of = (name: string) => labels[end + name] ?? ''
  const container = of('id') === 'host' ? `host/${labels.host ?? ''}` : of('id')
  switch (by) {
    case 'process':
      return of('process') ? `${container}/${of('process')}` : container
    case 'host':
      return `all/${labels.host ?? ''}`
    case 'pod':
      return `pod/${of('namespace')}/${of('pod')}`
    case 'workload':
      return `workload/${of('namespace')}/${of('workload_kind')}/${of('workload')}`
    case 'namespace':
      return `namespace/${of('namespace')}`
  }
  return container
}

export interface Series {
  metric: Record<string, string>
  values: [number, string][]
}

/** Values at from, from + step and so on; null where a series has none. */
export function onSteps(values: [number, string][], from: number, step: number, points: number): Line {
  const column: Line = Array.from({ length: points }, () => null)
  for (const [t, text] of values) {
    const i = Math.round((t - from) / step)
    const v = Number(text)
    if (i >= 0 && i < points && Number.isFinite(v)) column[i] = v
  }
  return column
}

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
