import { useEffect, useRef } from 'preact/hooks'
import { asNumber, usePath } from './data'
import { clock, digits, duration, format, NONE, span } from './format'
import { Middle } from './middle'
import { barsOf, firstLimit, formerOf, limitOf, nodeFor, ofRequest, PARTS, wholeOf, type Bar } from './path'
import { lineOf, linesOf } from './services'
import { LinesNote, Spark, useLines } from './sparkview'
import { edgeOf, nodeOf, short, type Change, type State } from './state'
import { useExplainer } from './tip'
import type { Graph, Hop, PathAnswer, Resource } from './types'

interface Props {
  graph: Graph
  state: State
  change: Change
  /** What of the server's data to show, as a query string, and how often to ask, in ms. */
  query: string
  period: number
}

interface Part extends Props {
  answer: PathAnswer
}

/** Where requests come in, what runs out first, and on which chain of calls the time goes. */
export function PathView(p: Props) {
  const query = `${p.query}&percentile=${p.state.percentile}`
  // A live view keeps the path that it shows, which does not change for what is as likely as not. A link to a time shows what anybody sees.
  const former = useRef('')
  const { data, error } = usePath(query, () => `/api/outsight/path?${query}${p.period && former.current ? `&former=${former.current}` : ''}`, p.period)
  useEffect(() => void (former.current = data?.critical_path?.statistic === p.state.percentile ? formerOf(data.critical_path) : ''), [data, p.state.percentile, p.state.by])
  useExplainer(['path'], (key, _, element) => data && {
    title: NAMES[key] ?? key,
    value: element.dataset.value ?? (element.textContent || undefined),
    formula: data.formulas[key],
    error: /latency|own|others|network|calls/.test(key) || (data.critical_path?.statistic === 'mean' && /whole|served|weight/.test(key)) ? 'none: means of sums and counts, both exact' : /whole|served|weight/.test(key) ? `at most ±${(p.graph.error_bound * 100).toFixed(1)} %` : HOLDS[key],
    seen: p.graph.completeness.state === 'complete' ? 'all of it' : 'incomplete, see Health',
    window: `${clock(Date.parse(data.from) / 1000)} – ${clock(Date.parse(data.to) / 1000)}, ${span(p.graph.covered_seconds)} seen`,
  })
  return (
    <div class="path">
      {error && <p class="inline-error" role="alert">{error}</p>}
      {!data && !error && <p class="note">Reading…</p>}
      {data && data.entries.length === 0 && <p class="note">No requests arrived from outside of the containers in this time.</p>}
      {data && data.entries.length > 0 && (
        <>
          <Summary {...p} answer={data} />
          <Chain {...p} answer={data} />
          {data.resources.length > 0 && <Resources {...p} answer={data} />}
        </>
      )}
    </div>
  )
}

const NAMES: Record<string, string> = {
  arrival_rate: 'Arrival rate λ', saturation_rate: 'Saturation rate λ_sat', utilisation: 'Utilisation U', parallel: 'What it could use', demand: 'Demand D', max_arrival_rate: 'What it could serve', latency: 'Mean time to answer',
  threads: 'Threads', whole: 'The whole request', own: 'Own time', network: 'On the network', others: 'Waits for servers beside the path', served: 'All that it answers', weight: 'Calls from the hop before', calls: 'Calls for one request at the entry',
}

const HOLDS: Record<string, string> = {
  arrival_rate: 'none: counted, not sampled',
  threads: 'none: a level, read each second',
  utilisation: 'CPU time is exact; busy threads are over ten seconds',
  parallel: 'busy threads are over ten seconds',
}

const NAMED = 3

