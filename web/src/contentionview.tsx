import { msOf, waited } from './contention'
import { useSamples } from './data'
import { nodeOf, short, type Change, type State } from './state'
import type { Graph, Node } from './types'

/** Who took the CPU that a container waited for, on its panel and on those of edges that it serves. */
export function Contention({ graph, node, state, change }: { graph: Graph; node: Node; state: State; change: Change }) {
  const match = graph.matches[node.id]?.usage ?? ''
  const live = state.from === undefined
  const seconds = live ? Math.min(state.window, 300) : Math.max(10, Math.round(graph.covered_seconds))
  const known = match !== '' && node.usage !== undefined
  const { of: { by, quota }, error } = useSamples(
    known ? {
      by: `sum by (by_name, by_id) (rate(container_run_queue_wait_by_seconds_total{${match}}[${seconds}s]))`,
      quota: `sum(rate(container_cpu_cfs_throttled_seconds_total{${match}}[${seconds}s]))`,
    } : {},
    live ? 0 : Date.parse(graph.to) / 1000, live ? 5000 : 0)
  if (error && !by) return <p class="inline-error" role="alert" data-contention-error>What it waited for a CPU behind could not be read: {error}</p>
  // A quota alone is on the panel already, as a number.
  const w = by?.length ? waited(by, quota ?? []) : undefined
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
