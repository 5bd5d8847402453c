import { useEffect, useState } from 'preact/hooks'
import { ENDS_GROUPS, PROBE_GROUPS, SIDE_GROUPS } from './numbers'
import type { Graph } from './types'

/** All that a view is. It lives in the URL's hash, so that a view can be linked and gone back to. */
export interface State {
  /** Length of the live window in seconds. */
  window: number
  /** A fixed window in Unix seconds; absent while live. */
  from?: number
  to?: number
  /** Whose numbers the panel shows: a node's or an edge's short id, or the status. */
  node?: string
  edge?: string
  status?: boolean
  /** Which number is charted: scope and key, as in "usage.cpu_cores" or "client.p99". */
  chart?: string
  /** Of which endpoint, for the charts "endpoint.rate" and "endpoint.latency": protocol, space, name. */
  endpoint?: string
  view: View
  /** What a node stands for. */
  by: Grouping
  /** The least share of all bytes that an edge is shown with. */
  share: number
  /** Whether a map with many nodes has all of them. */
  all?: boolean
  /** The key of the number that the matrix shows. */
  quantity: string
  /** The key of the number that edges of the map are coloured by; '' for how much slower they are than usual. */
  colour: string
  /** The statistic that the critical path goes by and is given in. */
  percentile: Percentile
  /** How much earlier the window is that changes are against; "" for the one just before. */
  ago: Ago
  /** Length of the live strip of the last minutes, in seconds; absent where it is closed. */
  strip?: number
  /** What the strip shows while it does not follow the present, in Unix ms. */
  zoom?: [number, number]
  /** A saturation on the strip: its kind, "@", and its begin in Unix ms. */
  mark?: string
  /** Whether the strip has a lane for every container. */
  lanes?: boolean
  /** The number of the kept anomaly that the strip is about, instead of the last minutes. */
  kept?: number
  /** Key of the table's order; a leading "-" sorts down. */
  sort: string
  /** Filter of names. */
  q: string
  /** What a placement is to be good for; '' for all of it. */
  preset: Preset
  /** Rules of a placement, as the command line has them: "a,b", and of hosts "a=host,host". */
  rules: Rule[]
  /** What is to be different: the load, as "2x" or "400/s", and "name:value" of containers, or a host that is down. */
  load: string
  changes: Changed[]
  /** Whether the panel of a container asks what would be if. */
  ask?: boolean
  /** The first containers of the moves that are not to be made, by their short ids. */
  without: string[]
}

export const PRESETS = ['', 'least-traffic', 'fewest-hosts', 'lowest-latency', 'lowest-energy'] as const
export type Preset = (typeof PRESETS)[number]
export const RULES = ['together', 'apart', 'on', 'not_on', 'require', 'host_label', 'stay', 'movable'] as const
export type RuleKind = (typeof RULES)[number]
export type Rule = [kind: RuleKind, text: string]
export const CHANGED = ['replicas', 'quota', 'move', 'down'] as const
export type ChangedKind = (typeof CHANGED)[number]
export type Changed = [kind: ChangedKind, text: string]
const LOAD = /^([0-9]{1,9}(\.[0-9]{1,9})?)(x|\/s)$/
const CHANGE = { replicas: /^.+:[1-9][0-9]{0,3}$/, quota: /^.+:[0-9]{1,4}(\.[0-9]{1,6})?$/, move: /^.+:.+$/, down: /./ }
/** Whether the server takes a load so. */
export const isLoad = (text: string): boolean => LOAD.test(text) && parseFloat(text) > 0
/** How many rules and left out moves a link has at most, and how long each may be. */
const MANY = 100
const LONG = 300

export const WINDOWS: [string, number][] = [['1m', 60], ['5m', 300], ['15m', 900], ['1h', 3600], ['6h', 21600]]

