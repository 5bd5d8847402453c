import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { useMatrix } from './data'
import { format } from './format'
import { askedOf, choiceOf, frameOf, meaningOf, NAME, next, numberOf, scaleOf, steady, STEPS, textOf, transportOf, TURN, valueOf, type Frame, type Scale } from './matrix'
import { edgeOf, short, type Change, type State } from './state'
import { fit, useWidth } from './text'
import type { Graph, Matrix, MatrixCell, MatrixEnd, NumberInfo } from './types'

interface Props {
  graph: Graph
  state: State
  change: Change
  /** What of the server's data to show, as a query string, and how often to ask, in ms. */
  query: string
  period: number
}

/** Who sends how much to whom: a row for each client, a column for each server. */
export function MatrixView({ graph, state, change, query, period }: Props) {
  const frame = useRef<HTMLDivElement>(null)
  const width = useWidth(frame)
  const shown = choiceOf(graph, state.quantity, state.by)
  const asked = `${query}&numbers=${askedOf(shown.key)}`
  const matrix = useMatrix(asked, () => `/api/outsight/matrix?${asked}`, period)
  // Ends come busiest first; while they are the same ones, rows and columns stay where they are.
  const before = useRef<Matrix | undefined>(undefined)
  const m = useMemo(() => (matrix.data ? steady(matrix.data, before.current) : undefined), [matrix.data])
  before.current = m
  const [pointed, point] = useState<[row: number, column: number]>()
  const chosen = edgeOf(graph, state.edge)
  const at = m?.cells.find((c) => c.row === pointed?.[0] && c.column === pointed[1])
  const scale = useMemo(() => scaleOf((m?.cells ?? []).map((c) => valueOf(c.numbers, shown)).filter((v) => v !== undefined)), [m, shown.key])
  // A cell of several edges asks which one.
  const [asking, ask] = useState<[row: number, column: number]>()
  useEffect(() => ask(undefined), [state.by])
  const several = m?.cells.find((c) => c.row === asking?.[0] && c.column === asking[1])
  const go = (edge: string) => {
    ask(undefined)
    change({ edge: short(edge), node: undefined, status: undefined, chart: undefined })
  }
  const choose = (c: MatrixCell) => open(c) && (c.edges.length > 1 ? ask([c.row, c.column]) : go(c.edges[0]!))
  const open = (c: MatrixCell) => m !== undefined && m.rows[c.row]!.id !== '' && m.columns[c.column]!.id !== ''
  return (
    <div class="heat">
      {matrix.error && <p class="inline-error" role="alert">{matrix.error}</p>}
      <div class="map-frame whole" ref={frame}>
        {!m && !matrix.error && <p class="note">Reading…</p>}
        {m && m.cells.length === 0 && <p class="note">No traffic was seen in this time.</p>}
        {m && m.cells.length > 0 && width > 0 && (
          <Cells matrix={m} shown={shown} scale={scale} frame={frameOf(m.rows.length, m.columns.length, width - 4)} chosen={chosen?.id} pointed={at} point={(c) => point(c && [c.row, c.column])} opens={open} choose={choose} />
        )}
      </div>
      {m && several && frame.current && (
        <Which at={placeOf(several, frameOf(m.rows.length, m.columns.length, width - 4), frame.current)} name={`${m.rows[several.row]!.name} → ${m.columns[several.column]!.name}`} close={() => ask(undefined)}
          edges={several.edges.map((id) => ({ id, text: textOfEdge(graph, id, shown) }))} choose={go} />
      )}
      {m && m.cells.length > 0 && (
        <div class="map-foot">
          <p class="told" aria-live="polite" data-told>
            {at ? (
              <>
                <strong>{m.rows[at.row]!.name} → {m.columns[at.column]!.name}</strong> {textOf(at.numbers, shown)}
                {m.rows[at.row]!.sum[shown.key] !== undefined && <span class="muted"> · all of {m.rows[at.row]!.name}: {format(m.rows[at.row]!.sum[shown.key], shown.unit)}</span>}
                {m.columns[at.column]!.sum[shown.key] !== undefined && <span class="muted"> · all to {m.columns[at.column]!.name}: {format(m.columns[at.column]!.sum[shown.key], shown.unit)}</span>}
              </>
            ) : (
              <span class="muted" data-total>Rows are clients, columns are servers. All together: {textOf(m.total, shown)}</span>
            )}
          </p>
          <Legend shown={shown} scale={scale} none={m.cells.some((c) => valueOf(c.numbers, shown) === undefined)} />
        </div>
      )}
    </div>
  )
}

