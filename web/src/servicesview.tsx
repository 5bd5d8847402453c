import { Middle } from './middle'
import { useMemo } from 'preact/hooks'
import { labelledPath, useLabelled, useServices, type Labelled } from './data'
import { format } from './format'
import { matches } from './map'
import { chartOf, columnsOf, ENERGY, estimatesOf, estimateText, explainCell, explainColumn, idle, lineOf, linesOf, ordered, powerLines, powerOf, summaryOf, textOf, valueOf, type Estimates, type Power } from './services'
import { nodeFor } from './path'
import { stretchOf, type Line } from './spark'
import { LinesNote, Spark, useLines, useOnce } from './sparkview'
import { nodeOf, short, type Change, type State } from './state'
import { useExplainer } from './tip'
import type { Graph, Node } from './types'

interface Props {
  graph: Graph
  state: State
  change: Change
  /** What of the server's data to show, as a query string, and how often to ask, in ms. */
  query: string
  period: number
}

/** How many rows are drawn; the filter finds the others. */
const MOST = 200

/** Power by node, where it is known, its lines, and why it could not be read. */
function usePower(graph: Graph, state: State, period: number): { power: Power; estimates: Estimates; lines: Map<string, Line>; error?: string } {
  const by = `by=${state.by}`
  // Live, the window's length and no more: another request every two seconds would say no more.
  const window = state.from === undefined ? `from=now-${state.window}s&to=now` : `from=${graph.from}&to=${graph.to}`
  const { data, error } = useLabelled(`${by} ${window}`, () => labelledPath(ENERGY, `${window}&${by}`), period ? 10_000 : 0)
  const power = useMemo(() => powerOf(data?.rows ?? []), [data])
  const s = power.size > 0 ? stretchOf(Date.parse(graph.from) / 1000, Date.parse(graph.to) / 1000, graph.covered_seconds) : undefined
  const drawn = useOnce<Labelled>(`power ${by}`, s ? labelledPath(ENERGY.slice(0, 1), `from=${s.begin}&to=${s.end}&points=${s.points}&${by}`) : '')
  const lines = useMemo(() => powerLines(drawn.data?.rows ?? []), [drawn.data])
  return { power, estimates: useMemo(() => estimatesOf(data?.rows ?? []), [data]), lines, error }
}

