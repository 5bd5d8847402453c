import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { asNumber } from './data'
import { failed, labelOf, look, spokenOf } from './facts'
import { bytes, digits, duration, format } from './format'
import { keysOn } from './keys'
import { place, type Options } from './layout'
import { drawnOf, foundBy, saidOf } from './many'
import { choicesOf, numberOf, scaleOf as coloursBetween, STEPS } from './matrix'
import { Legend as ColourLegend } from './matrixview'
import { edgeOf, nodeOf, short, type Change, type State } from './state'
import { fit, textWidth, useWidth } from './text'
import { best, bytesPerSecond, unnamed, type Baseline, type Edge, type Graph, type Node } from './types'
import { paceLegend, pacesOf, paceText, timesOf, type Pace } from './usual'
import { fontAt, ICONS, LEAST_ZOOM, MOST_ZOOM, NAMES_ONLY, narrowed, scaleOf, scrolled, STEP, twoLines, lastPart, WIDE_CARD, type Zoom } from './zoom'

const SHAPES: Record<'right' | 'tight' | 'down', Options> = {
  right: { direction: 'right', node: { width: 190, height: 58 }, label: { width: 128, height: 26 }, layerGap: 142, nodeGap: 26 },
  tight: { direction: 'right', node: { width: 170, height: 58 }, label: { width: 124, height: 26 }, layerGap: 134, nodeGap: 22 },
  down: { direction: 'down', node: { width: 140, height: 56 }, label: { width: 116, height: 22 }, layerGap: 80, nodeGap: 12 },
}
const MARGIN = 14
/** How many nodes without an edge are named. */
const CHIPS = 24
/** Fewer px of the pointer's way are a click. */
const DRAG = 4

