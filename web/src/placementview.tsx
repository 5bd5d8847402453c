import { useEffect, useState } from 'preact/hooks'
import { usePlacement } from './data'
import { bytes, clock, digits, format, span } from './format'
import { Middle } from './middle'
import { Save } from './picture'
import { askedOf, bodyOf, changeOf, chipsOf, chosenOf, figuresOf, heatOf, hostOrder, keyOf, mappingOf, partsOf, percent, PRESET_NAMES, RULE_NAMES, ruleOf, ruleText, valueKind, way, type Box, type Chip } from './placement'
import { PRESETS, RULES, short, type Change, type Preset, type RuleKind, type State } from './state'
import { useExplainer } from './tip'
import type { HostUse, Placement, PlaceStep } from './types'

interface Props {
  state: State
  change: Change
  /** The window, as a query string. */
  window: string
}

/** How often a live placement is looked for anew, in ms: it is of a window, and people read it. */
const PERIOD = 60_000
/** How many moves, hosts and containers of a host are shown before somebody asks for all. */
const FEW_MOVES = 25
const FEW_HOSTS = 12
const FEW_CHIPS = 14

/** On which hosts containers would better run, and the moves that lead there. */
export function PlacementView({ state, change, window }: Props) {
  const query = window + askedOf(state)
  const { data, error, loading } = usePlacement(query, () => `/api/outsight/place?${query}`, state.from === undefined ? PERIOD : 0)
  // What the server answered is a reason; that it could not be reached leaves what is shown.
  const reason = error && !error.startsWith('The server ') ? error : undefined
  return (
    <div class="placement" data-placement={reason ? 'refused' : data ? 'there' : 'reading'}>
      <Asked state={state} change={change} data={data} loading={loading} />
      {error && !reason && <p class="inline-error pad" role="alert">{error}</p>}
      {reason ? <Refused reason={reason} state={state} change={change} /> : !data ? !error && <p class="note">Looking for a better placement…</p> : data.hosts.length === 1 ? <OneHost a={data} /> : <Found a={data} state={state} change={change} />}
    </div>
  )
}

/** What is asked for: what it is to be good for, and rules. */
function Asked({ state, change, data, loading }: { state: State; change: Change; data?: Placement; loading: boolean }) {
  const [kind, setKind] = useState<RuleKind>('apart')
  const [names, setNames] = useState('')
  const [hosts, setHosts] = useState('')
  const [why, setWhy] = useState('')
  const value = valueKind(kind)
  const add = (e: Event) => {
    e.preventDefault()
    const { text, why } = ruleOf(kind, names, hosts)
    setWhy(why ?? '')
    if (text === undefined) return
    change({ rules: [...state.rules.filter(([k, t]) => k !== kind || t !== text), [kind, text]] })
    setNames('')
    setHosts('')
  }
  const movable = [...new Set((data?.containers ?? []).filter((c) => !c.of_host).map((c) => c.name))].sort()
  return (
    <>
      <form class="view-bar" onSubmit={add} aria-label="What is looked for">
        <label>
          Look for
          <select name="preset" value={state.preset} onChange={(e) => change({ preset: e.currentTarget.value as Preset, without: [] })}>
            {PRESETS.map((p) => <option key={p} value={p} selected={state.preset === p}>{PRESET_NAMES[p]}</option>)}
          </select>
        </label>
        <span class="rule-form">
          <label>
            Rule
            <input name="names" list={kind === 'host_label' ? 'place-hosts' : 'place-names'} placeholder={kind === 'host_label' ? 'host-1' : kind === 'together' || kind === 'apart' ? 'cart,redis or db-*' : 'container, or db-*'} value={names} spellcheck={false} onInput={(e) => setNames(e.currentTarget.value)} />
          </label>
          <select name="rule" aria-label="What the rule says" value={kind} onChange={(e) => setKind(e.currentTarget.value as RuleKind)}>
            {RULES.map((k) => <option key={k} value={k} selected={kind === k}>{RULE_NAMES[k]}</option>)}
          </select>
          {value && <input name="hosts" aria-label={value === 'hosts' ? 'Hosts of the rule' : 'Labels of the rule'} list={value === 'hosts' ? 'place-hosts' : 'place-labels'} placeholder={value === 'hosts' ? 'host-1,host-2' : 'disk=ssd'} value={hosts} spellcheck={false} onInput={(e) => setHosts(e.currentTarget.value)} />}
          <button class="toggle" type="submit" data-add-rule>Add rule</button>
        </span>
        <datalist id="place-names">{movable.map((n) => <option key={n} value={n} />)}</datalist>
        <datalist id="place-hosts">{data?.hosts.map((h) => <option key={h.name} value={h.name} />)}</datalist>
        <datalist id="place-labels">{[...new Set((data?.hosts ?? []).flatMap((h) => Object.entries(h.labels ?? {}).map((l) => l.join('='))))].sort().map((l) => <option key={l} value={l} />)}</datalist>
        {why && <span class="lack" role="alert" data-rule-error>{why}</span>}
        {loading && data && <span class="muted" role="status">Looking…</span>}
      </form>
      {state.rules.length > 0 && (
        <ul class="rules" aria-label="Rules">
          {state.rules.map((rule) => {
            const text = ruleText(rule)
            return <li key={rule.join()} class="rule" data-rule={rule[0]}>{text}<button class="quiet" aria-label={`Drop the rule: ${text}`} title="Drop this rule" onClick={() => change({ rules: state.rules.filter((r) => r.join() !== rule.join()) })}>×</button></li>
          })}
        </ul>
      )}
    </>
  )
}

