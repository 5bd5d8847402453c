import { useState } from 'preact/hooks'
import { useRunOut, useWhatIf } from './data'
import { clock, duration, format, NONE, span } from './format'
import { percent } from './placement'
import { isLoad, short, type Change, type ChangedKind, type State } from './state'
import { useExplainer } from './tip'
import { amountText, barOf, boundedName, bounds, changeText, courseText, doubtsText, joules, limitBounds, limitingPool, LOADS, modelText, ofText, poolNumber, runOutText, SCALE, shareOf, usedBounds, valueOf, verdictOf, waitsText, watts, whatIfOf, withChange } from './whatif'
import type { Interval, Node, Pool, WhatIf, WhatIfResource } from './types'

/** How often a live prediction is made anew, in ms: it is learnt from a whole window. */
const PERIOD = 30_000

interface Props {
  state: State
  change: Change
  /** The window, as a query string. */
  window: string
}

/** What would run out if more requests came, or containers were others. */
export function WhatIfView({ state, change, window }: Props) {
  const query = window + whatIfOf(state)
  const { data, error, loading } = useWhatIf(query, () => `/api/outsight/whatif?${query}`, state.from === undefined ? PERIOD : 0)
  const reason = error && !error.startsWith('The server ') ? error : undefined
  useExplainer(['whatif'], (key) => data && {
    title: TITLES[key]![0], what: TITLES[key]![1], formula: key === 'limit' ? 'λ where a + D λ = what it can use' : key === 'demand' ? 'CPU time = a + D λ' : undefined,
    error: 'in nine of ten cases the truth is within the bounds, if CPU time is a line over the rate', window: `${clock(Date.parse(data.from) / 1000)} – ${clock(Date.parse(data.to) / 1000)}`,
  })
  return (
    <div class="whatif" data-whatif={reason ? 'refused' : data ? 'there' : 'reading'}>
      <Scenario state={state} change={change} data={data} loading={loading} />
      {error && !reason && <p class="inline-error pad" role="alert">{error}</p>}
      {reason ? (
        <section class="note" role="alert" data-refused><h2>This cannot be predicted</h2><p>{reason}.</p>{state.changes.length > 0 && <p><button class="link" onClick={() => change({ changes: [] })}>Without the changes</button></p>}</section>
      ) : !data ? !error && <p class="note">Learning from the past…</p> : (
        <>
          <Verdict a={data} state={state} change={change} />
          {data.resources.length > 0 && <Resources a={data} state={state} change={change} />}
          {data.entries.length > 0 && <Entries a={data} />}
          {data.stretches > 0 && <Power a={data} />}
          {data.stretches > 0 && <p class="muted small pad" data-learnt>Learnt from {data.stretches} stretches of {span(data.step_seconds)}, at rates from {format(data.least_rate, '/s')} to {format(data.greatest_rate, '/s')}. In nine of ten cases the truth is within the bounds, if all goes on as it did. CPU time and numbers of connections are known; of a lock or a disk, what waits for it at most.</p>}
        </>
      )}
      <RunOuts state={state} change={change} window={window} />
    </div>
  )
}