export function ServiceMap({ graph, baseline, comparing, state, change }: { graph: Graph; baseline?: Baseline; comparing: boolean; state: State; change: Change }) {
  const frame = useRef<HTMLDivElement>(null)
  const width = useWidth(frame)
  const wide = SHAPES[width < 700 ? 'down' : width < 1100 ? 'tight' : 'right']
  const [zoom, setZoom] = useState<Zoom>('auto')
  const q = state.q.toLowerCase()
  const selectedEdge = edgeOf(graph, state.edge)
  const selectedNode = nodeOf(graph, state.node)
  const drawn = useMemo(
    () => drawnOf(graph.edges, Boolean(state.all), q === '' ? undefined : foundBy(graph.nodes, (n) => matches(n, q)), new Set([selectedEdge?.id ?? '', selectedNode?.id ?? ''])),
    [graph, state.all, q, selectedEdge?.id, selectedNode?.id])
  const edges = drawn.edges
  const touched = new Set(edges.flatMap((e) => [e.client, e.server]))
  const ids = graph.nodes.filter((n) => touched.has(n.id)).map((n) => n.id)
  const past = graph.nodes.filter((n) => n.gone).map((n) => n.id)
  const topology = JSON.stringify([ids, past, edges.map((e) => e.id)])
  // Numbers change every two seconds; positions only when nodes appear or end.
  const { placed, shape } = useMemo(() => {
    const links = edges.map((e) => ({ id: e.id, from: e.client, to: e.server }))
    const placed = place(ids, links, wide, new Set(past))
    const narrow = wide.direction === 'down' ? narrowed(wide, placed, width - 2 - 2 * MARGIN) : undefined
    return narrow ? { placed: place(ids, links, narrow, new Set(past)), shape: narrow } : { placed, shape: wide }
  }, [topology, wide, wide.direction === 'down' ? width : 0])
  const paces = useMemo(() => pacesOf(graph.edges, baseline), [graph.edges, baseline])
  const names = new Map(graph.nodes.map((n) => [n.id, n]))
  const busy = new Set(graph.edges.flatMap((e) => [e.client, e.server]))
  const still = graph.nodes.filter((n) => !busy.has(n.id) && n.kind !== 'outside')
  const alone = still.filter((n) => !unnamed(n))
  const cores = Math.max(1, ...graph.hosts.map((h) => h.cores))

  const full = { width: placed.width + 2 * MARGIN, height: placed.height + 2 * MARGIN }
  const scale = scaleOf(zoom, full, { width: width - 2, height: Math.max(120, innerHeight * 0.62 - 14) })
  const dimNode = (n: Node) =>
    (q !== '' && !matches(n, q)) ||
    (selectedNode ? n !== selectedNode && !graph.edges.some((e) => linked(e, n, selectedNode)) : selectedEdge ? n.id !== selectedEdge.client && n.id !== selectedEdge.server : false)
  const dimEdge = (e: Edge) =>
    (q !== '' && !matches(names.get(e.client)!, q) && !matches(names.get(e.server)!, q)) ||
    (selectedNode ? e.client !== selectedNode.id && e.server !== selectedNode.id : selectedEdge ? e !== selectedEdge : false)
  const ends = (e: Edge) => [names.get(e.client), names.get(e.server)] as const
  const choose = (part: Partial<State>) => change({ node: undefined, edge: undefined, status: undefined, chart: undefined, ...part })
  // Edges are coloured by a number, or else by how much slower they are than usual.
  const shown = choicesOf(graph).flatMap((group) => group.numbers).find((n) => n.key === state.colour)
  const colours = shown && coloursBetween(edges.filter((e) => e.client !== e.server).map((e) => numberOf(e, shown)).filter((v) => v !== undefined))
  const heat = (e: Edge) => {
    if (!shown || !colours) return paces.get(e.id)?.heat ?? 'calm'
    const v = numberOf(e, shown)
    return v === undefined ? 'tone-none' : `tone-${colours.step(v)}`
  }
  const numberText = (e: Edge) => shown && format(numberOf(e, shown), shown.unit)
  const spoken = (e: Edge) => [spokenOf(e, graph.covered_seconds, ...ends(e)), shown ? `${shown.title}: ${numberText(e)}` : paceText(paces.get(e.id), baseline)].filter(Boolean).join('. ')
  const zoomTo = useZoom(frame, scale, setZoom)

  // A map that is larger than its frame begins where requests come in.
  const begun = useRef('')
  useEffect(() => {
    const key = `${topology} ${shape.direction} ${shape.node.width} ${width}`
    if (!frame.current || width === 0 || begun.current === key || state.node || state.edge || zoom !== 'auto') return
    begun.current = key
    const first = [...placed.nodes.values()].reduce<{ x: number; y: number } | undefined>((a, b) => (!a || (shape.direction === 'down' ? b.y < a.y - 1 : b.x < a.x - 1) ? b : a), undefined)
    if (!first) return
    frame.current.scrollLeft = (first.x + MARGIN) * scale - frame.current.clientWidth / 2
    frame.current.scrollTop = shape.direction === 'down' ? 0 : (first.y + MARGIN) * scale - frame.current.clientHeight / 2
  }, [placed, scale, width === 0])

  // What is chosen elsewhere is shown here, too; the page itself does not move.
  useEffect(() => {
    const box = frame.current?.getBoundingClientRect()
    const at = frame.current?.querySelector('.label.chosen, .node.chosen')?.getBoundingClientRect()
    if (!frame.current || !box || !at) return
    if (at.left < box.left || at.right > box.right) frame.current.scrollLeft += (at.left + at.right - box.left - box.right) / 2
    if (at.top < box.top || at.bottom > box.bottom) frame.current.scrollTop += (at.top + at.bottom - box.top - box.bottom) / 2
  }, [state.node, state.edge, placed, width])

  return (
    <>
      {(saidOf(drawn, q !== '') || state.all) && (
        <p class="muted many" data-drawn={drawn.drawn}>
          {saidOf(drawn, q !== '') || `All ${drawn.nodes} nodes are drawn.`}{' '}
          <button class="link" data-all onClick={() => change({ all: state.all ? undefined : true })}>{state.all ? 'Draw fewer' : 'Draw all'}</button>
        </p>
      )}
      <div class="map-box">
      {graph.edges.length > 0 && (
        <div class="zoom" role="group" aria-label="Size of the map">
          <button data-zoom="in" title="Nearer (+, or Ctrl and the wheel)" aria-label="Nearer" onClick={() => zoomTo(scale * STEP)}>+</button>
          <button data-zoom="out" title="Farther (−, or Ctrl and the wheel)" aria-label="Farther" onClick={() => zoomTo(scale / STEP)}>−</button>
          <button data-zoom="fit" title="All of the map (0); again: as wide as the page" aria-label="Fit all of the map" aria-pressed={zoom === 'fit'} onClick={() => setZoom(zoom === 'fit' ? 'auto' : 'fit')}>Fit</button>
        </div>
      )}
      <div class="map-frame" ref={frame} data-scale={scale.toFixed(3)}>
        {graph.edges.length === 0 ? (
          <p class="note">
            {(graph.hidden_edges ?? 0) > 0
              ? 'All edges are under the share of traffic that is shown.'
              : 'No traffic between containers was seen in this time. An edge appears with its first byte, and connections that were already open are counted, too.'}
          </p>
        ) : (
          <svg width={full.width * scale} height={full.height * scale} viewBox={`${-MARGIN} ${-MARGIN} ${full.width} ${full.height}`} role="group" aria-label={`${ids.length} nodes, ${edges.length} edges`}
            style={{ '--name-size': `${fontAt(shape.node.width < WIDE_CARD ? 11 : 13, scale)}px`, '--second-size': `${fontAt(11, scale)}px` }}
            onClick={(e) => e.target === e.currentTarget && (state.node || state.edge) && choose({})}>
            <defs>
              {(shown ? ['tone-none', ...Array.from({ length: STEPS }, (_, i) => `tone-${i}`)] : ['calm', 'warm', 'hot']).map((c) => (
                <marker key={c} id={`tip-${c}`} class={`tip ${c}`} viewBox="0 0 8 8" refX="1" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">
                  <path d="M0 0.600 8 4 0 7.400Z" />
                </marker>
              ))}
            </defs>
            {edges.map((e) => {
              const at = placed.edges.get(e.id)
              if (!at) return null
              return <EdgeLine key={e.id} edge={e} path={at.path} heat={heat(e)} look={look(e, ...ends(e))} spoken={spoken(e)} chosen={e === selectedEdge} dim={dimEdge(e)} choose={() => choose({ edge: short(e.id) })} />
            })}
            {graph.nodes.map((n) => {
              const at = placed.nodes.get(n.id)
              if (!at) return null
              return (
                <NodeCard key={n.id} node={n} x={at.x} y={at.y} shape={shape} scale={scale} cores={cores} chosen={n === selectedNode} dim={dimNode(n)}
                  loop={graph.edges.find((e) => e.client === n.id && e.server === n.id)} choose={() => choose({ node: short(n.id) })} chooseLoop={(id) => choose({ edge: short(id) })} />
              )
            })}
            {edges.map((e) => {
              const at = placed.edges.get(e.id)
              if (!at) return null
              return (
                <EdgeLabel key={e.id} edge={e} x={at.label.x} y={at.label.y} room={shape.label.width} scale={scale} heat={heat(e)} look={look(e, ...ends(e))} text={numberText(e) ?? textOf(e, graph.covered_seconds, shape, paces.get(e.id))} spoken={spoken(e)}
                  chosen={e === selectedEdge} dim={dimEdge(e)} choose={() => choose({ edge: short(e.id) })} />
              )
            })}
          </svg>
        )}
      </div>
      </div>
      <div class="map-foot">
        {still.length > 0 && graph.edges.length > 0 && (
          <p class="alone">
            <span class="muted">{(graph.hidden_edges ?? 0) > 0 ? 'No edge shown:' : 'No traffic seen:'}</span>{' '}
            {alone.slice(0, CHIPS).map((n) => (
              <button key={n.id} class={`chip${n === selectedNode ? ' chosen' : ''}${n.gone ? ' gone' : ''}`} onClick={() => choose({ node: short(n.id) })}>{n.name}</button>
            ))}
            {still.length > Math.min(CHIPS, alone.length) && <span class="muted">and {still.length - Math.min(CHIPS, alone.length)} more{alone.length <= CHIPS ? ' that ended without a name' : ''}</span>}
          </p>
        )}
        {graph.omitted_edges > 0 && <p class="muted">{graph.omitted_edges} less busy edges are left out.</p>}
        {graph.unplaced && <p class="lack">{bytes(graph.unplaced.request_bytes + graph.unplaced.response_bytes)} of connections are in no edge: the table of edges was full.</p>}
        {shown && colours && graph.edges.length > 0 && <ColourLegend shown={shown} scale={colours} none={edges.some((e) => numberOf(e, shown) === undefined)} />}
        {graph.edges.length > 0 && <Legend coloured={shown !== undefined} baseline={baseline} comparing={comparing} udp={graph.edges.some((e) => e.transport === 'udp')} unsure={graph.edges.some((e) => look(e, ...ends(e)).includes('unsure'))} />}
      </div>
    </>
  )
}

