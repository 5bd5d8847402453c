import { unmatched } from './format'
import { KINDS, type Quantity } from './heat'
import { CLOSED, pastOf } from './strip'
import { AGOS, agoOf, GROUPINGS, hides, lengthOf, PERCENTILES, SHARES, VIEWS, type Ago, type Change, type Grouping, type Percentile, type State } from './state'
import type { Graph } from './types'

/** What is drawn, and of what: all of it is in the URL. */
export function ViewBar({ graph, state, change, query }: { graph: Graph; state: State; change: Change; query: string }) {
  const hidden = graph.hidden_edges ?? 0
  const length = lengthOf(state)
  const ago = agoOf(state)
  return (
    <div class="view-bar" role="group" aria-label="View">
      <div class="segments" role="group" aria-label="Kind of view">
        {VIEWS.map(([view, title]) => (
          <button key={view} data-view={view} aria-pressed={state.view === view} onClick={() => change({ view })}>{title}</button>
        ))}
      </div>
      <button class="toggle" data-strip-open aria-pressed={state.strip !== undefined} title="Every container at full resolution, and its short saturations"
        onClick={() => change(state.strip ? CLOSED : { strip: 60, zoom: pastOf(state) })}>
        Last minutes
      </button>
      <label>
        Group by
        {/* What is chosen is another thing in another grouping. */}
        <select name="by" value={state.by} onChange={(e) => change({ by: e.currentTarget.value as Grouping, node: undefined, edge: undefined, chart: undefined })}>
          {GROUPINGS.map((by) => <option key={by} value={by} selected={state.by === by}>{by}</option>)}
        </select>
      </label>
      {hides(state.view) && (
        <label title="Share of the bytes of all edges">
          Hide edges under
          <select name="share" value={String(state.share)} onChange={(e) => change({ share: Number(e.currentTarget.value) })}>
            {SHARES.map((share) => <option key={share} value={String(share)} selected={state.share === share}>{share * 100} % of traffic</option>)}
          </select>
        </label>
      )}
      {state.view === 'heat' && (
        <label>
          Show
          <select name="quantity" value={state.quantity} onChange={(e) => change({ quantity: e.currentTarget.value as Quantity })}>
            {(Object.keys(KINDS) as Quantity[]).map((q) => <option key={q} value={q} selected={state.quantity === q}>{KINDS[q].title}</option>)}
          </select>
        </label>
      )}
      {state.view === 'path' && (
        <label title="The latency of edges that the critical path goes by">
          Slowest by
          <select name="percentile" value={state.percentile} onChange={(e) => change({ percentile: e.currentTarget.value as Percentile })}>
            {PERCENTILES.map((p) => <option key={p} value={p} selected={state.percentile === p}>{p}</option>)}
          </select>
        </label>
      )}
      {state.view === 'changes' && (
        <label>
          Against
          <select name="ago" value={ago} onChange={(e) => change({ ago: e.currentTarget.value as Ago })}>
            {AGOS.map(([name, title, seconds]) => <option key={name} value={name} selected={ago === name} disabled={seconds > 0 && seconds < length}>{title}</option>)}
          </select>
        </label>
      )}
      {state.view === 'map' && (
        <a href={`/api/outsight/picture?${query}`} target="_blank" rel="noopener" data-picture title="As an image: height for memory, border for CPU, width of lines for bytes">Picture</a>
      )}
      {hidden > 0 && <span class="muted" data-hidden={hidden}>{hidden === 1 ? '1 edge is' : `${hidden} edges are`} hidden</span>}
      {graph.unmatched_share > 0 && <span class="muted unmatched" data-unmatched title="Edges with an end that is in no known container">Unmatched: {unmatched(graph)}</span>}
    </div>
  )
}