function Summary({ answer: a, state }: Part) {
  const limit = firstLimit(a)
  const more = a.entries.length - NAMED
  return (
    <p class="path-summary" data-summary>
      Requests come in at {a.entries.slice(0, NAMED).map((e, i) => <>{i > 0 && ', '}<strong>{e.name}</strong>{a.entries.length > 1 && ` (${format(e.arrival_rate, '/s')})`}</>)}
      {more > 0 && ` and ${more} more`}: <span class="explained" tabindex={0} data-explain="path.arrival_rate">λ = {format(a.arrival_rate, '/s')}</span>.{' '}
      {limit ? (
        <>
          The first limit: <span class="explained" tabindex={0} data-explain="path.saturation_rate" data-value={format(a.saturation_rate, '/s')}><strong>{limit.name}</strong> {limit.text}</span>
          {limit.far && <small class="caveat">That is far away: the estimate takes for granted that CPU time grows as requests do. Look again under more load.</small>}
        </>
      ) : state.by === 'process' ? 'CPU time is known of containers, not of processes: group by container to see the first limit.' : 'No CPU time was seen of what they reach, so that no limit is known.'}
    </p>
  )
}

/** The critical path: a box for each hop with its part of a request, and the edges between them. */
function Chain({ answer: a, graph, state, change }: Part) {
  const path = a.critical_path
  if (!path) return <p class="muted path-note">No reply was timed, so that no path is known.</p>
  const bars = barsOf(path)
  const mean = path.statistic === 'mean'
  const chosenNode = nodeOf(graph, state.node)
  const chosenEdge = edgeOf(graph, state.edge)
  return (
    <>
      <div class="path-head">
        <h2>Critical path</h2>
        <span class="muted explained" tabindex={0} data-explain="path.whole" data-value={duration(path.whole)} data-whole={asNumber(path.whole)}>{wholeOf(path)}</span>
        {mean && <p class="legend">{PARTS.map(([key, title]) => <span key={key} title={a.formulas[key]}><i class={`swatch ${key}`} /> {title}</span>)}</p>}
      </div>
      <ol class="hops" data-percentile={path.statistic}>
        {path.hops.map((h, i) => {
          const way = i > 0 ? `${path.hops[i - 1]!.name} → ${h.name}` : `all requests to ${h.name}`
          const calls = h.of_request?.calls ?? 1
          const label = <><span>{path.statistic} {duration(h.weight)}</span>{' '}{Math.abs(calls - 1) >= 0.05 && <small data-explain="path.calls" data-value={digits(calls)}>{digits(calls)} calls</small>}</>
          return (
            <li key={h.node}>
              {h.edge && edgeOf(graph, h.edge) ? (
                <button class={edgeOf(graph, h.edge) === chosenEdge ? 'hop-edge chosen' : 'hop-edge'} data-hop-edge={h.edge} title={way} aria-label={`${way}: ${path.statistic} ${duration(h.weight)}${Math.abs(calls - 1) >= 0.05 ? ` ${digits(calls)} calls` : ''}`}
                  onClick={() => change({ edge: short(h.edge!), node: undefined, status: undefined, chart: undefined })}>
                  {label}
                </button>
              ) : <div class="hop-edge" title={way}>{label}</div>}
              <Box hop={h} bar={bars[i]!} chosen={chosenNode?.id === h.node}
                choose={() => change({ node: short(h.node), edge: undefined, status: undefined, chart: undefined })} />
            </li>
          )
        })}
      </ol>
    </>
  )
}

/** Shorter waits, in seconds, are not shown: the clock has ticks of a microsecond. */
const LEAST = 1e-6

