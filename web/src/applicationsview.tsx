import { applicationsOf, COUNTERS, FINE_COUNTERS, GAUGES, shownOf } from './applications'
import { labelledPath, useLabelled } from './data'
import { digits } from './format'
import type { State } from './state'
import type { Graph, Node } from './types'

/** What the applications of a container count themselves, where they count something. */
export function Applications({ graph, node, state }: { graph: Graph; node: Node; state: State }) {
  const live = state.from === undefined
  const window = live ? `from=now-${state.window}s&to=now` : `from=${graph.from}&to=${graph.to}`
  const path = labelledPath([COUNTERS, FINE_COUNTERS, GAUGES], `node=${encodeURIComponent(node.id)}&by=${state.by}&${window}`)
  const inside = node.kind !== 'outside'
  const { data, error } = useLabelled(inside ? path : '', () => path, live ? 10_000 : 0)
  if (error && !data) return <p class="inline-error" role="alert" data-applications-error>What the application counts itself could not be read: {error}</p>
  const rows = inside ? applicationsOf(data?.rows ?? []) : []
  if (rows.length === 0) return null
  return (
    <section class="group" data-applications>
      <h3 title="Metrics that the programs in the container define themselves, under their names in PromQL">The application’s own</h3>
      <dl class="numbers wide">
        {rows.map((r) => (
          <div key={r.name}><dt title={r.help}>{r.name}</dt><dd title={r.counter ? `${digits(r.value)} ${r.unit} in the window` : `${digits(r.value)} ${r.unit}`}>{shownOf(r)}</dd></div>
        ))}
      </dl>
    </section>
  )
}
