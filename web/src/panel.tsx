import { useEffect, useRef } from 'preact/hooks'
import type { ComponentChildren } from 'preact'
import { Applications } from './applicationsview'
import { Chart, type ChartLine } from './chart'
import { Contention } from './contentionview'
import { Drops } from './dropsview'
import { useProbes, type Loaded } from './data'
import { Endpoints, endpointChart } from './endpoints'
import { windowOf } from './explain'
import { countedOf, factsOf, numberOf, pairing, seen, trouble, unsure } from './facts'
import { bytes, clock, counted, digits, duration, floorPercent, format, missing, NONE, span, unmatched } from './format'
import { Period } from './header'
import { Middle } from './middle'
import { probeEnds, probeFacts, probesBetween } from './hosts'
import { endsOf } from './matrix'
import { ENDS_GROUPS, ENDS_MEANING, SIDE_MEANING, USAGE_GROUPS } from './numbers'
import { hostsOf } from './spark'
import { lostText, SplitView, Way } from './splitview'
import { wayOf } from './split'
import { short, type Change, type State } from './state'
import { useExplainer } from './tip'
import { AskWhatIf } from './whatifview'
import { paceOf, paceText, usualOf } from './usual'
import { best, type Baseline, type Edge, type Graph, type Node, type NumberInfo, type Seconds, type Side, type Status } from './types'

interface Props {
  graph?: Graph
  baseline?: Baseline
  status: Loaded<Status>
  state: State
  change: Change
  node?: Node
  edge?: Edge
  range: [number, number]
  theme: string
  /** Why the graph could not be read, and when the one that is shown was, in Unix seconds. */
  away?: string
  at?: number
  close: () => void
}

export function Panel(p: Props) {
  const top = useRef<HTMLElement>(null)
  useEffect(() => top.current?.scrollTo(0, 0), [p.state.node, p.state.edge, p.state.status])
  return (
    <aside class="panel" ref={top} aria-label="Details">
      {p.away && <p class="inline-error" role="alert" data-panel-error>{p.away}{p.graph && p.at ? ` The numbers below are of ${clock(p.at)}.` : ''} It is tried again.</p>}
      {p.state.status ? <StatusPanel {...p} /> : p.graph && p.edge ? <EdgePanel {...p} graph={p.graph} edge={p.edge} /> : p.graph && p.node ? <NodePanel {...p} graph={p.graph} node={p.node} /> : <Missing {...p} />}
    </aside>
  )
}

function Head({ kind, title, close, children }: { kind: string; title: ComponentChildren; close: () => void; children?: ComponentChildren }) {
  return (
    <div class="panel-head">
      <div>
        <span class="kind">{kind}</span>
        <h2>{title}</h2>
        {children}
      </div>
      <button class="quiet" aria-label="Close the panel" title="Close (Esc)" onClick={close}>×</button>
    </div>
  )
}

function Missing({ graph, state, away, close }: Props) {
  return (
    <>
      <Head kind={state.edge ? 'edge' : 'container'} title={away ? 'Could not be read' : graph ? 'Not in this time' : '…'} close={close} />
      {!graph && !away && <p class="note">Reading the store…</p>}
      {graph && !away && <p class="note">Nothing was seen of “{state.edge ?? state.node}” in the chosen range. It shows here again when it is.</p>}
    </>
  )
}

