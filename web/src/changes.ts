import { digits, format, NONE } from './format'
import { edgeColumns, nodeColumns, type LineColumn } from './spark'
import { edgeOf, nodeOf, type Grouping } from './state'
import type { ChangeOf, Graph } from './types'

// What changed between two windows, in words.

const WHAT: Record<string, string> = {
  cpu: 'CPU', memory: 'Memory', rate: 'Requests', mean: 'Mean latency', p99: 'p99 latency',
  failures: 'Failed connects', retransmits: 'Segments sent again',
}

export const whatOf = (c: ChangeOf): string => (c.what === 'presence' ? (c.after === undefined ? 'Gone' : 'New') : (WHAT[c.what] ?? c.what))

/** Which line is beside what changed: of a number of nodes, or of edges. */
export const LINES: Record<string, string> = {
  cpu: 'usage.cpu_cores', memory: 'usage.memory_bytes', rate: 'edge.transactions_per_second', mean: 'edge.mean', p99: 'edge.p99', failures: 'edge.failures', retransmits: 'edge.retransmits',
}

/** The columns of lines of changes: one query for each kind of number. Edges have lines where they are between containers. */
export function lineColumns(changes: ChangeOf[], g: Graph, by: Grouping): LineColumn[] {
  const kinds = [...new Set(changes.flatMap((c) => LINES[c.what] ?? []))].sort()
  const edges = by === 'container' ? [...new Set(changes.flatMap((c) => (c.what === 'presence' ? [] : (edgeOf(g, c.edge) ?? []))))] : []
  return [
    ...nodeColumns(g.numbers, kinds.filter((k) => k.startsWith('usage.')), by, [...new Set(changes.flatMap((c) => nodeOf(g, c.node) ?? []))]),
    ...edgeColumns(g.numbers.side, kinds.filter((k) => k.startsWith('edge.')).map((k) => k.slice(5)), edges),
  ]
}

/** The number in one of the windows, or whether it was there. */
export function numberOf(c: ChangeOf, when: 'before' | 'after'): string {
  if (c.what === 'presence') return c[when] === undefined ? 'absent' : 'there'
  return format(c[when], c.unit)
}

/** How many times as much it is, or the part that is left. */
export function timesOf({ what, before, after }: ChangeOf): string {
  if (what === 'presence' || before === undefined || after === undefined) return NONE
  if (before === 0) return 'from 0'
  if (after === 0) return 'to 0'
  return after > before ? `× ${digits(after / before)}` : `÷ ${digits(before / after)}`
}

/** How sure it is that chance alone did not do it. */
export function sureOf(c: ChangeOf): string {
  if (c.deviations === 0) return c.sure ? 'sure' : NONE
  return `${c.deviations < 99.95 ? c.deviations.toFixed(1) : '> 100'} deviations`
}
