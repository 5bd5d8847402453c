import { useExtent } from './data'
import { extentOf, whyNot, type Span } from './extent'
import { unmatched } from './format'
import { cellChoicesOf, choiceOf, choicesOf } from './matrix'
import { Save } from './picture'
import { AGOS, agoOf, GROUPINGS, hides, PERCENTILES, SHARES, type Ago, type Change, type Grouping, type Percentile, type State } from './state'
import type { Graph } from './types'

/** What is drawn, and of what: all of it is in the URL. */
export function ViewBar({ graph, state, change, query }: { graph: Graph; state: State; change: Change; query: string }) {
  const hidden = graph.hidden_edges ?? 0
  return (
    <div class="view-bar" role="group" aria-label="View">
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
      {state.view === 'matrix' && (
        <NumberChoice name="quantity" label="Show" of={cellChoicesOf(graph, state.by)} value={choiceOf(graph, state.quantity, state.by).key} choose={(quantity) => change({ quantity })} />
      )}
      {state.view === 'map' && (
        <NumberChoice name="colour" label="Colour edges by" of={choicesOf(graph)} value={state.colour} none="what is slower than usual" choose={(colour) => change({ colour })} />
      )}
      {state.view === 'path' && (
        <label title="The statistic of response times that the critical path goes by, and is given in">
          Statistic
          <select name="percentile" value={state.percentile} onChange={(e) => change({ percentile: e.currentTarget.value as Percentile })}>
            {PERCENTILES.map((p) => <option key={p} value={p} selected={state.percentile === p}>{p}</option>)}
          </select>
        </label>
      )}
      {state.view === 'changes' && (
        <Against graph={graph} state={state} change={change} />
      )}
      {state.view === 'map' && <Save path={`/api/outsight/picture?${query}`} file="outsight-map.svg" what="picture" title="Saves the map as an SVG image: height for memory, border for CPU, width of lines for bytes" />}
      {state.view === 'matrix' && <Save path={`/api/outsight/matrix?${query}&format=csv`} file="outsight-matrix.csv" what="CSV" title="Saves all numbers of the matrix as comma-separated values: a line for each client and server" />}
      {state.view !== 'path' && state.view !== 'changes' && state.view !== 'matrix' && <Filter state={state} change={change} what="name or image" />}
      {hidden > 0 && <span class="muted" data-hidden={hidden}>{hidden === 1 ? '1 edge is' : `${hidden} edges are`} hidden</span>}
      {graph.unmatched_share > 0 && <span class="muted unmatched" data-unmatched title="Edges with an end that is in no known container">Unmatched: {unmatched(graph)}</span>}
    </div>
  )
}

interface ChoiceProps {
  name: string
  label: string
  of: ReturnType<typeof choicesOf>
  value: string
  /** What stands for no number. */
  none?: string
  choose: (key: string) => void
}

/** A choice among the numbers of edges. */
function NumberChoice({ name, label, of, value, none, choose }: ChoiceProps) {
  return (
    <label>
      {label}
      <select name={name} value={value} onChange={(e) => choose(e.currentTarget.value)}>
        {none && <option value="" selected={value === ''}>{none}</option>}
        {of.map((group) => (
          <optgroup key={group.title} label={group.title}>
            {group.numbers.map((n) => <option key={n.key} value={n.key} selected={value === n.key}>{n.title}</option>)}
          </optgroup>
        ))}
      </select>
    </label>
  )
}

/** What changes are against: only what there is data of can be chosen. */
function Against({ graph, state, change }: { graph: Graph; state: State; change: Change }) {
  const there = extentOf(useExtent().data)
  const ago = agoOf(state)
  const window: Span = [Date.parse(graph.from) / 1000, Date.parse(graph.to) / 1000]
  const options = AGOS.map(([name, title]) => ({ name, title, why: whyNot(name, state, window, there, Date.now() / 1000) }))
  const lacking = options.find((o) => o.name === ago)?.why
  return (
    <label>
      Against
      <select name="ago" value={ago} onChange={(e) => change({ ago: e.currentTarget.value as Ago })}>
        {options.map((o) => <option key={o.name} value={o.name} selected={ago === o.name} disabled={o.why !== undefined && o.name !== ago} title={o.why}>{o.title}{o.why && ` (${o.why})`}</option>)}
      </select>
      {lacking && <span class="lack" data-no-comparison>nothing to compare with: {lacking}</span>}
    </label>
  )
}

/** The filter of a view; "/" goes to it. */
export function Filter({ state, change, what }: { state: State; change: Change; what: string }) {
  return (
    <span class="filter">
      <input type="search" data-filter aria-label={`Filter by ${what}`} placeholder="Filter  /" value={state.q} spellcheck={false} onInput={(e) => change({ q: e.currentTarget.value }, true)} onKeyDown={(e) => e.key === 'Escape' && (change({ q: '' }, true), e.currentTarget.blur())} />
    </span>
  )
}
