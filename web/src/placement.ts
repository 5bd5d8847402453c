import { format } from './format'
import { short, type State } from './state'
import type { PlaceContainer, PlaceFigures, Placement, PlaceStep } from './types'

// Where containers would better run. All figures are the server's, so that they are those of the command line: it also
// measures what is left when moves are unchecked.

/** What a placement may be good for, by preset, for people. */
export const PRESET_NAMES: Record<State['preset'], string> = {
  '': 'little traffic and even CPUs', 'least-traffic': 'least traffic between hosts', 'fewest-hosts': 'fewest hosts in use', 'lowest-latency': 'lowest latency', 'lowest-energy': 'lowest energy',
}

/** What a rule says, between its containers and its hosts. */
export const RULE_NAMES: Record<State['rules'][number][0], string> = { together: 'on one host', apart: 'on a host each', on: 'only on', not_on: 'not on', require: 'requires the host labels', host_label: 'is a host with the labels', stay: 'stays where it is', movable: 'may leave its volumes' }

/** What a rule has besides the name: hosts, labels of a host, or nothing. */
export const valueKind = (kind: State['rules'][number][0]): 'hosts' | 'labels' | undefined => (kind === 'on' || kind === 'not_on' ? 'hosts' : kind === 'require' || kind === 'host_label' ? 'labels' : undefined)

/** A rule as the server takes it, or why it is none. */
export function ruleOf(kind: keyof typeof RULE_NAMES, names: string, hosts: string): { text?: string; why?: string } {
  const list = (text: string) => text.split(',').map((name) => name.trim()).filter((name) => name !== '')
  const [of, on] = [list(names), list(hosts)]
  if (of.length === 0) return { why: kind === 'host_label' ? 'Which host?' : 'Which container?' }
  if (of.some((name) => name.includes('='))) return { why: 'A name here has no “=”.' }
  const more = of.length > 1 || of[0]!.includes('*')
  if ((kind === 'together' || kind === 'apart') && !more) return { why: 'This takes two containers or more: cart,redis or db-*' }
  if (kind !== 'together' && kind !== 'apart' && of.length > 1) return { why: 'One container for each such rule; db-* for all that begin so.' }
  if (valueKind(kind) === 'labels') return hosts.trim() ? { text: `${of[0]}=${hosts.trim()}` } : { why: 'Which labels? disk=ssd' }
  if (kind === 'on' || kind === 'not_on') return on.length ? { text: `${of[0]}=${on.join()}` } : { why: 'Which host?' }
  return { text: of.join() }
}

/** A rule for people. */
export function ruleText([kind, text]: State['rules'][number]): string {
  const at = valueKind(kind) ? text.indexOf('=') : -1
  const [names, value] = at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)]
  return [names.split(',').join(', '), RULE_NAMES[kind], valueKind(kind) === 'hosts' ? value.split(',').join(' or ') : value].filter(Boolean).join(' ')
}

/** What a state asks the server for, besides the window. */
export const askedOf = (s: Pick<State, 'preset' | 'rules'>): string => [...(s.preset ? [['preset', s.preset]] : []), ...s.rules].map(([key, value]) => `&${key}=${encodeURIComponent(value!)}`).join('')

/** What names a step in the URL: the first container that it moves. */
export const keyOf = (a: Placement, step: PlaceStep): string => short(a.containers[step.moves[0]!.container]!.id)

/** The steps that are checked. */
export const chosenOf = (a: Placement, without: string[]): PlaceStep[] => a.moves.filter((step) => !without.includes(keyOf(a, step)))

/** What asks the server for the figures of some steps alone. */
export const bodyOf = (a: Placement, steps: PlaceStep[]): string => JSON.stringify({ move: steps.map((s) => s.moves.map((m) => `${a.containers[m.container]!.id}=${m.to}`).join()) })

/** A share with one digit after the point, rounded as the command line does: half to even. */
export function percent(share: number): string {
  const v = 100 * share
  const half = Math.abs((v * 4) % 2) === 1
  const tenths = half ? 2 * Math.round((v * 10) / 2) : undefined
  return `${(tenths === undefined ? v : tenths / 10).toFixed(1).replace('-', '−')} %`
}

const signed = (text: string): string => (text.startsWith('−') ? text : '+' + text)

/** From which change on a share is told. */
const NOTICED = 5e-4