const INFEASIBLE = 'no placement keeps the rules: '

/** Why there is no answer, and what can be done. */
function Refused({ reason, state, change }: { reason: string; state: State; change: Change }) {
  const infeasible = reason.startsWith(INFEASIBLE)
  const text = infeasible ? reason.slice(INFEASIBLE.length) : reason
  return (
    <section class="note" role="alert" data-refused={infeasible ? 'infeasible' : 'other'}>
      <h2>{infeasible ? 'No placement keeps these rules' : /nothing to place/.test(reason) ? 'There is nothing to place' : 'This cannot be placed'}</h2>
      <p>{text[0]!.toUpperCase() + text.slice(1)}.</p>
      {state.rules.length > 0 ? <p><button class="link" onClick={() => change({ rules: [] })}>Look without the rules</button></p> : /no host was seen/.test(reason) ? <p>Choose another time, or see under <button class="link" onClick={() => change({ view: 'hosts' })}>Hosts</button> whose agents were heard.</p> : null}
    </section>
  )
}

function OneHost({ a }: { a: Placement }) {
  return (
    <section class="note" data-one-host>
      <h2>There is one host: {a.hosts[0]!.name}</h2>
      <p>{a.containers.filter((c) => !c.pinned).length} containers could move, and there is nowhere else. A placement is of the hosts that a server knows: agents send to it with <code>outsight-agent --server URL</code>.</p>
    </section>
  )
}

