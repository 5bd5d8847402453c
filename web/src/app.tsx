import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { ChangesView } from './changesview'
import { useGraph, useStatus } from './data'
import { clock } from './format'
import { Header } from './header'
import { HeatMap } from './heatmap'
import { Login } from './login'
import { ServiceMap } from './map'
import { Panel } from './panel'
import { PathView } from './pathview'
import { edgeOf, hides, nodeOf, useUrlState, VIEWS } from './state'
import { Strip } from './stripview'
import { Table } from './table'
import { useTheme } from './theme'
import { ViewBar } from './viewbar'

/** How often a live view is read anew, in ms: a long window changes little in a second. */
const period = (window: number) => (window <= 300 ? 2000 : window <= 900 ? 5000 : 10_000)

export function App() {
  const [state, change] = useUrlState()
  const [theme, nextTheme] = useTheme()
  const live = state.from === undefined
  const query = (live ? `from=now-${state.window}s&to=now` : `from=${state.from}&to=${state.to}`) + (state.by === 'container' ? '' : `&by=${state.by}`) + (hides(state.view) && state.share ? `&share=${state.share}` : '')
  const every = live ? period(state.window) : 0
  const graph = useGraph(query, () => `/api/outsight/graph?${query}`, every)
  const status = useStatus()
  const g = graph.data
  const node = nodeOf(g, state.node)
  const edge = edgeOf(g, state.edge)
  const filter = useRef<HTMLInputElement>(null)
  const opener = useRef<Element | null>(null)
  const open = Boolean(state.status || state.node || state.edge)
  const close = () => change({ node: undefined, edge: undefined, status: undefined, chart: undefined })

  // Before the next key can come, or it would be taken for one of the view before.
  useLayoutEffect(() => {
    const press = (e: KeyboardEvent) => {
      const typing = e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement
      if (e.key === 'Escape' && open && !typing) close()
      if (e.key === '/' && !typing && !e.ctrlKey && !e.metaKey) {
        e.preventDefault()
        filter.current?.focus()
      }
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
    document.title = [what, g?.hosts[0]?.name, 'Outsight'].filter(Boolean).join(' · ')
  }, [node?.name, edge?.id, g?.hosts[0]?.name])

  const range = useMemo<[number, number]>(() => (g ? [Date.parse(g.from) / 1000, Date.parse(g.to) / 1000] : [0, 0]), [g?.from, g?.to])

  return (
    <div class={open ? 'app open' : 'app'}>
      <Header graph={g} status={status.data} state={state} change={change} range={range} theme={theme} nextTheme={nextTheme} away={Boolean(graph.error)} />
      <Login />
      {graph.error && (
        <div class="banner" role="alert">
          <strong>{graph.error}</strong>
          <span>
            {g && graph.at ? `The numbers below are of ${clock(graph.at)}. ` : ''}
            {live ? `Trying again every ${period(state.window) / 1000} s.` : 'Choose another range, or go live.'}
          </span>
        </div>
      )}
      <div class="body">
        <main class="content">
          <Note loading={!g && !graph.error} empty={g !== undefined && g.nodes.length === 0} live={live} />
          {g && g.nodes.length > 0 && (
            <>
              <section class="map" aria-label={state.view === 'map' ? 'Service map' : VIEWS.find(([view]) => view === state.view)![1]}>
                <ViewBar graph={g} state={state} change={change} query={query} />
                {state.view === 'map' && <ServiceMap graph={g} state={state} change={change} />}
                {state.view === 'heat' && <HeatMap graph={g} state={state} change={change} query={query} period={every} />}
                {state.view === 'path' && <PathView graph={g} state={state} change={change} query={query} period={every} />}
                {state.view === 'changes' && <ChangesView graph={g} state={state} change={change} query={query} period={every} />}
              </section>
              {state.strip && <Strip graph={g} state={state} change={change} theme={theme} />}
              <Table graph={g} state={state} change={change} filter={filter} />
            </>
          )}
        </main>
        {open && <Panel graph={g} status={status} state={state} change={change} node={node} edge={edge} range={range} theme={theme} close={close} />}
      </div>
    </div>
  )
}

function Note({ loading, empty, live }: { loading: boolean; empty: boolean; live: boolean }) {
  const [late, setLate] = useState(false)
  useEffect(() => {
    const t = setTimeout(() => setLate(true), 400)
    return () => clearTimeout(t)
  }, [])
  if (loading) return late ? <p class="note">Reading the store…</p> : null
  if (!empty) return null
  return (
    <section class="note">
      <h2>Nothing was seen in this time</h2>
      {live ? (
        <p>
          Containers show up within a second of their start. If some run now, <code>outsight doctor</code> tells whether this kernel lets Outsight see
          them, and <code>outsight demo</code> starts a small shop to look at.
        </p>
      ) : (
        <p>No agent was writing then, or the store keeps less than this range. Go live, or choose a later range.</p>
      )}
    </section>
  )
}
