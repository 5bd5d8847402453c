import { useEffect, useMemo, useRef } from 'preact/hooks'
import { asNumber } from './data'
import { failed, labelOf, look, spokenOf } from './facts'
import { bytes, digits, duration, format } from './format'
import { place, type Options } from './layout'
import { drawnOf, foundBy, saidOf } from './many'
import { edgeOf, nodeOf, short, type Change, type State } from './state'
import { fit, textWidth, useWidth } from './text'
import { best, bytesPerSecond, unnamed, type Edge, type Graph, type Node } from './types'

const LABEL = { width: 116, height: 22 }
const SHAPES: Record<'right' | 'tight' | 'down', Options> = {
  right: { direction: 'right', node: { width: 200, height: 58 }, label: LABEL, layerGap: 150, nodeGap: 26 },
  tight: { direction: 'right', node: { width: 184, height: 58 }, label: LABEL, layerGap: 140, nodeGap: 22 },
  down: { direction: 'down', node: { width: 140, height: 56 }, label: LABEL, layerGap: 80, nodeGap: 12 },
}
const MARGIN = 14
/** How many nodes without an edge are named. */
const CHIPS = 24

/** Below this size names cannot be read; the map scrolls instead. */
const LEAST_SCALE = 0.62

export function ServiceMap({ graph, state, change }: { graph: Graph; state: State; change: Change }) {
  const frame = useRef<HTMLDivElement>(null)
  const width = useWidth(frame)
  const shape = SHAPES[width < 700 ? 'down' : width < 1100 ? 'tight' : 'right']
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
  // Numbers change every two seconds; places only when somebody comes or goes.
  const placed = useMemo(() => place(ids, edges.map((e) => ({ id: e.id, from: e.client, to: e.server })), shape, new Set(past)), [topology, shape])
  const slow = useMemo(() => slowness(graph.edges), [graph.edges])
  const names = new Map(graph.nodes.map((n) => [n.id, n]))
  const busy = new Set(graph.edges.flatMap((e) => [e.client, e.server]))
  const still = graph.nodes.filter((n) => !busy.has(n.id) && n.kind !== 'outside')
  const alone = still.filter((n) => !unnamed(n))
  const cores = Math.max(1, ...graph.hosts.map((h) => h.cores))

  const full = { width: placed.width + 2 * MARGIN, height: placed.height + 2 * MARGIN }
  const scale = width ? Math.max(LEAST_SCALE, Math.min(1, (width - 2) / full.width)) : 1
  const dimNode = (n: Node) =>
    (q !== '' && !matches(n, q)) ||
    (selectedNode ? n !== selectedNode && !graph.edges.some((e) => linked(e, n, selectedNode)) : selectedEdge ? n.id !== selectedEdge.client && n.id !== selectedEdge.server : false)
  const dimEdge = (e: Edge) =>
    (q !== '' && !matches(names.get(e.client)!, q) && !matches(names.get(e.server)!, q)) ||
    (selectedNode ? e.client !== selectedNode.id && e.server !== selectedNode.id : selectedEdge ? e !== selectedEdge : false)
  const ends = (e: Edge) => [names.get(e.client), names.get(e.server)] as const
  const choose = (part: Partial<State>) => change({ node: undefined, edge: undefined, status: undefined, chart: undefined, ...part })

  // A map that is larger than its frame begins where requests come in.
  const begun = useRef('')
  useEffect(() => {
    const key = `${topology} ${shape.direction} ${Math.round(scale * 100)}`
    if (!frame.current || width === 0 || begun.current === key || state.node || state.edge) return
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
  }, [state.node, state.edge, placed, scale])

  return (
    <>
      {(saidOf(drawn, q !== '') || state.all) && (
        <p class="muted many" data-drawn={drawn.drawn}>
          {saidOf(drawn, q !== '') || `All ${drawn.nodes} nodes are drawn.`}{' '}
          <button class="link" data-all onClick={() => change({ all: state.all ? undefined : true })}>{state.all ? 'Draw fewer' : 'Draw all'}</button>
        </p>
      )}
      <div class="map-frame" ref={frame}>
        {graph.edges.length === 0 ? (
          <p class="note">
            {(graph.hidden_edges ?? 0) > 0
              ? 'All edges are under the share of traffic that is shown.'
              : 'No traffic between containers was seen in this time. An edge appears with its first byte, and connections that were already open are counted, too.'}
          </p>
        ) : (
          <svg width={full.width * scale} height={full.height * scale} viewBox={`${-MARGIN} ${-MARGIN} ${full.width} ${full.height}`} role="group" aria-label={`${ids.length} nodes, ${edges.length} edges`}
            onClick={(e) => e.target === e.currentTarget && (state.node || state.edge) && choose({})}>
            <defs>
              {['calm', 'warm', 'hot'].map((c) => (
                <marker key={c} id={`tip-${c}`} class={`tip ${c}`} viewBox="0 0 8 8" refX="1" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">
                  <path d="M0 0.600 8 4 0 7.400Z" />
                </marker>
              ))}
            </defs>
            {edges.map((e) => {
              const at = placed.edges.get(e.id)
              if (!at) return null
              return <EdgeLine key={e.id} edge={e} path={at.path} heat={slow(e)} look={look(e, ...ends(e))} spoken={spokenOf(e, graph.covered_seconds, ...ends(e))} chosen={e === selectedEdge} dim={dimEdge(e)} choose={() => choose({ edge: short(e.id) })} />
            })}
            {graph.nodes.map((n) => {
              const at = placed.nodes.get(n.id)
              if (!at) return null
              return (
                <NodeCard key={n.id} node={n} x={at.x} y={at.y} shape={shape} cores={cores} chosen={n === selectedNode} dim={dimNode(n)}
                  loop={graph.edges.find((e) => e.client === n.id && e.server === n.id)} choose={() => choose({ node: short(n.id) })} chooseLoop={(id) => choose({ edge: short(id) })} />
              )
            })}
            {edges.map((e) => {
              const at = placed.edges.get(e.id)
              if (!at) return null
              return (
                <EdgeLabel key={e.id} edge={e} x={at.label.x} y={at.label.y} heat={slow(e)} look={look(e, ...ends(e))} text={labelOf(e, graph.covered_seconds)} spoken={spokenOf(e, graph.covered_seconds, ...ends(e))}
                  chosen={e === selectedEdge} dim={dimEdge(e)} choose={() => choose({ edge: short(e.id) })} />
              )
            })}
          </svg>
        )}
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
        {graph.edges.length > 0 && <Legend udp={graph.edges.some((e) => e.transport === 'udp')} unsure={graph.edges.some((e) => look(e, ...ends(e)).includes('unsure'))} />}
      </div>
    </>
  )
}