/** What an edge's label says, with how many times slower it is where that is much. */
function textOf(e: Edge, covered: number, shape: Options, pace?: Pace): string {
  const text = labelOf(e, covered)
  const times = pace && pace.heat !== 'calm' && pace.times !== undefined && Number.isFinite(pace.times) ? ` ×${timesOf(pace.times)}` : ''
  return (shape.node.width < WIDE_CARD ? lastPart(text) : text) + times
}

/** Zooms with keys, wheel and two fingers, and pans with the mouse; one finger and the wheel scroll the frame as any other. */
function useZoom(frame: { current: HTMLDivElement | null }, scale: number, set: (z: Zoom) => void) {
  // What was asked for last, and what is drawn: several turns of the wheel may come between two drawings.
  const now = useRef(scale)
  const drawn = useRef(scale)
  const anchor = useRef<{ x: number; y: number; before: number } | undefined>(undefined)
  const zoomTo = (z: number, x = (frame.current?.clientWidth ?? 0) / 2, y = (frame.current?.clientHeight ?? 0) / 2) => {
    const next = Math.max(LEAST_ZOOM, Math.min(MOST_ZOOM, z))
    if (next === now.current) return
    anchor.current = { x, y, before: drawn.current }
    now.current = next
    set(next)
  }
  const to = useRef(zoomTo)
  to.current = zoomTo
  useLayoutEffect(() => {
    now.current = drawn.current = scale
    const a = anchor.current
    anchor.current = undefined
    if (!a || !frame.current) return
    frame.current.scrollLeft = scrolled(frame.current.scrollLeft, a.x, a.before, scale)
    frame.current.scrollTop = scrolled(frame.current.scrollTop, a.y, a.before, scale)
  }, [scale])
  useEffect(() => {
    const box = frame.current
    if (!box) return
    const stop = new AbortController()
    const on = { signal: stop.signal }
    const place = (x: number, y: number) => {
      const at = box.getBoundingClientRect()
      return [x - at.left, y - at.top] as const
    }
    box.addEventListener('wheel', (e) => {
      if (!e.ctrlKey && !e.metaKey) return
      e.preventDefault()
      // A browser makes one event of several turns of the wheel.
      to.current(now.current * Math.exp(-Math.max(-400, Math.min(400, e.deltaY)) / 300), ...place(e.clientX, e.clientY))
    }, { ...on, passive: false })
    let pinch: { length: number; scale: number } | undefined
    const length = (t: TouchList) => Math.hypot(t[0]!.clientX - t[1]!.clientX, t[0]!.clientY - t[1]!.clientY)
    box.addEventListener('touchstart', (e) => void (pinch = e.touches.length === 2 ? { length: length(e.touches), scale: now.current } : undefined), { ...on, passive: true })
    box.addEventListener('touchmove', (e) => {
      if (!pinch || e.touches.length !== 2) return
      e.preventDefault()
      const [a, b] = [e.touches[0]!, e.touches[1]!]
      to.current((pinch.scale * length(e.touches)) / pinch.length, ...place((a.clientX + b.clientX) / 2, (a.clientY + b.clientY) / 2))
    }, { ...on, passive: false })
    let drag: { x: number; y: number; left: number; top: number } | undefined
    let dragged = false
    box.addEventListener('pointerdown', (e) => {
      dragged = false
      if (e.pointerType === 'mouse' && e.button === 0) drag = { x: e.clientX, y: e.clientY, left: box.scrollLeft, top: box.scrollTop }
    }, on)
    addEventListener('pointermove', (e) => {
      if (!drag || (e.buttons & 1) === 0) return void (drag = undefined)
      const [x, y] = [e.clientX - drag.x, e.clientY - drag.y]
      if (!dragged && Math.hypot(x, y) < DRAG) return
      dragged = true
      box.scrollLeft = drag.left - x
      box.scrollTop = drag.top - y
    }, on)
    addEventListener('pointerup', () => void (drag = undefined), on)
    // The end of a drag is no click on what is there.
    box.addEventListener('click', (e) => dragged && (e.stopPropagation(), (dragged = false)), { ...on, capture: true })
    addEventListener('keydown', (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey || !keysOn() || e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement || document.querySelector('dialog[open]')) return
      if (e.key === '+' || e.key === '=') to.current(now.current * STEP)
      else if (e.key === '-') to.current(now.current / STEP)
      else if (e.key === '0') set('fit')
    }, on)
    return () => stop.abort()
  }, [])
  return zoomTo
}