/** What has changed from one placement to another, as the command line says it. */
export const changeOf = (before: PlaceFigures, after: PlaceFigures): string => partsOf(before, after).join(', ')

export function partsOf(before: PlaceFigures, after: PlaceFigures): string[] {
  const parts: string[] = []
  for (const [key, what] of [['cross_bytes_per_second', 'bytes'], ['cross_requests_share', 'urgent requests']] as const) {
    const change = after[key] / before[key] - 1
    if (before[key] > 0 && Math.abs(change) > NOTICED) parts.push(`${signed(percent(change))} of ${what} between hosts`)
    if (before[key] === 0 && after[key] > 0) parts.push(`${what} between hosts, where there were none`)
  }
  const hosts = after.hosts_in_use - before.hosts_in_use
  if (hosts) parts.push(`${signed(String(hosts).replace('-', '−'))} hosts in use`)
  const deviation = after.cpu_deviation - before.cpu_deviation
  if (Math.abs(deviation) > NOTICED) parts.push(`${signed(percent(deviation))} CPU deviation`)
  if (before.watts !== undefined && after.watts !== undefined && Math.abs(after.watts - before.watts) >= 0.05) parts.push(`${signed((after.watts - before.watts).toFixed(1).replace('-', '−'))} W`)
  return parts.length ? parts : [`cost ${signed((after.cost - before.cost).toFixed(4).replace('-', '−'))}`]
}

export interface Figure {
  key: string
  title: string
  what: string
  text: (f: PlaceFigures) => string
  /** What is better where it is less. */
  value: (f: PlaceFigures) => number
}

/** The figures of a placement, as the command line has them. */
export const FIGURES: Figure[] = [
  { key: 'bytes', title: 'Bytes between hosts', what: 'per second, of containers to those on another host, both ways', text: (f) => format(f.cross_bytes_per_second, 'B/s'), value: (f) => f.cross_bytes_per_second },
  { key: 'share', title: 'Of all bytes', what: 'share of the bytes between containers that go between hosts', text: (f) => percent(f.cross_bytes_share), value: (f) => f.cross_bytes_share },
  { key: 'uplink', title: 'Busiest host', what: 'bytes per second that one host exchanges with all others, both ways: the most of all hosts', text: (f) => format(f.busiest_uplink_bytes_per_second, 'B/s'), value: (f) => f.busiest_uplink_bytes_per_second },
  { key: 'requests', title: 'Urgent requests', what: 'share of requests that go between hosts; one that is answered in 1 ms counts ten times one that is answered in 10 ms', text: (f) => percent(f.cross_requests_share), value: (f) => f.cross_requests_share },
  { key: 'hosts', title: 'Hosts in use', what: 'those that run more than what stays on each host', text: (f) => String(f.hosts_in_use), value: (f) => f.hosts_in_use },
  { key: 'cpu', title: 'Highest CPU', what: 'of a host, where all that runs there has its highest minute at once', text: (f) => percent(f.highest_cpu_share), value: (f) => f.highest_cpu_share },
  { key: 'memory', title: 'Highest memory', what: 'of a host, at the highest use of all that runs there', text: (f) => percent(f.highest_memory_share), value: (f) => f.highest_memory_share },
  { key: 'deviation', title: 'CPU deviation', what: 'the standard deviation of the hosts’ mean CPU utilisation: 0 is an even load', text: (f) => percent(f.cpu_deviation), value: (f) => f.cpu_deviation },
  { key: 'watts', title: 'Power', what: 'of the hosts in use, by their meters', text: (f) => (f.watts === undefined ? '' : `${f.watts.toFixed(1)} W`), value: (f) => f.watts ?? 0 },
]

export const figuresOf = (a: Placement): Figure[] => FIGURES.filter((f) => f.key !== 'watts' || a.before.watts !== undefined)

/** Whether a figure is better, worse or as it was. */
export function way(f: Figure, before: PlaceFigures, after: PlaceFigures): 'better' | 'worse' | 'same' {
  if (f.text(before) === f.text(after)) return 'same'
  return f.value(after) < f.value(before) ? 'better' : 'worse'
}

/** A container on a host: where it came from, or where it goes. */
export interface Chip {
  index: number
  container: PlaceContainer
  other?: string
}

