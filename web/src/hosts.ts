import { routeText } from './events'
import { bytes, digits, duration, floorPercent, format, span } from './format'
import type { Asked } from './spark'
import type { HostPart, HostRow, Node, NumberInfo, Probe } from './types'

// What each host is used for, in bars and words.

/** Colours of a bar: the first containers have one each, what is no container always the same. */
export const PALETTE = 8

/** The class of a part of a bar. */
export const shadeOf = (p: HostPart, at: number): string => (p.kind === 'container' ? `part-${at % PALETTE}` : `part-${p.kind}`)

/** The parts with their place in a bar of 100; they fill all of it. */
export function barOf(parts: HostPart[]): { part: HostPart; x: number; width: number; shade: string }[] {
  let x = 0
  let containers = 0
  return parts.map((part) => {
    const at = { part, x, width: part.share * 100, shade: shadeOf(part, part.kind === 'container' ? containers++ : 0) }
    x += at.width
    return at
  })
}

/** How long ago a host was heard of, and whether that is too long for one that writes each second. */
export function heardOf(h: HostRow, now: number): { text: string; late: boolean } {
  if (!h.last_heard) return { text: 'not in this time', late: true }
  const ago = Math.max(0, now - Date.parse(h.last_heard) / 1000)
  return { text: ago < 15 ? 'just now' : `${span(ago)} ago`, late: ago >= 15 }
}

/** The sentences of a part, for who points at it. */
export const WHAT: Record<HostPart['kind'], string> = {
  container: 'CPU time of the container, threads that still run included',
  host: 'CPU time of what runs in no container: the system, the agent, kernel threads',
  more: 'containers that used less than those that are named',
  other: 'control groups that found no room in the kernel’s table: give --max-groups',
  idle: 'time in which the CPUs ran nothing',
  steal: 'time for which the hypervisor ran others on the CPUs of this virtual machine (/proc/stat); whose time it was is not known, so it is taken from all parts that ran, in proportion',
  unattributed: 'what is not counted: the two ends of the window',
}

/** The lines of hosts, by the facts that have them. */
export const LINES: Record<string, string> = {
  cpu: 'host.cpu_cores', memory: 'host.containers_memory_bytes', containers: 'host.containers', in: 'host.network_receive_bytes', out: 'host.network_transmit_bytes',
  agent: 'host.agent_cpu_cores', 'agent-memory': 'host.agent_memory_bytes', seen: 'host.counted_share',
}

/** Which line that of a part of a host is, and whose; undefined for parts that nobody counts. */
export const partLine = (h: HostRow, p: HostPart): [path: string, of: string] | undefined =>
  p.kind === 'idle' ? ['host.idle', h.name] : (p.kind === 'host' || p.kind === 'container') && p.node ? ['usage.cpu_cores', p.node] : undefined

/** What is asked for: the lines of all hosts, and of the containers of those that are looked at. */
export function linesOf(looked: HostRow[], numbers: NumberInfo[]): Asked {
  const parts = looked.flatMap((h) => h.parts.map((p) => partLine(h, p)).filter((l) => l !== undefined))
  const nodes = parts.flatMap(([path, of]) => (path === 'usage.cpu_cores' ? [of] : []))
  return { numbers: [...Object.values(LINES), ...numbers.map((n) => `host.${n.key}`), 'host.idle', ...(nodes.length > 0 ? ['usage.cpu_cores'] : [])], nodes }
}

/** What a host has, in a line. */
export const sizeOf = (h: HostRow): string => [`${h.cores} core${h.cores === 1 ? '' : 's'}`, h.memory_bytes ? bytes(h.memory_bytes) : ''].filter(Boolean).join(' · ')

/** The share of a host's memory that its containers take, 0 to 1; undefined where either is not known. */
export const memoryOf = (h: HostRow): number | undefined => (h.memory_bytes && h.containers_memory_bytes !== undefined ? Math.min(1, h.containers_memory_bytes / h.memory_bytes) : undefined)

/** How much of what happened on the host is in the numbers, and how long it was watched. */
export function seenOf(h: HostRow, window: number): { text: string; bad: boolean } {
  const words = [h.counted_share === undefined ? 'no traffic' : `${floorPercent(h.counted_share)} of bytes`]
  if (h.dropped > 0) words.push(`${format(h.dropped, '')} updates dropped`)
  if (h.covered_seconds < window - 2) words.push(`${span(h.covered_seconds)} of ${span(window)}`)
  return { text: words.join(', '), bad: h.dropped > 0 || (h.counted_share ?? 1) < 0.99 }
}

