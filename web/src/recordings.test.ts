import { expect, it } from 'vitest'
import { alike, kindOf, newest, opened, spanOf, timeOf, tookOf } from './recordings'
import { parse, write } from './state'
import type { KeptAnomaly, Recordings } from './types'

const anomaly = (more: Partial<KeptAnomaly> = {}): KeptAnomaly => ({ number: 3, kind: 'stall', container: 'cart', container_id: 'c', from: '2026-11-22T07:00:00.120Z', to: '2026-11-22T07:00:00.200Z', waited_ms: 12, text: 'stood still', effects: [], ...more })

it('opens the strip at an anomaly, by an address that can be sent', () => {
  const at = Date.parse('2026-11-22T07:00:00.120Z')
  const state = { ...parse('#view=recordings'), ...opened(anomaly()) }
  expect(state).toMatchObject({ zoom: [at - 2000, at + 2080], mark: `stall@${at}`, kept: 3 })
  expect(parse(write(state))).toMatchObject({ view: 'recordings', kept: 3, mark: `stall@${at}`, zoom: [at - 2000, at + 2080] })
})

it('says what it was, when, and how long', () => {
  expect(kindOf(anomaly())).toBe('stood still')
  expect(kindOf(anomaly({ kind: 'of a newer agent' }))).toBe('of a newer agent')
  expect(tookOf(anomaly())).toBe('80 ms')
  expect(timeOf(anomaly(), new Date('2026-11-22T09:00:00Z'))).toMatch(/^\d\d:00:00\.120$/)
})

it('lists the newest first, and those that match', () => {
  const list = [anomaly(), anomaly({ number: 4, from: '2026-11-22T08:00:00.000Z', container: '<b>x</b>' }), anomaly({ number: 5, effects: ['gateway waited'] })]
  expect(newest(list, '').map((a) => a.number)).toEqual([4, 5, 3])
  expect(newest(list, 'gate').map((a) => a.number)).toEqual([5])
  expect(newest(list, '<b>').map((a) => a.number)).toEqual([4])
})

it('says what is kept, and what is absent', () => {
  const flight = { from: '2026-11-22T07:00:00Z', to: '2026-11-22T07:10:00Z', interval_ms: 50, bytes: 1 }
  const r = (more: Partial<Recordings>): Recordings => ({ flight: null, anomalies: [], dropped: 0, ...more })
  expect(spanOf(r({ flight }))).toMatch(/\(10 min\), a tick each 50 ms\.$/)
  expect(spanOf(r({ flight: { ...flight, from: null, to: null } }))).toMatch(/nothing yet/)
  expect(spanOf(r({ absent: 'this server has none' }))).toBe('this server has none')
})

it('puts those of one kind of one container together, with how often, the longest, and what waited', () => {
  const at = (i: number) => `2026-11-22T07:${String(i).padStart(2, '0')}:00.000Z`
  const list = Array.from({ length: 60 }, (_, i) => anomaly({ number: i, kind: 'host-cpu', container: 'host', container_id: 'host', from: at(i), to: `2026-11-22T07:${String(i).padStart(2, '0')}:00.${100 + i}Z` }))
  const groups = alike(newest([...list, anomaly({ number: 99, from: at(30) }), anomaly({ number: 98, kind: 'host-cpu', from: at(5) })], ''))
  expect(groups.map((g) => [g.key, g.list.length])).toEqual([['host-cpu host', 60], ['stall c', 1], ['host-cpu c', 1]])
  expect(groups[0]).toMatchObject({ longest: { number: 59 }, waited_ms: 720 })
  expect([groups[0]!.list[0]!.number, groups[0]!.list[59]!.number]).toEqual([59, 0])
  expect(alike([])).toEqual([])
})