const linked = (e: Edge, a: Node, b: Node) => (e.client === a.id && e.server === b.id) || (e.client === b.id && e.server === a.id)

export const matches = (n: Node, q: string) =>
  n.name.toLowerCase().includes(q) || (n.image ?? '').toLowerCase().includes(q) || (n.pod ?? '').toLowerCase().includes(q) || n.id.startsWith(q)

function Legend({ udp, unsure }: { udp: boolean; unsure: boolean }) {
  return (
    <p class="legend">
      <span><i class="line thin" /><i class="line thick" /> wider: more bytes/s</span>
      <span><i class="line warm" /> p99 ≥ 4×</span>
      <span><i class="line hot" /> ≥ 16× the map’s median</span>
      {udp && <span data-legend-udp><i class="line dashed" /> UDP: packets/s, or DNS queries/s</span>}
      {unsure && <span><i class="line light" /> lighter: seen from one end only, or the ends are not paired</span>}
    </p>
  )
}

/** How slow an edge is beside the others of the map. */
function slowness(edges: Edge[]): (e: Edge) => 'calm' | 'warm' | 'hot' {
  const p99 = (e: Edge) => asNumber(best(e)?.p99)
  const sorted = edges.map(p99).filter((v) => v > 0).sort((a, b) => a - b)
  const median = sorted[Math.floor((sorted.length - 1) / 2)] ?? 0
  return (e) => {
    const v = p99(e)
    if (!(v > 1e-3) || !median) return 'calm'
    return v >= 16 * median ? 'hot' : v >= 4 * median ? 'warm' : 'calm'
  }
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
  heat: string
  look: string
  text: string
  spoken: string
  chosen: boolean
  dim: boolean
  choose: () => void
}