/** When something runs out, if its use goes on as in the window: the load is as it is. */
function RunOuts({ state, change, window }: Props) {
  const { data } = useRunOut(window, () => `/api/outsight/runout?${window}`, state.from === undefined ? PERIOD : 0)
  if (!data || data.resources.length === 0) return null
  const now = Date.parse(data.to) / 1000
  const first = data.resources[0]!
  return (
    <section data-runout>
      <div class="bar-row entries-head"><h2>When something runs out</h2><span class="muted small">{first.runs_out ? `First: ${boundedName(first)}, ${runOutText(first, now).when}` : `Nothing does in the next ${span(data.horizon_seconds)}, as far as is known`}</span></div>
      <div class="scroll">
        <table class="plain stacks whatif-table">
          <thead><tr><th scope="col" class="name">Resource</th><th scope="col">Used</th><th scope="col">Of</th><th scope="col" class="words">Used up</th><th scope="col" class="words">Course</th></tr></thead>
          <tbody>
            {data.resources.map((r) => {
              const { when, between } = runOutText(r, now)
              const name = <><span>{boundedName(r)}</span> <small>{r.host}</small></>
              return (
                <tr key={`${r.kind} ${r.host} ${r.node} ${r.name}`} data-bounded={`${r.kind} ${r.name}`} class={r.runs_out?.at ? 'first-limit' : undefined}>
                  <th scope="row" class="name">{r.node ? <button onClick={() => change({ node: short(r.node!), edge: undefined, status: undefined, chart: undefined, by: 'container' })}>{name}</button> : <span class="name-text">{name}</span>}</th>
                  <td data-label="used">{amountText(r, r.used)} <small>{percent(r.used / r.capacity)}</small></td>
                  <td data-label="of">{amountText(r, r.capacity)}</td>
                  {r.course ? <><td class="words" data-label="used up" data-runs-out={r.runs_out?.at}>{r.runs_out ? <strong>{when}</strong> : when} <small>{between}</small></td><td class="words said">{courseText(r)}</td></> : <td class="words unknown" colSpan={2}>Cannot be told: {r.unknown}.</td>}
                </tr>
              )
            })}
          </tbody>
        </table>
      </div>
    </section>
  )
}

const TITLES: Record<string, [string, string]> = {
  before: ['Used now', 'utilisation at the mean rate of the window, as containers are now'],
  then: ['Used then', 'utilisation in the scenario; above 100 % it cannot be had'],
  limit: ['Full at', 'the rate of requests at the entries at which it is used up'],
  demand: ['Demand', 'what it takes without requests, in cores, and the CPU time for one request at the entries'],
}

/** The load, and what of containers is to be different. */
function Scenario({ state, change, data, loading }: { state: State; change: Change; data?: WhatIf; loading: boolean }) {
  const [kind, setKind] = useState<ChangedKind>('replicas')
  const [name, setName] = useState('')
  const [value, setValue] = useState('')
  const [why, setWhy] = useState('')
  const add = (e: Event) => {
    e.preventDefault()
    const ofHost = kind === 'down'
    const number = kind === 'move' || ofHost || (Number(value) > 0 && (kind === 'quota' || Number.isInteger(Number(value))))
    const text = name.trim() === '' && !ofHost ? 'Which container?' : value.trim() === '' ? WANTS[kind][2] : !number ? WANTS[kind][2] : ''
    setWhy(text)
    if (text) return
    change({ changes: ofHost ? withChange(state.changes, kind, value.trim(), '') : withChange(state.changes, kind, name.trim(), value.trim()) })
    setName('')
    setValue('')
  }
  const names = [...new Set((data?.resources ?? []).filter((r) => !r.node.startsWith('cpus/')).map((r) => r.name))].sort()
  return (
    <>
      <form class="view-bar" onSubmit={add} aria-label="What is different">
        <Load state={state} change={change} />
        <span class="rule-form">
          {kind !== 'down' && <label>Container <input name="container" list="whatif-names" placeholder="name" value={name} spellcheck={false} onInput={(e) => setName(e.currentTarget.value)} /></label>}
          <select name="what" aria-label="What is different of it" value={kind} onChange={(e) => (setKind(e.currentTarget.value as ChangedKind), setValue(''))}>
            {(Object.keys(WANTS) as ChangedKind[]).map((k) => <option key={k} value={k} selected={kind === k}>{WANTS[k][0]}</option>)}
          </select>
          <input name="value" class="few" aria-label={WANTS[kind][2]} list={kind === 'move' || kind === 'down' ? 'whatif-hosts' : undefined} placeholder={WANTS[kind][1]} inputMode={kind === 'move' || kind === 'down' ? 'text' : 'decimal'} value={value} spellcheck={false} onInput={(e) => setValue(e.currentTarget.value)} />
          <button class="toggle" type="submit" data-add-change>Add</button>
        </span>
        <datalist id="whatif-names">{names.map((n) => <option key={n} value={n} />)}</datalist>
        <datalist id="whatif-hosts">{data?.hosts.map((h) => <option key={h} value={h} />)}</datalist>
        {why && <span class="lack" role="alert" data-change-error>{why}</span>}
        {loading && data && <span class="muted" role="status">Predicting…</span>}
      </form>
      {state.changes.length > 0 && (
        <ul class="rules" aria-label="Changes">
          {state.changes.map((c) => {
            const text = changeText(c)
            return <li key={c.join()} class="rule" data-change={c[0]}>{text}<button class="quiet" aria-label={`Drop the change: ${text}`} title="Drop this change" onClick={() => change({ changes: state.changes.filter((o) => o.join() !== c.join()) })}>×</button></li>
          })}
        </ul>
      )}
    </>
  )
}