export type Grouping = 'container' | 'process' | 'pod' | 'workload' | 'namespace' | 'host'
export const GROUPINGS: Grouping[] = ['container', 'process', 'pod', 'workload', 'namespace', 'host']
export const SHARES = [0, 0.001, 0.01, 0.05]
export const PERCENTILES = ['mean', 'p50', 'p75', 'p90', 'p99'] as const
export type Percentile = (typeof PERCENTILES)[number]
export type Ago = '' | '1h' | '1d' | '7d'
export const AGOS: [Ago, string, number][] = [['', 'the window before', 0], ['1h', '1 hour earlier', 3600], ['1d', '1 day earlier', 86_400], ['7d', '1 week earlier', 604_800]]
export type View = 'map' | 'services' | 'path' | 'matrix' | 'containers' | 'changes' | 'recordings' | 'hosts' | 'health' | 'placement' | 'whatif'
/** The views in the order of their tabs. */
export const VIEWS: [View, string, string][] = [
  ['map', 'Map', 'who talks to whom, how much and how slowly'],
  ['services', 'Services', 'how near each service is to its limit, and how it answers'],
  ['path', 'Path', 'what runs out first, and where the time of a request goes'],
  ['matrix', 'Matrix', 'who sends how much to whom, with the sums, as a heat map of any number of edges'],
  ['containers', 'Containers', 'what each container costs'],
  ['changes', 'Changes', 'what is not as it was before'],
  ['recordings', 'Recordings', 'short saturations, tick by tick'],
  ['hosts', 'Hosts', 'what each host is used for, and by whom it is watched'],
  ['health', 'Health', 'what is lost, over budget or missing, and what to do'],
  ['placement', 'Placement', 'on which hosts containers would better run, and the moves that lead there'],
  ['whatif', 'What if', 'what would run out if more requests came, or containers were others'],
]
/** The keys of the views, in their order. */
export const VIEW_KEYS = '123456789pw'
/** Views that are about no grouping of nodes. */
const UNGROUPED: View[] = ['recordings', 'hosts', 'health', 'placement', 'whatif']
/** Whether a view leaves small edges out; an analysis needs all of them, and so do sums. */
export const hides = (view: View): boolean => view === 'map'
/** Whether a view is about the nodes of a grouping. */
export const grouped = (view: View): boolean => !UNGROUPED.includes(view)
/** The numbers of an edge of the map, and of a cell of the matrix. */
const COLOURS = ['bytes_per_second', 'bytes', ...[...SIDE_GROUPS, ...ENDS_GROUPS].flatMap(([, keys]) => keys)]
const NUMBERS = [...COLOURS, ...PROBE_GROUPS.flatMap(([, keys]) => keys)]

const DEFAULT: State = { window: 300, sort: '-usage.cpu_cores', q: '', view: 'map', by: 'container', share: 0, quantity: 'bytes_per_second', colour: '', percentile: 'mean', ago: '', preset: '', rules: [], without: [], load: '2x', changes: [] }
export const STRIPS: [string, number][] = [['10s', 10], ['1m', 60], ['5m', 300], ['10m', 600]]
const MARK = /^[a-z-]+@[0-9]{1,14}$/
const CHARTS = /^((usage|served|called|client|server|ends)\.[a-z0-9_]+|endpoint\.(rate|latency))$/
const SORTS = /^-?(name|(usage|served|called|service)\.[a-z0-9_]+)$/

const finite = (text: string | null | undefined): number | undefined => {
  const v = Number(text)
  return text != null && text !== '' && Number.isFinite(v) ? v : undefined
}

/** Length of the shown window in seconds. */
export const lengthOf = (s: State): number => (s.from !== undefined && s.to !== undefined ? s.to - s.from : s.window)

/** How much earlier the window is to compare with: the one just before, where the two would overlap. */
export const agoOf = (s: State): Ago => (AGOS.find(([name]) => name === s.ago)![2] < lengthOf(s) ? '' : s.ago)