/** What the numbers above are worth. */
function Worth({ graph, range }: { graph: Graph; range: [number, number] }) {
  const c = graph.completeness
  const lacks = missing(graph)
  const all = counted(graph)
  return (
    <dl class="worth">
      <div><dt>Window</dt><dd>{span(c.window_seconds)}, <Period range={range} /></dd></div>
      <div><dt>Covered</dt><dd>{span(c.covered_seconds)} ({digits((100 * c.covered_seconds) / c.window_seconds)} %); rates are over this time</dd></div>
      <div><dt>State</dt><dd>{c.state}{lacks.length ? '' : ': every event is counted'}</dd></div>
      {lacks.map((what) => <div key={what} class="lack"><dt>Missing</dt><dd>{what}</dd></div>)}
      {c.sinks.map((s) => <div key={s.host + s.name}><dt>Delivery</dt><dd>{format(s.dropped, '')} snapshots did not reach {s.name}: charts lack points; counts go on in the next one</dd></div>)}
      {all !== undefined && <div><dt>Counted</dt><dd>{floorPercent(all)} of the bytes that the kernel received for programs{Object.keys(graph.counted_share).length > 1 ? ', on the host with the least' : ''}</dd></div>}
      {graph.unmatched_share > 0 && <div><dt>Unmatched</dt><dd>{unmatched(graph)} lead to an end that is in no known container</dd></div>}
      {(graph.hidden_edges ?? 0) > 0 && <div><dt>Hidden</dt><dd>{format(graph.hidden_edges, '')} edges with a small share of traffic, as chosen above the map</dd></div>}
      <div><dt>Error</dt><dd>counts are exact; a quantile is off by at most ±{(graph.error_bound * 100).toFixed(1)} %</dd></div>
    </dl>
  )
}

function Value({ value, unit, path, state, change, strong }: { value: Seconds | undefined; unit: NumberInfo['unit']; path: string; state: State; change: Change; strong?: boolean }) {
  if (value === undefined) return <span class="none" title="Not available">{NONE}</span>
  return (
    <button class={`number${state.chart === path ? ' chosen' : ''}${strong ? ' strong' : ''}`} data-number={path} data-explain={path} onClick={() => change({ chart: state.chart === path ? undefined : path })}>
      {format(value, unit)}
    </button>
  )
}

