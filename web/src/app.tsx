import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { ChangesView } from './changesview'
import { AGAIN, useBaseline, useExtent, useGraph, useStatus } from './data'
import { extentOf, lastOf } from './extent'
import { clock, span, whenOf } from './format'
import { explainEndpoint, explainNumber } from './explain'
import { Header } from './header'
import { HealthView } from './healthview'
import { Help } from './help'
import { HostsView } from './hostsview'
import { actionOf, keysOn } from './keys'
import { Login } from './login'
import { ServiceMap } from './map'
import { MatrixView } from './matrixview'
import { Nav } from './nav'
import { Panel } from './panel'
import { PathView } from './pathview'
import { PlacementView } from './placementview'
import { RecordingsView } from './recordingsview'
import { ServicesView } from './servicesview'
import { edgeOf, grouped, hides, nodeOf, useUrlState, VIEWS, type Change } from './state'
import { CLOSED, pastOf } from './strip'
import { Strip } from './stripview'
import { Table } from './table'
import { useTheme } from './theme'
import { isBefore } from './usual'
import { Tip, useExplainer } from './tip'
import { ViewBar } from './viewbar'
import { WhatIfView } from './whatifview'

/** How often a live view is read anew, in ms: a long window changes little in a second. */
const period = (window: number) => (window <= 300 ? 2000 : window <= 900 ? 5000 : 10_000)

export function App() {
  const [state, change] = useUrlState()
  const [theme, nextTheme] = useTheme()
  const live = state.from === undefined
  const window = live ? `from=now-${state.window}s&to=now` : `from=${state.from}&to=${state.to}`
  const [apart, setApart] = useState('')
  const query = window + (state.by === 'container' ? '' : `&by=${state.by}`) + (hides(state.view) && state.share ? `&share=${state.share}` : '') + apart
  const every = live ? period(state.window) : 0
  const graph = useGraph(query, () => `/api/outsight/graph?${query}`, every)
  const status = useStatus()
  const g = graph.data
  // A request of its own, once a minute and after the map's, which does not wait for the hour before it.
  const past = useBaseline(graph.loading || !g ? '' : `${state.by} ${window}`, () => `/api/outsight/baseline?${window}${state.by === 'container' ? '' : `&by=${state.by}`}`, live ? 60_000 : 0)
  const baseline = past.data && g && isBefore(past.data, g) ? past.data : undefined
  const node = nodeOf(g, state.node)
  const edge = edgeOf(g, state.edge)
  // Of a large map a node whose edges are all left out has all its numbers only where it is asked for.
  const alone = g && node && g.omitted_edges > 0 && !g.edges.some((e) => e.client === node.id || e.server === node.id) ? `&node=${encodeURIComponent(node.id)}` : ''
  useEffect(() => setApart(alone), [alone])
  const [help, setHelp] = useState(false)
  const opener = useRef<Element | null>(null)
  const open = Boolean(state.status || state.node || state.edge)
  const close = () => change({ node: undefined, edge: undefined, status: undefined, chart: undefined })

  const range = useMemo<[number, number]>(() => (g ? [Date.parse(g.from) / 1000, Date.parse(g.to) / 1000] : [0, 0]), [g?.from, g?.to])
  useExplainer(['usage', 'served', 'called', 'client', 'server', 'ends', 'endpoint'], (key, of, element) => {
    if (!g) return undefined
    const e = edgeOf(g, of)
    if (element.dataset.explain!.startsWith('endpoint.')) return e && explainEndpoint(g, e, element.dataset.protocol ?? '', element.dataset.asked ?? '', key)
    return explainNumber(g, element.dataset.explain!, nodeOf(g, of), e)
  })

  // Before the next key can come, or it would be taken for one of the view before.
  useLayoutEffect(() => {
    const press = (e: KeyboardEvent) => {
      const typing = e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement
      if (e.key === 'Escape' && open && !typing && !help) close()
      if (typing || help || e.ctrlKey || e.metaKey || e.altKey || !keysOn()) return
      const action = actionOf(e.key, state)
      if (!action) return
      e.preventDefault()
      if (action === 'help') setHelp(true)
      else if (action === 'filter') document.querySelector<HTMLInputElement>('[data-filter]')?.focus()
      else if (action === 'minutes') change(state.strip ? CLOSED : { strip: 60, zoom: pastOf(state) })
      else if (action === 'live') g && change(live ? { from: range[0], to: range[1] } : { from: undefined, to: undefined })
      else change(action)
    }
    addEventListener('keydown', press)
    return () => removeEventListener('keydown', press)
  })
  // What opened the panel has the focus again when it closes.
  useEffect(() => {
    if (open) opener.current = document.activeElement
    else if (opener.current instanceof Element && opener.current.isConnected && document.activeElement === document.body) (opener.current as HTMLElement).focus?.()
  }, [open])
  useEffect(() => {
    const what = edge ? `${nodeOf(g, edge.client)?.name} → ${nodeOf(g, edge.server)?.name}` : node?.name
    document.title = [what ?? (state.view === 'map' ? '' : VIEWS.find(([view]) => view === state.view)![1]), g?.hosts[0]?.name, 'Outsight'].filter(Boolean).join(' · ')
  }, [node?.name, edge?.id, g?.hosts[0]?.name, state.view])

  const title = VIEWS.find(([view]) => view === state.view)![1]
  return (
    <div class={open ? 'app open' : 'app'}>
      <Header graph={g} status={status.data} state={state} change={change} range={range} theme={theme} nextTheme={nextTheme} help={() => setHelp(true)} away={Boolean(graph.error)} />
      <Login />
      {graph.error && (
        <div class="banner" role="alert">
          <strong>{graph.error}</strong>
          <span>
            {g && graph.at ? `The numbers below are of ${clock(graph.at)}. ` : ''}
            {live ? `Trying again every ${period(state.window) / 1000} s.` : `Trying again every ${AGAIN / 1000} s; or choose another range, or go live.`}
          </span>
        </div>
      )}
      <Nav state={state} change={change} range={range} />
      <div class="body">
        <main class="content">
          <h1 class="hidden">{title}</h1>
          {grouped(state.view) && <Note loading={!g && !graph.error} empty={g !== undefined && g.nodes.length === 0} live={live} range={range} change={change} />}
          {grouped(state.view) && g && g.nodes.length > 0 && (
            <section class="map" aria-label={state.view === 'map' ? 'Service map' : title}>
              <ViewBar graph={g} state={state} change={change} query={query} />
              {state.view === 'map' && <ServiceMap graph={g} baseline={baseline} comparing={past.loading} state={state} change={change} />}
              {state.view === 'services' && <ServicesView graph={g} state={state} change={change} query={query} period={every} />}
              {state.view === 'matrix' && <MatrixView graph={g} state={state} change={change} query={query} period={every} />}
              {state.view === 'path' && <PathView graph={g} state={state} change={change} query={query} period={every} />}
              {state.view === 'changes' && <ChangesView graph={g} state={state} change={change} query={query} window={window} period={every} />}
              {state.view === 'containers' && <Table graph={g} state={state} change={change} />}
            </section>
          )}
          {state.strip && g && <Strip graph={g} state={state} change={change} theme={theme} />}
          {!grouped(state.view) && (
            <section class="map" aria-label={title}>
              {state.view === 'recordings' && <RecordingsView state={state} change={change} />}
              {state.view === 'hosts' && <HostsView state={state} change={change} query={window} period={every} />}
              {state.view === 'placement' && <PlacementView state={state} change={change} window={window} />}
              {state.view === 'whatif' && <WhatIfView state={state} change={change} window={window} />}
              {state.view === 'health' && <HealthView graph={g} away={graph.error} status={status} state={state} change={change} />}
            </section>
          )}
          {state.view === 'map' && g && g.nodes.length > 0 && <Table graph={g} state={state} change={change} />}
        </main>
        {open && <Panel graph={g} baseline={baseline} status={status} state={state} change={change} node={node} edge={edge} range={range} theme={theme} away={graph.error} at={graph.at} close={close} />}
      </div>
      {help && <Help close={() => setHelp(false)} />}
      <Tip />
    </div>
  )
}