/** How wide the question about a cell is at most, and what is around the picture, in px; style.css has the same. */
const WHICH = 300
const MARGIN = { left: 8, top: 10 }

interface CellsProps {
  matrix: Matrix
  shown: NumberInfo
  scale: Scale
  frame: Frame
  chosen?: string
  pointed?: MatrixCell
  point: (cell?: MatrixCell) => void
  /** Whether a cell leads to an edge: that of a sum of several ends does not. */
  opens: (cell: MatrixCell) => boolean
  choose: (cell: MatrixCell) => void
}

function Cells({ matrix: m, shown, scale, frame: f, chosen, pointed, point, opens, choose }: CellsProps) {
  const svg = useRef<SVGSVGElement>(null)
  const x = (i: number) => f.left + i * f.cell.width
  const y = (i: number) => f.top + i * f.cell.height
  const name = (c: MatrixCell) => `${c.row},${c.column}`
  const isChosen = (c: MatrixCell) => chosen !== undefined && opens(c) && c.edges.includes(chosen)
  // One cell is focused with Tab, the others from it by the arrow keys.
  const reached = pointed ?? m.cells.find(isChosen) ?? m.cells[0]
  const press = (c: MatrixCell) => (e: KeyboardEvent) => {
    if (e.key === 'Enter' || e.key === ' ') {
      e.preventDefault()
      return choose(c)
    }
    const to = next(m.cells, c, e.key)
    if (!to) return
    e.preventDefault()
    svg.current?.querySelector<SVGElement>(`[data-cell="${name(to)}"]`)?.focus()
  }
  const title = (e: MatrixEnd) => <title>{`${e.name}: ${textOf(e.sum, shown)}`}</title>
  return (
    <svg ref={svg} width={f.width} height={f.height} role="group" aria-label={`${shown.title} between ${m.rows.length} clients and ${m.columns.length} servers`} onPointerLeave={() => point(undefined)}>
      <rect class="heat-ground" x={f.left} y={f.top} width={m.columns.length * f.cell.width} height={m.rows.length * f.cell.height} />
      {m.rows.map((e, i) => (
        <text key={e.id} class={pointed?.row === i ? 'heat-name on' : 'heat-name'} x={f.left - 7} y={y(i) + f.cell.height / 2 + 4} text-anchor="end">
          {title(e)}
          {fit(e.name, f.left - 12, 11, 400)}
        </text>
      ))}
      {m.columns.map((e, i) => {
        // Where there is no room for all names, that of the column pointed at takes its neighbour's place.
        const on = pointed?.column === i
        const beside = pointed !== undefined && f.every > 1 && Math.abs(pointed.column - i) < f.every
        if (!on && (i % f.every !== 0 || beside)) return null
        const [left, top] = [x(i) + f.cell.width / 2, f.top - 7]
        return (
          <text key={e.id} class={on ? 'heat-name on' : 'heat-name'} x={left} y={top} text-anchor={f.turned ? 'start' : 'middle'} transform={f.turned ? `rotate(${-TURN} ${left} ${top})` : undefined}>
            {title(e)}
            {fit(e.name, f.turned ? NAME.column - 10 : f.cell.width - 6, 11, 400)}
          </text>
        )
      })}
      {m.cells.map((c) => {
        const v = valueOf(c.numbers, shown)
        const spoken = `${m.rows[c.row]!.name} to ${m.columns[c.column]!.name}: ${textOf(c.numbers, shown)}${c.edge_count > 1 ? ` · ${c.edge_count} edges` : ''}`
        return (
          <rect key={name(c)} data-cell={name(c)} data-edge={opens(c) ? c.edges[0] : undefined} class={`heat-cell ${v === undefined ? 'none' : `step-${scale.step(v)}`}${isChosen(c) ? ' chosen' : ''}`}
            x={x(c.column) + 0.5} y={y(c.row) + 0.5} width={f.cell.width - 1} height={f.cell.height - 1} rx="2"
            role="button" tabindex={c === reached ? 0 : -1} aria-label={spoken} aria-pressed={isChosen(c)} aria-disabled={!opens(c)}
            onPointerEnter={() => point(c)} onFocus={() => point(c)} onClick={() => choose(c)} onKeyDown={press(c)}>
            <title>{spoken}</title>
          </rect>
        )
      })}
    </svg>
  )
}