function EdgePanel({ graph, baseline, edge, state, change, range, theme, close }: Props & { graph: Graph; edge: Edge }) {
  const name = (id: string) => graph.nodes.find((n) => n.id === id)?.name ?? id
  const [scope, key] = (state.chart ?? '').split('.') as [string, string]
  const info = (scope === 'ends' ? graph.numbers.ends : graph.numbers.side).find((n) => n.key === key)
  const match = graph.edge_matches[edge.id]
  const sides = (['client', 'server'] as const).filter((s) => (s === 'client' ? edge.client_side : edge.server_side))
  const lines: ChartLine[] = info && scope === 'ends' ? [{ name: info.title, number: `ends.${key}`, query: match && info.query.replaceAll('$match', match) }]
    : info && (scope === 'client' || scope === 'server') ? sides.map((s) => ({ name: `${s} side`, number: `${s}.${key}`, query: match && info.query.replaceAll('$match', `${match},side="${s}"`) }))
    : []
  const s = best(edge)
  const facts = factsOf(edge, graph.numbers.side)
  const side = edge.client_side ? 'client' : 'server'
  useExplainer(['edge'], () => ({
    title: 'Network time', value: edge.paired ? duration(edge.network_seconds) : undefined, what: edge.paired ? 'what a request and its reply take between the two ends' : 'needs both ends: it is the difference of what they counted',
    formula: 'client p50 − server p50', error: `each p50 at most ±${(graph.error_bound * 100).toFixed(1)} %: a small difference of large numbers is uncertain`, window: windowOf(graph),
  }))
  const asked = endpointChart(graph, edge, state)
  const pace = paceOf(s, usualOf(edge, baseline))
  const [client, server] = [edge.client, edge.server].map((id) => graph.nodes.find((n) => n.id === id))
  const of = { edge: edge.id, by: state.by, hosts: hostsOf([client, server].filter((n) => n?.kind !== 'outside')) }
  return (
    <>
      <Head kind="edge" close={close} title={<><Go id={edge.client} change={change}>{name(edge.client)}</Go><span class="arrow"> → </span><Go id={edge.server} change={change}>{name(edge.server)}</Go></>}>
        <p class="muted small">{edge.transport.toUpperCase()} · {edge.services.slice(0, 4).join(', ') || 'service not known'}{edge.services.length > 4 ? ` and ${edge.services.length - 4} more` : ''}{edge.via ? ` · through ${edge.via}` : ''}</p>
      </Head>
      <div class="tiles" data-of={edge.id}>
        <Tile title="Requests" value={format(s?.transactions_per_second, '/s')} explain={`${side}.transactions_per_second`} />
        <Tile title="p50" value={duration(s?.p50)} explain={`${side}.p50`} />
        <Tile title="p99" value={duration(s?.p99)} explain={`${side}.p99`} />
        <Tile title="Network time" value={edge.paired ? duration(edge.network_seconds) : NONE} explain="edge.network" />
      </div>
      {info && lines.length > 0 && <Chart key={state.chart} title={info.title} unit={info.unit} of={of} lines={lines} range={range} theme={theme} bound={graph.error_bound} zoom={(from, to) => change({ from, to })} close={() => change({ chart: undefined })} />}
      {asked && <Chart key={`${state.endpoint} ${state.chart}`} title={asked.title} unit={asked.unit} of={{ ...of, endpoint: state.endpoint }} lines={asked.lines} range={range} theme={theme} bound={graph.error_bound} zoom={(from, to) => change({ from, to })} close={() => change({ chart: undefined })} />}
      {pace.quantile && <p class={`state ${pace.heat === 'calm' ? 'good' : pace.heat}`} data-pace={pace.heat}>{paceText(pace, baseline)}.</p>}
      <p class={edge.paired ? 'state good' : unsure(edge, client, server) ? 'state unsure' : 'state'} data-pairing>{pairing(edge)}</p>
      {seen(edge) && <p class={countedOf(edge) === 1 ? 'state good' : 'state unsure'} data-edge-counted>{seen(edge)}</p>}
      {edge.split && <SplitView split={edge.split} error={edge.network?.delay_there_error} of={of} numbers={graph.numbers.ends} match={client?.host === server?.host ? match : undefined} range={range} theme={theme} bound={graph.error_bound} zoom={(from, to) => change({ from, to })} />}
      <Between graph={graph} edge={edge} state={state} change={change} />
      <Stacks graph={graph} edge={edge} state={state} change={change} />
      {client?.host && server?.host && client.host !== server.host && <HostsBetween client={client} server={server} range={range} />}
      {server && <Contention key={server.id} graph={graph} node={server} state={state} change={change} />}
      <Endpoints edge={edge} state={state} change={change} />
      <table class="sides" data-of={edge.id}>
        <thead>
          <tr><th scope="col"><span class="hidden">Number</span></th><th scope="col">Client side</th><th scope="col">Server side</th></tr>
        </thead>
        {facts.map(({ title, rows }) => (
          <tbody key={title}>
            <tr class="heading"><th scope="rowgroup" colSpan={3}>{title}</th></tr>
            {rows.map((n) => (
              <tr key={n.key} class={trouble(n.key) ? 'rare' : undefined}>
                <th scope="row" title={SIDE_MEANING[n.key]}>{n.title}</th>
                <td><Value value={numberOf(edge.client_side, n.key)} unit={n.unit} path={`client.${n.key}`} state={state} change={change} strong={n.key === 'p99'} /></td>
                <td><Value value={numberOf(edge.server_side, n.key)} unit={n.unit} path={`server.${n.key}`} state={state} change={change} strong={n.key === 'p99'} /></td>
              </tr>
            ))}
          </tbody>
        ))}
      </table>
      {!facts.some((g) => g.rows.some((n) => trouble(n.key))) && <p class="muted small">No failed or reset connection, retransmit, aborted or continued transaction, nor unseen byte.</p>}
      <p class="muted small">On the client a transaction lasts from the first byte sent to the last byte received, on the server from the first byte received to the last byte sent.</p>
      <Worth graph={graph} range={range} />
    </>
  )
}

/** What both ends of an edge tell together of the network between them. */
function Between({ graph, edge, state, change }: { graph: Graph; edge: Edge; state: State; change: Change }) {
  const [title, keys] = ENDS_GROUPS[0]!
  const ends = endsOf(edge)
  const rows = graph.numbers.ends.filter((n) => keys.includes(n.key) && n.key !== 'network_seconds' && ends[n.key] !== undefined)
  const lost = lostText(edge)
  if (rows.length === 0) return null
  return (
    <section class="group" data-between data-of={edge.id}>
      <h3>{title}</h3>
      <dl class="numbers">
        {rows.map((n) => <div key={n.key}><dt title={ENDS_MEANING[n.key]}>{n.title}</dt><dd><Value value={ends[n.key]} unit={n.unit} path={`ends.${n.key}`} state={state} change={change} /></dd></div>)}
      </dl>
      {lost && <p class="muted small">{lost}</p>}
    </section>
  )
}

