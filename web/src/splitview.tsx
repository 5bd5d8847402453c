import { Chart, chartPath, type ChartOf } from './chart'
import { useChart } from './data'
import { digits, duration, format } from './format'
import { grewText, partsOf, splitLines, type WayPart } from './split'
import { ENDS_MEANING } from './numbers'
import type { Edge, NumberInfo, Seconds, Split } from './types'

interface Props {
  split: Split
  /** By how much the network there and back may be wrong, of ends on two hosts. */
  error?: Seconds
  of: ChartOf
  numbers: NumberInfo[]
  /** The matchers of the edge's series; absent where there are none. */
  match?: string
  range: [number, number]
  theme: string
  bound: number
  zoom: (from: number, to: number) => void
}

/** Where the time of an edge's requests goes: a bar of its parts, what each is, how they went, and which one grew. */
export function SplitView({ split, error, of, numbers, match, range, theme, bound, zoom }: Props) {
  const parts = partsOf(split)
  const lines = splitLines(split).map((l) => ({ ...l, query: match && numbers.find((n) => l.number === `ends.${n.key}`)?.query.replaceAll('$match', match) }))
  return (
    <section class="group" data-split>
      <h3>Where the time goes <span class="muted">· mean, up to the first byte of a reply</span></h3>
      <svg class="stack" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={parts.map((p) => `${p.title} ${digits(p.share * 100)} %`).join(', ')}>
        {parts.map((p, i) => <rect key={p.key} class={`part-${i}`} x={p.from * 100} width={p.share * 100} height="10" />)}
      </svg>
      <ul class="host-parts">
        {parts.map((p, i) => (
          <li key={p.key} class="part" title={p.meaning}>
            <i class={`swatch part-${i}`} aria-hidden="true" /><span class="part-name">{p.title}</span><span class="part-value">{duration(p.seconds)} · {digits(p.share * 100)} %</span>
          </li>
        ))}
      </ul>
      {error !== undefined && split.network_there_seconds !== undefined && <p class="muted small" data-split-error>Network there and back ±{duration(error)}, of the last 10 s: the hosts have clocks of their own. No clock is in their sum.</p>}
      {split.network_both_seconds !== undefined && <p class="muted small" data-split-error>Network of the last 10 s. The clocks of the two hosts do not tell there from back.</p>}
      <Grew split={split} of={of} range={range} />
      <Chart title="Over time" unit="s" of={of} lines={lines} range={range} theme={theme} bound={bound} zoom={zoom} points={SPLIT_POINTS} stacked />
    </section>
  )
}

/** A bar of the parts of the way there or back, and what each is. */
export function Way({ way, parts }: { way: 'there' | 'back'; parts?: WayPart[] }) {
  if (!parts) return null
  return (
    <div data-way={way}>
      <svg class="stack" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={`The way ${way}: ${parts.map((p) => `${p.title} ${digits(p.share * 100)} %`).join(', ')}`}>
        {parts.map((p, i) => <rect key={p.key} class={`part-${i}`} x={p.from * 100} width={p.share * 100} height="10" />)}
      </svg>
      <ul class="host-parts">
        {parts.map((p, i) => (
          <li key={p.key} class="part" title={ENDS_MEANING[p.key]}>
            <i class={`swatch part-${i}`} aria-hidden="true" /><span class="part-name">{p.title} {way}</span><span class="part-value">{duration(p.seconds)} · {digits(p.share * 100)} %</span>
          </li>
        ))}
      </ul>
    </div>
  )
}

/** It is there with each panel, and read anew with it: a quarter of what a chart has that somebody asked for. */
const SPLIT_POINTS = 60

/** Which part grew against the time before, as long as the one that is shown. */
function Grew({ split, of, range: [from, to] }: { split: Split; of: ChartOf; range: [number, number] }) {
  const lines = splitLines(split)
  const path = chartPath(of, lines.map((l) => l.number), [from - (to - from), from], 1)
  const { data, error } = useChart(path)
  if (error) return <p class="inline-error" role="alert">What it was before could not be read: {error}</p>
  if (!data) return <p class="muted small">Reading what it was before…</p>
  const before = Object.fromEntries(lines.map((l) => [l.number.slice('ends.'.length), data.lines[l.number]?.at(-1) ?? undefined])) as Partial<Split>
  return <p class="small" data-grew>{grewText(split, before, to - from) ?? 'What it was in the time before is not known.'}</p>
}

/** What packets lost, in words; undefined where that is not known. */
export function lostText({ network: n }: Edge): string | undefined {
  if (n?.lost_there === undefined || n.lost_back === undefined) return undefined
  if (n.lost_there + n.lost_back === 0) return 'No packet was lost on the way.'
  return `Lost on the way: ${format(n.lost_there, '')} packets there, ${format(n.lost_back, '')} back.`
}
