import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { useFlight } from './data'
import { digits, NONE } from './format'
import { edgeOf, nodeOf, short, STRIPS, type Change, type State } from './state'
import { around, clockOf, CLOSED, indexAt, KIND, keyOf, labelOf, lengthOf, markOf, place, ticksOf, widen, type Range } from './strip'
import { textWidth, useWidth } from './text'
import { colour } from './theme'
import type { Flight, Graph, Lane, Mark } from './types'

interface Props {
  graph: Graph
  state: State
  change: Change
  theme: string
}

/** The last minutes as the flight recorder has them: a lane for each container, and saturations. */
export function Strip({ graph, state, change, theme }: Props) {
  const length = state.strip!
  const zoom = state.zoom
  const chosenNode = nodeOf(graph, state.node)
  const query = (zoom ? `from=${zoom[0] / 1000}&to=${zoom[1] / 1000}` : `from=now-${length}s`) + (state.lanes ? '&lanes=100' : '') + (state.kept ? `&anomaly=${state.kept}` : '') + (chosenNode ? `&container=${encodeURIComponent(chosenNode.id)}` : '')
  const [absent, setAbsent] = useState(false)
  const loaded = useFlight(query, () => `/api/outsight/flight?${query}`, absent ? 30_000 : zoom ? 0 : length <= 60 ? 1000 : length * 10)
  // What is dragged across must not move on meanwhile.
  const [held, hold] = useState<Flight>()
  const f = held ?? loaded.data
  useEffect(() => setAbsent(!f && Boolean(loaded.error)), [f === undefined, loaded.error])
  const body = useRef<HTMLDivElement>(null)
  const total = useWidth(body)
  const side = total >= 760 ? 186 : 0
  const width = Math.max(0, total - side)
  const [pointed, point] = useState<number>()

  const range = useMemo<Range>(() => {
    if (!f) return [0, 1]
    if (zoom) return [zoom[0] - f.base_ms, zoom[1] - f.base_ms]
    const end = f.kept_to_ms ?? f.to_ms
    return [end - length * 1000, end]
  }, [f, zoom?.[0], zoom?.[1], length])
  const chosen = markOf(f, state.mark)
  const ticks = ticksOf(range, width)
  const marks = f ? f.marks.filter((m) => m.to_ms > range[0] && m.from_ms < range[1]) : []

  const show = (r: Range) => f && change({ zoom: [f.base_ms + r[0], f.base_ms + r[1]].map(Math.round) as Range })
  const out = () => f && f.kept_from_ms !== null && f.kept_to_ms !== null && zoom && show(widen(range, [f.kept_from_ms, f.kept_to_ms]))
  // A mark that is looked at must not move out of sight.
  const pick = (m: Mark) => f && change({ mark: m === chosen ? undefined : keyOf(m, f.base_ms), zoom: zoom ?? (range.map((t) => Math.round(f.base_ms + t)) as Range) })
  const drag = (on: boolean) => hold(on ? f : undefined)
  const act = useRef({ show, out, pick, point, drag })
  act.current = { show, out, pick, point, drag }

  const empty = f && f.at_ms.length === 0
  const at = pointed === undefined ? undefined : f && indexAt(f.at_ms, pointed)
  return (
    <section class="strip" data-strip aria-label={state.kept ? 'A kept anomaly at full resolution' : 'The last minutes at full resolution'}>
      <div class="strip-bar">
        <h2>{state.kept ? `Kept anomaly ${state.kept}` : 'Last minutes'}</h2>
        <div class="segments" role="group" aria-label="Length of the strip">
          {STRIPS.map(([name, s]) => <button key={name} aria-pressed={!zoom && s === length} onClick={() => change({ strip: s, zoom: undefined, mark: undefined, kept: undefined })}>{name}</button>)}
        </div>
        {zoom && <button class="toggle" data-zoom-out disabled={!f || empty} onClick={out} title="Four times as much (double click)">Zoom out</button>}
        <button class={zoom ? 'live' : 'live on'} aria-pressed={!zoom} disabled={!zoom} onClick={() => change({ zoom: undefined, mark: undefined, kept: undefined })}><i aria-hidden="true" />{zoom ? 'Follow' : 'Following'}</button>
        {f && <span class="muted strip-range" data-strip-range>{clockOf(f.base_ms + range[0], ticks.step)} – {clockOf(f.base_ms + range[1], ticks.step)} · {lengthOf(range[1] - range[0])}</span>}
        <Key />
        <button class="quiet" aria-label="Close the last minutes" title="Close" onClick={() => change(CLOSED)}>×</button>
      </div>
      {loaded.error && <p class="inline-error" role="alert">{loaded.error}</p>}
      {state.mark && f && (chosen ? <Cause mark={chosen} flight={f} graph={graph} change={change} close={() => change({ mark: undefined })} zoom={() => show(around(chosen))} />
        : !loaded.loading && <p class="muted strip-note">The chosen saturation is not in this time. <button class="link" onClick={() => change({ mark: undefined })}>Forget it</button></p>)}
      <div class="strip-body" ref={body}>
        {empty && <p class="note">The flight recorder has kept nothing of this time{f.kept_from_ms !== null ? `. It has ${clockOf(f.base_ms + f.kept_from_ms, 1000)} to ${clockOf(f.base_ms + f.kept_to_ms!, 1000)}` : ' yet'}.</p>}
        {f && !empty && width > 0 && (
          <>
            <Marks marks={marks} range={range} base={f.base_ms} width={width} side={side} chosen={chosen} pick={pick} rows={zoom ? 1 : 3} />
            <Axis ticks={ticks} range={range} base={f.base_ms} width={width} side={side} />
            {f.lanes.map((lane) => (
              <div key={lane.id} class={lane.id === chosenNode?.id ? 'lane chosen' : 'lane'} data-lane={lane.id}>
                <div class="lane-side">
                  <button class="lane-name" title={lane.name} onClick={() => change({ node: short(lane.id === 'host' ? `host/${graph.hosts[0]?.name}` : lane.id), edge: undefined, status: undefined, chart: undefined })}>{lane.name}</button>
                  <Values lane={lane} at={at ?? f.at_ms.length - 1} />
                </div>
                <LanePlot lane={lane} at={f.at_ms} range={range} grid={ticks.at} marks={marks} chosen={chosen} width={width} theme={theme} act={act} />
              </div>
            ))}
            <Axis ticks={ticks} range={range} base={f.base_ms} width={width} side={side} />
            <p class="map-foot muted">
              <span>
                {f.ticks_per_point > 1 ? `Least and greatest of ${f.ticks_per_point} ticks of ${f.interval_ms} ms, so that a single one shows; zoom in for each.` : `A point each ${f.interval_ms} ms: every tick.`} Drag across to zoom, double click to zoom out.
                {f.omitted_marks > 0 && ` ${f.omitted_marks} saturations for which less waited are left out.`}
                {f.left_out > 0 && ` ${f.left_out} containers that used the least CPU were not looked at: too much for so long a time.`}
              </span>
              {(f.omitted_lanes > 0 || state.lanes) && (
                <button class="link" onClick={() => change({ lanes: state.lanes ? undefined : true })}>{state.lanes ? 'The busiest containers alone' : `Show ${f.omitted_lanes} more`}</button>
              )}
            </p>
          </>
        )}
        {!f && !loaded.error && <p class="note">Reading the flight recorder…</p>}
      </div>
    </section>
  )
}