function Found({ a, state, change }: { a: Placement; state: State; change: Change }) {
  const chosen = chosenOf(a, state.without)
  const all = chosen.length === a.moves.length
  const body = bodyOf(a, chosen)
  // Of the window of the answer, so that the figures are of the same time.
  const query = `from=${a.from}&to=${a.to}${askedOf(state)}`
  const some = usePlacement(all ? '' : query + body, () => `/api/outsight/place?${query}`, 0, body)
  const shown = all ? a : some.data && sameMoves(some.data, chosen) && some.data.from === a.from ? some.data : undefined
  const last = useLast(shown ?? a)
  const of = shown ?? last
  useExplainer(['place'], (key) => {
    const f = figuresOf(a).find((f) => f.key === key)
    return f && { title: f.title, value: `${f.text(a.before)} now, ${f.text(of.after)} then`, what: f.what, error: 'use and traffic are taken for unchanged by the moves', window: `${clock(Date.parse(a.from) / 1000)} – ${clock(Date.parse(a.to) / 1000)}, ${span(a.covered_seconds)} seen` }
  })
  return (
    <div class={shown ? undefined : 'stale'} aria-busy={!shown} data-figures-of={shown ? chosen.length : undefined}>
      {!all && some.error && <p class="inline-error pad" role="alert">{some.error}</p>}
      <Verdict a={of} left={a.moves.length - chosen.length} />
      <dl class="place-figures" aria-label="Now and then">
        {figuresOf(a).map((f) => (
          <div key={f.key} class={`tile ${way(f, a.before, of.after)}`} data-figure={f.key}>
            <dt>{f.title}</dt>
            <dd data-explain={`place.${f.key}`} tabindex={0}><span class="muted" data-now>{f.text(a.before)}</span> <span aria-hidden="true" class="arrow">→</span><span class="hidden"> now, then </span> <strong data-then>{f.text(of.after)}</strong></dd>
          </div>
        ))}
      </dl>
      {a.full && <p class="state warm place-state" data-full>The headroom of {percent(a.headroom)} is not kept, and each host may stay as full as it is: {a.full}.</p>}
      {a.broken?.map((text) => <p key={text} class="state unsure place-state" data-broken>Broken now: {text}.</p>)}
      {of.broken_after?.map((text) => <p key={text} class="state hot place-state" data-broken-after>Broken then: {text}.</p>)}
      {a.moves.length > 0 && <Moves a={a} shown={of} chosen={chosen} state={state} change={change} />}
      {(of.kept?.length ?? 0) > 0 && <KeptByRules a={of} />}
      {a.moves.length > 0 && <Mapping a={a} shown={of} change={change} />}
      <Hosts a={a} shown={of} change={change} />
      <div class="place-foot">
        <span class="saves" role="group" aria-label="Save the chosen moves">
          {FORMATS.map(([format, file, what, title]) => <Save key={format} path={`/api/outsight/place?${query}&format=${format}`} file={file} what={what} title={title} body={all ? undefined : body} />)}
        </span>
        <p class="muted small">{worth(a)} Nothing is moved by this page. Use and traffic are taken for unchanged.</p>
      </div>
    </div>
  )
}

const FORMATS = [
  ['json', 'outsight-placement.json', 'JSON', 'All figures, moves, hosts and containers'],
  ['kubernetes', 'outsight-kubernetes.yaml', 'Kubernetes patches', 'Strategic merge patches of the Deployments and StatefulSets that move: node affinity and topology spread'],
  ['compose', 'outsight-compose.yaml', 'Compose', 'Constraints for a stack on Docker Swarm: on which node each service is to run'],
  ['network-aware', 'outsight-network-aware.yaml', 'AppGroup and NetworkTopology', 'Measured bandwidths and delays for Kubernetes’ scheduler plugins TopologicalSort and NetworkOverhead'],
] as const

/** How far from the best the answer can be. */
const worth = (a: Placement): string => (a.search === 'exact' && a.gap < 1e-9 ? 'All placements were tried: this is the best for what is looked for.' : `Cost ${a.after.cost.toFixed(4)}; no placement that keeps the rules can cost less than ${a.bound.toFixed(4)}.`)

const sameMoves = (a: Placement, steps: PlaceStep[]): boolean => a.moves.length === steps.length && a.moves.every((s, i) => s.moves[0]?.container === steps[i]!.moves[0]!.container)

/** The last value that was there, while the next one is not. */
function useLast<T>(value: T): T {
  const [last, set] = useState(value)
  useEffect(() => set(value), [value])
  return last
}

/** What to do first and what that gains, at a glance. */
function Verdict({ a, left }: { a: Placement; left: number }) {
  const first = a.moves[0]
  if (!first) {
    const [title, kind] = left > 0 ? ['No move is chosen', 'same'] : a.broken?.length ? ['The rules are broken, and no move that helps was found', 'worse'] : ['Nothing that moves is worth it', 'good']
    return <div class={`verdict ${kind}`} data-verdict><h2>{title}</h2>{left === 0 && !a.broken?.length && <p>What runs where it does is as good as any other placement that was found.</p>}</div>
  }
  const names = first.moves.slice(0, 3)
  return (
    <div class="verdict" data-verdict>
      <h2>
        Move {names.map((m, i) => <>{i > 0 && ', '}<strong>{m.name}</strong> to <strong>{m.to}</strong></>)}{first.moves.length > 3 && ` and ${first.moves.length - 3} more`}
        {first.after && <>: <Gain parts={partsOf(a.before, first.after)} /></>}
      </h2>
      {a.moves.length > 1 && <p>All {a.moves.length} {left > 0 ? 'chosen ' : ''}moves: <Gain parts={partsOf(a.before, a.after)} /></p>}
    </div>
  )
}

