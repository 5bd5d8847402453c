import { labelledPath, useLabelled } from './data'
import { DROPS, droppedOf } from './drops'
import { format } from './format'
import type { State } from './state'
import type { Graph, Node } from './types'

/** Why, and at which device, the kernel dropped packets of a container, where it dropped any. */
export function Drops({ graph, node, state }: { graph: Graph; node: Node; state: State }) {
  const live = state.from === undefined
  const window = live ? `from=now-${state.window}s&to=now` : `from=${graph.from}&to=${graph.to}`
  const path = labelledPath([DROPS], `node=${encodeURIComponent(node.id)}&by=${state.by}&${window}`)
  const { data, error } = useLabelled(node.usage?.kernel_drops ? path : '', () => path, live ? 10_000 : 0)
  if (error && !data) return <p class="inline-error" role="alert" data-drops-error>Why packets were dropped could not be read: {error}</p>
  const rows = node.usage?.kernel_drops ? droppedOf(data?.rows ?? []) : []
  if (rows.length === 0) return null
  return (
    <section class="group" data-drops>
      <h3 title="The kernel’s name for why it dropped a packet, and the network device where">Dropped by the kernel</h3>
      <dl class="numbers wide">
        {rows.map((r) => (
          <div key={`${r.reason} ${r.device}`}><dt>{r.reason}{r.device && ` at ${r.device}`}</dt><dd title={`${format(r.packets, '')} packets in the window`}>{format(r.perSecond, '/s')}</dd></div>
        ))}
      </dl>
    </section>
  )
}
