import { Component } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { loadSeries } from './data'
import { nodeColumns, onSteps, sparkPath, stretchOf, type Line, type LineColumn, type Lines } from './spark'
import type { Grouping } from './state'
import type { Graph, Node } from './types'

export interface Sparks {
  lines: Lines
  /** Why some could not be read. */
  error?: string
}

/** After so many queries in a row that fail, the others are not asked. */
const FAILURES = 2

/**
 * Loads the lines of columns for a window, one query each and one after the other: numbers come first. Lines
 * of another what are not these and are forgotten. Rates are over at least so many seconds.
 */
export function useLines(frame: Pick<Graph, 'from' | 'to' | 'covered_seconds'> | undefined, what: string, columns: LineColumn[], least = 0): Sparks {
  const [sparks, set] = useState<Sparks>({ lines: new Map() })
  const s = frame && stretchOf(Date.parse(frame.from) / 1000, Date.parse(frame.to) / 1000, frame.covered_seconds)
  const queries = s ? columns.map((c) => c.query(Math.max(least, 2 * s.step))) : []
  const drawn = useRef('')
  // What was asked for each column that is drawn: the same is not asked again.
  const had = useRef(new Map<string, string>())
  useEffect(() => {
    if (!s) return
    const stop = new AbortController()
    if (drawn.current !== what) {
      set({ lines: new Map() })
      had.current.clear()
    }
    drawn.current = what
    const load = async () => {
      let error: string | undefined
      let failures = 0
      for (const [i, c] of columns.entries()) {
        const query = queries[i]
        const asked = `${s.begin} ${s.end} ${s.step} ${query}`
        if (!query || had.current.get(c.key) === asked) continue
        try {
          const list = await loadSeries(query, s.begin, s.end, s.step, stop.signal)
          if (stop.signal.aborted) return
          const lines = new Map(list.map((series) => [c.of(series.metric), onSteps(series.values, s.begin, s.step, s.points)]))
          set((old) => ({ ...old, lines: new Map(old.lines).set(c.key, lines) }))
          had.current.set(c.key, asked)
          failures = 0
        } catch (e) {
          if (stop.signal.aborted) return
          error = (e as Error).message
          if (++failures === FAILURES) break
        }
      }
      set((old) => (old.error === error ? old : { ...old, error }))
    }
    void load()
    return () => stop.abort()
  }, [s?.end, s?.begin, s?.step, what, queries.join('\n')])
  return sparks
}

/** The lines of numbers that nodes have, by their paths, as "usage.cpu_cores". */
export const useSparks = (graph: Graph, paths: string[], by: Grouping, rows: Node[]): Sparks =>
  useLines(graph, `${by} ${paths.join()}`, nodeColumns(graph.numbers, paths, by, rows))

/** Says that lines could not be read. A number that nothing is stored of has none, without a word. */
export const LinesNote = ({ of }: { of: Sparks }) => (of.error ? <p class="muted small pad" role="status" data-lines-error>The lines beside the numbers could not all be read: {of.error}</p> : null)

const [WIDTH, HEIGHT] = [34, 14]

/** A line beside a number. It is drawn again only when it is another. */
export class Spark extends Component<{ values?: Line }> {
  override shouldComponentUpdate(next: { values?: Line }) {
    return next.values !== this.props.values
  }

  override render() {
    const path = this.props.values ? sparkPath(this.props.values, WIDTH, HEIGHT) : ''
    return (
      <svg class="spark" width={WIDTH} height={HEIGHT} aria-hidden="true">
        {path && <path d={path} data-spark />}
      </svg>
    )
  }
}