/** What changes: the first of it is what matters most, and good where it is less. */
function Gain({ parts: [first, ...others] }: { parts: string[] }) {
  return <><span class={first!.startsWith('−') ? 'gain' : undefined}>{first}</span>{others.length > 0 && <span class="others">, {others.join(', ')}</span>}</>
}

/** The moves in order, each with a check box. */
function Moves({ a, shown, chosen, state, change }: { a: Placement; shown: Placement; chosen: PlaceStep[]; state: State; change: Change }) {
  const [many, setMany] = useState(false)
  const steps = many ? a.moves : a.moves.slice(0, FEW_MOVES)
  const turn = (step: PlaceStep, on: boolean) => {
    const key = keyOf(a, step)
    change({ without: on ? state.without.filter((k) => k !== key) : [...state.without.filter((k) => k !== key), key] }, true)
  }
  // What a step changes is told after those before it that are chosen.
  let before = shown.before
  return (
    <section class="place-moves" aria-labelledby="place-moves">
      <div class="bar-row">
        <h2 id="place-moves">Moves</h2>
        <span class="muted">{chosen.length === a.moves.length ? `${a.moves.length}, those that gain most first` : `${chosen.length} of ${a.moves.length} chosen`}</span>
        {state.without.length > 0 && chosen.length < a.moves.length && <button class="link" data-all-moves onClick={() => change({ without: [] })}>Choose all</button>}
        {chosen.length > 0 && <button class="link" data-no-moves onClick={() => change({ without: a.moves.map((s) => keyOf(a, s)) })}>Choose none</button>}
      </div>
      <ol class="moves">
        {steps.map((step, n) => {
          const at = chosen.indexOf(step)
          const after = at < 0 ? undefined : shown.moves[at]?.after
          const text = after ? changeOf(before, after) + (chosen.length === a.moves.length && step.gain < 0 ? ' (for the sake of a later one)' : '') : at < 0 ? 'not chosen' : ''
          if (after) before = after
          return (
            <li key={keyOf(a, step)} class={at < 0 ? 'off' : undefined}>
              <label>
                <span class="move-number muted">{n + 1}.</span>
                <input type="checkbox" name="move" checked={at >= 0} data-step={n} onChange={(e) => turn(step, e.currentTarget.checked)} />
                <span class="move-name">{step.moves.map((m, i) => <span key={m.container}>{i > 0 && <span class="muted">with </span>}<strong>{m.name}</strong> <span class="muted">{m.from} → </span>{m.to} </span>)}</span>
                <span class="move-gain" data-gain>{text}</span>
              </label>
            </li>
          )
        })}
      </ol>
      {a.moves.length > steps.length && <p class="pad"><button class="link" onClick={() => setMany(true)}>Show all {a.moves.length} moves</button></p>}
    </section>
  )
}

/** What rules keep where it is, although another host would be better. */
function KeptByRules({ a }: { a: Placement }) {
  return (
    <section class="place-moves" aria-labelledby="place-kept" data-kept>
      <div class="bar-row">
        <h2 id="place-kept">Kept by rules</h2>
        <span class="muted small">although another host would be better</span>
      </div>
      <ul class="kept">
        {a.kept!.map((k) => (
          <li key={k.container} data-kept-container={k.name}>
            <strong>{k.name}</strong> <span class="muted">on {k.host}:</span> it {k.rule} <span class="muted">(cost on {k.to}: −{k.gain.toFixed(4)})</span>
          </li>
        ))}
        {a.kept_omitted && <li class="muted">and {a.kept_omitted} more</li>}
      </ul>
    </section>
  )
}