function Key() {
  return (
    <p class="legend strip-key">
      <span><i class="line cpu" /> CPU</span>
      <span><i class="line waits" /> waiting for a CPU</span>
      <span><i class="line asked" /> unanswered requests</span>
      <span><i class="line asks" /> asked by it</span>
    </p>
  )
}

function Values({ lane, at }: { lane: Lane; at: number }) {
  const number = (v: number | null | undefined, after = 2) => (v == null ? NONE : v.toFixed(after))
  const [serving, asking] = [lane.serving[at], lane.asking[at]]
  return (
    <p class="lane-values">
      <span class="cpu" title="CPUs">{number(lane.cpu[at])} CPU</span>
      <span class="waits" title="Threads that waited for a CPU">{number(lane.waiting[at])} wait</span>
      <span class="asked" title="Unanswered requests to it, and requests that it waits for">{number(serving, 0)} in · {number(asking, 0)} out</span>
    </p>
  )
}

const ROW = 19

/** The saturations: a bar from begin to end, and what it was. */
function Marks({ marks, range, base, width, side, chosen, pick, rows: least }: { marks: Mark[]; range: Range; base: number; width: number; side: number; chosen?: Mark; pick: (m: Mark) => void; rows: number }) {
  const placed = place(marks, range, width, (text) => textWidth(text, 11))
  // What moves on must not jump up and down.
  const rows = Math.max(least, ...placed.map((p) => p.row + 1))
  return (
    <div class="strip-row">
      <span class="lane-side muted small">{marks.length === 0 ? 'No saturation' : side > 0 ? `${marks.length} saturation${marks.length > 1 ? 's' : ''}` : ''}</span>
      <svg class="marks" width={width} height={rows * ROW} role="group" aria-label={`${marks.length} saturations`}>
        {placed.map(({ mark: m, row, x, width: bar, label }) => (
          <g key={keyOf(m, base) + m.id} class={`mark ${m.kind}${m === chosen ? ' chosen' : ''}`} role="button" tabindex={0} aria-pressed={m === chosen} aria-label={m.text} data-mark={keyOf(m, base)} data-kind={m.kind} data-container={m.container}
            onClick={() => pick(m)} onKeyDown={(e) => (e.key === 'Enter' || e.key === ' ') && (e.preventDefault(), pick(m))}>
            <title>{m.text}</title>
            <rect class="hit-mark" x={Math.min(x, label ?? x) - 2} y={row * ROW} width={(label === undefined ? bar : Math.max(x + bar, label + textWidth(labelOf(m), 11)) - Math.min(x, label)) + 4} height={ROW - 1} rx="4" />
            <rect class="bar" x={x} y={row * ROW + 2} width={bar} height={ROW - 5} rx="2" />
            {label !== undefined && <text class={label > x && label < x + bar ? 'inside' : ''} x={label} y={row * ROW + 13}>{labelOf(m)}</text>}
          </g>
        ))}
      </svg>
    </div>
  )
}

