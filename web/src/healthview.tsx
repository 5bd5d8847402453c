import type { ComponentChildren } from 'preact'
import { useMemo } from 'preact/hooks'
import { labelledPath, useLabelled, type Labelled, type Loaded } from './data'
import { windowOf } from './explain'
import { bytes, digits, floorPercent, format, NONE, span, unmatched } from './format'
import { adviceOf, answersOf, boundKey, boundsOf, BUDGET, costsOf, incompleteEdges, lastOf, lineMetrics, linesOf, METRICS, programsOf, QUERIES, QUOTA, quotasOf, RATES, refusalsOf, silentOf, verdict, wordsOf, type Bound, type Part } from './health'
import { stretchOf, type Lines } from './spark'
import { LinesNote, Spark, useOnce } from './sparkview'
import { short, type Change, type State } from './state'
import { useExplainer } from './tip'
import type { Graph, Quota, Refusal, Status } from './types'

interface Props {
  graph?: Graph
  /** Why the graph could not be read. */
  away?: string
  status: Loaded<Status>
  state: State
  change: Change
}

/** How many edges and programs are listed. */
const [EDGES, PROGRAMS] = [20, 60]

const TOLD: Record<string, { title: string; what: string; query?: string }> = {
  cpu: { title: 'CPU time of the agent', what: 'of its own process, over five minutes; the time of its kernel programs is below', query: QUERIES.cpu },
  memory: { title: 'Memory of the agent', what: 'resident memory of its process', query: QUERIES.memory },
  read: { title: 'A reading', what: 'time that the last reading of all counters took', query: QUERIES.read },
  sent: { title: 'Sent', what: 'bytes that the agent sends over the network, compressed and encrypted as they are: to a server or a store, and to those who ask for /metrics, the page or its API', query: QUERIES.sent },
  budget: { title: 'Of the budget', what: 'what the agent and its kernel programs take, over what they may', query: QUERIES.budget },
  runs: { title: 'Runs per second', what: 'how often the kernel ran the program', query: QUERIES.runs },
  run: { title: 'Time per run', what: 'mean time of a run; about 40 ns of it are the statistics themselves', query: `${QUERIES.time} / ${QUERIES.runs}` },
  cores: { title: 'CPU that it takes', what: 'run time per second, in CPUs', query: QUERIES.time },
  missed: { title: 'Missed per second', what: 'events at which the kernel did not run the program, because it was already running on that CPU', query: QUERIES.missed },
  dropped: { title: 'Dropped', what: 'updates that found no room in the table, in the window', query: 'increase(outsight_drops_total[5m])' },
  total: { title: 'Dropped since the start', what: 'updates that found no room since the agent or the server began', query: 'outsight_drops_total' },
  used: { title: 'Used', what: 'entries in use, of those that there is room for', query: 'outsight_entries / outsight_capacity' },
  refused: { title: 'Refused', what: 'since the server began' },
  quota: { title: 'Used', what: 'what the tenant has at the moment; half of everything is guaranteed to tenants in equal parts, and what is left is for whoever takes it first' },
  counted: { title: 'Counted', what: 'share of the bytes that the kernel received for programs and that are in an edge', query: 'outsight_edges_completeness_ratio' },
}

