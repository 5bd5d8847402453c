import { expect, it } from 'vitest'
import { agentOf, barOf, heardOf, LINES, linesOf, memoryOf, otherEnd, partLine, probeEnds, probeFacts, probesBetween, probesOf, probeText, probeTitle, seenOf } from './hosts'
import type { HostPart, HostRow, Node, Probe } from './types'

const part = (kind: HostPart['kind'], share: number): HostPart => ({ kind, name: kind, cpu_cores: share * 2, share })
const row = (more: Partial<HostRow> = {}): HostRow => ({ name: 'vm', cores: 2, containers: 3, cpu_cores: 1, parts: [], covered_seconds: 300, dropped: 0, numbers: {}, ...more })

it('fills a bar, and gives containers colours of their own', () => {
  const bar = barOf([part('container', 0.25), part('host', 0.125), part('container', 0.125), part('idle', 0.5)])
  expect(bar.map((b) => [b.x, b.width, b.shade])).toEqual([[0, 25, 'part-0'], [25, 12.5, 'part-host'], [37.5, 12.5, 'part-1'], [50, 50, 'part-idle']])
})

it('says when a host was heard of', () => {
  const at = (ago: number) => row({ last_heard: new Date(1_790_000_000_000 - ago * 1000).toISOString() })
  expect(heardOf(at(2), 1_790_000_000)).toEqual({ text: 'just now', late: false })
  expect(heardOf(at(200), 1_790_000_000)).toEqual({ text: '3 min 20 s ago', late: true })
  expect(heardOf(at(-3), 1_790_000_000).late).toBe(false)
  expect(heardOf(row(), 1).late).toBe(true)
})

it('says what of a host was seen', () => {
  expect(seenOf(row({ counted_share: 1 }), 300)).toEqual({ text: '100 % of bytes', bad: false })
  expect(seenOf(row(), 300)).toEqual({ text: 'no traffic', bad: false })
  expect(seenOf(row({ counted_share: 0.5, dropped: 7, covered_seconds: 60 }), 300)).toEqual({ text: '50 % of bytes, 7 updates dropped, 60 s of 5 min', bad: true })
})

it('knows how full memory is', () => {
  expect(memoryOf(row())).toBeUndefined()
  expect(memoryOf(row({ memory_bytes: 1000, containers_memory_bytes: 250 }))).toBe(0.25)
  expect(memoryOf(row({ memory_bytes: 1000, containers_memory_bytes: 2500 }))).toBe(1)
})

it('asks for the lines of all hosts at once, and of containers of those that are looked at', () => {
  const all = Object.values(LINES)
  expect(linesOf([], [])).toEqual({ numbers: [...all, 'host.idle'], nodes: [] })
  const of = (kind: HostPart['kind'], node?: string): HostPart => ({ kind, node, name: kind, cpu_cores: 1, share: 1 })
  const h = row({ name: 'a', parts: [of('host', 'host/a'), of('container', 'c1'), of('idle'), of('unattributed'), of('steal'), of('more')] })
  expect(linesOf([h], [{ key: 'swapped', title: 'Swapped', unit: '/s', query: '' }])).toEqual({ numbers: [...all, 'host.swapped', 'host.idle', 'usage.cpu_cores'], nodes: ['host/a', 'c1'] })
  expect(h.parts.map((p) => partLine(h, p))).toEqual([['usage.cpu_cores', 'host/a'], ['usage.cpu_cores', 'c1'], ['host.idle', 'a'], undefined, undefined, undefined])
})

it('says what the agent takes', () => {
  expect(agentOf(row())).toBe('–')
  expect(agentOf(row({ agent_cpu_cores: 0.0042, agent_memory_bytes: 40 << 20 }))).toBe('0.42 % of a core · 40.0 MiB')
  expect(agentOf(row({ agent_memory_bytes: 40 << 20 }))).toBe('40.0 MiB')
})