/** Reads a hash; what it does not understand becomes the default. */
export function parse(hash: string): State {
  const p = new URLSearchParams(hash.replace(/^#/, ''))
  const s: State = { ...DEFAULT }
  s.window = WINDOWS.find(([name]) => name === p.get('window'))?.[1] ?? DEFAULT.window
  const from = finite(p.get('from'))
  const to = finite(p.get('to'))
  if (from !== undefined && to !== undefined && from < to) Object.assign(s, { from, to })
  if (p.has('status')) s.status = true
  else if (p.get('edge')) s.edge = p.get('edge')!
  else if (p.get('node')) s.node = p.get('node')!
  const chart = p.get('chart')
  if (chart && CHARTS.test(chart) && (s.edge || s.node)) s.chart = chart
  const endpoint = p.get('endpoint')
  if (chart?.startsWith('endpoint.')) {
    if (endpoint && s.edge) s.endpoint = endpoint.slice(0, 200)
    else delete s.chart
  }
  // "heat" is what the matrix was called in links of before.
  s.view = p.get('view') === 'heat' ? 'matrix' : (VIEWS.find(([view]) => view === p.get('view'))?.[0] ?? DEFAULT.view)
  s.by = GROUPINGS.find((by) => by === p.get('by')) ?? DEFAULT.by
  s.share = SHARES.find((share) => share === finite(p.get('share'))) ?? DEFAULT.share
  if (p.get('nodes') === 'all') s.all = true
  // "requests" is what their rate was called in links of before.
  const quantity = p.get('quantity') === 'requests' ? 'transactions_per_second' : p.get('quantity')
  s.quantity = NUMBERS.find((key) => key === quantity) ?? DEFAULT.quantity
  s.colour = COLOURS.find((key) => key === p.get('colour')) ?? DEFAULT.colour
  s.percentile = PERCENTILES.find((q) => q === p.get('percentile')) ?? DEFAULT.percentile
  s.ago = AGOS.find(([ago]) => ago === p.get('ago'))?.[0] ?? DEFAULT.ago
  s.strip = STRIPS.find(([name]) => name === p.get('strip'))?.[1]
  if (s.strip === undefined) delete s.strip
  else {
    const [a, b] = (p.get('zoom') ?? '').split('-').map(finite)
    if (a !== undefined && b !== undefined && b - a >= 1) s.zoom = [a, b]
    const mark = p.get('mark')
    if (mark && MARK.test(mark)) s.mark = mark
    if (p.get('lanes') === 'all') s.lanes = true
    const kept = p.get('kept')
    if (s.zoom && kept && /^[1-9][0-9]{0,14}$/.test(kept)) s.kept = Number(kept)
  }
  const sort = p.get('sort')
  if (sort && SORTS.test(sort)) s.sort = sort
  s.q = (p.get('q') ?? '').slice(0, 200)
  s.preset = PRESETS.find((preset) => preset === p.get('preset')) ?? DEFAULT.preset
  const list = (key: string) => p.getAll(key).filter((text) => text !== '' && text.length <= LONG).slice(0, MANY)
  s.rules = RULES.flatMap((kind) => list(kind).map((text): Rule => [kind, text])).slice(0, MANY)
  s.without = list('without')
  const load = p.get('load')
  if (load && isLoad(load)) s.load = load
  s.changes = CHANGED.flatMap((kind) => list(kind).filter((text) => CHANGE[kind].test(text)).map((text): Changed => [kind, text])).slice(0, MANY)
  if (p.has('ask') && s.node) s.ask = true
  return s
}

/** The hash of a state, without what is the default. */
export function write(s: State): string {
  const p = new URLSearchParams()
  if (s.window !== DEFAULT.window) p.set('window', WINDOWS.find(([, w]) => w === s.window)![0])
  if (s.from !== undefined && s.to !== undefined) {
    p.set('from', String(Math.round(s.from * 1000) / 1000))
    p.set('to', String(Math.round(s.to * 1000) / 1000))
  }
  if (s.status) p.set('status', '')
  else if (s.edge) p.set('edge', s.edge)
  else if (s.node) p.set('node', s.node)
  if (s.chart && (s.edge || s.node)) p.set('chart', s.chart)
  if (s.chart?.startsWith('endpoint.') && s.edge && s.endpoint) p.set('endpoint', s.endpoint)
  for (const key of ['view', 'by', 'share', 'quantity', 'colour', 'percentile', 'ago'] as const) if (s[key] !== DEFAULT[key]) p.set(key, String(s[key]))
  if (s.all) p.set('nodes', 'all')
  if (s.strip) {
    p.set('strip', STRIPS.find(([, length]) => length === s.strip)![0])
    if (s.zoom) p.set('zoom', s.zoom.map(Math.round).join('-'))
    if (s.mark) p.set('mark', s.mark)
    if (s.lanes) p.set('lanes', 'all')
    if (s.kept && s.zoom) p.set('kept', String(s.kept))
  }
  if (s.sort !== DEFAULT.sort) p.set('sort', s.sort)
  if (s.q) p.set('q', s.q)
  if (s.preset) p.set('preset', s.preset)
  for (const [kind, text] of s.rules) p.append(kind, text)
  for (const id of s.without) p.append('without', id)
  if (s.load !== DEFAULT.load) p.set('load', s.load)
  for (const [kind, text] of s.changes) p.append(kind, text)
  if (s.ask && s.node) p.set('ask', '')
  const text = p.toString()
  return text ? '#' + text : ''
}

/** A container's 64 digits are cut to 12 in URLs, as its runtime's tools do. */
export const short = (id: string): string => id.replace(/(^|>)([0-9a-f]{12})[0-9a-f]{52}(?=$|[>/])/g, '$1$2')

export const nodeOf = (g: Graph | undefined, id?: string) => (id ? g?.nodes.find((n) => short(n.id) === short(id)) : undefined)
export const edgeOf = (g: Graph | undefined, id?: string) => (id ? g?.edges.find((e) => short(e.id) === short(id)) : undefined)

export type Change = (change: Partial<State>, replace?: boolean) => void

/** The state of the URL, and a function that changes it: a new entry of the history, or not. */
export function useUrlState(): [State, Change] {
  const [state, set] = useState(() => parse(location.hash))
  useEffect(() => {
    const read = () => set(parse(location.hash))
    addEventListener('popstate', read)
    addEventListener('hashchange', read)
    return () => {
      removeEventListener('popstate', read)
      removeEventListener('hashchange', read)
    }
  }, [])
  const change: Change = (part, replace = false) => {
    const next = parse(write({ ...parse(location.hash), ...part }))
    const url = location.pathname + location.search + write(next)
    if (replace) history.replaceState(null, '', url)
    else if (url !== location.pathname + location.search + location.hash) history.pushState(null, '', url)
    set(next)
  }
  return [state, change]
}