/** How near each service is to its limit, and how it answers. */
export function ServicesView({ graph, state, change, query, period }: Props) {
  const { data, error } = useServices(query, () => `/api/outsight/services?${query}`, period)
  const { power, estimates, lines: watts, error: powerError } = usePower(graph, state, period)
  const sort = /^-?service\.|name$/.test(state.sort) ? state.sort : '-service.utilisation'
  const q = state.q.toLowerCase()
  const listed = data?.services.filter((s) => !idle(s, nodeOf(graph, s.node))) ?? []
  const list = data ? ordered(listed.filter((s) => q === '' || (nodeOf(graph, s.node) ? matches(nodeOf(graph, s.node)!, q) : s.name.toLowerCase().includes(q))), sort, power) : []
  const rows = list.slice(0, MOST).flatMap((s) => nodeOf(graph, s.node) ?? [])
  const columns = data ? columnsOf(data, power) : []
  const cpus = data?.services.filter((s) => s.kind === 'cpus').map((s) => s.node)
  const sparks = useLines(graph, `services ${state.by}`, data && linesOf(data.columns.map((c) => c.key), state.by, rows, cpus))
  const lines = useMemo(() => new Map(sparks.lines).set(lineOf('power'), watts), [sparks.lines, watts])
  useExplainer(['service'], (key, of) => {
    const c = data?.columns.find((c) => c.key === key)
    const s = data?.services.find((s) => s.node === of)
    return c && (s ? explainCell(c, s, data!, graph, power, estimates) : explainColumn(c, data!))
  })
  if (error && !data) return <p class="inline-error" role="alert">{error}</p>
  if (!data) return <p class="note">Reading…</p>
  const by = sort.replace(/^-/, '')
  const down = sort.startsWith('-')
  const chosen = nodeOf(graph, state.node)
  const choose = (n: Node | undefined, chart?: string) => n && change({ node: short(n.id), edge: undefined, status: undefined, chart })
  const heading = (key: string, title: string) => {
    const path = key === 'name' ? key : `service.${key}`
    return (
      <th key={key} scope="col" class={key === 'name' ? 'name' : undefined} aria-sort={by === path ? (down ? 'descending' : 'ascending') : undefined}>
        <button data-explain={key === 'name' ? undefined : path} onClick={() => change({ sort: by === path ? (down ? path : '-' + path) : key === 'name' ? path : '-' + path }, true)}>
          {title}<i aria-hidden="true">{by === path ? (down ? '↓' : '↑') : ''}</i>
        </button>
      </th>
    )
  }
  return (
    <div class="services">
      {error && <p class="inline-error" role="alert">{error}</p>}
      <p class="path-summary" data-services-summary>
        {summaryOf(data)}
        {state.by === 'process' && <small class="caveat">CPU time is known of containers, not of processes: group by container for U, D and λ_sat.</small>}
      </p>
      <div class="bar-row">
        <h2>Services</h2>
        <span class="muted">{list.length === listed.length ? list.length : `${list.length} of ${listed.length}`}{listed.length < data.services.length && ` · ${data.services.length - listed.length} that ended without a request are left out`}{power.size === 0 && (powerError ? ` · power could not be read: ${powerError}` : ' · no meter tells the power of this host')}{power.size > 0 && estimates.size > 0 && <span data-estimate> · power is {estimateText(Math.max(...estimates.values()))}{estimates.size < graph.hosts.length && ` (of ${estimates.size} of ${graph.hosts.length} hosts)`}</span>}</span>
      </div>
      <div class="scroll">
        <table data-services>
          <thead>
            <tr>{heading('name', 'Service')}{columns.map((c) => heading(c.key, c.key === 'power' && estimates.size > 0 ? `${c.title} (estimate)` : c.title))}</tr>
          </thead>
          <tbody>
            {list.slice(0, MOST).map((s) => {
              const node = s.kind === 'cpus' ? nodeFor(graph, s) : nodeOf(graph, s.node)
              return (
                <tr key={s.node} data-of={s.node} data-service={s.name} class={`${node && node === chosen ? 'chosen' : ''}${s.node === data.bottleneck ? ' first-limit' : ''}`}>
                  <th scope="row" class="name">
                    <button title={node?.image ?? s.node} onClick={() => choose(node)}><Middle text={s.name} /><small>{s.node === data.bottleneck ? 'first to run out' : ''}</small></button>
                  </th>
                  {columns.map((c) => {
                    const text = textOf(c, s, power, estimates)
                    const v = valueOf(s, c.key, power)
                    const line = lines.get(lineOf(c.key))?.get(s.node)
                    return (
                      <td key={c.key}>
                        <button data-explain={`service.${c.key}`} data-number={c.key} class={v === undefined ? 'none' : v === 0 ? 'zero' : c.key === 'error_share' ? 'bad' : c.key === 'utilisation' && Number(v) >= 0.8 ? 'full' : ''} onClick={() => choose(node, v === undefined ? undefined : chartOf(c.key))}>
                          {v !== undefined && <Spark values={line} />}
                          {c.key === 'utilisation' && v !== undefined ? format(v, 'ratio') : text}
                        </button>
                      </td>
                    )
                  })}
                </tr>
              )
            })}
          </tbody>
        </table>
      </div>
      <LinesNote of={sparks} />
      <p class="map-foot muted"><span>U of 100 % is all that a service can use: its cores, its quota, or its busy threads. Point at a number for its formula and its query.{list.length > MOST && ` ${list.length - MOST} more are found by the filter.`}</span></p>
    </div>
  )
}