function Box({ hop: h, bar, chosen, choose }: { hop: Hop; bar: Bar[]; chosen: boolean; choose: () => void }) {
  const of = h.of_request
  return (
    <div class={chosen ? 'hop chosen' : 'hop'} data-hop={h.node} data-of-request={ofRequest(h)}>
      <button class="hop-name" title={h.name} onClick={choose}><Middle text={h.name} /></button>
      <p class="muted small explained" data-explain="path.served" data-value={duration(h.served)}>answers all in {duration(h.served)}</p>
      <svg class={h.concurrent ? 'hop-bar concurrent' : 'hop-bar'} viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
        <rect class="track" width="100" height="10" />
        {bar.map((part) => part.width > 0 && <rect key={part.key} class={part.key} x={Math.min(part.x, 99.5)} width={Math.max(part.width, 0.5)} height="10" />)}
      </svg>
      {of && (
        <dl>
          <div class="of-request"><dt>of a request</dt><dd>{duration(ofRequest(h))}</dd></div>
          {PARTS.map(([key, title]) => (key === 'own' || of[key] >= LEAST) && (
            <div key={key} data-explain={`path.${key}`} data-value={duration(of[key])}>
              <dt>{title}</dt>
              <dd>{key === 'own' && h.served === undefined ? NONE : key === 'own' && h.concurrent ? 'not known' : duration(of[key])}</dd>
            </div>
          ))}
        </dl>
      )}
      {h.concurrent && <p class="small lack" data-concurrent title="It waits for longer than it takes to answer: it calls several servers at a time, or for itself. Its time is divided in proportion to its waits.">calls at a time</p>}
    </div>
  )
}

const COLUMNS: [string, string, (r: Resource) => string][] = [
  ['parallel', 'Of', limitOf],
  ['arrival_rate', 'Serves', (r) => format(r.arrival_rate, '/s')],
  ['max_arrival_rate', 'Could serve', (r) => format(r.max_arrival_rate, '/s')],
  ['demand', 'Demand per request', (r) => duration(r.demand)],
  ['latency', 'Answers in', (r) => duration(r.latency)],
  ['threads', 'Threads', (r) => format(r.threads, '')],
]

/** How near each resource is to its limit (paper 000, table 4). */
function Resources({ answer: a, graph, state, change }: Part) {
  const chosen = nodeOf(graph, state.node)
  const rows = a.resources.flatMap((r) => nodeOf(graph, r.node) ?? [])
  const cpus = a.resources.filter((r) => r.node.startsWith('cpus/')).map((r) => r.node)
  const { lines, error } = useLines(graph, `path ${state.by}`, linesOf(['utilisation', ...COLUMNS.map(([key]) => key)], state.by, rows, cpus))
  const heading = (key: string, title: string) => <th key={key} scope="col"><span class="explained" tabindex={0} data-explain={`path.${key}`} data-value=" ">{title}</span></th>
  return (
    <>
      <div class="path-head"><h2>Resources</h2><span class="muted">the nearest to its limit first</span></div>
      <div class="scroll">
        <table class="plain" data-resources>
          <thead>
            <tr>
              <th scope="col" class="name">Resource</th>
              {heading('utilisation', 'Utilisation')}
              {COLUMNS.map(([key, title]) => heading(key, title))}
            </tr>
          </thead>
          <tbody>
            {a.resources.map((r) => {
              const node = nodeFor(graph, r)
              const choose = node && (() => change({ node: short(node.id), edge: undefined, status: undefined, chart: undefined }))
              return (
                <tr key={r.node} class={`${choose ? 'pick' : ''}${node && node === chosen ? ' chosen' : ''}`} data-resource={r.node} onClick={choose}>
                  <th scope="row" class="name">{choose ? <button><Middle text={r.name} /></button> : <span class="name-text"><Middle text={r.name} /></span>}</th>
                  <td class="share" data-explain="path.utilisation" data-value={format(r.utilisation, 'ratio')}>
                    <Spark values={lines.get(lineOf('utilisation'))?.get(r.node)} />
                    {format(r.utilisation, 'ratio')}
                    <svg class={r.utilisation >= 0.8 ? 'share-bar full' : 'share-bar'} viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
                      <rect class="track" width="100" height="8" />
                      <rect width={r.utilisation * 100} height="8" />
                    </svg>
                  </td>
                  {COLUMNS.map(([key, , text]) => <td key={key} data-number={key} data-explain={`path.${key}`} class={text(r) === NONE ? 'none' : undefined}>{text(r) !== NONE && key !== 'parallel' && <Spark values={lines.get(lineOf(key))?.get(r.node)} />}{text(r)}</td>)}
                </tr>
              )
            })}
          </tbody>
        </table>
      </div>
      <LinesNote of={{ lines, error }} />
    </>
  )
}
