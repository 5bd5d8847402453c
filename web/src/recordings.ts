import { clock, span } from './format'
import { KIND, lengthOf } from './strip'
import type { State } from './state'
import type { AlikeAnomalies, KeptAnomaly, Mark, Recordings } from './types'

// What there is to look at tick by tick, in words and as links.

/** How long before and after an anomaly the strip shows, in ms; ten seconds of each are kept. */
const MARGIN = 2000

/** What of the state opens the strip at an anomaly. */
export function opened(a: KeptAnomaly): Partial<State> {
  const [from, to] = [Date.parse(a.from), Date.parse(a.to)]
  return { strip: 60, zoom: [from - MARGIN, to + MARGIN], mark: `${a.kind}@${Math.round(from)}`, kept: a.number, lanes: undefined }
}

/** What an anomaly was. */
export const kindOf = (a: KeptAnomaly): string => KIND[a.kind as Mark['kind']] ?? a.kind

export const tookOf = (a: KeptAnomaly): string => lengthOf(Date.parse(a.to) - Date.parse(a.from))

/** What the flight recorder has of the last minutes. */
export function spanOf(r: Recordings): string {
  const f = r.flight
  if (!f) return r.absent ?? 'There is no flight recorder.'
  if (!f.from || !f.to) return `The flight recorder has kept nothing yet; it takes a tick each ${f.interval_ms} ms.`
  const [from, to] = [Date.parse(f.from) / 1000, Date.parse(f.to) / 1000]
  return `The flight recorder has ${clock(from)} – ${clock(to)} (${span(to - from)}), a tick each ${f.interval_ms} ms.`
}

/** The time of day of an anomaly, to the millisecond. */
export function timeOf(a: KeptAnomaly, now = new Date()): string {
  const ms = Date.parse(a.from)
  return `${clock(Math.floor(ms / 1000), now)}.${String(((ms % 1000) + 1000) % 1000).padStart(3, '0')}`
}

/** Those that match, newest first. */
export const newest = (list: KeptAnomaly[], q: string): KeptAnomaly[] =>
  list.filter((a) => q === '' || [a.container, a.text, kindOf(a), ...a.effects].some((t) => t.toLowerCase().includes(q))).sort((a, b) => b.from.localeCompare(a.from) || b.number - a.number)

const length = (a: KeptAnomaly) => Date.parse(a.to) - Date.parse(a.from)

/** Those of one kind of one container together, in the order of the newest of each; the list is newest first. */
export function alike(list: KeptAnomaly[]): AlikeAnomalies[] {
  const groups = new Map<string, AlikeAnomalies>()
  for (const a of list) {
    const key = `${a.kind} ${a.container_id || a.container}`
    const g = groups.get(key)
    if (!g) groups.set(key, { key, list: [a], longest: a, waited_ms: a.waited_ms })
    else {
      g.list.push(a)
      g.waited_ms += a.waited_ms
      if (length(a) > length(g.longest)) g.longest = a
    }
  }
  return [...groups.values()]
}