/** The way between two hosts in its parts: where packets of the edge were on it, there and back. */
function Stacks({ graph, edge, state, change }: { graph: Graph; edge: Edge; state: State; change: Change }) {
  const [title, keys] = ENDS_GROUPS[1]!
  const ends = endsOf(edge)
  const rows = graph.numbers.ends.filter((n) => keys.includes(n.key) && ends[n.key] !== undefined)
  if (rows.length === 0) return null
  return (
    <section class="group" data-stacks data-of={edge.id}>
      <h3>{title} <span class="muted">· median</span></h3>
      {(['there', 'back'] as const).map((way) => <Way key={way} way={way} parts={wayOf(ends, way)} />)}
      <dl class="numbers">
        {rows.map((n) => <div key={n.key}><dt title={ENDS_MEANING[n.key]}>{n.title}</dt><dd><Value value={ends[n.key]} unit={n.unit} path={`ends.${n.key}`} state={state} change={change} /></dd></div>)}
      </dl>
    </section>
  )
}

/** What agents measured of the network between the hosts of an edge, and between its two containers. */
function HostsBetween({ client, server, range }: { client: Node; server: Node; range: [number, number] }) {
  const [from, to] = [client.host!, server.host!]
  const { data, error } = useProbes(`/api/outsight/probes?${new URLSearchParams([['from', String(range[0])], ['to', String(range[1])], ['host', from], ['host', to]])}`)
  return (
    <section class="group" data-hosts-between>
      <h3>Between the hosts <span class="muted">· {from} and {to}</span></h3>
      {error && <p class="inline-error" role="alert">{error}</p>}
      {!data && !error && <p class="muted small">Reading…</p>}
      {data?.probes.length === 0 && <p class="muted small">The network between them was not measured in this time.</p>}
      {data && probesBetween(data.probes, client, server).map((p) => (
        <div key={`${p.from} ${p.dscp} ${p.client} ${p.server}`} data-probe={p.from} data-containers={p.client && `${p.client} ${p.server}`}>
          {p.client && <h4>From container to container <span class="muted">· {probeEnds(p)}</span></h4>}
          {p.dscp > 0 && <h4>Class of service {p.dscp} <span class="muted">· DSCP of the packets</span></h4>}
          <dl class="numbers">
            {probeFacts(p).map(([name, text]) => <div key={name}><dt>{name}</dt><dd>{text}</dd></div>)}
          </dl>
        </div>
      ))}
    </section>
  )
}

function Go({ id, change, children }: { id: string; change: Change; children: ComponentChildren }) {
  return <button class="link" onClick={() => change({ node: short(id), edge: undefined, chart: undefined })}>{children}</button>
}

function Tile({ title, value, explain }: { title: string; value: string; explain: string }) {
  return <div class="tile" data-explain={explain} tabindex={0}><span>{title}</span><strong data-tile={title}>{value}</strong></div>
}

/** The numbers of the requests of a node, in this order; those that mean trouble follow. */
const SUMMARY = ['transactions_per_second', 'p50', 'p99', 'request_bytes_per_second', 'response_bytes_per_second', 'connections_open']

const summaryOf = (numbers: NumberInfo[], side: Side): NumberInfo[] => [
  ...SUMMARY.flatMap((key) => numbers.filter((n) => n.key === key)),
  ...numbers.filter((n) => trouble(n.key) && numberOf(side, n.key)),
]

