import { expect, it } from 'vitest'
import { agentOf, barOf, heardOf, lineColumns, memoryOf, partLine, seenOf } from './hosts'
import type { HostPart, HostRow } from './types'

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
  const keys = ['cpu', 'memory', 'containers', 'in', 'out', 'agent', 'agent-memory', 'seen']
  expect(lineColumns([], []).map((c) => c.key)).toEqual(keys)
  const columns = lineColumns([row({ name: 'b.example' }), row({ name: 'a' })], [])
  expect(columns.map((c) => c.key)).toEqual([...keys, 'part', 'idle'])
  const [part, idle] = columns.slice(-2)
  expect(part!.query(30)).toBe('sum by (host, id) (rate(container_cpu_usage_seconds_total{host=~"a|b\\\\.example"}[30s]))')
  const numbers = lineColumns([], [{ key: 'swapped', title: 'Swapped', unit: '/s', query: 'sum(rate(swapped_total{$match}[$window]))' }])
  expect(numbers.map((c) => c.key)).toEqual([...keys, 'number.swapped'])
  expect(numbers.at(-1)!.query(30)).toBe('sum by (host) (rate(swapped_total{host!=""}[30s]))')
  // Whose a series is, a part knows by the same key.
  const h = row({ name: 'a' })
  expect(part!.of({ host: 'a', id: 'host' })).toBe(partLine(h, { kind: 'host', name: 'host', cpu_cores: 1, share: 1 }))
  expect(part!.of({ host: 'a', id: 'c1' })).toBe(partLine(h, { kind: 'container', node: 'c1', name: 'web', cpu_cores: 1, share: 1 }))
  expect(idle!.of({ host: 'a' })).toBe(partLine(h, { kind: 'idle', name: 'idle', cpu_cores: 1, share: 1 }))
  expect(partLine(h, { kind: 'unattributed', name: 'unattributed', cpu_cores: 1, share: 1 })).toBeUndefined()
  expect(partLine(h, { kind: 'steal', name: 'taken by the hypervisor', cpu_cores: 1, share: 1 })).toBeUndefined()
})

it('says what the agent takes', () => {
  expect(agentOf(row())).toBe('–')
  expect(agentOf(row({ agent_cpu_cores: 0.0042, agent_memory_bytes: 40 << 20 }))).toBe('0.42 % of a core · 40.0 MiB')
  expect(agentOf(row({ agent_memory_bytes: 40 << 20 }))).toBe('40.0 MiB')
})