const linked = (e: Edge, a: Node, b: Node) => (e.client === a.id && e.server === b.id) || (e.client === b.id && e.server === a.id)

export const matches = (n: Node, q: string) =>
  n.name.toLowerCase().includes(q) || (n.image ?? '').toLowerCase().includes(q) || (n.pod ?? '').toLowerCase().includes(q) || n.id.startsWith(q)

function Legend({ coloured, baseline, comparing, udp, unsure }: { coloured: boolean; baseline?: Baseline; comparing: boolean; udp: boolean; unsure: boolean }) {
  const pace = paceLegend(baseline)
  return (
    <p class="legend">
      <span><i class="line thin" /><i class="line thick" /> wider: more bytes/s</span>
      {!coloured && (pace ? (
        <>
          <span><i class="line warm" /> {pace.warm}</span>
          <span data-pace-legend><i class="line hot" /> {pace.hot}</span>
        </>
      ) : comparing ? <span>reading the past hour …</span> : <span data-pace-legend>no past hour to compare with: colours mean nothing</span>)}
      {udp && <span data-legend-udp><i class="line dashed" /> UDP: packets/s, or DNS queries/s</span>}
      {unsure && <span><i class="line light" /> lighter: seen from one end only, or the ends are not paired</span>}
    </p>
  )
}