function NodePanel({ graph, node, state, change, range, theme, close }: Props & { graph: Graph; node: Node }) {
  const [scope, key] = (state.chart ?? '').split('.') as [string, string]
  const info = (scope === 'usage' ? graph.numbers.usage : scope === 'served' || scope === 'called' ? graph.numbers.side : []).find((n) => n.key === key)
  const matchers = graph.matches[node.id] as Record<string, string> | undefined
  const outside = node.kind === 'outside'
  const title = info && (scope === 'usage' ? info.title : `${info.title} · ${scope === 'served' ? 'requests served' : 'requests made'}`)
  return (
    <>
      <Head kind={node.kind === 'host' && state.by !== 'host' ? 'host outside of containers' : node.kind} title={node.name} close={close}>
        <p class="muted small">{about(node, state)}</p>
      </Head>
      {info && title && (
        <Chart key={state.chart} title={title} unit={info.unit} of={{ node: node.id, by: state.by, hosts: hostsOf([node]) }} lines={[{ name: info.title, number: `${scope}.${key}`, query: matchers?.[scope] && info.query.replaceAll('$match', matchers[scope]!) }]} range={range} theme={theme} bound={graph.error_bound} zoom={(from, to) => change({ from, to })} close={() => change({ chart: undefined })} />
      )}
      <Contention key={node.id} graph={graph} node={node} state={state} change={change} />
      <Drops key={`drops ${node.id}`} graph={graph} node={node} state={state} />
      {node.kind === 'container' && node.usage && state.by === 'container' && <AskWhatIf key={`ask ${node.id}`} node={node} state={state} change={change} />}
      <Applications key={`applications ${node.id}`} graph={graph} node={node} state={state} />
      {node.usage && USAGE_GROUPS.map(([name, keys]) => {
        const rows = graph.numbers.usage.filter((n) => keys.includes(n.key) && node.usage![n.key] !== undefined)
        return rows.length > 0 && (
          <section key={name} class="group" data-of={node.id}>
            <h3>{name}</h3>
            <dl class="numbers">
              {rows.map((n) => (
                <div key={n.key}><dt>{n.title}</dt><dd><Value value={node.usage![n.key]} unit={n.unit} path={`usage.${n.key}`} state={state} change={change} /></dd></div>
              ))}
            </dl>
          </section>
        )
      })}
      {(['served', 'called'] as const).map((way) => {
        const side = node[way]
        if (!side) return null
        const edges = graph.edges.filter((e) => (way === 'served' ? e.server : e.client) === node.id)
        return (
          <section key={way} class="group" data-of={node.id}>
            <h3>{way === 'served' ? 'Requests served' : 'Requests made'}</h3>
            <dl class="numbers">
              {summaryOf(graph.numbers.side, side).map((n) => (
                <div key={n.key}><dt>{n.title}</dt><dd><Value value={numberOf(side, n.key)} unit={n.unit} path={`${way}.${n.key}`} state={state} change={change} /></dd></div>
              ))}
            </dl>
            <ul class="peers">
              {edges.map((e) => {
                const other = graph.nodes.find((n) => n.id === (way === 'served' ? e.client : e.server))
                return (
                  <li key={e.id}>
                    <button class="peer" onClick={() => change({ edge: short(e.id), node: undefined, chart: undefined })}>
                      <span class="peer-name">{way === 'served' ? '← ' : '→ '}<Middle text={other?.name ?? ''} /></span>
                      <span class="muted">{format(best(e)?.transactions_per_second, '/s')} · {duration(best(e)?.p99)}</span>
                    </button>
                  </li>
                )
              })}
            </ul>
          </section>
        )
      })}
      {outside && (node.addresses?.length ?? 0) > 1 && (
        <section class="group">
          <h3>Addresses</h3>
          <p class="small addresses">{node.addresses!.join(' ')}{node.address_count! > node.addresses!.length ? ` and ${node.address_count! - node.addresses!.length} more` : ''}</p>
        </section>
      )}
      <Worth graph={graph} range={range} />
    </>
  )
}