/** What is lost, over budget or missing, and what to do about each. */
export function HealthView({ graph, away, status: { data, error }, state, change }: Props) {
  const live = state.from === undefined
  const end = live || !graph ? undefined : Date.parse(graph.to) / 1000
  const window = end === undefined ? `from=now-${RATES}s&to=now` : `from=${end - RATES}&to=${end}`
  const asked = useLabelled(window, () => labelledPath(Object.values(METRICS), window), live ? 15_000 : 0)
  const answers = useMemo(() => answersOf(asked.data?.rows ?? [], data?.silent ?? [], end ?? Date.parse(data?.now ?? '') / 1000), [asked.data, data, end])
  const { lost, before, near, roomy } = data ? boundsOf(data, graph) : { lost: [], before: [], near: [], roomy: 0 }
  const programs = programsOf(answers)
  // Nothing is said to be well, and no line is asked for, before all of it was looked at.
  const reading = (!graph && !away) || (!asked.data && !asked.error)
  const drawn = graph && stretchOf(Date.parse(graph.from) / 1000, Date.parse(graph.to) / 1000, graph.covered_seconds)
  const metrics = lineMetrics(programs.slice(0, PROGRAMS), [...lost, ...near, ...before])
  const sparks = useOnce<Labelled>('health', reading || !drawn ? '' : labelledPath(metrics, `from=${drawn.begin}&to=${drawn.end}&points=${drawn.points}`))
  const lines = useMemo(() => linesOf(sparks.data?.rows ?? []), [sparks.data])
  useExplainer(['health'], (key) => TOLD[key] && { ...TOLD[key]!, query: data?.promql === 'off' ? undefined : TOLD[key]!.query, error: 'none: counted, not sampled', window: graph && (key === 'dropped' || key === 'counted') ? windowOf(graph) : undefined })
  if (error && !data) return <p class="inline-error" role="alert">{error}</p>
  if (!data) return <p class="note">Reading…</p>
  // Refusals are known since the server began, whatever window is shown.
  const now = Date.now() / 1000
  const from = live ? now - state.window : state.from!
  const wrong = verdict(data, graph, answers, from, now)
  const refused = refusalsOf(data, from)
  const quotas = quotasOf(data)
  const silent = silentOf(answers)
  const costs = costsOf(answers)
  const unread = [away && !graph && `What was seen could not be read: ${away}`, asked.error && `What agents cost could not all be read: ${asked.error}`].filter((text) => text !== undefined && text !== false)
  const line = (column: string, key: string) => <Spark values={lines.get(column)?.get(key)} />
  const show = (part: Part) => document.querySelector(`[data-health-part=${part}]`)?.scrollIntoView({ block: 'start' })
  const missing = data.features.filter((f) => f.state === 'absent')
  const off = data.features.filter((f) => f.state === 'off')
  const works = data.features.filter((f) => f.state === 'works')
  const edges = graph ? incompleteEdges(graph) : []
  const many = data.hosts.length > 1
  return (
    <div class="health" data-health>
      {error && <p class="inline-error" role="alert">{error}</p>}
      <div class={wrong.length + unread.length ? 'verdict bad' : 'verdict'} data-verdict={wrong.length}>
        <strong>{wrong.length + unread.length === 0 ? (reading ? 'Reading…' : 'Nothing is lost, refused, over budget or missing that is required.') : wrong.length + unread.length === 1 ? 'One thing to know:' : `${wrong.length + unread.length} things to know:`}</strong>
        {wrong.length + unread.length > 0 && (
          <ul>
            {unread.map((text) => <li key={text} role="alert">{text}</li>)}
            {wrong.map((w) => <li key={w.text}><button class="finding" title="Shows more of it, and what to do" onClick={() => show(w.part)}>{w.text}</button></li>)}
          </ul>
        )}
      </div>

      <Section id="lost" title="Lost" hint="what found no room in a bounded table or queue">
        {lost.length === 0 ? <p class="fine">Everything found room in this time.</p> : <Bounds list={lost} lines={lines} />}
        {near.length > 0 && <><h3>Nearly full</h3><Bounds list={near} lines={lines} /></>}
        {before.length > 0 && (
          <details><summary>{before.length} dropped something before this time</summary><Bounds list={before} lines={lines} /></details>
        )}
        {roomy > 0 && <p class="muted small">{roomy} tables and queues have room and dropped nothing since they began.</p>}
      </Section>

      {quotas.tight.length + quotas.roomy.length > 0 && (
        <Section id="quotas" title="Quotas" hint="what each tenant has of what the server divides among them">
          {quotas.tight.length === 0 ? <p class="fine">No tenant is near what it may have.</p> : <Quotas list={quotas.tight} />}
          {quotas.roomy.length > 0 && <details open={quotas.tight.length === 0}><summary>{quotas.roomy.length === 1 ? 'One has' : `${quotas.roomy.length} have`} room</summary><Quotas list={quotas.roomy} /></details>}
        </Section>
      )}
      {data.refusals && (
        <Section id="refused" title="Refused" hint="what the server did not take, and from whom">
          {refused.now.length === 0 ? <p class="fine">Nothing was refused in this time.</p> : <Refusals list={refused.now} now={now} />}
          {refused.before.length > 0 && <details><summary>{refused.before.length === 1 ? 'Something was' : `${refused.before.length} kinds were`} refused before this time</summary><Refusals list={refused.before} now={now} /></details>}
        </Section>
      )}

      <Section id="cost" title="Cost" hint="what watching takes of the hosts">
        {asked.error && <p class="inline-error" role="alert">What agents take could not all be read: {asked.error}</p>}
        {costs.length === 0 && !asked.error && <p class="muted">{reading ? 'Reading…' : 'No agent reported what it takes in this time.'}</p>}
        {costs.length > 0 && (
          <div class="scroll">
            <table class="plain stacks" data-costs>
              <thead><tr><th scope="col" class="name">Host</th><th scope="col">CPU</th><th scope="col">Memory</th><th scope="col">A reading</th><th scope="col">Sent</th>{costs.some((c) => c.budget !== undefined) && <th scope="col">Of its budget</th>}<th scope="col" class="words">What to do</th></tr></thead>
              <tbody>
                {costs.map((c) => (
                  <tr key={c.host} data-cost={c.host}>
                    <th scope="row" class="name"><span class="name-text">{c.host}</span></th>
                    <td data-explain="health.cpu" data-label="CPU" class={c.budget === undefined && (c.cpu ?? 0) > BUDGET.cores ? 'over' : undefined}>{c.cpu === undefined ? NONE : <>{line('cpu', c.host)}{digits(c.cpu * 100)} % of a core</>}</td>
                    <td data-explain="health.memory" data-label="Memory" class={c.budget === undefined && (c.memory ?? 0) > BUDGET.bytes ? 'over' : undefined}>{c.memory === undefined ? NONE : <>{line('memory', c.host)}{bytes(c.memory)}</>}</td>
                    <td data-explain="health.read" data-label="A reading">{c.read === undefined ? NONE : <>{line('read', c.host)}{digits(c.read * 1000)} ms</>}</td>
                    <td data-explain="health.sent" data-label="Sent">{c.sent === undefined ? NONE : <>{line('sent', c.host)}{format(c.sent, 'B/s')}</>}</td>
                    {costs.some((x) => x.budget !== undefined) && <td data-explain="health.budget" data-label="Of its budget" class={(c.budget ?? 0) > 1 ? 'over' : undefined}>{c.budget === undefined ? NONE : <>{line('budget', c.host)}{format(c.budget, 'ratio')}</>}</td>}
                    <td class="words advice">{c.shed.length > 0 && <strong>shed: {c.shed.join(', ')}. </strong>}{c.then || (c.budget === undefined ? `within ${digits(BUDGET.cores * 100)} % of a core and ${bytes(BUDGET.bytes)}` : 'within its budget')}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
        {programs.length === 0 ? data.programs.length > 0 && !reading && !asked.error && (
          <p class="muted small">What each kernel program costs is measured for a moment every ten seconds, and with a budget every second: the first time is yet to come. {data.programs.length} programs are loaded.</p>
        ) : (
          <details open={programs.length <= 12}>
            <summary>Kernel programs: {programs.length} ran{programs.some((p) => p.cores !== undefined) && `, ${digits(programs.reduce((sum, p) => sum + (p.cores ?? 0), 0) * 100)} % of a core in all`}</summary>
            <div class="scroll">
              <table class="plain" data-programs>
                <thead><tr><th scope="col" class="name">Program</th><th scope="col">Runs</th><th scope="col">Per run</th><th scope="col">Of a core</th><th scope="col">Missed</th></tr></thead>
                <tbody>
                  {programs.slice(0, PROGRAMS).map((p) => (
                    <tr key={p.host + p.name} data-program={p.name}>
                      <th scope="row" class="name"><span class="name-text">{p.name}{many && <small> {p.host}</small>}</span></th>
                      <td data-explain="health.runs">{line('runs', `${p.host}/${p.name}`)}{format(p.runs, '/s')}</td>
                      <td data-explain="health.run">{p.perRun === undefined ? NONE : <>{line('run', `${p.host}/${p.name}`)}{digits(p.perRun * 1e9)} ns</>}</td>
                      <td data-explain="health.cores">{p.cores === undefined ? NONE : <>{line('time', `${p.host}/${p.name}`)}{digits(p.cores * 100)} %</>}</td>
                      <td data-explain="health.missed" class={p.missed > 0 ? 'over' : undefined}>{p.missed > 0 ? <>{line('missed', `${p.host}/${p.name}`)}{format(p.missed, '/s')}</> : '0'}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          </details>
        )}
      </Section>

      <Section id="missing" title="Missing" hint="features that this kernel, host or setting does not give">
        {silent.length > 0 && (
          <ul class="features" data-silent={silent.length}>
            {silent.map((s) => (
              <li key={s.host} class="absent">
                <i aria-hidden="true">✗</i>
                <div><strong>{s.host} has not been heard of for {span(s.seconds)}</strong><p class="small">Look whether its agent runs, and whether it reaches this server{data.refusals && '; what it was refused is above'}. If the host is gone for good, it leaves this list after an hour.</p></div>
              </li>
            ))}
          </ul>
        )}
        {data.features.length === 0 && <p class="muted">No agent reported its features in this time.</p>}
        {data.features.length > 0 && missing.length === 0 && <p class="fine">All {works.length} features that were asked for work.</p>}
        <Features list={missing} many={many} />
        {off.length > 0 && <details><summary>{off.length} {off.length === 1 ? 'is' : 'are'} off, because no option asks for {off.length === 1 ? 'it' : 'them'}</summary><Features list={off} many={many} /></details>}
        {works.length > 0 && <details><summary>{works.length} work</summary><Features list={works} many={many} /></details>}
        {data.features.length > 0 && !data.features.some((f) => f.reason) && missing.length > 0 && <p class="muted small"><code>outsight doctor</code> on the host itself says why.</p>}
      </Section>

      <Section id="complete" title="Completeness" hint="how much of what happened is in the numbers">
        {graph ? (
          <>
            <dl class="worth">
              <div><dt>Watched</dt><dd>{span(graph.completeness.covered_seconds)} of {span(graph.completeness.window_seconds)}{graph.completeness.covered_seconds < graph.completeness.window_seconds - 2 && '. Rates are over the time that was watched; choose a shorter window to have all of it'}</dd></div>
              {Object.entries(graph.counted_share).map(([host, share]) => <div key={host} class={share < 0.999 ? 'lack' : undefined}><dt>{host}</dt><dd data-explain="health.counted" tabindex={0}>{floorPercent(share)} of received bytes are counted in an edge{share < 0.999 && '. The rest was spliced, never read, or found no room: see the edges below'}</dd></div>)}
              {graph.unmatched_share > 0 && <div><dt>Unmatched</dt><dd>{unmatched(graph)} lead to an end in no known container. It is on a host without an agent, or ended before it was known</dd></div>}
              {graph.omitted_edges > 0 && <div class="lack"><dt>Left out</dt><dd>{format(graph.omitted_edges, '')} less busy edges; group by workload, or hide small ones</dd></div>}
            </dl>
            {edges.length === 0 ? graph.edges.length > 0 && <p class="fine">Of every edge all received bytes were seen.</p> : (
              <>
                <h3>Edges of which not all was seen</h3>
                <ul class="edge-list" data-incomplete={edges.length}>
                  {edges.slice(0, EDGES).map((e) => (
                    <li key={e.edge.id}><button class="peer" onClick={() => change({ edge: short(e.edge.id), node: undefined, status: undefined, chart: undefined })}><span>{e.client?.name} → {e.server?.name}</span><span class="muted">{floorPercent(e.share)} seen</span></button></li>
                  ))}
                </ul>
                <p class="muted small">{edges.length > EDGES && `${edges.length - EDGES} more. `}Usually a program moves bytes with splice(2), or never reads them. Nothing is to be done for the numbers of requests; bytes are that much too few.</p>
              </>
            )}
          </>
        ) : away ? <p class="inline-error" role="alert">{away}</p> : <p class="muted">Reading…</p>}
      </Section>
      <LinesNote of={{ lines, error: sparks.error }} />
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

/** What tenants have, of what they could have. */
function Quotas({ list }: { list: Quota[] }) {
  return (
    <div class="scroll">
      <table class="plain stacks" data-quotas>
        <thead><tr><th scope="col">Tenant</th><th scope="col">What</th><th scope="col">Used</th><th scope="col">At most now</th><th scope="col">Guaranteed</th><th scope="col">Refused</th></tr></thead>
        <tbody>
          {list.map((q) => (
            <tr key={q.tenant + q.what} data-quota={`${q.tenant}/${q.what}`}>
              <td data-label="Tenant">{q.tenant}</td>
              <td data-label="What">{QUOTA[q.what]?.name ?? q.what}</td>
              <td data-explain="health.quota" data-label="Used" class={q.used >= q.limit ? 'over' : undefined}>{format(q.used, QUOTA[q.what]?.unit ?? '')}</td>
              <td data-label="At most now">{format(q.limit, QUOTA[q.what]?.unit ?? '')}</td>
              <td data-label="Guaranteed">{format(q.guaranteed, QUOTA[q.what]?.unit ?? '')}</td>
              <td data-label="Refused" class={q.refused > 0 ? 'over' : undefined}>{format(q.refused, '')}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

/** What was refused, the last occasion of each, and what to do. */
function Refusals({ list, now }: { list: Refusal[]; now: number }) {
  return (
    <div class="scroll">
      <table class="plain stacks" data-refusals>
        <thead><tr><th scope="col" class="name">What</th><th scope="col">Refused</th><th scope="col" class="words">The last one</th><th scope="col" class="words">What it means, and what to do</th></tr></thead>
        <tbody>
          {list.map((r) => {
            const words = wordsOf(r)
            return (
              <tr key={r.what + r.reason} data-refusal={`${r.what}/${r.reason}`}>
                <th scope="row" class="name"><span class="name-text">{words.what}</span></th>
                <td data-explain="health.refused" data-label="Refused" class="over">{format(r.count, '')}</td>
                <td class="words said">{lastOf(r, now) || NONE}{r.said && <small>“{r.said}”</small>}</td>
                <td class="words advice">{words.means} <strong>{words.then}</strong></td>
              </tr>
            )
          })}
        </tbody>
      </table>
    </div>
  )
}

function Bounds({ list, lines }: { list: Bound[]; lines: Lines }) {
  return (
    <div class="scroll">
      <table class="plain stacks" data-bounds>
        <thead><tr><th scope="col" class="name">Table</th><th scope="col">Dropped</th><th scope="col">Used</th><th scope="col" class="words">What it means, and what to do</th></tr></thead>
        <tbody>
          {list.map((b) => {
            const advice = adviceOf(b.name)
            const share = b.capacity ? (b.used ?? 0) / b.capacity : undefined
            return (
              <tr key={b.host + b.name} data-bound={b.name}>
                <th scope="row" class="name"><span class="name-text">{b.name} <small>{b.host}</small></span></th>
                <td data-explain={b.dropped === undefined ? 'health.total' : 'health.dropped'} data-label="Dropped" class={(b.dropped ?? 0) > 0 ? 'over' : undefined}>{(b.dropped ?? b.total) > 0 && <Spark values={lines.get('dropped')?.get(boundKey(b))} />}{format(b.dropped ?? b.total, '')}{b.dropped === undefined && b.total > 0 && <small> since the start</small>}</td>
                <td data-explain="health.used" data-label="Used">{share === undefined ? NONE : <><Spark values={lines.get('used')?.get(boundKey(b))} />{format(b.used ?? 0, '')} of {format(b.capacity!, '')}<svg class={share >= 0.8 ? 'share-bar full' : 'share-bar'} viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect class="track" width="100" height="8" /><rect width={Math.min(100, share * 100)} height="8" /></svg></>}</td>
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