/** What stands on each host in a placement, those that move first; what belongs to its host is only counted. */
export function chipsOf(a: Placement, at: number[], than: number[]): { chips: Chip[]; ofHost: number }[] {
  const hosts = a.hosts.map(() => ({ chips: [] as Chip[], ofHost: 0 }))
  a.containers.forEach((container, index) => {
    const on = hosts[at[index]!]!
    if (container.of_host) on.ofHost++
    else on.chips.push({ index, container, other: at[index] === than[index] ? undefined : a.hosts[than[index]!]!.name })
  })
  for (const h of hosts) h.chips.sort((x, y) => Number(y.other !== undefined) - Number(x.other !== undefined) || y.container.cpu_cores.mean - x.container.cpu_cores.mean || x.index - y.index)
  return hosts
}

/** A container in the drawn mapping: in the box of a host, at a height. */
export interface Spot {
  index: number
  name: string
  y: number
  /** The host that it goes to, or came from. */
  other?: string
}

/** The box of a host on one side of the drawn mapping. Units are pixels; more is how many containers have no line in it. */
export interface Box {
  host: string
  y: number
  height: number
  spots: Spot[]
  more: number
}

/** Heights of the drawn mapping, in pixels, and how many containers that stay are named in a box. */
export const MAPPING = { row: 21, head: 26, foot: 6, gap: 10, stay: 6 }

/** The drawn mapping: the boxes of hosts now and then, and the way of each container that moves between them. */
export function mappingOf(a: Placement, at: number[], order: number[]): { now: Box[]; then: Box[]; ways: { index: number; from: number; to: number }[]; height: number } {
  const now = a.containers.map((c) => c.host)
  const side = (here: number[], there: number[]): Box[] => {
    const chips = chipsOf(a, here, there)
    let y = 0
    return order.map((h) => {
      const moving = chips[h]!.chips.filter((c) => c.other)
      const shown = [...moving, ...chips[h]!.chips.filter((c) => !c.other).slice(0, MAPPING.stay)]
      const more = chips[h]!.chips.length - shown.length
      const box = { host: a.hosts[h]!.name, y, height: MAPPING.head + MAPPING.row * Math.max(1, shown.length + (more > 0 ? 1 : 0)) + MAPPING.foot, more, spots: shown.map((c, i) => ({ index: c.index, name: c.container.name, other: c.other, y: y + MAPPING.head + MAPPING.row * (i + 0.5) })) }
      y += box.height + MAPPING.gap
      return box
    })
  }
  const [left, right] = [side(now, at), side(at, now)]
  // The boxes of a host are at the same height on both sides.
  let y = 0
  left.forEach((l, i) => {
    const r = right[i]!
    for (const box of [l, r]) {
      for (const s of box.spots) s.y += y - box.y
      box.y = y
    }
    l.height = r.height = Math.max(l.height, r.height)
    y += l.height + MAPPING.gap
  })
  const spotOf = (boxes: Box[]) => new Map(boxes.flatMap((b) => b.spots.map((s) => [s.index, s.y] as const)))
  const [from, to] = [spotOf(left), spotOf(right)]
  const ways = a.containers.flatMap((_, index) => (at[index] !== now[index] && from.has(index) && to.has(index) ? [{ index, from: from.get(index)!, to: to.get(index)! }] : []))
  return { now: left, then: right, ways, height: Math.max(0, y - MAPPING.gap) }
}

/** The order in which hosts are shown: those that change most first, then as they are. */
export function hostOrder(a: Placement, shown: Placement): number[] {
  const change = a.hosts.map((h, i) => Math.abs(shown.hosts_after[i]!.cpu_cores.mean - a.hosts_before[i]!.cpu_cores.mean) / h.cores)
  const moves = a.hosts.map(() => 0)
  a.containers.forEach((c, i) => {
    const to = shown.placement[i]!
    if (to !== c.host) {
      moves[to]!++
      moves[c.host]!++
    }
  })
  return a.hosts.map((_, i) => i).sort((x, y) => Number(moves[y]! > 0) - Number(moves[x]! > 0) || (a.hosts.length > 12 ? change[y]! - change[x]! : 0) || x - y)
}

/** The step of the scale of heat of a share, 0 to 8. */
export const heatOf = (share: number): number => Math.max(0, Math.min(8, Math.round(share * 8)))
