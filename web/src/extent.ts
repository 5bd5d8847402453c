import { AGOS, lengthOf, type Ago, type State } from './state'
import { span } from './format'
import type { Extent } from './types'

// From when to when there is data, and what can be compared because of it. Times are in Unix seconds.

export type Span = [from: number, to: number]

export const extentOf = (e?: Extent): Span | undefined => (e?.from && e.to ? [Date.parse(e.from) / 1000, Date.parse(e.to) / 1000] : undefined)

/** The last part of what there is, at most so long. */
export function lastOf([from, to]: Span, seconds: number): Span {
  return [Math.max(from, to - seconds), Math.max(to, from + 1)]
}

/** Why a window cannot be compared with an earlier one; undefined where it can, or where that is not known. */
export function whyNot(ago: Ago, state: State, window: Span, there: Span | undefined, now: number): string | undefined {
  const length = lengthOf(state)
  const seconds = AGOS.find(([name]) => name === ago)![2] || length
  if (seconds < length) return 'shorter than the window'
  if (!there) return undefined
  if (window[1] - seconds <= there[0]) return `data begin ${span(Math.max(0, now - there[0]))} ago`
  if (window[0] - seconds >= there[1]) return `data end ${span(Math.max(0, now - there[1]))} ago`
  return undefined
}