/** What the agent itself takes: CPU, and memory. */
export const agentParts = (h: HostRow): { cpu?: string; memory?: string } => ({
  cpu: h.agent_cpu_cores === undefined ? undefined : `${digits(h.agent_cpu_cores * 100)} % of a core`,
  memory: h.agent_memory_bytes ? bytes(h.agent_memory_bytes) : undefined,
})

/** The same in words. */
export const agentOf = (h: HostRow): string => Object.values(agentParts(h)).filter(Boolean).join(' · ') || '–'

/** How many of the measured ways of a host are shown. */
export const SHOWN_PROBES = 12

/** The measured ways from or to a host, those that lose most first, then the slowest. */
export const probesOf = (h: HostRow, all: Probe[]): Probe[] =>
  all.filter((p) => p.from === h.name || p.to === h.name).sort((a, b) => (b.loss_ratio ?? 0) - (a.loss_ratio ?? 0) || (b.round_trip?.p50 ?? 0) - (a.round_trip?.p50 ?? 0))

/** The host at the other end. */
export const otherEnd = (h: HostRow, p: Probe): string => (p.from === h.name ? p.to : p.from)

/** What a fact of a host's network is called: to which host, or between which containers. */
export const probeTitle = (h: HostRow, p: Probe): string => (p.client ? `${p.client} → ${p.server} (${p.from} → ${p.to})` : `Network to ${otherEnd(h, p)}${classOf(p)}`)

/** The two ends of a measurement: hosts, or containers of them. */
export const probeEnds = (p: Probe): string => (p.client ? `${p.client} on ${p.from} and ${p.server} on ${p.to}` : `${p.from} and ${p.to}${classOf(p)}`)

/** The class of service of its packets, where that is not the usual one. */
const classOf = (p: Probe): string => (p.dscp ? ` (DSCP ${p.dscp})` : '')

/** What sessions call a container: its name, or namespace/pod/name of a pod's. */
const sessionName = (n: Node): string => (n.pod ? `${n.namespace}/${n.pod}/${n.name}` : n.name)

/** Of what was measured between the hosts of two ends, what is not between other containers. */
export const probesBetween = (all: Probe[], client: Node, server: Node): Probe[] =>
  all.filter((p) => !p.client || client.kind !== 'container' || server.kind !== 'container' || (p.client === sessionName(client) && p.server === sessionName(server)))

/** What was measured, one by one; there is from the host that sends. What was not measured is left out. */
export function probeFacts(p: Probe): [name: string, text: string][] {
  const facts: [string, string | undefined][] = [
    ['Sent by', p.running ? `${p.from}, each ${duration(p.interval_seconds)}` : `${p.from}, ended`],
    ['Round trip p50', p.round_trip && duration(p.round_trip.p50)],
    ['Round trip p99', p.round_trip && duration(p.round_trip.p99)],
    ['Jitter', p.jitter_seconds === undefined ? undefined : duration(p.jitter_seconds)],
    ['Lost', p.loss_ratio === undefined ? undefined : `${format(p.lost, '')} of ${format(p.sent, '')} (${digits(p.loss_ratio * 100)} %)`],
    ['Lost there, back', p.lost > 0 ? `${format(p.lost_there, '')}, ${format(p.lost_back, '')}` : undefined],
    [`One way to ${p.to}, p50`, p.there && `${duration(p.there.p50)} ± ${duration(p.clock_error_seconds)}`],
    [`One way to ${p.from}, p50`, p.back && `${duration(p.back.p50)} ± ${duration(p.clock_error_seconds)}`],
    [`Above the least to ${p.to}, p99`, p.above_minimum_there && duration(p.above_minimum_there.p99)],
    [`Above the least to ${p.from}, p99`, p.above_minimum_back && duration(p.above_minimum_back.p99)],
    [`Route to ${p.to}`, p.route && routeText(p.route)],
    ['Route changes', p.route_changes > 0 ? format(p.route_changes, '') : undefined],
  ]
  return facts.filter((f): f is [string, string] => f[1] !== undefined)
}

/** What was measured, in words. */
export function probeText(p: Probe): { text: string; bad: boolean } {
  if (p.running && !p.answered && p.lost > 0) return { text: 'not answered', bad: true }
  const words = p.round_trip ? [duration(p.round_trip.p50)] : []
  if (p.loss_ratio !== undefined) words.push(`${digits(p.loss_ratio * 100)} % lost`)
  if (p.jitter_seconds !== undefined) words.push(`jitter ${duration(p.jitter_seconds)}`)
  if (!p.running) words.push('ended')
  return { text: words.join(' · ') || 'begins', bad: (p.loss_ratio ?? 0) > 0 }
}