function Axis({ ticks, range, base, width, side }: { ticks: { step: number; at: number[] }; range: Range; base: number; width: number; side: number }) {
  return (
    <svg class="strip-axis" data-step={ticks.step} width={side + width} height="18" aria-hidden="true">
      {ticks.at.map((t) => {
        const x = side + ((t - range[0]) / (range[1] - range[0])) * width
        const room = ticks.step < 1000 ? 36 : 26
        return x > room && x < side + width - room && <text key={t} x={x} y="13" text-anchor="middle">{clockOf(base + t, ticks.step)}</text>
      })}
    </svg>
  )
}

const HEIGHT = 76

/** A scale of a part of a lane's height, from its zero up, for some of its lines: parts lie above each other. */
const part = (zero: number, top: number, least: number, ...lines: number[]): uPlot.Scale => ({
  // All values: the last line of a zoomed lane leads to a tick outside of it.
  range: (u) => {
    const most = lines.reduce((m, i) => (u.data[i] as (number | null)[]).reduce<number>((n, v) => Math.max(n, v ?? 0), m), least)
    const unit = (most * 1.05) / (top - zero)
    return [-zero * unit, (1 - zero) * unit]
  },
})
const PARTS = { cpu: part(0.6, 1, 0.05, 1), waiting: part(0.36, 0.57, 0.2, 2), requests: part(0.03, 0.33, 2, 3, 4) }

