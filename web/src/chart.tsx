import { useEffect, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { AGAIN, loadChart, stepOf, type Chart as Data, type Line } from './data'
import { digits, format, span } from './format'
import { colour } from './theme'
import type { NumberInfo } from './types'

interface Props {
  title: string
  unit: NumberInfo['unit']
  /** Lines whose queries have $window in place of the window of rates. */
  lines: Line[]
  range: [number, number]
  theme: string
  /** The greatest relative error of a quantile that is the middle of its bucket. */
  bound: number
  zoom: (from: number, to: number) => void
  close: () => void
}

const COLOURS = ['--line-1', '--line-2']

/** A number over the range; dragging across it zooms the whole page into that time. */
export function Chart({ title, unit, lines, range, theme, bound, zoom, close }: Props) {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | undefined>(undefined)
  const [loaded, set] = useState<{ of: string; data: Data }>()
  const [error, setError] = useState('')
  const [tries, again] = useState(0)
  const zoomed = useRef(zoom)
  zoomed.current = zoom
  const [from, to] = range
  const step = stepOf(to - from)
  const rates = Math.max(10, 2 * step)
  const queries = lines.map((l) => l.query.replaceAll('$window', `${rates}s`))
  const key = queries.join('\n')
  // What was read of another node is not of this one.
  const data = loaded?.of === key ? loaded.data : undefined

  useEffect(() => {
    const stop = new AbortController()
    let timer = 0
    loadChart(lines.map((l, i) => ({ ...l, query: queries[i]! })), from, to, step, stop.signal)
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
  }, [key, from, to, tries])

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
            stroke: colour(COLOURS[i]!),
            width: 1.8,
            fill: lines.length === 1 ? colour('--line-fill') : undefined,
            points: { show: false },
            value: (_: uPlot, v: number | null) => write(v),
          })),
        ],
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
      [data.times, ...data.values],
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
    u.setData([data.times, ...data.values])
    if (u.cursor.idx == null) u.setLegend({ idx: data.times.length - 1 }, false)
  }, [data])

  const empty = data && data.values.every((column) => column.every((v) => v === null))
  return (
    <section class="chart" aria-label={`Chart of ${title}`}>
      <div class="chart-head">
        <h3>{title}</h3>
        <button class="quiet" aria-label="Close the chart" onClick={close}>×</button>
      </div>
      {error && <p class="inline-error" role="alert" data-chart-error>{data ? `It could not be read anew: ${error}` : error}</p>}
      {!data && !error && <p class="muted chart-empty">Reading…</p>}
      {empty && <p class="muted chart-empty">No value in this time.</p>}
      <div class="plot" ref={box} data-points={data ? data.values.reduce((n, c) => n + c.filter((v) => v !== null).length, 0) : 0} />
      <p class="muted small">One point per {span(step)}{key.includes(`[${rates}s]`) ? `, each over ${span(rates)}` : ''}. Drag across to zoom.</p>
      {key.includes('histogram_quantile') && (
        <p class="muted small" data-bound>
          A point is off by at most ±{percent((1 + bound) ** 2 - 1)}: PromQL may answer with an end of the bucket, of which the other numbers are the middle (±{percent(bound)}).
        </p>
      )}
      {queries.map((q, i) => (
        <details key={i} class="query">
          <summary>PromQL{lines.length > 1 ? ` · ${lines[i]!.name}` : ''}</summary>
          <code>{q}</code>
        </details>
      ))}
    </section>
  )
}

const percent = (v: number) => `${(v * 100).toFixed(1)} %`

function time(t: number, width: number): string {
  const text = new Date(t * 1000).toLocaleTimeString('en-GB')
  return width > 3600 * 36 ? new Date(t * 1000).toLocaleDateString('en-GB', { day: 'numeric', month: 'short' }) + ' ' + text.slice(0, 5) : width > 1800 ? text.slice(0, 5) : text
}