function Note({ loading, empty, live, range, change }: { loading: boolean; empty: boolean; live: boolean; range: [number, number]; change: Change }) {
  const [late, setLate] = useState(false)
  useEffect(() => {
    const t = setTimeout(() => setLate(true), 400)
    return () => clearTimeout(t)
  }, [])
  if (loading) return late ? <p class="note">Reading the store…</p> : null
  if (!empty) return null
  return (
    <section class="note" data-nothing>
      <h2>Nothing was seen in this time</h2>
      <p>{whenOf(...range)}</p>
      <DataThere range={range} change={change} />
      {live ? (
        <p>
          Containers show up within a second of their start. If some run now, <code>outsight doctor</code> says whether this kernel lets Outsight see
          them, and <code>outsight demo</code> starts a small shop to look at.
        </p>
      ) : (
        <p>No agent was writing then, or the store keeps less than this range.</p>
      )}
    </section>
  )
}

/** From when to when there is data, as a link to the end of it. */
function DataThere({ range: [from, to], change }: { range: [number, number]; change: Change }) {
  const { data, error } = useExtent()
  const there = extentOf(data)
  if (error) return <p class="inline-error" role="alert">From when to when there is data could not be read: {error}</p>
  if (!data) return null
  if (!there) return <p data-extent="none">There is no data of the last 31 days.</p>
  const last = lastOf(there, to - from)
  return (
    <p data-extent="there">
      There is data from {whenOf(...there)}. <button class="link" onClick={() => change({ from: last[0], to: last[1] })}>Show the last {span(last[1] - last[0])} of it</button>
    </p>
  )
}
