import { Component } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import { load, type ManyLines } from './data'
import { drawable, hostsOf, linesPath, sparkPath, stretchOf, type Asked, type Line, type Lines } from './spark'
import type { Grouping } from './state'
import type { Graph, Node } from './types'

export interface Sparks {
  lines: Lines
  /** Why some could not be read. */
  error?: string
}

/**
 * Loads the lines of a table for a window, by one request: numbers come first. Lines of another what are not these and
 * are forgotten.
 */
export function useLines(frame: Pick<Graph, 'from' | 'to' | 'covered_seconds'> | undefined, what: string, asked: Asked | undefined): Sparks {
  const s = frame && stretchOf(Date.parse(frame.from) / 1000, Date.parse(frame.to) / 1000, frame.covered_seconds)
  const path = s && asked && asked.numbers.length > 0 ? linesPath(asked, s) : ''
  const { data, error } = useOnce<ManyLines>(what, path)
  const lines = useMemo(() => new Map(Object.entries(data?.lines ?? {}).map(([number, of]) => [number, new Map(Object.entries(of).map(([id, values]) => [id, drawable(values)]))])), [data])
  return { lines, error }
}

/** Loads from a path whenever it is another; what was loaded of another what is forgotten. '' loads nothing. */
export function useOnce<T>(what: string, path: string): { data?: T; error?: string } {
  const [loaded, set] = useState<{ what: string; data?: T; error?: string }>({ what })
  useEffect(() => {
    if (path === '') return
    const stop = new AbortController()
    load<T>(path, stop.signal)
      .then((data) => !stop.signal.aborted && set({ what, data }))
      .catch((e: Error) => !stop.signal.aborted && set((old) => ({ what, data: old.what === what ? old.data : undefined, error: e.message })))
    return () => stop.abort()
  }, [what, path])
  return loaded.what === what ? loaded : {}
}

/** The lines of numbers that nodes have, by their paths, as "usage.cpu_cores". */
export const useSparks = (graph: Graph, paths: string[], by: Grouping, rows: Node[]): Sparks =>
  useLines(graph, `${by} ${paths.join()}`, { numbers: paths, by, nodes: rows.map((r) => r.id), hosts: hostsOf(rows) })

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