interface LineProps {
  edge: Edge
  path: string
  heat: string
  look: string
  spoken: string
  chosen: boolean
  dim: boolean
  choose: () => void
}

/** The line of an edge, which the pointer can use, too; the label is what the keyboard reaches. */
function EdgeLine({ edge, path, heat, look, spoken, chosen, dim, choose }: LineProps) {
  const width = 1.4 + Math.max(0, Math.min(5.5, (Math.log10(1 + bytesPerSecond(best(edge))) - 3) * 1.25))
  return (
    <g class="way" onClick={choose}>
      <title>{spoken}</title>
      <path class={`edge ${heat}${look}${chosen ? ' chosen' : ''}${dim ? ' dim' : ''}`} data-line={edge.id} d={path} stroke-width={width} marker-end={`url(#tip-${heat})`} />
      <path class="hit" d={path} />
    </g>
  )
}

interface LabelProps {
  edge: Edge
  x: number
  y: number
  /** How wide it may be, in the units of the drawing. */
  room: number
  scale: number
  heat: string
  look: string
  text: string
  spoken: string
  chosen: boolean
  dim: boolean
  choose: () => void
}

function EdgeLabel({ edge, x, y, room, scale, heat, look, text, spoken, chosen, dim, choose }: LabelProps) {
  const fails = failed(best(edge))
  const size = fontAt(11, scale)
  const side = fails ? 26 : 16
  // Where there is no room for all of it, the latency is what counts.
  const fits = [text, lastPart(text)].find((t) => textWidth(t, size) + side <= room)
  if (!chosen && (fits === undefined || scale < NAMES_ONLY)) return null
  const words = fits ?? text
  const named = spoken.includes(words) ? spoken : `${spoken}, ${words}` // who speaks to a page says what is written
  const width = textWidth(words, size) + side
  const height = size + 8
  return (
    <g class={`label ${heat}${look}${chosen ? ' chosen' : ''}${dim ? ' dim' : ''}`} role="button" tabindex={0} aria-label={named} aria-pressed={chosen} data-edge={edge.id} onClick={choose} onKeyDown={onEnter(choose)}>
      <title>{spoken}</title>
      <rect x={x - width / 2} y={y - height / 2} width={width} height={height} rx={height / 2} />
      {fails && <circle class="failed" cx={x - width / 2 + 11} cy={y} r="3.500" />}
      <text x={x + (fails ? 5 : 0)} y={y + size * 0.345}>{words}</text>
    </g>
  )
}

