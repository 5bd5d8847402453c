import { useSamples, useServices } from './data'
import { format } from './format'
import { matches } from './map'
import { columnsOf, explainCell, explainColumn, idle, ordered, summaryOf, textOf, valueOf, type Power, powerQuery } from './services'
import { nodeFor } from './path'
import { nodeIdOf } from './spark'
import { Spark, useSparks } from './sparkview'
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

/** Which line of the graph's numbers is drawn beside a column. */
const LINES: Record<string, string> = {
  utilisation: 'usage.cpu_cores', arrival_rate: 'served.transactions_per_second', threads: 'usage.threads', tcp_p50: 'served.p50', tcp_p99: 'served.p99',
}
const PATHS = [...new Set(Object.values(LINES))]

/** How many rows are drawn; the filter finds the others. */
const MOST = 200

/** Power by node, where anything tells it. */
function usePower(graph: Graph, state: State, period: number): Power {
  const seconds = Math.max(10, Math.round(graph.covered_seconds))
  const at = state.from === undefined ? 0 : Date.parse(graph.to) / 1000
  // Live, the window's length in whole minutes: another query every two seconds would say no more.
  const window = at ? seconds : Math.max(10, Math.min(seconds, state.window))
  const by = state.by === 'container' || state.by === 'process' ? 'host, id' : state.by === 'host' ? 'host' : state.by === 'namespace' ? 'namespace' : state.by === 'pod' ? 'namespace, pod' : 'namespace, workload_kind, workload'
  const rounded = window < 60 ? 10 : window
  const { power } = useSamples({ power: powerQuery('', `${rounded}s`, by) }, at, period ? 10_000 : 0)
  return new Map((power ?? []).map((s) => [nodeIdOf(s.metric, 'usage', state.by), s.value]))
}

/** How near each service is to its limit, and how it answers. */
export function ServicesView({ graph, state, change, query, period }: Props) {
  const { data, error } = useServices(query, () => `/api/outsight/services?${query}`, period)
  const power = usePower(graph, state, period)
  const sort = /^-?service\.|name$/.test(state.sort) ? state.sort : '-service.utilisation'
  const q = state.q.toLowerCase()
  const told = data?.services.filter((s) => !idle(s, nodeOf(graph, s.node))) ?? []
  const list = data ? ordered(told.filter((s) => q === '' || (nodeOf(graph, s.node) ? matches(nodeOf(graph, s.node)!, q) : s.name.toLowerCase().includes(q))), sort, power) : []
  const rows = list.slice(0, MOST).flatMap((s) => nodeOf(graph, s.node) ?? [])
  const sparks = useSparks(graph, PATHS, state.by, rows)
  useExplainer(['service'], (key, of) => {
    const c = data?.columns.find((c) => c.key === key)
    const s = data?.services.find((s) => s.node === of)
    return c && (s ? explainCell(c, s, data!, graph, power) : explainColumn(c, data!))
  })
  if (error && !data) return <p class="inline-error" role="alert">{error}</p>
  if (!data) return <p class="note">Reading…</p>
  const columns = columnsOf(data, power)
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
        <span class="muted">{list.length === told.length ? list.length : `${list.length} of ${told.length}`}{told.length < data.services.length && ` · ${data.services.length - told.length} that ended without a request are left out`}{power.size === 0 && ' · no meter tells the power of this host'}</span>
      </div>
      <div class="scroll">
        <table data-services>
          <thead>
            <tr>{heading('name', 'Service')}{columns.map((c) => heading(c.key, c.title))}</tr>
          </thead>
          <tbody>
            {list.slice(0, MOST).map((s) => {
              const node = s.kind === 'cpus' ? nodeFor(graph, s) : nodeOf(graph, s.node)
              return (
                <tr key={s.node} data-of={s.node} data-service={s.name} class={`${node && node === chosen ? 'chosen' : ''}${s.node === data.bottleneck ? ' first-limit' : ''}`}>
                  <th scope="row" class="name">
                    <button title={node?.image ?? s.node} onClick={() => choose(node)}><span>{s.name}</span><small>{s.node === data.bottleneck ? 'first to run out' : ''}</small></button>
                  </th>
                  {columns.map((c) => {
                    const text = textOf(c, s, power)
                    const v = valueOf(s, c.key, power)
                    const path = LINES[c.key]
                    return (
                      <td key={c.key}>
                        <button data-explain={`service.${c.key}`} data-number={c.key} class={v === undefined ? 'none' : v === 0 ? 'zero' : c.key === 'error_share' ? 'bad' : c.key === 'utilisation' && Number(v) >= 0.8 ? 'full' : ''} onClick={() => choose(node, v === undefined ? undefined : path)}>
                          {path && <Spark values={sparks.get(path)?.get(s.node)} />}
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
      <p class="map-foot muted"><span>U of 100 % is all that a service can use: its cores, its quota, or its busy threads. Point at a number for its formula and its query.{list.length > MOST && ` ${list.length - MOST} more are found by the filter.`}</span></p>
    </div>
  )
}