interface PlotProps {
  lane: Lane
  at: number[]
  range: Range
  grid: number[]
  marks: Mark[]
  chosen?: Mark
  width: number
  theme: string
  act: { current: { show: (r: Range) => void; out: () => void; pick: (m: Mark) => void; point: (t?: number) => void; drag: (on: boolean) => void } }
}

/** A container: its CPU on top, below it how long threads waited for one, and requests. */
function LanePlot(p: PlotProps) {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | undefined>(undefined)
  const now = useRef(p)
  now.current = p

  useEffect(() => {
    const ink = { cpu: colour('--line-1'), fill: colour('--line-fill'), waits: colour('--line-2'), waited: colour('--line-2-fill'), asks: colour('--line-3'), asked: colour('--line-3-fill'), grid: colour('--grid'), hot: colour('--hot'), warm: colour('--warm') }
    const line = (stroke: string, scale: string, more: Partial<uPlot.Series> = {}): uPlot.Series => ({ stroke, scale, width: 1.4, points: { show: false }, ...more })
    const act = p.act
    const u = new uPlot(
      {
        width: p.width, height: HEIGHT, padding: [0, 0, 0, 0], legend: { show: false }, axes: [{ show: false }, { show: false }],
        scales: { x: { time: false, range: () => now.current.range }, ...PARTS },
        series: [
          {},
          line(ink.cpu, 'cpu', { fill: ink.fill, fillTo: 0, paths: uPlot.paths.stepped!({ align: -1 }) }),
          line(ink.waits, 'waiting', { fill: ink.waited, fillTo: 0, paths: uPlot.paths.stepped!({ align: -1 }) }),
          line(ink.asks, 'requests', { fill: ink.asked, fillTo: 0 }),
          line(ink.asks, 'requests', { dash: [3, 3], width: 1.2 }),
        ] as uPlot.Series[],
        cursor: { y: false, sync: { key: 'strip' }, drag: { x: true, y: false, setScale: false }, points: { show: false }, bind: { dblclick: () => () => (act.current.out(), null) } },
        hooks: {
          drawClear: [(u) => shade(u, now.current, ink)],
          setCursor: [(u) => act.current.point(u.cursor.left != null && u.cursor.left >= 0 ? u.posToVal(u.cursor.left, 'x') : undefined)],
          setSelect: [
            (u) => {
              if (u.select.width < 4) return
              const picked: Range = [u.posToVal(u.select.left, 'x'), u.posToVal(u.select.left + u.select.width, 'x')]
              u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
              if (picked[1] - picked[0] >= 2) act.current.show(picked)
            },
          ],
        },
      },
      [p.at, p.lane.cpu, p.lane.waiting, p.lane.serving, p.lane.asking],
      box.current!,
    )
    // A click on the shade of a saturation chooses it.
    let pressed = 0
    let choosing = 0
    u.over.addEventListener('mousedown', (e) => {
      pressed = e.clientX
      act.current.drag(true)
      // After the chart's own, which hands over what was dragged across.
      document.addEventListener('mouseup', () => act.current.drag(false), { once: true })
    })
    u.over.addEventListener('click', (e) => {
      clearTimeout(choosing)
      if (Math.abs(e.clientX - pressed) > 3 || e.detail > 1) return
      const t = u.posToVal(u.cursor.left ?? -1, 'x')
      const here = now.current.marks.filter((m) => m.from_ms <= t && t <= m.to_ms)
      const m = here.find((m) => m.id === now.current.lane.id) ?? here.find((m) => m.effects.some((e) => e.id === now.current.lane.id))
      // Not at once: its words move the lanes, and the second click of two would fall elsewhere.
      if (m && m !== now.current.chosen) choosing = window.setTimeout(() => act.current.pick(m), 300)
    })
    plot.current = u
    return () => {
      clearTimeout(choosing)
      u.destroy()
      plot.current = undefined
    }
  }, [p.theme])

  useEffect(() => plot.current?.setSize({ width: p.width, height: HEIGHT }), [p.width])
  useEffect(() => plot.current?.setData([p.at, p.lane.cpu, p.lane.waiting, p.lane.serving, p.lane.asking]), [p.lane, p.at, p.range[0], p.range[1]])
  useEffect(() => plot.current?.redraw(false, false), [p.chosen, p.marks])
  return <div class="lane-plot" ref={box} data-points={p.at.length} />
}