/** What each change is called, an example of its value, and what is wanted. */
const WANTS: Record<ChangedKind, [string, string, string]> = {
  replicas: ['replicas', '3', 'How many of them?'], quota: ['quota in cores', '2', 'How many cores?'], move: ['runs on', 'host-2', 'On which host?'], down: ['a host is down', 'host-2', 'Which host?'],
}

/** The load: times the mean, or a rate. */
function Load({ state, change }: { state: State; change: Change }) {
  const [wrong, setWrong] = useState(false)
  const own = !LOADS.includes(state.load)
  const [typing, setTyping] = useState(own)
  return (
    <label>
      Load
      <select name="load" value={typing ? '' : state.load} onChange={(e) => (e.currentTarget.value === '' ? setTyping(true) : (setTyping(false), change({ load: e.currentTarget.value })))}>
        {LOADS.map((l) => <option key={l} value={l} selected={!typing && state.load === l}>{l === '1x' ? 'as it is' : `${l.slice(0, -1)} ×`}</option>)}
        <option value="" selected={typing}>other…</option>
      </select>
      {typing && <input name="rate" class="few" aria-label="Load, as in 2.5x or 400/s" aria-invalid={wrong} placeholder="400/s" defaultValue={own ? state.load : ''} onChange={(e) => {
        const text = e.currentTarget.value.trim()
        setWrong(!isLoad(text))
        if (isLoad(text)) change({ load: text })
      }} />}
      {wrong && <span class="lack" role="alert">as in 2.5x or 400/s</span>}
    </label>
  )
}

function Verdict({ a, state, change }: { a: WhatIf; state: State; change: Change }) {
  const v = verdictOf(a)
  const longer = ([['1h', 3600], ['6h', 21_600]] as const).filter(([, seconds]) => state.from === undefined && seconds > state.window)
  return (
    <div class={`verdict ${v.kind === 'good' ? '' : v.kind}`} data-verdict={v.kind}>
      <h2>{v.before}<strong>{v.name}</strong>{v.after}</h2>
      <p>{v.note}{v.kind === 'unsure' && longer.length > 0 && <> {longer.map(([name, seconds]) => <button key={name} class="link more-time" onClick={() => change({ window: seconds })}>last {name}</button>)}</>}</p>
      {a.doubts.length > 0 && <><p>{doubtsText(a)}</p><ul data-doubts>{a.doubts.map((d) => <li key={d.text}>{d.text}</li>)}</ul></>}
    </div>
  )
}

