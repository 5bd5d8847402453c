import { digits, format, NONE } from './format'
import type { ChangeOf } from './types'

// What changed between two windows, in words.

const WHAT: Record<string, string> = {
  cpu: 'CPU', memory: 'Memory', rate: 'Requests', mean: 'Mean latency', p99: 'p99 latency',
  failures: 'Failed connects', retransmits: 'Segments sent again',
}

export const whatOf = (c: ChangeOf): string => (c.what === 'presence' ? (c.after === undefined ? 'Gone' : 'New') : (WHAT[c.what] ?? c.what))

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
