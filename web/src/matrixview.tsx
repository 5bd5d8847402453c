import { useMemo, useRef, useState } from 'preact/hooks'
import { useHeat } from './data'
import { format } from './format'
import { cellsOf, frameOf, KINDS, NAME, next, scaleOf, steady, STEPS, textOf, TURN, valueOf, type Frame } from './heat'
import { edgeOf, short, type Change, type State, type Quantity } from './state'
import { fit, useWidth } from './text'
import type { Graph, Heat, HeatCell } from './types'

interface Props {
  graph: Graph
  state: State
  change: Change
  /** What of the server's data to show, as a query string, and how often to ask, in ms. */
  query: string
  period: number
}

/** Who sends to whom, as a matrix: a row for each source, a column for each destination. */
export function HeatMap({ graph, state, change, query, period }: Props) {
  const frame = useRef<HTMLDivElement>(null)
  const width = useWidth(frame)
  const heat = useHeat(query, () => `/api/outsight/heatmap?${query}`, period)
  // Nodes come busiest first; while they are the same ones, rows stay where they are.
  const order = useRef<string[]>([])
  const h = useMemo(() => heat.data && steady(heat.data, order.current), [heat.data])
  order.current = h?.nodes ?? []
  const [pointed, point] = useState<HeatCell>()
  const chosen = edgeOf(graph, state.edge)
  const at = pointed && h?.cells.find((c) => c.source === pointed.source && c.destination === pointed.destination)
  return (
    <div class="heat">
      {heat.error && <p class="inline-error" role="alert">{heat.error}</p>}
      <div class="map-frame whole" ref={frame}>
        {!h && !heat.error && <p class="note">Reading…</p>}
        {h && h.cells.length === 0 && <p class="note">{(graph.hidden_edges ?? 0) > 0 ? 'All edges are under the share of traffic that is shown.' : 'No traffic was seen in this time.'}</p>}
        {h && h.cells.length > 0 && width > 0 && (
          <Matrix heat={h} quantity={state.quantity} frame={frameOf(h.nodes.length, width - 4)} chosen={chosen?.id} pointed={at} point={point} choose={(id) => change({ edge: short(id), node: undefined, status: undefined, chart: undefined })} />
        )}
      </div>
      {h && h.cells.length > 0 && (
        <div class="map-foot">
          <p class="told" aria-live="polite">
            {at ? <><strong>{h.names[at.source]} → {h.names[at.destination]}</strong> {textOf(at)}</> : <span class="muted">Rows send, columns receive. Point at a cell for its numbers; click it for the edge.</span>}
          </p>
          <Legend heat={h} quantity={state.quantity} />
          {h.omitted_nodes > 0 && <p class="muted">{h.omitted_nodes} less busy nodes are left out.</p>}
        </div>
      )}
    </div>
  )
}

interface MatrixProps {
  heat: Heat
  quantity: Quantity
  frame: Frame
  chosen?: string
  pointed?: HeatCell
  point: (cell?: HeatCell) => void
  choose: (edge: string) => void
}

function Matrix({ heat, quantity, frame: f, chosen, pointed, point, choose }: MatrixProps) {
  const svg = useRef<SVGSVGElement>(null)
  const cells = cellsOf(heat.cells, quantity)
  const scale = scaleFor(cells, quantity)
  const x = (i: number) => f.left + i * f.cell.width
  const y = (i: number) => f.top + i * f.cell.height
  const name = (c: HeatCell) => `${c.source},${c.destination}`
  // One cell is focused with Tab, the others from it by the arrow keys.
  const reached = (pointed && cells.includes(pointed) ? pointed : undefined) ?? cells.find((c) => c.edge === chosen) ?? cells[0]
  const press = (c: HeatCell) => (e: KeyboardEvent) => {
    if (e.key === 'Enter' || e.key === ' ') {
      e.preventDefault()
      return choose(c.edge)
    }
    const to = next(cells, c, e.key)
    if (!to) return
    e.preventDefault()
    svg.current?.querySelector<SVGElement>(`[data-cell="${name(to)}"]`)?.focus()
  }
  return (
    <svg ref={svg} width={f.width} height={f.height} role="group" aria-label={`${KINDS[quantity].title} between ${heat.nodes.length} nodes`} onPointerLeave={() => point(undefined)}>
      <rect class="heat-ground" x={f.left} y={f.top} width={heat.nodes.length * f.cell.width} height={heat.nodes.length * f.cell.height} />
      {heat.names.map((n, i) => (
        <text key={heat.nodes[i]} class={pointed?.source === i ? 'heat-name on' : 'heat-name'} x={f.left - 7} y={y(i) + f.cell.height / 2 + 4} text-anchor="end">
          <title>{n}</title>
          {fit(n, f.left - 12, 11, 400)}
        </text>
      ))}
      {heat.names.map((n, i) => {
        // Where there is no room for all names, that of the column pointed at takes its neighbour's place.
        const on = pointed?.destination === i
        const beside = pointed !== undefined && f.every > 1 && Math.abs(pointed.destination - i) < f.every
        if (!on && (i % f.every !== 0 || beside)) return null
        const [left, top] = [x(i) + f.cell.width / 2, f.top - 7]
        return (
          <text key={heat.nodes[i]} class={on ? 'heat-name on' : 'heat-name'} x={left} y={top} text-anchor={f.turned ? 'start' : 'middle'} transform={f.turned ? `rotate(${-TURN} ${left} ${top})` : undefined}>
            <title>{n}</title>
            {fit(n, f.turned ? NAME.column - 10 : f.cell.width - 6, 11, 400)}
          </text>
        )
      })}
      {cells.map((c) => {
        const v = valueOf(c, quantity)
        const spoken = `${heat.names[c.source]} to ${heat.names[c.destination]}: ${textOf(c)}`
        return (
          <rect key={name(c)} data-cell={name(c)} data-edge={c.edge} class={`heat-cell ${v === undefined ? 'none' : `step-${scale.step(v)}`}${c.edge === chosen ? ' chosen' : ''}`}
            x={x(c.destination) + 0.5} y={y(c.source) + 0.5} width={f.cell.width - 1} height={f.cell.height - 1} rx="2"
            role="button" tabindex={c === reached ? 0 : -1} aria-label={spoken} aria-pressed={c.edge === chosen}
            onPointerEnter={() => point(c)} onFocus={() => point(c)} onClick={() => choose(c.edge)} onKeyDown={press(c)}>
            <title>{spoken}</title>
          </rect>
        )
      })}
    </svg>
  )
}

const scaleFor = (cells: HeatCell[], quantity: Quantity) => scaleOf(cells.map((c) => valueOf(c, quantity)).filter((v) => v !== undefined))

function Legend({ heat, quantity }: { heat: Heat; quantity: Quantity }) {
  const cells = cellsOf(heat.cells, quantity)
  const { low, high } = scaleFor(cells, quantity)
  const { unit, title } = KINDS[quantity]
  return (
    <p class="heat-legend" data-legend>
      <span>{title}, logarithmic:</span>
      <span>
        {format(low, unit)}{' '}
        <svg width={STEPS * 18} height="12" aria-hidden="true">
          {Array.from({ length: STEPS }, (_, i) => <rect key={i} class={`heat-cell step-${i}`} x={i * 18} y="0" width="18" height="12" />)}
        </svg>{' '}
        {format(high, unit)}
      </span>
      {cells.some((c) => valueOf(c, quantity) === undefined) && <span><svg width="14" height="12" aria-hidden="true"><rect class="heat-cell none" x="0.500" y="0.500" width="13" height="11" rx="2" /></svg> no value</span>}
    </p>
  )
}
