import type { LabelledRow } from './data'
import { digits, duration, format } from './format'

// What the applications of a container count themselves: sdk/ and docs/appmetrics.md.

export const COUNTERS = 'container_application_total'
export const FINE_COUNTERS = 'container_application_seconds_total'
export const GAUGES = 'container_application'

export interface Application {
  /** The name with its labels: app_requests_total{method="GET"}. */
  name: string
  help: string
  unit: string
  counter: boolean
  /** What a counter gained in the window and per second of it, or the level at its end. */
  value: number
  perSecond: number
}

/** The rows of all containers of a node together, in order of the name. */
export function applicationsOf(rows: LabelledRow[]): Application[] {
  const all = new Map<string, Application>()
  for (const r of rows) {
    if (r.value === undefined || ![COUNTERS, FINE_COUNTERS, GAUGES].includes(r.metric)) continue
    const { metric = '', labels = '', unit = '', help = '' } = r.labels
    const name = labels ? `${metric}{${labels}}` : metric
    const sum = all.get(name) ?? { name, help, unit, counter: r.metric !== GAUGES, value: 0, perSecond: 0 }
    all.set(name, { ...sum, value: sum.value + r.value, perSecond: sum.perSecond + (r.per_second ?? 0) })
  }
  return [...all.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
}

/** What is shown of one: the rate of a counter, the level of a gauge. */
export function shownOf(a: Application): string {
  if (!a.counter) return a.unit === 'By' ? format(a.value, 'B') : a.unit === 's' && a.value >= 0 ? duration(a.value) : digits(a.value)
  return a.unit === 'By' ? format(a.perSecond, 'B/s') : a.unit === 's' ? `${digits(a.perSecond)} s/s` : format(a.perSecond, '/s')
}
