import type { ComponentChildren } from 'preact'
import { useSamples, type Loaded } from './data'
import { windowOf } from './explain'
import { bytes, digits, floorPercent, format, NONE, span, unmatched } from './format'
import { adviceOf, boundsOf, BUDGET, costsOf, incompleteEdges, programsOf, QUERIES, verdict, type Answers, type Bound } from './health'
import { short, type Change, type State } from './state'
import { useExplainer } from './tip'
import type { Graph, Status } from './types'

interface Props {
  graph?: Graph
  status: Loaded<Status>
  state: State
  change: Change
}

/** How many edges are listed. */
const EDGES = 20

const TOLD: Record<string, { title: string; what: string; query?: string }> = {
  cpu: { title: 'CPU time of the agent', what: 'of its own process, over five minutes; the time of its kernel programs is below', query: QUERIES.cpu },
  memory: { title: 'Memory of the agent', what: 'resident memory of its process', query: QUERIES.memory },
  read: { title: 'A reading', what: 'time that the last reading of all counters took', query: QUERIES.read },
  budget: { title: 'Of the budget', what: 'what the agent and its kernel programs take, over what they may', query: QUERIES.budget },
  runs: { title: 'Runs per second', what: 'how often the kernel ran the program', query: QUERIES.runs },
  run: { title: 'Time per run', what: 'mean time of a run; about 40 ns of it are the statistics themselves', query: `${QUERIES.time} / ${QUERIES.runs}` },
  cores: { title: 'CPU that it takes', what: 'run time per second, in CPUs', query: QUERIES.time },
  missed: { title: 'Missed per second', what: 'events at which the kernel did not run the program, because it was already running on that CPU', query: QUERIES.missed },
  dropped: { title: 'Dropped', what: 'updates that found no room in the table, in the window', query: 'increase(outsight_drops_total[5m])' },
  total: { title: 'Dropped since the start', what: 'updates that found no room since the agent or the server began', query: 'outsight_drops_total' },
  used: { title: 'Used', what: 'entries in use, of those that there is room for', query: 'outsight_entries / outsight_capacity' },
  counted: { title: 'Counted', what: 'share of the bytes that the kernel received for programs and that are in an edge', query: 'outsight_edges_completeness_ratio' },
}