/** The mapping drawn: hosts as boxes, now on the left and then on the right, and the way of each container that moves. */
function Mapping({ a, shown, change }: { a: Placement; shown: Placement; change: Change }) {
  const [lit, setLit] = useState<number>()
  const order = hostOrder(a, shown).slice(0, FEW_HOSTS)
  const m = mappingOf(a, shown.placement, order)
  const side = (boxes: Box[], x: number, when: 'now' | 'then') => boxes.map((b) => (
    <g key={b.host} data-box={b.host} data-when={when}>
      <rect class="map-box" x={x} y={b.y + 0.5} width={BOX} height={b.height - 1} rx="5" />
      <text class="map-host" x={x + 10} y={b.y + 17}>{shortened(b.host)}</text>
      {b.spots.map((s) => {
        const open = () => change({ node: short(a.containers[s.index]!.id), edge: undefined, status: undefined, chart: undefined, by: 'container' })
        const label = s.other ? `${s.name}, on ${b.host} ${when}, ${when === 'now' ? 'moves to' : 'came from'} ${s.other}` : `${s.name}, on ${b.host} ${when}`
        return (
          <g key={s.index} class={`map-spot${s.other ? ` moved ${when}` : ''}${lit === s.index ? ' lit' : ''}`} data-spot={s.name} role="button" tabindex={0} aria-label={label} onClick={open} onKeyDown={(e) => (e.key === 'Enter' || e.key === ' ') && (e.preventDefault(), open())} onFocus={() => setLit(s.index)} onBlur={() => setLit(undefined)} onMouseEnter={() => setLit(s.index)} onMouseLeave={() => setLit(undefined)}>
            <title>{label}</title>
            <rect x={x + 6} y={s.y - 9} width={BOX - 12} height="18" rx="3" />
            <text x={x + 12} y={s.y + 4}>{shortened(s.name)}</text>
          </g>
        )
      })}
      {b.more > 0 && <text class="map-more" x={x + 12} y={b.y + b.height - 8}>and {b.more} more that stay</text>}
    </g>
  ))
  return (
    <section class="place-moves" aria-labelledby="place-map" data-mapping>
      <div class="bar-row">
        <h2 id="place-map">Mapping</h2>
        <span class="muted small">{m.ways.length === 1 ? '1 container moves' : `${m.ways.length} containers move`}{a.hosts.length > order.length && `; the ${order.length} hosts that change most`}</span>
      </div>
      <div class="scroll pad">
        <svg class="mapping" width={WIDE} height={m.height + 22} viewBox={`0 -22 ${WIDE} ${m.height + 22}`} role="group" aria-label={`Where containers run now and then: ${m.ways.length} move`}>
          <text class="map-head" x="0" y="-8">Now</text>
          <text class="map-head" x={WIDE - BOX} y="-8">Then</text>
          {m.ways.map((w) => <path key={w.index} class={lit === w.index ? 'map-way lit' : 'map-way'} data-way={a.containers[w.index]!.name} d={`M${BOX - 6} ${w.from} C${WIDE / 2} ${w.from} ${WIDE / 2} ${w.to} ${WIDE - BOX + 6} ${w.to}`} />)}
          {side(m.now, 0, 'now')}
          {side(m.then, WIDE - BOX, 'then')}
        </svg>
      </div>
    </section>
  )
}

/** Widths of the drawn mapping and of its boxes, in pixels, and how many characters fit into one. */
const WIDE = 760
const BOX = 250
const FIT = 32
const shortened = (name: string): string => (name.length > FIT ? `${name.slice(0, FIT / 2 - 1)}…${name.slice(-FIT / 2)}` : name)