function Resources({ a, state, change }: { a: WhatIf; state: State; change: Change }) {
  return (
    <div class="scroll">
      <table class="plain stacks whatif-table">
        <thead>
          <tr><th scope="col" class="name">Resource</th><th scope="col" class="words">Now</th><th scope="col" class="words">Then</th><th scope="col">Full at</th><th scope="col">Of cores</th><th scope="col">Without requests</th><th scope="col">Per request</th></tr>
        </thead>
        <tbody>
          {a.resources.map((r) => {
            const host = r.node.startsWith('cpus/')
            const name = <><span>{r.name}</span>{!host && a.hosts.length > 1 && <small>{r.moved_from ? `${r.moved_from} → ${r.host}` : r.host}</small>}</>
            return (
              <tr key={r.node} data-resource={r.name} class={r.node === a.limited_by ? 'first-limit' : undefined}>
                <th scope="row" class="name">{host ? <span class="name-text">{name}</span> : <button onClick={() => change({ node: short(r.node), edge: undefined, status: undefined, chart: undefined, by: 'container', ask: true })} aria-pressed={state.node === short(r.node)}>{name}</button>}</th>
                {r.unknown ? <td class="words unknown" colSpan={6} data-unknown>Cannot be told: {r.unknown}.</td> : (
                  <>
                    <td class="words" data-label="now" data-explain="whatif.before" tabindex={0}>{r.before ? percent(r.before.value) : NONE}</td>
                    <td class="words" data-label="then">{r.utilisation ? <Used of={r.utilisation} /> : NONE}</td>
                    <td data-label="full at" data-explain="whatif.limit" tabindex={0} data-limit={r.limit?.value}>{r.limit ? <>{format(r.limit.value, '/s')} <small>{limitBounds(r.limit)}{r.alone && <span data-alone><br />{format(r.alone, '/s')} if its threads never waited for CPUs</span>}</small></> : <span class="none" title="It takes no more where more requests come, or all without them">{NONE}</span>}</td>
                    <td data-label="of">{ofText(r)}</td>
                    <td data-label="without requests" data-explain="whatif.demand" tabindex={0}>{format(Math.max(r.base ?? 0, 0), 'cores')}</td>
                    <td data-label="per request">{(r.per_request ?? 0) > 0 ? duration(r.per_request) : NONE}{r.per_endpoint?.map((e) => <small key={e.endpoint} data-per-endpoint={e.endpoint}><br />{e.endpoint} {duration(Math.max(e.per_request, 0))}</small>)}</td>
                  </>
                )}
              </tr>
            )
          })}
          {a.pools.filter((p) => p.fixed).map((p) => <PoolRow key={`${p.client}>${p.server}`} p={p} first={p === limitingPool(a)} />)}
        </tbody>
      </table>
    </div>
  )
}

/** Connections of which there were no more when more were needed. */
function PoolRow({ p, first }: { p: Pool; first: boolean }) {
  return (
    <tr data-pool={p.name} class={first ? 'first-limit' : undefined}>
      <th scope="row" class="name"><span class="name-text"><span>{p.ceiling ? 'requests at a time' : 'connections'} of {p.name}</span></span></th>
      <td class="words" data-label="now">{percent(p.before.value / p.open)}</td>
      <td class="words" data-label="then"><Used of={shareOf(p.busy, p.open)} /></td>
      <td data-label="full at" data-limit={p.limit?.value}>{p.limit ? <>{format(p.limit.value, '/s')} <small>{limitBounds(p.limit)}</small></> : NONE}</td>
      <td data-label="of" data-waited={p.waited}>{poolNumber(p)} <small>{p.ceiling ? 'at a time, never more' : p.waited ? 'connections that were waited for' : 'connections'}</small></td>
      <td data-label="without requests">{NONE}</td>
      <td data-label="per request">{NONE}</td>
    </tr>
  )
}

