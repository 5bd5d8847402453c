import type { State, View } from './state'
import type { Affected, Graph, NumberInfo, Seconds } from './types'

/** What stands for a number that could not be had. */
export const NONE = '–'

/** Three significant digits, and no more than the value has. */
export function digits(v: number): string {
  if (v < 0) return '−' + digits(-v)
  if (v === 0) return '0'
  if (v >= 99.95) return v.toFixed(0)
  if (v >= 9.995) return v.toFixed(1)
  if (v >= 0.01) return v.toFixed(2)
  return String(Number(v.toPrecision(2)))
}

function scaled(v: number): [string, string] {
  for (const [size, unit] of [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']] as const) {
    if (Math.abs(v) >= 0.9995 * size) return [digits(v / size), unit]
  }
  return [digits(v), '']
}

export function duration(v?: Seconds): string {
  if (v === undefined) return NONE
  if (v === '+Inf') return '> 68.7 s'
  if (v === 0) return '< 1.02 µs'
  const size = Math.abs(v)
  if (size < 0.9995e-3) return digits(v * 1e6) + ' µs'
  if (size < 0.9995) return digits(v * 1e3) + ' ms'
  return digits(v) + ' s'
}

export function bytes(v: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let unit = 0
  while (Math.abs(v) >= 1000 && unit < units.length - 1) {
    v /= 1024
    unit++
  }
  return digits(v) + ' ' + units[unit]
}

/** A number of one of the units that the server names. */
export function format(v: Seconds | undefined, unit: NumberInfo['unit']): string {
  if (v === undefined) return NONE
  if (unit === 's') return duration(v)
  if (v === '+Inf') return '∞'
  switch (unit) {
    case 'cores':
      return v > 0 && v < 0.001 ? '< 0.001' : v.toFixed(v < 10 ? 3 : 1)
    case 'B':
      return bytes(v)
    case 'ratio':
      return digits(v * 100) + ' %'
    case '/s':
      return scaled(v).join('') + '/s'
    case 'W':
      return digits(v) + ' W'
    case 'B/s': {
      const [n, prefix] = scaled(v)
      return `${n} ${prefix}B/s`
    }
  }
  return Number.isInteger(v) && Math.abs(v) < 1e6 ? v.toLocaleString('en') : scaled(v).join('')
}

/** Which numbers lack what a table dropped. */
const LACK: Record<Affected, string> = {
  '': 'any number', usage: 'CPU, memory and I/O of containers', disks: 'latency of disks', edges: 'bytes, requests and latency of edges', endpoints: 'requests by endpoint',
  contention: 'who waited behind whom', energy: 'cycles and power', names: 'names', flight: 'ticks of the last minutes', history: 'points of charts', ended: 'names of what ended',
}

/** What is on the screen, of what a table can lack. */
function shownIn(s: Pick<State, 'view' | 'node' | 'edge' | 'strip'>): Set<Affected> {
  const shown = new Set<Affected>(['', ...ON[s.view]])
  if (s.node || s.edge) for (const a of ['usage', 'edges', 'contention', 'endpoints'] as const) shown.add(a)
  if (s.strip) shown.add('flight')
  return shown
}

const ON: Record<View, Affected[]> = {
  map: ['usage', 'edges'], services: ['usage', 'edges', 'endpoints', 'energy'], path: ['usage', 'edges'], matrix: ['edges'], containers: ['usage', 'edges'], changes: ['usage', 'edges'],
  recordings: ['flight'], hosts: ['usage'], placement: ['usage', 'edges'], whatif: ['usage', 'edges'], health: ['usage', 'disks', 'edges', 'endpoints', 'contention', 'energy', 'names', 'flight', 'history'],
}

/** The numbers on the screen that lack something, in words; empty where none does. */
export function lackingOn(g: Graph, s: Pick<State, 'view' | 'node' | 'edge' | 'strip'>): string[] {
  const shown = shownIn(s)
  const list = g.completeness.tables.filter((t) => shown.has(t.affects ?? '')).map((t) => LACK[t.affects ?? ''])
  if (g.unplaced && shown.has('edges')) list.push(LACK.edges)
  if (g.omitted_edges > 0 && shown.has('edges')) list.push('edges')
  return [...new Set(list)]
}

/** What is not in the numbers of a graph, as short statements; empty where all of it is. */
export function missing(g: Graph): string[] {
  const { tables } = g.completeness
  const list = tables.map((t) => `${LACK[t.affects ?? '']}: ${format(t.dropped, '')} drops of “${t.name}”${t.full ? ', which is full' : t.capacity && t.used !== undefined ? ` (${format(t.used, '')} of ${format(t.capacity, '')} used)` : ''}`)
  if (g.unplaced) list.push(`${bytes(g.unplaced.request_bytes + g.unplaced.response_bytes)} of connections are in no edge, because the table of edges was full`)
  for (const [host, share] of Object.entries(g.counted_share ?? {})) {
    if (share < 1) list.push(`${floorPercent(share)} of the bytes received on ${host} are counted in an edge; others were spliced, never read, or found no edge`)
  }
  if (g.omitted_edges) list.push(`${format(g.omitted_edges, '')} less busy edges are left out`)
  return list
}

/** A share that is never rounded up: 100 % is all. */
export const floorPercent = (share: number): string => `${Math.floor(share * 1000) / 10} %`

/** The least share of received bytes that is counted on a host; undefined where nothing was received. */
export function counted(g: Graph): number | undefined {
  const shares = Object.values(g.counted_share ?? {})
  return shares.length ? Math.min(...shares) : undefined
}

/** How much leads to unknown ends: "12 % of edges, 3 % of traffic"; empty for nothing. */
export function unmatched(g: Graph): string {
  const percent = (v: number) => (v > 0 && v < 0.001 ? '< 0.1 %' : `${v < 0.1 ? Math.round(v * 1000) / 10 : Math.round(v * 100)} %`)
  return g.unmatched_share > 0 ? `${percent(g.unmatched_share)} of edges, ${percent(g.unmatched_bytes_share ?? 0)} of traffic` : ''
}

/** A span of time: "5 min", "1 h 30 min". */
export function span(seconds: number): string {
  const s = Math.round(seconds)
  if (s < 120) return `${s} s`
  const m = Math.round(s / 60)
  if (m < 120) return m * 60 === s || m >= 10 ? `${m} min` : `${m} min ${s - Math.floor(s / 60) * 60} s`.replace(/^\d+/, String(Math.floor(s / 60)))
  const h = Math.floor(m / 60)
  return m % 60 ? `${h} h ${m % 60} min` : `${h} h`
}

/** A time of day, with the date where it is not today's. */
export function clock(unix: number, now = new Date()): string {
  const d = new Date(unix * 1000)
  const time = d.toLocaleTimeString('en-GB')
  return d.toDateString() === now.toDateString() ? time : `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${time}`
}

/** The value of a datetime-local field. */
export function local(unix: number): string {
  const d = new Date(unix * 1000)
  return `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}T${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`
}

/** A window with its date, time and zone: "23 Nov 2026, 20:01:36 – 20:06:36 UTC+1". */
export function whenOf(from: number, to: number): string {
  const [a, b] = [new Date(from * 1000), new Date(to * 1000)]
  const day = (d: Date) => d.toLocaleDateString('en-GB', { day: 'numeric', month: 'short', year: 'numeric' })
  const time = (d: Date) => d.toLocaleTimeString('en-GB')
  const zones = [zoneOf(a), zoneOf(b)]
  const first = zones[0] === zones[1] ? time(a) : `${time(a)} ${zones[0]}`
  return `${day(a)}, ${first} – ${day(a) === day(b) ? '' : `${day(b)}, `}${time(b)} ${zones[1]}`
}

/** "UTC", "UTC+1", "UTC−3:30". */
function zoneOf(d: Date): string {
  const minutes = -d.getTimezoneOffset()
  if (minutes === 0) return 'UTC'
  const [h, m] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60]
  return `UTC${minutes < 0 ? '−' : '+'}${h}${m ? `:${pad(m)}` : ''}`
}

const pad = (n: number) => String(n).padStart(2, '0')
