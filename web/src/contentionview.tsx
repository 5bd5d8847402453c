import { byOf, msOf, waited } from './contention'
import { asNumber, useContention } from './data'
import { nodeOf, short, type Change, type State } from './state'
import type { Graph, Node } from './types'

/** Who took the CPU that a container waited for, on its panel and on those of edges that it serves. */
export function Contention({ graph, node, state, change }: { graph: Graph; node: Node; state: State; change: Change }) {
  const live = state.from === undefined
  const window = live ? `from=now-${Math.min(state.window, 300)}s&to=now` : `from=${graph.from}&to=${graph.to}`
  const path = `/api/outsight/contention?node=${encodeURIComponent(node.id)}&by=${state.by}&${window}`
  const { data, error } = useContention(node.usage === undefined ? '' : path, () => path, live ? 5000 : 0)
  if (error && !data) return <p class="inline-error" role="alert" data-contention-error>What it waited for a CPU behind could not be read: {error}</p>
  const by = data ? byOf(data) : []
  // A quota alone is on the panel already, as a number.
  const w = by.length ? waited(by, asNumber(node.usage?.throttled_seconds) || 0) : undefined
  if (!w) return null
  return (
    <p class="state unsure" data-contention title="Milliseconds per second for which its threads were ready to run and did not, by who ran meanwhile">
      <strong>{node.name}</strong> waited {msOf(w.total)} ms/s:{' '}
      {w.parts.map((p, i) => {
        const other = p.id ? nodeOf(graph, p.id) : undefined
        const text = `${msOf(p.ms)} ${p.text}`
        return <span key={i}>{i > 0 && ', '}{other && other !== node ? <button class="link" onClick={() => change({ node: short(other.id), edge: undefined, chart: undefined })}>{text}</button> : text}</span>
      })}
    </p>
  )
}