/** How long requests would take where they come in. */
function Entries({ a }: { a: WhatIf }) {
  const quantile = (now: Interval | undefined, then: Interval) => <>{now ? duration(now.value) : NONE} <span class="arrow" aria-hidden="true">→</span><span class="hidden"> now, then </span> <strong>{duration(then.value)}</strong> <small>{bounds(then, (v) => duration(v))}</small></>
  return (
    <>
      <div class="bar-row entries-head"><h2>How long requests take</h2></div>
      <div class="scroll">
        <table class="plain stacks whatif-table">
          <thead><tr><th scope="col" class="name">Entry</th><th scope="col">Requests then</th><th scope="col" class="words">p50</th><th scope="col" class="words">p95</th><th scope="col" class="words">p99</th><th scope="col" class="words">By</th></tr></thead>
          <tbody>
            {a.entries.map((e) => (
              <tr key={e.node} data-entry={e.name}>
                <th scope="row" class="name"><span class="name-text">{e.name}</span></th>
                <td data-label="requests">{format(e.rate, '/s')}</td>
                {e.then ? <>{(['p50', 'p95', 'p99'] as const).map((q) => <td key={q} class="words" data-label={q} data-quantile={q} data-then={e.then![q].value}>{quantile(e.before?.[q], e.then![q])}</td>)}<td class="words said">{modelText(e)}</td></> : <td class="words unknown" colSpan={4}>{e.saturated ? `A resource is used up: the queue has no end.${e.before ? ` Now p99 is ${duration(e.before.p99.value)}.` : ''}` : `Cannot be told: ${e.unknown}.`}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {a.entries.map((e) => waitsText(e) && <p key={e.node} class="small pad" data-waits={e.name}>{waitsText(e)}</p>)}
    </>
  )
}

/** What hosts would take, where a meter tells it; where none does, one sentence. */
function Power({ a }: { a: WhatIf }) {
  const known = a.power.filter((p) => p.watts)
  const reasons = [...new Set(a.power.map((p) => p.unknown))]
  if (known.length === 0) return <p class="muted small pad" data-power="unknown">Energy is not known{reasons.length === 1 ? `: of each host, ${reasons[0]}` : ''}.</p>
  const cell = (now: Interval | undefined, then: Interval, text: (v: number) => string) => <>{now ? text(now.value) : NONE} <span class="arrow" aria-hidden="true">→</span><span class="hidden"> now, then </span> <strong data-then={then.value}>{text(then.value)}</strong> <small>{bounds(then, text)}</small></>
  return (
    <section data-power="known">
      <div class="bar-row entries-head"><h2>Energy</h2>{a.joules_per_request && <span class="muted small" data-joules>For a request {cell(a.before_joules_per_request, a.joules_per_request, joules)}, with all that hosts take</span>}</div>
      <div class="scroll">
        <table class="plain stacks whatif-table">
          <thead><tr><th scope="col" class="name">Host</th><th scope="col" class="words">Power</th><th scope="col">Idle</th><th scope="col">Per used core</th></tr></thead>
          <tbody>
            {a.power.map((p) => (
              <tr key={p.host} data-host-power={p.host}>
                <th scope="row" class="name"><span class="name-text">{p.host}</span></th>
                {p.watts ? <><td class="words" data-label="power">{cell(p.before_watts, p.watts, watts)}</td><td data-label="idle">{watts(Math.max(0, p.idle_watts ?? 0))}</td><td data-label="per used core">{watts(p.watts_per_core ?? 0)}</td></> : <td class="words unknown" colSpan={3}>Cannot be told: {p.unknown}.</td>}
              </tr>
            ))}
            {a.watts && a.power.length > 1 && <tr data-host-power="all"><th scope="row" class="name"><span class="name-text">All hosts</span></th><td class="words" data-label="power">{cell(a.before_watts, a.watts, watts)}</td><td /><td /></tr>}
          </tbody>
        </table>
      </div>
    </section>
  )
}

/** How full something would be: the bar is the estimate, the line across it the bounds, and the mark what there is. */
function Used({ of }: { of: Interval }) {
  const bar = barOf(of)
  const full = 100 / SCALE
  return (
    <span class={bar.over ? 'used over' : 'used'} data-used={of.value} data-explain="whatif.then" tabindex={0}>
      <svg viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">
        <rect class="track" y="2" width={full} height="8" />
        <rect class={bar.over ? 'part-full' : 'part-0'} y="2" width={bar.value} height="8" />
        <rect class="bound" x={bar.low} y="5.4" width={Math.max(0.6, bar.high - bar.low)} height="1.2" />
        <rect class="bound" x={bar.low} y="3" width="0.6" height="6" />
        <rect class="bound" x={Math.min(99.4, bar.high)} y="3" width="0.6" height="6" />
        <rect class="all" x={full} width="0.7" height="12" />
      </svg>
      <span><strong>{percent(of.value)}</strong> <small>{usedBounds(of)}</small></span>
    </span>
  )
}

/** What if, in the panel of a container: it is asked only where it is open, because it reads all of the window. */
export function AskWhatIf({ node, state, change }: { node: Node; state: State; change: Change }) {
  return (
    <section class="group" data-ask>
      <h3>What if <button class="link" data-ask-open aria-expanded={Boolean(state.ask)} onClick={() => change({ ask: state.ask ? undefined : true })}>{state.ask ? 'close' : 'more load, replicas, another quota or host'}</button></h3>
      {state.ask && <Ask node={node} state={state} change={change} />}
    </section>
  )
}

function Ask({ node, state, change }: { node: Node; state: State; change: Change }) {
  const window = state.from === undefined ? `from=now-${state.window}s&to=now` : `from=${state.from}&to=${state.to}`
  const query = window + whatIfOf(state)
  const { data, error, loading } = useWhatIf(query, () => `/api/outsight/whatif?${query}`, state.from === undefined ? PERIOD : 0)
  const set = (kind: ChangedKind, value: string) => change({ changes: withChange(state.changes, kind, node.name, value) })
  const number = (kind: 'replicas' | 'quota', text: string) => text === '' || (Number(text) > 0 && (kind === 'quota' || Number.isInteger(Number(text))))
  const mine = data?.resources.find((r) => r.node === node.id)
  const other = state.changes.filter((c) => c[1].slice(0, c[1].lastIndexOf(':')) !== node.name)
  return (
    <div class="ask" aria-busy={loading}>
      <div class="ask-form">
        <Load state={state} change={change} />
        <label>Replicas <input class="few" type="number" min="1" step="1" name="ask-replicas" placeholder="as now" value={valueOf(state.changes, 'replicas', node.name)} onChange={(e) => number('replicas', e.currentTarget.value) && set('replicas', e.currentTarget.value)} /></label>
        <label>Quota, cores <input class="few" type="number" min="0.01" step="any" name="ask-quota" placeholder="as now" value={valueOf(state.changes, 'quota', node.name)} onChange={(e) => number('quota', e.currentTarget.value) && set('quota', e.currentTarget.value)} /></label>
        {(data?.hosts.length ?? 0) > 1 && (
          <label>On host
            <select name="ask-move" value={valueOf(state.changes, 'move', node.name)} onChange={(e) => set('move', e.currentTarget.value)}>
              <option value="" selected={valueOf(state.changes, 'move', node.name) === ''}>as now</option>
              {data!.hosts.filter((h) => h !== node.host).map((h) => <option key={h} value={h} selected={valueOf(state.changes, 'move', node.name) === h}>{h}</option>)}
            </select>
          </label>
        )}
      </div>
      {other.length > 0 && <p class="muted small">With {other.map(changeText).join(', ')}</p>}
      {error && <p class="inline-error" role="alert">{error}</p>}
      {!data && !error && <p class="muted small">Learning from the past…</p>}
      {data && !(error && !error.startsWith('The server ')) && (
        <>
          <Verdict a={data} state={state} change={change} />
          {data.entries[0]?.then && <p class="muted small" data-ask-entry>p99 at {data.entries[0].name}: {data.entries[0].before ? duration(data.entries[0].before.p99.value) : NONE} → <strong>{duration(data.entries[0].then.p99.value)}</strong> ({bounds(data.entries[0].then.p99, (v) => duration(v))})</p>}
          {mine ? <Mine r={mine} /> : <p class="muted small">No request from outside reached {node.name}: what it takes does not depend on the load, as far as is known.</p>}
          <p class="small"><button class="link" data-to-whatif onClick={() => change({ view: 'whatif' })}>All resources</button></p>
        </>
      )}
    </div>
  )
}

function Mine({ r }: { r: WhatIfResource }) {
  if (r.unknown) return <p class="state unsure" data-unknown>Cannot be told of {r.name}: {r.unknown}.</p>
  return (
    <dl class="numbers wide" data-mine>
      <div><dt>Now</dt><dd>{r.before ? <>{percent(r.before.value)} <small class="muted">{usedBounds(r.before)}</small></> : NONE}</dd></div>
      <div><dt>Then</dt><dd>{r.utilisation ? <Used of={r.utilisation} /> : NONE}</dd></div>
      <div><dt>Full at</dt><dd>{r.limit ? <>{format(r.limit.value, '/s')} <small class="muted">{limitBounds(r.limit)}</small></> : NONE}</dd></div>
      <div><dt>Of cores</dt><dd>{ofText(r)}</dd></div>
    </dl>
  )
}
