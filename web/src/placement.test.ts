import { expect, it } from 'vitest'
import { askedOf, bodyOf, changeOf, chipsOf, chosenOf, heatOf, hostOrder, keyOf, mappingOf, percent, ruleOf, ruleText } from './placement'
import type { PlaceFigures, Placement } from './types'

const figures = (part: Partial<PlaceFigures>): PlaceFigures => ({ cost: 1, cross_bytes_per_second: 1000, cross_bytes_share: 0.5, busiest_uplink_bytes_per_second: 800, cross_requests_share: 0.5, hosts_in_use: 3, highest_cpu_share: 0.3, highest_memory_share: 0.3, cpu_deviation: 0.1, moved: 0, ...part })

it('rounds a share as Go does: half to even', () => {
  expect([0.0625, 0.06250001, 0.1875, 0.41, 1, 0, -0.125, 0.00125, 0.002475].map(percent)).toEqual(['6.2 %', '6.3 %', '18.8 %', '41.0 %', '100.0 %', '0.0 %', '−12.5 %', '0.1 %', '0.2 %'])
})

it('says what changes, as the command line does', () => {
  const f = (part: Partial<PlaceFigures>, want: string) => expect(changeOf(figures({}), figures(part))).toBe(want)
  f({ cross_bytes_per_second: 590 }, '−41.0 % of bytes between hosts')
  f({ cross_bytes_per_second: 1200, cross_requests_share: 0.25, hosts_in_use: 2 }, '+20.0 % of bytes between hosts, −50.0 % of urgent requests between hosts, −1 hosts in use')
  f({ hosts_in_use: 4, cpu_deviation: 0.05 }, '+1 hosts in use, −5.0 % CPU deviation')
  f({ cost: 0.9 }, 'cost −0.1000')
  expect(changeOf(figures({ watts: 100 }), figures({ watts: 80.04 }))).toBe('−20.0 W')
  expect(changeOf(figures({ cross_bytes_per_second: 0 }), figures({}))).toBe('bytes between hosts, where there were none')
})

it('takes rules that the server takes, and says what others lack', () => {
  expect(ruleOf('together', ' cart , redis', '')).toEqual({ text: 'cart,redis' })
  expect(ruleOf('apart', 'db-*', '')).toEqual({ text: 'db-*' })
  expect(ruleOf('not_on', 'db', 'host-1, host-2')).toEqual({ text: 'db=host-1,host-2' })
  for (const [kind, names, hosts] of [['apart', 'cart', ''], ['stay', '', ''], ['on', 'db', ''], ['on', 'a,b', 'host-1'], ['stay', 'a=b', '']] as const) expect(ruleOf(kind, names, hosts).why).toBeTruthy()
  expect(ruleOf('require', 'db', 'zone in (a,b)')).toEqual({ text: 'db=zone in (a,b)' })
  expect(ruleOf('host_label', 'host-1', 'disk=ssd')).toEqual({ text: 'host-1=disk=ssd' })
  expect(ruleOf('require', 'db', ' ').why).toBeTruthy()
  expect(ruleText(['require', 'db=disk=ssd'])).toBe('db requires the host labels disk=ssd')
  expect(ruleText(['movable', 'db'])).toBe('db may leave its volumes')
  expect(ruleText(['not_on', 'db=host-1,host-2'])).toBe('db not on host-1 or host-2')
  expect(askedOf({ preset: 'fewest-hosts', rules: [['stay', 'a&b'], ['on', 'db=h']] })).toBe('&preset=fewest-hosts&stay=a%26b&on=db%3Dh')
})

const placement = (): Placement => {
  const container = (id: string, host: number, cpu: number, of_host = false) => ({ id, name: id, host, cpu_cores: { mean: cpu, peak: cpu }, memory_bytes: { mean: 1, peak: 1 }, of_host })
  const use = (mean: number) => ({ cpu_cores: { mean, peak: mean }, memory_bytes: 1, containers: 1 })
  return {
    from: '', to: '', covered_seconds: 1, headroom: 0.1, before: figures({}), after: figures({}), bound: 0, gap: 0, search: 'exact', traffic: [],
    hosts: ['a', 'b', 'c'].map((name) => ({ name, cores: 4, memory_bytes: 8 })), hosts_before: [use(1), use(2), use(3)], hosts_after: [use(1), use(1), use(4)],
    containers: [container('web', 0, 1), container('db', 1, 1), container('cart', 1, 2), container('dns', 1, 0, true)], placement: [0, 2, 1, 1],
    moves: [{ moves: [{ container: 1, name: 'db', from: 'b', to: 'c' }], gain: 1 }, { moves: [{ container: 2, name: 'cart', from: 'b', to: 'b' }], gain: 1 }],
  }
}

it('asks for the moves that are checked', () => {
  const a = placement()
  expect(a.moves.map((s) => keyOf(a, s))).toEqual(['db', 'cart'])
  expect(JSON.parse(bodyOf(a, chosenOf(a, ['cart', 'gone'])))).toEqual({ move: ['db=c'] })
  expect(JSON.parse(bodyOf(a, chosenOf(a, ['cart', 'db'])))).toEqual({ move: [] })
})

it('draws hosts at the same height on both sides, and a way for each move', () => {
  const a = placement()
  const m = mappingOf(a, a.placement, [1, 2, 0])
  expect(m.now.map((b) => [b.host, b.y, b.height])).toEqual(m.then.map((b) => [b.host, b.y, b.height]))
  expect(m.now.map((b) => b.spots.map((s) => s.name))).toEqual([['db', 'cart'], [], ['web']])
  expect(m.then.map((b) => b.spots.map((s) => [s.name, s.other]))).toEqual([[['cart', undefined]], [['db', 'b']], [['web', undefined]]])
  expect(m.ways.map((w) => [a.containers[w.index]!.name, w.from, w.to])).toEqual([['db', 36.5, 120.5]])
  expect(m.height).toBe(74 + 10 + 53 + 10 + 53)
  const many = { ...a, containers: Array.from({ length: 9 }, (_, i) => ({ ...a.containers[0]!, name: `c${i}` })), placement: Array(9).fill(0) }
  expect(mappingOf(many, many.placement, [0]).now[0]).toMatchObject({ more: 3, height: 26 + 7 * 21 + 6 })
})

it('shows on each host what moves first, and counts what is of the host', () => {
  const a = placement()
  const now = chipsOf(a, a.containers.map((c) => c.host), a.placement)
  expect(now[1]!.chips.map((c) => [c.container.name, c.other])).toEqual([['db', 'c'], ['cart', undefined]])
  expect(now[1]!.ofHost).toBe(1)
  expect(hostOrder(a, a)).toEqual([1, 2, 0])
  expect([0, 0.5, 1, 1.7, -1].map(heatOf)).toEqual([0, 4, 8, 8, 0])
})