/** Saturations behind the lines: of this container, of others that it waited for, of any. */
function shade(u: uPlot, { range, grid, marks, chosen, lane }: PlotProps, ink: Record<string, string>) {
  const c = u.ctx
  const { left, top, width, height } = u.bbox
  const x = (t: number) => left + (Math.max(0, Math.min(1, (t - range[0]) / (range[1] - range[0]))) * width)
  c.save()
  c.fillStyle = ink.grid!
  for (const t of grid) c.fillRect(Math.round(x(t)), top, 1, height)
  for (const scale of ['cpu', 'waiting']) c.fillRect(left, Math.round(u.valToPos(0, scale, true)), width, 1)
  for (const m of marks) {
    const own = m.id === lane.id
    const effect = m.effects.find((e) => e.id === lane.id)
    if (!own && !effect) continue
    c.fillStyle = own ? ink.hot! : ink.warm!
    c.globalAlpha = (own ? 0.24 : 0.16) * (chosen === undefined ? 1 : chosen === m ? 1.7 : 0.4)
    const from = x(own ? m.from_ms : effect!.from_ms)
    c.fillRect(from, top, Math.max(2, x(m.to_ms) - from), height)
  }
  c.restore()
}

/** A saturation in words: cause and effects with their times, and the edges that slowed. */
function Cause({ mark: m, flight, graph, change, close, zoom }: { mark: Mark; flight: Flight; graph: Graph; change: Change; close: () => void; zoom: () => void }) {
  const begin = m.chain[0]?.at_ms ?? m.from_ms
  return (
    <div class="cause" data-cause aria-live="polite">
      <div class="cause-head">
        <h3>{labelOf(m)}</h3>
        <span class="muted small">{KIND[m.kind]} from {clockOf(flight.base_ms + m.from_ms, 1)} to {m.open_end ? 'now' : clockOf(flight.base_ms + m.to_ms, 1)}, each ±{lengthOf(m.resolution_ms)}</span>
        <button class="toggle" data-zoom-in onClick={zoom}>Zoom to it</button>
        <button class="quiet" aria-label="Close the saturation" onClick={close}>×</button>
      </div>
      <ol class="chain">
        {m.chain.map((l, i) => (
          <li key={i} class={i === 0 ? 'first' : ''}>
            <time>{clockOf(flight.base_ms + l.at_ms, 1)}</time>
            <span class="muted">{i === 0 ? 'cause' : `${l.at_ms < begin ? '−' : '+'}${lengthOf(Math.abs(l.at_ms - begin))}`}</span>
            <span>{l.text}</span>
          </li>
        ))}
        {m.chain.length === 1 && <li><span class="muted">Nothing else is known to have waited because of it.</span></li>}
      </ol>
      <div class="cause-foot">
        {m.edges.length > 0 && (
          <p>
            <span class="muted">Edges that slowed:</span>{' '}
            {m.edges.map((e) => (
              <button key={e.id} class="chip" data-slowed={e.id} onClick={() => change({ edge: short(e.id), node: undefined, status: undefined, chart: undefined, ...(edgeOf(graph, e.id) ? {} : { by: 'container', share: 0 }) })}>{e.client} → {e.server}</button>
            ))}
          </p>
        )}
        {m.cpu.length > 0 && <p class="muted">CPU meanwhile: {m.cpu.slice(0, 5).map((s) => `${s.container} ${digits(s.cpus)} (usually ${digits(s.usual_cpus)})`).join(', ')}</p>}
      </div>
    </div>
  )
}
