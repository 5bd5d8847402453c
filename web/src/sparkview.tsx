import { Component } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { loadSeries } from './data'
import { columnQuery, nodeIdOf, onSteps, sparkPath, sparkStep, tailOf, type Scope } from './spark'
import type { Grouping } from './state'
import type { Graph, Node } from './types'

/** Lines of nodes by the paths of their columns, as "usage.cpu_cores". */
export type Sparks = Map<string, Map<string, (number | null)[]>>

/** How often lines are read anew at most, in s. */
const LEAST = 10

/** Loads the lines of columns, one query each and one after the other: numbers come first. */
export function useSparks(graph: Graph, paths: string[], by: Grouping, rows: Node[]): Sparks {
  const [sparks, set] = useState<Sparks>(new Map())
  const [from, to] = [Date.parse(graph.from) / 1000, Date.parse(graph.to) / 1000]
  const tail = tailOf(to - from)
  const step = sparkStep(tail)
  const every = Math.max(LEAST, step)
  const end = Math.floor(to / every) * every
  // Before the first sample there is nothing to draw.
  const begin = Math.max(end - tail, Math.ceil((to - graph.covered_seconds) / step) * step)
  const points = Math.floor((end - begin) / step) + 1
  const ids = rows.map((r) => r.id).join()
  const drawn = useRef('')
  useEffect(() => {
    if (points < 2) return
    const stop = new AbortController()
    // Lines of another grouping or of other columns are not these.
    const what = `${by} ${paths.join()}`
    if (drawn.current !== what) set(new Map())
    drawn.current = what
    const load = async () => {
      for (const path of paths) {
        const [scope, key] = path.split('.') as [Scope, string]
        const n = (scope === 'usage' ? graph.numbers.usage : graph.numbers.side).find((n) => n.key === key)
        const query = n && columnQuery(n, scope, by, 2 * step, rows)
        if (!query) continue
        const list = await loadSeries(query, begin, end, step, stop.signal)
        const lines = new Map(list.map((s) => [nodeIdOf(s.metric, scope, by), onSteps(s.values, begin, step, points)]))
        if (stop.signal.aborted) return
        set((old) => new Map(old).set(path, lines))
      }
    }
    // A number without a line is a number all the same.
    load().catch(() => undefined)
    return () => stop.abort()
  }, [end, begin, step, by, paths.join(), ids])
  return sparks
}

const [WIDTH, HEIGHT] = [34, 14]

/** A line beside a number. It is drawn again only when it is another. */
export class Spark extends Component<{ values?: (number | null)[] }> {
  override shouldComponentUpdate(next: { values?: (number | null)[] }) {
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