it('says what was measured of the network to other hosts', () => {
  const delay = (p50: number) => ({ count: 10, mean: p50, p50, p90: p50, p99: p50 })
  const probe = (more: Partial<Probe>): Probe => ({ from: 'a', to: 'b', dscp: 0, running: true, answered: true, sent: 100, lost: 0, lost_there: 0, lost_back: 0, loss_ratio: 0, route_changes: 0, ...more })
  const all = [probe({ round_trip: delay(1e-3) }), probe({ from: 'c', to: 'a', lost: 2, loss_ratio: 0.02 }), probe({ to: 'd', round_trip: delay(2e-3) }), probe({ from: 'c', to: 'd' })]
  expect(probesOf(row({ name: 'a' }), all).map((p) => otherEnd(row({ name: 'a' }), p))).toEqual(['c', 'd', 'b'])
  expect(probeText(probe({ round_trip: delay(1e-3), jitter_seconds: 2e-5 }))).toEqual({ text: '1.00 ms · 0 % lost · jitter 20.0 µs', bad: false })
  expect(probeText(probe({ round_trip: delay(1e-3), lost: 1, loss_ratio: 0.01, running: false, answered: false }))).toEqual({ text: '1.00 ms · 1.00 % lost · ended', bad: true })
  expect(probeText(probe({ lost: 100, loss_ratio: 1, answered: false }))).toEqual({ text: 'not answered', bad: true })
  const facts = probeFacts(probe({ interval_seconds: 0.1, round_trip: delay(1e-3), lost: 3, lost_there: 2, lost_back: 1, loss_ratio: 0.03, there: delay(4e-4), clock_error_seconds: 1e-5 }))
  expect(facts).toEqual([['Sent by', 'a, each 100 ms'], ['Round trip p50', '1.00 ms'], ['Round trip p99', '1.00 ms'], ['Lost', '3 of 100 (3.00 %)'], ['Lost there, back', '2, 1'], ['One way to b, p50', '400 µs ± 10.0 µs']])
  expect(probeFacts(probe({ loss_ratio: undefined, interval_seconds: 1, above_minimum_there: delay(2e-3), above_minimum_back: delay(3e-6), route: '192.0.2.1 192.0.2.2', route_changes: 2 }))).toEqual([['Sent by', 'a, each 1.00 s'], ['Above the least to b, p99', '2.00 ms'], ['Above the least to a, p99', '3.00 µs'], ['Route to b', '192.0.2.1 → 192.0.2.2'], ['Route changes', '2']])
  expect(probeFacts(probe({ running: false, loss_ratio: undefined }))).toEqual([['Sent by', 'a, ended']])
  const web = probe({ client: 'web', server: 'shop/db-0/db' })
  const node = (name: string, more: Partial<Node> = {}): Node => ({ id: name, name, kind: 'container', ...more })
  expect([probe({}), web].map((p) => probeTitle(row({ name: 'b' }), p))).toEqual(['Network to a', 'web → shop/db-0/db (a → b)'])
  expect([probe({}), web].map(probeEnds)).toEqual(['a and b', 'web on a and shop/db-0/db on b'])
  expect([probeTitle(row({ name: 'b' }), probe({ dscp: 46 })), probeEnds(probe({ dscp: 46 }))]).toEqual(['Network to a (DSCP 46)', 'a and b (DSCP 46)'])
  const db = node('db', { pod: 'db-0', namespace: 'shop' })
  expect(probesBetween([probe({}), web], node('web'), db)).toEqual([probe({}), web])
  expect(probesBetween([probe({}), web], node('job'), db)).toEqual([probe({})])
  expect(probesBetween([probe({}), web], node('web'), node('db'))).toEqual([probe({})])
  expect(probesBetween([web], node('a', { kind: 'host' }), db)).toEqual([web])
  expect(probeText(probe({ sent: 0, loss_ratio: undefined, answered: false }))).toEqual({ text: 'begins', bad: false })
})