/** The hosts now and then, side by side. */
function Hosts({ a, shown, change }: { a: Placement; shown: Placement; change: Change }) {
  const [many, setMany] = useState(false)
  const order = hostOrder(a, shown)
  const now = a.containers.map((c) => c.host)
  const [before, after] = [chipsOf(a, now, shown.placement), chipsOf(a, shown.placement, now)]
  return (
    <section class="place-hosts" aria-labelledby="place-hosts-title">
      <div class="bar-row">
        <h2 id="place-hosts-title">Hosts</h2>
        <p class="legend"><span><i class="heat-key" aria-hidden="true" />mean, darker where fuller</span><span><i class="peak-key" aria-hidden="true" />all peaks at once</span></p>
      </div>
      <div class="host-pairs" role="table" aria-label="Hosts now and then">
        <div class="pair head" role="row"><span role="columnheader">Host</span><span role="columnheader">Now</span><span role="columnheader">Then</span></div>
        {order.slice(0, many ? undefined : FEW_HOSTS).map((h) => {
          const host = a.hosts[h]!
          return (
            <div key={host.name} class="pair" role="row" data-pair={host.name}>
              <div role="rowheader"><strong><Middle text={host.name} /></strong><span class="muted small">{digits(host.cores)} cores · {bytes(host.memory_bytes)}</span></div>
              <Cell host={host} use={a.hosts_before[h]!} of={before[h]!} when="now" change={change} />
              <Cell host={host} use={shown.hosts_after[h]!} of={after[h]!} when="then" change={change} />
            </div>
          )
        })}
      </div>
      {!many && order.length > FEW_HOSTS && <p class="pad"><button class="link" onClick={() => setMany(true)}>Show all {order.length} hosts</button></p>}
    </section>
  )
}

function Cell({ host, use, of, when, change }: { host: Placement['hosts'][number]; use: HostUse; of: { chips: Chip[]; ofHost: number }; when: 'now' | 'then'; change: Change }) {
  const [many, setMany] = useState(false)
  const chips = many ? of.chips : of.chips.slice(0, Math.max(FEW_CHIPS, of.chips.filter((c) => c.other).length))
  return (
    <div class="host-cell" role="cell" data-when={when}>
      <span class="when-name muted small">{when === 'now' ? 'Now' : 'Then'}</span>
      <Heat title="CPU" share={use.cpu_cores.mean / host.cores} peak={use.cpu_cores.peak / host.cores} text={`${format(use.cpu_cores.mean, 'cores')} cores`} />
      <Heat title="Memory" share={use.memory_bytes / host.memory_bytes} text={bytes(use.memory_bytes)} />
      <div class="chips">
        {chips.map((c) => (
          <button key={c.index} class={`chip${c.other ? ` moved ${when}` : ''}${c.container.pinned ? ' pinned' : ''}`} data-chip={c.container.name} title={[c.container.name, c.container.pinned && `may not move: it ${c.container.pinned}`, ...(c.container.rules ?? []), `${format(c.container.cpu_cores.mean, 'cores')} cores, ${bytes(c.container.memory_bytes.peak)}`].filter(Boolean).join('\n')}
            onClick={() => change({ node: short(c.container.id), edge: undefined, status: undefined, chart: undefined, by: 'container' })}>
            {c.container.name}{c.other && <span class="to-host"> {when === 'now' ? `→ ${c.other}` : `← ${c.other}`}</span>}
          </button>
        ))}
        {of.chips.length > chips.length && <button class="chip link" onClick={() => setMany(true)}>and {of.chips.length - chips.length} more</button>}
        {of.chips.length === 0 && <span class="muted small">{of.ofHost ? 'nothing but its own' : 'nothing'}</span>}
        {of.ofHost > 0 && <span class="muted small" title="Services of the host, DaemonSets, and what runs in no container">+ {of.ofHost} of the host</span>}
      </div>
    </div>
  )
}

/** How full a host is: the longer and the darker, the fuller. */
function Heat({ title, share, peak, text }: { title: string; share: number; peak?: number; text: string }) {
  return (
    <div class="heat-bar">
      <span class="muted small">{title}</span>
      <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
        <rect class="track" width="100" height="10" />
        <rect class={share > 0.9 ? 'part-full' : `step-${heatOf(share)}`} width={100 * Math.min(1, share)} height="10" />
        {peak !== undefined && <rect class="peak" x={Math.min(99, 100 * peak)} width="1" height="10" />}
      </svg>
      <span title={peak === undefined ? text : `${text}; ${percent(peak)} with all peaks at once`}>{percent(share)}</span>
    </div>
  )
}
