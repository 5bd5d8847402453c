import { useEffect, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { AGAIN, load, POINTS, type Chart as Data } from './data'
import { digits, format, span } from './format'
import { drawable } from './spark'
import type { Grouping } from './state'
import { colour } from './theme'
import type { NumberInfo } from './types'

/** One line of a chart. */
export interface ChartLine {
  name: string
  /** The path of its number, as "client.p99". */
  number: string
  /** PromQL that tells nearly the same, with $window in place of the window of rates; empty or absent where there is none. */
  query?: string
}

/** What a chart is of: a node, an edge, or an endpoint of an edge. */
export interface ChartOf {
  node?: string
  edge?: string
  /** As "http GET /". */
  endpoint?: string
  by: Grouping
  /** The hosts that are enough for it; undefined where that is not known. */
  hosts?: string[]
}

/** The request of a chart. */
export function chartPath(of: ChartOf, numbers: string[], [from, to]: [number, number], points = POINTS): string {
  const p = new URLSearchParams({ numbers: numbers.join(), from: String(from), to: String(to), points: String(points) })
  for (const key of ['node', 'edge'] as const) if (of[key]) p.set(key, of[key])
  if (of.endpoint) p.set('endpoint', of.endpoint)
  if (of.by !== 'container') p.set('by', of.by)
  for (const host of of.hosts ?? []) p.append('host', host)
  return '/api/outsight/chart?' + p
}

interface Props {
  title: string
  unit: NumberInfo['unit']
  of: ChartOf
  lines: ChartLine[]
  range: [number, number]
  theme: string
  /** The greatest relative error of a quantile that is the middle of its bucket. */
  bound: number
  zoom: (from: number, to: number) => void
  /** Absent where it cannot be closed. */
  close?: () => void
  /** Lines are parts of a whole: each is drawn on top of those before it. */
  stacked?: boolean
  /** How many points it has at most. */
  points?: number
}

const COLOURS = ['--line-1', '--line-2']
const PARTS = ['--part-0', '--part-1', '--part-2', '--part-3']

/** A number over the range; dragging across it zooms the whole page into that time. */
export function Chart({ title, unit, of, lines, range, theme, bound, zoom, close, stacked, points: most = POINTS }: Props) {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | undefined>(undefined)
  const [loaded, set] = useState<{ of: string; data: Data }>()
  const [error, setError] = useState('')
  const [tries, again] = useState(0)
  const zoomed = useRef(zoom)
  zoomed.current = zoom
  const path = chartPath(of, lines.map((l) => l.number), range, most)
  const key = chartPath(of, lines.map((l) => l.number), [0, 0], most)
  // What was read of another node is not of this one.
  const data = loaded?.of === key ? loaded.data : undefined
  const step = data?.step_seconds ?? 0
  const rates = Math.max(10, Math.round(2 * step))
  const queries = lines.flatMap((l) => (l.query ? { name: l.name, text: l.query.replaceAll('$window', `${rates}s`) } : []))

  useEffect(() => {
    const stop = new AbortController()
    let timer = 0
    load<Data>(path, stop.signal)
      .then((d) => {
        if (stop.signal.aborted) return
        set({ of: key, data: d })
        setError('')
      })
      .catch((e: Error) => {
        if (stop.signal.aborted) return
        setError(e.message)
        timer = window.setTimeout(() => again((n) => n + 1), AGAIN)
      })
    return () => {
      stop.abort()
      clearTimeout(timer)
    }
  }, [path, tries])

  const own = useRef<(number | null)[][]>([])
  const values = (d: Data): uPlot.AlignedData => {
    own.current = lines.map((l) => [...drawable(d.lines[l.number] ?? d.times.map(() => null))])
    return [d.times, ...(stacked ? stack(own.current) : own.current)]
  }
  useEffect(() => {
    const element = box.current
    if (!element || !data) return
    const ink = colour('--muted')
    const grid = { stroke: colour('--grid'), width: 1 }
    const write = (v: number | null | undefined) => (v == null ? '–' : format(v, unit))
    const u = new uPlot(
      {
        width: element.clientWidth,
        height: 210,
        series: [
          { value: (_, t) => (t == null ? '' : new Date(t * 1000).toLocaleTimeString('en-GB')) },
          ...lines.map((l, i) => ({
            label: l.name,
            stroke: colour((stacked ? PARTS : COLOURS)[i]!),
            width: stacked ? 1 : 1.8,
            fill: stacked ? shade(colour(PARTS[i]!)) : lines.length === 1 ? colour('--line-fill') : undefined,
            points: { show: false },
            value: (_: uPlot, v: number | null, __: number, at: number | null) => write(stacked && at !== null ? own.current[i]![at] : v),
          })),
        ],
        // The colour of a part ends at the part below it.
        bands: stacked ? lines.slice(1).map((_, i) => ({ series: [i + 2, i + 1] as [number, number] })) : [],
        axes: [
          { stroke: ink, grid, ticks: grid, font: '11px system-ui', values: (u, ts) => ts.map((t) => time(t, u.scales.x!.max! - u.scales.x!.min!)), space: 52 },
          { stroke: ink, grid, ticks: grid, font: '11px system-ui', size: 68, values: (_, vs) => vs.map((v) => (v === 0 ? '0' : unit === 'cores' ? digits(v) : format(v, unit))) },
        ],
        scales: { x: { time: true }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 0) > 0 ? high * 1.08 : 1] } },
        cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 7 } },
        hooks: {
          // Without a cursor the legend shows the newest values.
          setCursor: [(u) => u.cursor.idx == null && u.setLegend({ idx: u.data[0].length - 1 }, false)],
          setSelect: [
            (u) => {
              if (u.select.width < 6) return
              const [a, b] = [u.posToVal(u.select.left, 'x'), u.posToVal(u.select.left + u.select.width, 'x')]
              u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
              if (b - a >= 2) zoomed.current(a, b)
            },
          ],
        },
      },
      values(data),
      element,
    )
    plot.current = u
    u.setLegend({ idx: data.times.length - 1 }, false)
    const watch = new ResizeObserver(() => u.setSize({ width: element.clientWidth, height: 210 }))
    watch.observe(element)
    return () => {
      watch.disconnect()
      u.destroy()
      plot.current = undefined
    }
  }, [data === undefined, key, unit, theme])

  useEffect(() => {
    const u = plot.current
    if (!data || !u) return
    u.setData(values(data))
    if (u.cursor.idx == null) u.setLegend({ idx: data.times.length - 1 }, false)
  }, [data])

  const points = data ? values(data).slice(1).reduce((n, column) => n + [...column].filter((v) => v !== null).length, 0) : 0
  return (
    <section class="chart" aria-label={`Chart of ${title}`}>
      <div class="chart-head">
        <h3>{title}</h3>
        {close && <button class="quiet" aria-label="Close the chart" onClick={close}>×</button>}
      </div>
      {error && <p class="inline-error" role="alert" data-chart-error>{data ? `It could not be read anew: ${error}` : error}</p>}
      {!data && !error && <p class="muted chart-empty">Reading…</p>}
      {data && points === 0 && <p class="muted chart-empty">No value in this time.</p>}
      <div class="plot" ref={box} data-points={points} />
      {data && <p class="muted small">One point per {span(step)}, each of that time. Drag across to zoom.</p>}
      {lines.some((l) => /[._]p\d+$/.test(l.number)) && <p class="muted small" data-bound>A point is off by at most ±{percent(bound)}.</p>}
      {stacked && queries.length > 0 && (
        <details class="query">
          <summary>PromQL</summary>
          {queries.map((q) => <code key={q.name}>{`# ${q.name}\n${q.text}`}</code>)}
        </details>
      )}
      {!stacked && queries.map((q) => (
        <details key={q.name} class="query">
          <summary>PromQL{queries.length > 1 ? ` · ${q.name}` : ''}</summary>
          <code>{q.text}</code>
        </details>
      ))}
    </section>
  )
}

/** Each line on top of those before it; where one has no value none has. */
export function stack(lines: (number | null)[][]): (number | null)[][] {
  const whole = (lines[0] ?? []).map((_, i) => lines.every((l) => l[i] != null))
  let sum: number[] = whole.map(() => 0)
  return lines.map((l) => {
    sum = sum.map((below, i) => below + (l[i] ?? 0))
    return sum.map((v, i) => (whole[i] ? v : null))
  })
}

/** A colour that lets the grid through. */
const shade = (rgb: string): string => rgb.replace('rgb(', 'rgba(').replace(')', ', 0.45)')

const percent = (v: number) => `${(v * 100).toFixed(1)} %`

function time(t: number, width: number): string {
  const text = new Date(t * 1000).toLocaleTimeString('en-GB')
  return width > 3600 * 36 ? new Date(t * 1000).toLocaleDateString('en-GB', { day: 'numeric', month: 'short' }) + ' ' + text.slice(0, 5) : width > 1800 ? text.slice(0, 5) : text
}