function about(n: Node, state: State): string {
  if (n.kind === 'outside') return 'Not on a watched host'
  if (n.kind === 'host' && state.by === 'host') return 'Everything on the host, containers or not'
  if (n.kind === 'process') return `Processes that run ${n.process} in ${n.name.slice(0, -n.process!.length - 1)}; group by container for CPU and memory`
  if (n.kind === 'pod') return `Pod of the namespace ${n.namespace}${n.gone ? ' · ended' : ''}`
  if (n.kind === 'workload') return `${n.workload_kind} of the namespace ${n.namespace}${n.gone ? ' · ended' : ''}`
  if (n.kind === 'namespace') return 'All pods of the namespace on watched hosts'
  if (n.kind === 'cluster-service') return `Service of the namespace ${n.namespace}; which pod answers is not known`
  if (n.kind === 'host') return `What runs on ${n.host} in no container`
  return [n.image, n.runtime, n.pod && `${n.namespace}/${n.pod}`, n.workload && n.workload !== n.pod && `${n.workload_kind} ${n.workload}`, short(n.id), n.started ? `since ${clock(n.started)}` : '', n.gone ? 'ended' : ''].filter(Boolean).join(' · ')
}

function StatusPanel({ graph, status: { data, error }, range, close, change }: Props) {
  const features = [...(data?.features ?? [])].sort((a, b) => a.state.localeCompare(b.state))
  return (
    <>
      <Head kind="status" title="What these numbers are worth" close={close} />
      {graph && <Worth graph={graph} range={range} />}
      <p class="group"><button class="link" data-to-health onClick={() => change({ view: 'health', status: undefined })}>Health: what is lost, over budget or missing, and what to do</button></p>
      {error && <p class="inline-error" role="alert">{error}</p>}
      {!data && !error && <p class="note">Reading…</p>}
      {data && (
        <>
          {data.hosts.map((h) => (
            <section key={h.name} class="group">
              <h3>{h.name}</h3>
              <dl class="worth">
                <div><dt>Host</dt><dd>{h.cores} cores · {bytes(h.memory_bytes)}{h.kernel ? ` · Linux ${h.kernel}` : ''}{h.cgroup_layout ? ` · cgroup ${h.cgroup_layout}` : ''}</dd></div>
                <div><dt>Agent</dt><dd>{digits(h.agent_cpu_seconds)} s of CPU so far · {bytes(h.agent_memory_bytes)}</dd></div>
              </dl>
            </section>
          ))}
          <section class="group">
            <h3>Features</h3>
            <ul class="features">
              {features.map((f) => (
                <li key={f.host + f.name + f.purpose} class={f.state}>
                  <i aria-hidden="true">{f.state === 'works' ? '✓' : '✗'}</i>
                  <div>
                    <strong>{f.purpose}</strong> <span class="muted">{f.name} {f.state}</span>
                    {f.reason && <p class="small">{f.reason}{f.remedy ? `. ${f.remedy}` : ''}</p>}
                  </div>
                </li>
              ))}
            </ul>
          </section>
          {data.drops.length > 0 && (
            <section class="group">
              <h3>Bounds</h3>
              <table class="sides">
                <thead><tr><th scope="col">Table</th><th scope="col">Used</th><th scope="col">Dropped</th></tr></thead>
                <tbody>
                  {data.drops.map((d) => (
                    <tr key={d.host + d.name} class={d.count ? 'rare' : undefined}><th scope="row">{d.name}</th><td>{d.capacity ? `${format(d.used ?? 0, '')} of ${format(d.capacity, '')}` : NONE}</td><td>{format(d.count, '')}</td></tr>
                  ))}
                </tbody>
              </table>
            </section>
          )}
          {data.programs.some((x) => x.runs > 0) && (
            <section class="group">
              <h3>Cost of the kernel programs</h3>
              <table class="sides">
                <thead><tr><th scope="col">Program</th><th scope="col">Runs</th><th scope="col">Per run</th></tr></thead>
                <tbody>
                  {data.programs.map((x) => (
                    <tr key={x.host + x.name}><th scope="row">{x.name}</th><td>{format(x.runs, '')}</td><td>{x.run_seconds && x.runs ? `${digits((x.run_seconds / x.runs) * 1e9)} ns` : NONE}</td></tr>
                  ))}
                </tbody>
              </table>
            </section>
          )}
          <p class="muted small">Outsight {data.version}{data.sources.length ? ` · ${data.sources.join(', ')}` : ''}</p>
        </>
      )}
    </>
  )
}