interface CardProps {
  node: Node
  x: number
  y: number
  shape: Options
  scale: number
  cores: number
  chosen: boolean
  dim: boolean
  loop?: Edge
  choose: () => void
  chooseLoop: (id: string) => void
}

function NodeCard({ node, x, y, shape, scale, cores, chosen, dim, loop, choose, chooseLoop }: CardProps) {
  const { width, height } = shape.node
  const left = x - width / 2
  const top = y - height / 2
  const narrow = width < WIDE_CARD
  const pad = shape.direction === 'right' ? 14 : narrow ? 5 : 9
  const [nameSize, secondSize] = [fontAt(narrow ? 11 : 13, scale), fontAt(11, scale)]
  const cpu = asNumber(node.usage?.cpu_cores)
  const wait = asNumber(node.usage?.run_queue_p99)
  const second =
    node.kind === 'outside'
      ? (node.address_count ?? 1) > 1 ? `${node.address_count} addresses` : 'outside'
      : node.kind === 'process' ? flows(node)
      : node.usage ? [cpu >= 0 ? `${cpu < 0.01 ? format(cpu, 'cores') : digits(cpu)} cores` : '', wait >= 0.005 ? `wait ${duration(wait)}` : node.usage.memory_bytes !== undefined ? format(node.usage.memory_bytes, 'B') : ''].filter(Boolean).slice(...(shape.direction === 'right' ? [] : wait >= 0.005 ? [1, 2] : [0, 1])).join(' · ')
      : 'gone'
  const share = Math.max(0, Math.min(1, cpu / cores || 0))
  const spoken = `${node.name} ${second}, ${node.kind}`
  return (
    <g class={`node ${node.kind}${chosen ? ' chosen' : ''}${dim ? ' dim' : ''}${node.gone ? ' gone' : ''}${unnamed(node) ? ' unnamed' : ''}`}>
      <g role="button" tabindex={0} aria-label={spoken} aria-pressed={chosen} data-node={node.id} onClick={choose} onKeyDown={onEnter(choose)}>
        <title>{node.image ? `${node.name} · ${node.image}` : node.name}</title>
        <rect class="card" x={left} y={top} width={width} height={height} rx={node.kind === 'outside' ? height / 2 : 9} />
        <CardText name={node.name} second={second} waits={wait >= 0.005} left={left + pad} top={top} width={width - 2 * pad} height={height} narrow={narrow} kind={node.kind} scale={scale} nameSize={nameSize} secondSize={secondSize} />
        {node.usage && (
          <>
            <rect class="track" x={left + 14} y={top + height - 7} width={width - 28} height="2.500" rx="1.250" />
            <rect class={share > 0.8 ? 'bar full' : 'bar'} x={left + 14} y={top + height - 7} width={Math.max(share > 0 ? 1 : 0, (width - 28) * share)} height="2.500" rx="1.250" />
          </>
        )}
      </g>
      {loop && (
        <g class="label" role="button" tabindex={0} aria-label={`${node.name} to itself`} data-edge={loop.id} onClick={() => chooseLoop(loop.id)} onKeyDown={onEnter(() => chooseLoop(loop.id))}>
          <title>Calls itself: {format(best(loop)?.transactions_per_second, '/s')}</title>
          <circle class="loop" cx={left + width - 6} cy={top + 4} r="9" />
          <text x={left + width - 6} y={top + 8}>↻</text>
        </g>
      )}
    </g>
  )
}

/** All of some numbers, or one of them where there is no room: a number is not cut. A wait, which is the last, comes before what is usual. */
const roomy = (text: string, width: number, size: number, waits: boolean): string => (textWidth(text, size) <= width ? text : waits ? lastPart(text) : text.split(' · ')[0]!)

interface TextProps {
  name: string
  second: string
  waits: boolean
  left: number
  top: number
  width: number
  height: number
  narrow: boolean
  kind: Node['kind']
  scale: number
  nameSize: number
  secondSize: number
}

