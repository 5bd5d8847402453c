import { describe, expect, it } from 'vitest'
import { applicationsOf, COUNTERS, FINE_COUNTERS, GAUGES, shownOf } from './applications'
import type { LabelledRow } from './data'

const row = (metric: string, name: string, value: number, labels = '', unit = '', node = 'a'): LabelledRow => ({
  metric, host: 'vm', node, labels: { metric: name, ...(labels && { labels }), ...(unit && { unit }), help: 'Help' }, value, ...(metric !== GAUGES && { per_second: value / 10 }),
})

describe('what applications count themselves', () => {
  it('is added up over the containers of a node, in order of the name', () => {
    const all = applicationsOf([row(GAUGES, 'app_queue', -3), row(COUNTERS, 'app_jobs_total', 20, 'method="GET"'), row(COUNTERS, 'app_jobs_total', 10, 'method="GET"'), row(COUNTERS, 'app_jobs_total', 5, 'method="PUT"'), row(FINE_COUNTERS, 'app_gc_total', 5, '', 's')])
    expect(all.map((a) => [a.name, a.value, a.counter])).toEqual([
      ['app_gc_total', 5, true],
      ['app_jobs_total{method="GET"}', 30, true],
      ['app_jobs_total{method="PUT"}', 5, true],
      ['app_queue', -3, false],
    ])
    expect(all.map(shownOf)).toEqual(['0.50 s/s', '3.00/s', '0.50/s', '−3.00'])
  })
  it('shows bytes as bytes, and a gauge of 0', () => {
    expect(applicationsOf([row(GAUGES, 'app_heap', 2048, '', 'By'), row(GAUGES, 'app_idle', 0)]).map(shownOf)).toEqual(['2.00 KiB', '0'])
  })
  it('has none of other metrics', () => {
    expect(applicationsOf([row('container_network_drops_total', 'x', 1)])).toEqual([])
  })
})