/** What is lost, over budget or missing, and what to do about each. */
export function HealthView({ graph, status: { data, error }, state, change }: Props) {
  const live = state.from === undefined
  const answers = useSamples(QUERIES, live || !graph ? 0 : Date.parse(graph.to) / 1000, live ? 15_000 : 0) as Answers
  useExplainer(['health'], (key) => TOLD[key] && { ...TOLD[key]!, error: 'none: counted, not sampled', window: graph && (key === 'dropped' || key === 'counted') ? windowOf(graph) : undefined })
  if (error && !data) return <p class="inline-error" role="alert">{error}</p>
  if (!data) return <p class="note">Reading…</p>
  const wrong = verdict(data, graph, answers)
  const { lost, before, near, roomy } = boundsOf(data, graph)
  const costs = costsOf(answers)
  const programs = programsOf(answers)
  const missing = data.features.filter((f) => f.state === 'absent')
  const off = data.features.filter((f) => f.state === 'off')
  const works = data.features.filter((f) => f.state === 'works')
  const edges = graph ? incompleteEdges(graph) : []
  const many = data.hosts.length > 1
  return (
    <div class="health" data-health>
      {error && <p class="inline-error" role="alert">{error}</p>}
      <div class={wrong.length ? 'verdict bad' : 'verdict'} data-verdict={wrong.length}>
        <strong>{wrong.length === 0 ? 'Nothing is lost, over budget or missing that is required.' : wrong.length === 1 ? 'One thing to know:' : `${wrong.length} things to know:`}</strong>
        {wrong.length > 0 && <ul>{wrong.map((w) => <li key={w}>{w}</li>)}</ul>}
      </div>

      <Section id="lost" title="Lost" hint="what found no room in a bounded table or queue, or was refused">
        {lost.length === 0 ? <p class="fine">Everything found room in this time.</p> : <Bounds list={lost} />}
        {near.length > 0 && <><h4>Nearly full</h4><Bounds list={near} /></>}
        {before.length > 0 && (
          <details><summary>{before.length} dropped something before this time</summary><Bounds list={before} /></details>
        )}
        <p class="muted small">{roomy} tables and queues have room and dropped nothing since they began.</p>
      </Section>

      <Section id="cost" title="Cost" hint="what watching takes of the hosts">
        {costs.length === 0 && <p class="muted">No agent tells what it takes in this time.</p>}
        {costs.length > 0 && (
          <div class="scroll">
            <table class="plain" data-costs>
              <thead><tr><th scope="col" class="name">Host</th><th scope="col">CPU</th><th scope="col">Memory</th><th scope="col">A reading</th>{costs.some((c) => c.budget !== undefined) && <th scope="col">Of its budget</th>}<th scope="col" class="words">What to do</th></tr></thead>
              <tbody>
                {costs.map((c) => (
                  <tr key={c.host} data-cost={c.host}>
                    <th scope="row" class="name"><span class="name-text">{c.host}</span></th>
                    <td data-explain="health.cpu" class={c.budget === undefined && (c.cpu ?? 0) > BUDGET.cores ? 'over' : undefined}>{c.cpu === undefined ? NONE : `${digits(c.cpu * 100)} % of a core`}</td>
                    <td data-explain="health.memory" class={c.budget === undefined && (c.memory ?? 0) > BUDGET.bytes ? 'over' : undefined}>{c.memory === undefined ? NONE : bytes(c.memory)}</td>
                    <td data-explain="health.read">{c.read === undefined ? NONE : `${digits(c.read * 1000)} ms`}</td>
                    {costs.some((x) => x.budget !== undefined) && <td data-explain="health.budget" class={(c.budget ?? 0) > 1 ? 'over' : undefined}>{c.budget === undefined ? NONE : format(c.budget, 'ratio')}</td>}
                    <td class="words advice">{c.shed.length > 0 && <strong>shed: {c.shed.join(', ')}. </strong>}{c.then || (c.budget === undefined ? `within ${digits(BUDGET.cores * 100)} % of a core and ${bytes(BUDGET.bytes)}` : 'within its budget')}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
        {programs.length === 0 ? (
          <p class="muted small">What each kernel program costs is measured for a moment every ten seconds, and with a budget every second: the first time is yet to come. {data.programs.length} programs are loaded.</p>
        ) : (
          <details open={programs.length <= 12}>
            <summary>Kernel programs: {programs.length} ran{programs.some((p) => p.cores !== undefined) && `, ${digits(programs.reduce((sum, p) => sum + (p.cores ?? 0), 0) * 100)} % of a core in all`}</summary>
            <div class="scroll">
              <table class="plain" data-programs>
                <thead><tr><th scope="col" class="name">Program</th><th scope="col">Runs</th><th scope="col">Per run</th><th scope="col">Of a core</th><th scope="col">Missed</th></tr></thead>
                <tbody>
                  {programs.slice(0, 60).map((p) => (
                    <tr key={p.host + p.name}>
                      <th scope="row" class="name"><span class="name-text">{p.name}{many && <small> {p.host}</small>}</span></th>
                      <td data-explain="health.runs">{format(p.runs, '/s')}</td>
                      <td data-explain="health.run">{p.perRun === undefined ? NONE : `${digits(p.perRun * 1e9)} ns`}</td>
                      <td data-explain="health.cores">{p.cores === undefined ? NONE : `${digits(p.cores * 100)} %`}</td>
                      <td data-explain="health.missed" class={p.missed > 0 ? 'over' : undefined}>{p.missed > 0 ? format(p.missed, '/s') : '0'}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          </details>
        )}
      </Section>

      <Section id="missing" title="Missing" hint="features that this kernel, host or setting does not give">
        {data.features.length === 0 && <p class="muted">No agent tells its features in this time.</p>}
        {data.features.length > 0 && missing.length === 0 && <p class="fine">All {works.length} features that were asked for work.</p>}
        <Features list={missing} many={many} />
        {off.length > 0 && <details><summary>{off.length} {off.length === 1 ? 'is' : 'are'} off, because nobody asked for {off.length === 1 ? 'it' : 'them'}</summary><Features list={off} many={many} /></details>}
        {works.length > 0 && <details><summary>{works.length} work</summary><Features list={works} many={many} /></details>}
        {data.features.length > 0 && !data.features.some((f) => f.reason) && missing.length > 0 && <p class="muted small">Why is told by <code>outsight doctor</code> on the host itself.</p>}
      </Section>

      <Section id="complete" title="Completeness" hint="how much of what happened is in the numbers">
        {graph ? (
          <>
            <dl class="worth">
              <div><dt>Watched</dt><dd>{span(graph.completeness.covered_seconds)} of {span(graph.completeness.window_seconds)}{graph.completeness.covered_seconds < graph.completeness.window_seconds - 2 && '. Rates are over the time that was watched; choose a shorter window to have all of it'}</dd></div>
              {Object.entries(graph.counted_share).map(([host, share]) => <div key={host} class={share < 0.999 ? 'lack' : undefined}><dt>{host}</dt><dd data-explain="health.counted" tabindex={0}>{floorPercent(share)} of received bytes are counted in an edge{share < 0.999 && '. The rest was spliced, never read, or found no room: see the edges below'}</dd></div>)}
              {graph.unmatched_share > 0 && <div><dt>Unmatched</dt><dd>{unmatched(graph)} lead to an end in no known container. It is on a host without an agent, or ended before it was known</dd></div>}
              {graph.completeness.ended_omitted > 0 && <div class="lack"><dt>Ended</dt><dd>{format(graph.completeness.ended_omitted, '')} containers that ended are left out; choose a shorter window</dd></div>}
              {graph.omitted_edges > 0 && <div class="lack"><dt>Left out</dt><dd>{format(graph.omitted_edges, '')} less busy edges; group by workload, or hide small ones</dd></div>}
            </dl>
            {edges.length === 0 ? <p class="fine">Of every edge all received bytes were seen.</p> : (
              <>
                <h4>Edges of which not all was seen</h4>
                <ul class="edge-list" data-incomplete={edges.length}>
                  {edges.slice(0, EDGES).map((e) => (
                    <li key={e.edge.id}><button class="peer" onClick={() => change({ edge: short(e.edge.id), node: undefined, status: undefined, chart: undefined })}><span>{e.client?.name} → {e.server?.name}</span><span class="muted">{floorPercent(e.share)} seen</span></button></li>
                  ))}
                </ul>
                <p class="muted small">{edges.length > EDGES && `${edges.length - EDGES} more. `}Usually a program moves bytes with splice(2), or never reads them. Nothing is to be done for the numbers of requests; bytes are that much too few.</p>
              </>
            )}
          </>
        ) : <p class="muted">Reading…</p>}
      </Section>
      <p class="muted small pad">Outsight {data.version}{data.sources.length ? ` · ${data.sources.join(', ')}` : ''}</p>
    </div>
  )
}

function Section({ id, title, hint, children }: { id: string; title: string; hint: string; children: ComponentChildren }) {
  return (
    <section class="health-part" data-health-part={id} aria-label={title}>
      <div class="path-head"><h2>{title}</h2><span class="muted">{hint}</span></div>
      <div class="health-body">{children}</div>
    </section>
  )
}

function Bounds({ list }: { list: Bound[] }) {
  return (
    <div class="scroll">
      <table class="plain" data-bounds>
        <thead><tr><th scope="col" class="name">Table</th><th scope="col">Dropped</th><th scope="col">Used</th><th scope="col" class="words">What it means, and what to do</th></tr></thead>
        <tbody>
          {list.map((b) => {
            const advice = adviceOf(b.name)
            const share = b.capacity ? (b.used ?? 0) / b.capacity : undefined
            return (
              <tr key={b.host + b.name} data-bound={b.name}>
                <th scope="row" class="name"><span class="name-text">{b.name} <small>{b.host}</small></span></th>
                <td data-explain={b.dropped === undefined ? 'health.total' : 'health.dropped'} class={(b.dropped ?? 0) > 0 ? 'over' : undefined}>{format(b.dropped ?? b.total, '')}{b.dropped === undefined && b.total > 0 && <small> since the start</small>}</td>
                <td data-explain="health.used">{share === undefined ? NONE : <>{format(b.used ?? 0, '')} of {format(b.capacity!, '')}<svg class={share >= 0.8 ? 'share-bar full' : 'share-bar'} viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect class="track" width="100" height="8" /><rect width={Math.min(100, share * 100)} height="8" /></svg></>}</td>
                <td class="words advice">{advice.means} <strong>{advice.then}</strong></td>
              </tr>
            )
          })}
        </tbody>
      </table>
    </div>
  )
}

function Features({ list, many }: { list: Status['features']; many: boolean }) {
  return (
    <ul class="features">
      {list.map((f) => (
        <li key={f.host + f.name + f.purpose} class={f.state} data-feature={f.name}>
          <i aria-hidden="true">{f.state === 'works' ? '✓' : f.state === 'off' ? '○' : '✗'}</i>
          <div>
            <strong>{f.purpose}</strong> <span class="muted">{f.name}{many && ` on ${f.host}`}{f.state === 'absent' && f.required && ' · required'}</span>
            {f.reason && <p class="small">{f.reason}{f.remedy ? `. To have it: ${f.remedy}` : ''}</p>}
          </div>
        </li>
      ))}
    </ul>
  )
}