function EdgeLabel({ edge, x, y, heat, look, text, spoken, chosen, dim, choose }: LabelProps) {
  const fails = failed(best(edge))
  const width = Math.min(LABEL.width, textWidth(text, 11) + (fails ? 26 : 16))
  return (
    <g class={`label ${heat}${look}${chosen ? ' chosen' : ''}${dim ? ' dim' : ''}`} role="button" tabindex={0} aria-label={spoken} aria-pressed={chosen} data-edge={edge.id} onClick={choose} onKeyDown={onEnter(choose)}>
      <title>{spoken}</title>
      <rect x={x - width / 2} y={y - 9.500} width={width} height={19} rx="9.500" />
      {fails && <circle class="failed" cx={x - width / 2 + 11} cy={y} r="3.500" />}
      <text x={x + (fails ? 5 : 0)} y={y + 3.800}>{text}</text>
    </g>
  )
}

interface CardProps {
  node: Node
  x: number
  y: number
  shape: Options
  cores: number
  chosen: boolean
  dim: boolean
  loop?: Edge
  choose: () => void
  chooseLoop: (id: string) => void
}

function NodeCard({ node, x, y, shape, cores, chosen, dim, loop, choose, chooseLoop }: CardProps) {
  const { width, height } = shape.node
  const left = x - width / 2
  const top = y - height / 2
  const pad = shape.direction === 'right' ? 14 : 9
  const cpu = asNumber(node.usage?.cpu_cores)
  const wait = asNumber(node.usage?.run_queue_p99)
  const second =
    node.kind === 'outside'
      ? (node.address_count ?? 1) > 1 ? `${node.address_count} addresses` : 'outside'
      : node.kind === 'process' ? flows(node)
      : node.usage ? [cpu >= 0 ? `${cpu < 0.01 ? format(cpu, 'cores') : digits(cpu)} cores` : '', wait >= 0.005 ? `wait ${duration(wait)}` : node.usage.memory_bytes !== undefined ? format(node.usage.memory_bytes, 'B') : ''].filter(Boolean).slice(...(shape.direction === 'right' ? [] : wait >= 0.005 ? [1, 2] : [0, 1])).join(' · ')
      : 'gone'
  const share = Math.max(0, Math.min(1, cpu / cores || 0))
  const spoken = `${node.name}, ${node.kind}, ${second}`
  return (
    <g class={`node ${node.kind}${chosen ? ' chosen' : ''}${dim ? ' dim' : ''}${node.gone ? ' gone' : ''}${unnamed(node) ? ' unnamed' : ''}`}>
      <g role="button" tabindex={0} aria-label={spoken} aria-pressed={chosen} data-node={node.id} onClick={choose} onKeyDown={onEnter(choose)}>
        <title>{node.image ? `${node.name} · ${node.image}` : node.name}</title>
        <rect class="card" x={left} y={top} width={width} height={height} rx={node.kind === 'outside' ? height / 2 : 9} />
        <Icon kind={node.kind} x={left + pad} y={top + 12} />
        <text class="name" x={left + pad + 22} y={top + 24}>{fit(node.name, width - pad - 28, 13, 600)}</text>
        <text class={wait >= 0.005 ? 'second waits' : 'second'} x={left + pad + 22} y={top + 41}>{fit(second, width - pad - 28, 11, 400)}</text>
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

/** What a process asks and answers: only its container's use of the machine is known. */
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
