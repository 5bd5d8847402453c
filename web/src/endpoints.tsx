import type { ChartLine } from './chart'
import { recognised, statuses } from './facts'
import { duration, floorPercent, format } from './format'
import type { Change, State } from './state'
import type { Edge, Endpoint, Graph } from './types'

const id = (e: Endpoint) => `${e.protocol} ${e.name}`

/** What the chart of an endpoint shows: its rate and its errors, or its latency. */
export function endpointChart(graph: Graph, edge: Edge, state: State): { title: string; unit: '/s' | 's'; lines: ChartLine[] } | undefined {
  const e = edge.endpoints?.find((e) => id(e) === state.endpoint)
  const latency = state.chart === 'endpoint.latency'
  if (!e || (!latency && state.chart !== 'endpoint.rate')) return undefined
  const side = edge.server_side ? 'server' : 'client'
  const known = graph.edge_matches[edge.id]
  const match = known && `${known},side="${side}",protocol=${JSON.stringify(e.protocol)},endpoint=${JSON.stringify(e.name)}`
  const keys = latency ? ['p50', 'p99'] : e.error_share > 0 ? ['requests_per_second', 'errors_per_second'] : ['requests_per_second']
  const lines = keys.flatMap((key) => graph.numbers.endpoint.filter((n) => n.key === key).map((n) => ({ name: n.title, number: `endpoint.${key}`, query: match && n.query.replaceAll('$match', match) })))
  return { title: `${e.name} · ${latency ? 'latency' : 'requests'}`, unit: latency ? 's' : '/s', lines }
}

/** What was asked for on an edge, the most frequent first. */
export function Endpoints({ edge, state, change }: { edge: Edge; state: State; change: Change }) {
  const list = edge.endpoints ?? []
  const share = recognised(edge)
  if (list.length === 0) return share === undefined ? null : <p class="muted small">No request was recognised: it is encrypted, or of a protocol that is not read. Requests are timed all the same.</p>
  const others = edge.other_endpoints
  return (
    <section class="group endpoints" data-of={edge.id}>
      <h3>Endpoints <span class="muted">· as the {edge.server_side ? 'server' : 'client'} counted</span></h3>
      <table class="sides">
        <thead>
          <tr>
            <th scope="col">Request</th>
            {['req/s', 'p50', 'p99', 'errors/s'].map((title) => <th key={title} scope="col">{title}</th>)}
          </tr>
        </thead>
        <tbody>
          {list.map((e) => {
            const show = (chart: 'endpoint.rate' | 'endpoint.latency', text: string, key: string) => (
              <button class={`number${state.endpoint === id(e) && state.chart === chart ? ' chosen' : ''}`} data-endpoint={`${id(e)} ${key}`} data-explain={`endpoint.${key}`} data-protocol={e.protocol} data-asked={e.name}
                onClick={() => change(state.endpoint === id(e) && state.chart === chart ? { chart: undefined } : { chart, endpoint: id(e) })}>{text}</button>
            )
            return (
              <tr key={id(e)}>
                <th scope="row">
                  <span class="protocol">{e.protocol}</span> <span class="asked">{e.name}</span>
                  <small>{statuses(e)}</small>
                </th>
                <td>{show('endpoint.rate', format(e.requests_per_second, '/s').replace('/s', ''), 'rate')}</td>
                <td>{e.p50 === undefined ? duration(undefined) : show('endpoint.latency', duration(e.p50), 'p50')}</td>
                <td>{e.p99 === undefined ? duration(undefined) : show('endpoint.latency', duration(e.p99), 'p99')}</td>
                <td class={e.error_share > 0 ? 'bad' : undefined}>{show('endpoint.rate', e.error_share > 0 ? format(e.errors_per_second, '/s').replace('/s', '') : '0', 'errors')}</td>
              </tr>
            )
          })}
          {others && (
            <tr data-others>
              <th scope="row"><span class="asked">{edge.omitted_endpoints} others</span><small>{statuses(others)}</small></th>
              <td>{format(others.requests_per_second, '/s').replace('/s', '')}</td>
              <td>{duration(others.p50)}</td>
              <td>{duration(others.p99)}</td>
              <td class={others.error_share > 0 ? 'bad' : undefined}>{format(others.errors_per_second, '/s').replace('/s', '')}</td>
            </tr>
          )}
        </tbody>
      </table>
      {share !== undefined && share < 0.995 && <p class="muted small">{floorPercent(share)} of the requests on this edge were recognised. Others are encrypted, or were not seen from its beginning.</p>}
    </section>
  )
}