/** The words of a card: its name, and a number below it where letters that can be read leave room. */
function CardText({ name, second, waits, left, top, width, height, narrow, kind, scale, nameSize, secondSize }: TextProps) {
  if (narrow) {
    const whole = textWidth(name, nameSize, 600) <= width
    const lines = whole ? [name] : twoLines(name)
    const middle = left + width / 2
    return (
      <g class="centred">
        {lines.map((line, i) => <text key={i} class="name" x={middle} y={top + 15 + i * (nameSize + 1.5)}>{fit(line, width, nameSize, 600)}</text>)}
        {scale >= NAMES_ONLY && <text class={waits ? 'second waits' : 'second'} x={middle} y={top + 15 + lines.length * (nameSize + 1.5) + 1}>{fit(roomy(second, width, secondSize, waits), width, secondSize, 400)}</text>}
      </g>
    )
  }
  const icon = scale >= ICONS
  const [x, room] = icon ? [left + 22, width - 14] : [left, width]
  const both = nameSize + secondSize + 4
  const two = scale >= NAMES_ONLY && second !== '' && both <= height - 10
  const y = two ? top + (height - 6 - both) / 2 + nameSize * 0.86 : top + height / 2 + nameSize * 0.3
  return (
    <>
      {icon && <Icon kind={kind} x={left} y={y - nameSize * 0.36 - 8} />}
      <text class="name" x={x} y={y}>{fit(name, room, nameSize, 600)}</text>
      {two && <text class={waits ? 'second waits' : 'second'} x={x} y={y + secondSize + 4.5}>{fit(roomy(second, room, secondSize, waits), room, secondSize, 400)}</text>}
    </>
  )
}

/** What a process asks and answers: only its container's use of the host is known. */
const flows = (n: Node): string => {
  const [served, called] = [n.served?.transactions_per_second, n.called?.transactions_per_second]
  return [served && `serves ${format(served, '/s')}`, called && `asks ${format(called, '/s')}`].filter(Boolean).join(' · ') || 'process'
}

function Icon({ kind, x, y }: { kind: Node['kind']; x: number; y: number }) {
  return (
    <svg class="icon" x={x} y={y} width="16" height="16" viewBox="0 0 16 16">
      {kind === 'container' && <path d="M8 1.500 14 4.700v6.600l-6 3.200-6-3.200V4.700ZM2 4.700l6 3.200 6-3.200M8 7.900v6.600" />}
      {kind === 'service' && <path d="M8 5.200a2.800 2.800 0 1 0 0 5.600 2.800 2.800 0 0 0 0-5.600ZM8 1.500v2M8 12.500v2M1.500 8h2M12.500 8h2M3.400 3.400l1.400 1.400M11.200 11.200l1.400 1.400M3.400 12.600l1.400-1.400M11.200 4.800l1.400-1.400" />}
      {kind === 'process' && <path d="M2 3h12v10H2ZM4.500 6l2 2-2 2M8.500 10.500h3" />}
      {kind === 'pod' && <path d="M8 1.500 14 5v6l-6 3.500L2 11V5ZM8 5.500l2.500 1.500v2.500L8 11 5.500 9.500V7Z" />}
      {kind === 'workload' && <path d="M2 2h7v5H2ZM7 9h7v5H7ZM2 9.500h3v4.500H2ZM11 2h3v5h-3Z" />}
      {kind === 'namespace' && <path d="M2 5V2h3M11 2h3v3M14 11v3h-3M5 14H2v-3M5.500 5.500h5v5h-5Z" />}
      {kind === 'cluster-service' && <path d="M2 8h4M6 8l4-4.500h4M6 8l4 4.500h4M6 8h8" />}
      {kind === 'host' && <path d="M2 2.500h12v4.500H2ZM2 9h12v4.500H2ZM4.500 4.800h.1M4.500 11.300h.1M7 4.800h4.500M7 11.300h4.500" />}
      {kind === 'outside' && <path d="M8 1.500a6.500 6.500 0 1 0 0 13 6.500 6.500 0 0 0 0-13ZM1.500 8h13M8 1.500c2.200 2 2.800 4 2.800 6.500S10.200 12.500 8 14.500C5.800 12.500 5.200 10.500 5.200 8S5.800 3.500 8 1.500Z" />}
    </svg>
  )
}

const onEnter = (f: () => void) => (e: KeyboardEvent) => {
  if (e.key !== 'Enter' && e.key !== ' ') return
  e.preventDefault()
  f()
}
