import { Middle } from './middle'
import { linesOf, LINES, numberOf, sureOf, timesOf, whatOf } from './changes'
import { useChanges } from './data'
import { EventsView } from './eventsview'
import { clock, span } from './format'
import { Period } from './header'
import { LinesNote, Spark, useLines } from './sparkview'
import { agoOf, edgeOf, nodeOf, short, type Change, type State } from './state'
import { useExplainer } from './tip'
import type { Changes, Graph } from './types'

interface Props {
  graph: Graph
  state: State
  change: Change
  /** What of the server's data to show, as a query string, its window alone, and how often to ask, in ms. */
  query: string
  window: string
  period: number
}

/** What changed from an earlier window to the shown one. */
export function ChangesView(p: Props) {
  const ago = agoOf(p.state)
  const query = p.query + (ago && `&ago=${ago}`)
  const { data, error } = useChanges(query, () => `/api/outsight/changes?${query}`, p.period)
  useExplainer(['change'], (key, of, element) => {
    const c = data?.changes.find((c) => (c.node ?? c.edge) === of && c.what === element.dataset.what)
    if (!c || !data) return undefined
    const at = (from: string, to: string) => `${clock(Date.parse(from) / 1000)} – ${clock(Date.parse(to) / 1000)}`
    return {
      title: `${whatOf(c)} · ${c.name}`,
      value: key === 'sure' ? sureOf(c) : `${numberOf(c, 'before')} → ${numberOf(c, 'after')}`,
      what: key === 'sure' ? SURE : 'the number in both windows, and how many times as much it is',
      error: c.what === 'p99' || c.what === 'mean' ? 'a p99 at most ±1.1 %; a mean none' : 'none: counted, not sampled',
      seen: `${span(data.before_completeness.covered_seconds)} before and ${span(data.completeness.covered_seconds)} after`,
      window: `${at(data.before_from, data.before_to)} against ${at(data.from, data.to)}`,
    }
  })
  return (
    <div class="changes">
      {error && <p class="inline-error" role="alert">{error}</p>}
      {!data && !error && <p class="note">Reading…</p>}
      {data && <Windows of={data} />}
      {data && missing(data) && <p class="note">Nothing was seen in the earlier time, so there is nothing to compare with.</p>}
      {data && !missing(data) && data.changes.length === 0 && <p class="note">Nothing changed by over a tenth.</p>}
      {data && !missing(data) && data.changes.length > 0 && <List {...p} of={data} />}
      <EventsView query={p.window} period={p.period} />
    </div>
  )
}

/** Whether there is nothing to compare with. */
const missing = (of: Changes): boolean => of.before_completeness.covered_seconds === 0

function Windows({ of }: { of: Changes }) {
  const range = (from: string, to: string): [number, number] => [Date.parse(from) / 1000, Date.parse(to) / 1000]
  const lack = ([['earlier', of.before_completeness], ['later', of.completeness]] as const).filter(([, c]) => c.covered_seconds > 0 && c.covered_seconds < 0.9 * c.window_seconds)
  return (
    <p class="path-summary" data-windows>
      From <Period range={range(of.before_from, of.before_to)} /> to <Period range={range(of.from, of.to)} />
      {missing(of) || <span class="muted">: {of.changes.length} changes, {of.changes.filter((c) => c.sure).length} of them sure</span>}
      {lack.map(([when, c]) => <small key={when} class="caveat">Of the {when} time, {span(c.covered_seconds)} were seen. Rates are of these.</small>)}
    </p>
  )
}

const SURE = 'Standard deviations of chance: of counts as of a Poisson process, of means and p99 by the spread of what was timed. From 3 on it is sure: chance does that once in 370 numbers. What is measured without chance has none.'

function List({ of, graph, state, change }: Props & { of: Changes }) {
  const chosen = nodeOf(graph, state.node)?.id ?? edgeOf(graph, state.edge)?.id
  const sparks = useLines(graph, `changes ${state.by}`, linesOf(of.changes, graph, state.by))
  return (
    <>
      <div class="scroll tall">
        <table class="plain" data-changes>
          <thead>
            <tr>
              <th scope="col" class="name">Of</th>
              <th scope="col" class="words">What changed</th>
              <th scope="col">Before</th>
              <th scope="col"><span class="hidden">to</span></th>
              <th scope="col">After</th>
              <th scope="col">Times</th>
              <th scope="col"><span class="explained" title={SURE}>How sure</span></th>
            </tr>
          </thead>
          <tbody>
            {of.changes.map((c) => {
              const id = (nodeOf(graph, c.node) ?? edgeOf(graph, c.edge))?.id
              const choose = id && (() => change({ node: c.node && short(id), edge: c.edge && short(id), status: undefined, chart: undefined }))
              return (
                <tr key={`${c.node ?? ''} ${c.edge ?? ''} ${c.what}`} class={`${choose ? 'pick' : ''}${id && id === chosen ? ' chosen' : ''}${c.sure ? '' : ' doubtful'}`} data-change={c.what} data-of={c.node ?? c.edge} onClick={choose || undefined}>
                  <th scope="row" class="name">{choose ? <button title={c.name}><Middle text={c.name} /></button> : <span class="name-text" title={c.name}><Middle text={c.name} /></span>}</th>
                  <td class="words">{whatOf(c)}</td>
                  <td data-explain="change.before" data-what={c.what}>{numberOf(c, 'before')}</td>
                  <td class="muted to">→</td>
                  <td data-explain="change.after" data-what={c.what}>{id && LINES[c.what] && <Spark values={sparks.lines.get(LINES[c.what]!)?.get(id)} />}{numberOf(c, 'after')}</td>
                  <td data-explain="change.times" data-what={c.what}>{timesOf(c)}</td>
                  <td data-explain="change.sure" data-what={c.what}>{sureOf(c)}</td>
                </tr>
              )
            })}
          </tbody>
        </table>
      </div>
      <LinesNote of={sparks} />
      <p class="map-foot muted">
        <span>
          {of.changes.some((c) => !c.sure) && 'Grey ones may be chance. '}Changes of less than a tenth are not listed.
          {of.omitted > 0 && ` ${of.omitted} less sure or lesser ones are left out.`}
        </span>
      </p>
    </>
  )
}