/** Where the question about a cell is: below it, in the part of the matrix that is seen. */
function placeOf(c: MatrixCell, f: Frame, box: HTMLElement): { left: string; top: string } {
  const left = f.left + c.column * f.cell.width + MARGIN.left - box.scrollLeft
  return { left: `${Math.max(0, Math.min(left, box.clientWidth - WHICH))}px`, top: `${box.offsetTop + f.top + (c.row + 1) * f.cell.height + MARGIN.top}px` }
}

/** An edge of a cell that has several. */
function textOfEdge(graph: Graph, id: string, shown: NumberInfo): string {
  const e = graph.edges.find((e) => e.id === id)
  return e ? `${transportOf(id)} · ${shown.title} ${format(numberOf(e, shown), shown.unit)}` : transportOf(id)
}

interface WhichProps {
  at: { left: string; top: string }
  /** The ends. */
  name: string
  edges: { id: string; text: string }[]
  choose: (edge: string) => void
  close: () => void
}

/** Asks which edge of a cell is meant. */
function Which({ at, name, edges, choose, close }: WhichProps) {
  const box = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const opener = document.activeElement
    box.current?.querySelector('button')?.focus()
    const outside = (e: PointerEvent) => !box.current?.contains(e.target as Node | null) && close()
    const press = (e: KeyboardEvent) => {
      if (e.key !== 'Escape') return
      e.stopPropagation()
      close()
      if (opener instanceof SVGElement) opener.focus()
    }
    addEventListener('pointerdown', outside)
    addEventListener('keydown', press, true)
    return () => {
      removeEventListener('pointerdown', outside)
      removeEventListener('keydown', press, true)
    }
  }, [name])
  return (
    <div class="which" ref={box} style={at} role="group" aria-label={`Edges from ${name}`} data-which>
      <span class="muted small">{name}</span>
      {edges.map((e) => <button key={e.id} data-edge={e.id} onClick={() => choose(e.id)}>{e.text}</button>)}
    </div>
  )
}

interface LegendProps {
  shown: NumberInfo
  scale: Scale
  /** Whether something has no value. */
  none: boolean
}

/** What colours stand for, from the least to the greatest value. */
export function Legend({ shown, scale, none }: LegendProps) {
  return (
    <p class="heat-legend" data-legend title={meaningOf(shown.key) || undefined}>
      <span>{shown.title}, logarithmic:</span>
      {scale.high === 0 && <span>nothing above 0</span>}
      {scale.high > 0 && <span>
        {format(scale.low, shown.unit)}{' '}
        <svg width={STEPS * 18} height="12" aria-hidden="true">
          {Array.from({ length: STEPS }, (_, i) => <rect key={i} class={`heat-cell step-${i}`} x={i * 18} y="0" width="18" height="12" />)}
        </svg>{' '}
        {format(scale.high, shown.unit)}
      </span>}
      {none && <span><svg width="14" height="12" aria-hidden="true"><rect class="heat-cell none" x="0.500" y="0.500" width="13" height="11" rx="2" /></svg> no value</span>}
    </p>
  )
}
