import { digits, format, NONE } from './format'
import { hostsOf, type Asked } from './spark'
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

/** The lines of what changed: of each kind of number, of the nodes and edges that are listed. */
export function linesOf(changes: ChangeOf[], g: Graph, by: Grouping): Asked {
  const listed = changes.filter((c) => LINES[c.what])
  const edges = listed.flatMap((c) => edgeOf(g, c.edge) ?? [])
  const nodes = listed.flatMap((c) => nodeOf(g, c.node) ?? [])
  return {
    numbers: [...new Set(listed.map((c) => LINES[c.what]!))].sort(), by, nodes: nodes.map((n) => n.id), edges: edges.map((e) => e.id),
    hosts: hostsOf([...nodes, ...edges.flatMap((e) => [e.client, e.server].map((id) => g.nodes.find((n) => n.id === id)).filter((n) => n?.kind !== 'outside'))]),
  }
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
