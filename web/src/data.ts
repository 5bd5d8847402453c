import { useEffect, useRef, useState } from 'preact/hooks'
import { authorization, tokenRefused } from './token'
import type { Series } from './spark'
import type { Baseline, Changes, Extent, Flight, Graph, Heat, Hosts, PathAnswer, Recordings, Seconds, Services, Status } from './types'

const TIMEOUT = 25_000

/** When what failed is tried again that is read once otherwise, in ms. */
export const AGAIN = 10_000

async function get<T>(path: string, signal: AbortSignal): Promise<T> {
  let response: Response
  try {
    response = await fetch(path, { headers: authorization(), signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT)]) })
  } catch (e) {
    if (signal.aborted) throw e
    throw new Error((e as Error).name === 'TimeoutError' ? `The server has not answered for ${TIMEOUT / 1000} s.` : 'The server cannot be reached.')
  }
  if (response.status === 401) {
    tokenRefused()
    throw new Error('The server asks for a token.')
  }
  const body = await response.json().catch(() => undefined)
  if (!response.ok) throw new Error(body?.error ?? `The server answered ${response.status} ${response.statusText}.`)
  if (body === undefined) throw new Error('The answer of the server is not JSON.')
  return body as T
}

export interface Loaded<T> {
  data?: T
  error?: string
  /** When the data arrived, in Unix seconds. */
  at?: number
  loading: boolean
}

/**
 * Loads from path(), again every period ms (0: once, unless it fails) while the page is visible. The last data
 * stay while an error lasts; a new key forgets nothing either, so that the view does not blink. The key '' loads nothing.
 */
export function usePoll<T>(key: string, path: () => string, period: number): Loaded<T> {
  const [loaded, set] = useState<Loaded<T>>({ loading: true })
  const make = useRef(path)
  make.current = path
  useEffect(() => {
    if (key === '') return
    const stop = new AbortController()
    let timer: number | undefined
    let running = false
    let done = false
    const run = async () => {
      clearTimeout(timer)
      if (running || document.hidden) return
      running = true
      let failed = false
      try {
        const data = await get<T>(make.current(), stop.signal)
        done = true
        if (!stop.signal.aborted) set({ data, at: Date.now() / 1000, loading: false })
      } catch (e) {
        failed = true
        if (!stop.signal.aborted) set((old) => ({ ...old, error: (e as Error).message, loading: false }))
      }
      running = false
      if (!stop.signal.aborted && (period || failed || document.hidden)) timer = window.setTimeout(run, period || (failed ? AGAIN : 2000))
    }
    set((old) => ({ ...old, loading: true }))
    void run()
    const visible = () => (period || !done) && void run()
    document.addEventListener('visibilitychange', visible)
    return () => {
      stop.abort()
      clearTimeout(timer)
      document.removeEventListener('visibilitychange', visible)
    }
  }, [key, period])
  return loaded
}

export const useGraph = (key: string, path: () => string, period: number) => usePoll<Graph>(key, path, period)
export const useBaseline = (key: string, path: () => string, period: number) => usePoll<Baseline>(key, path, period)
export const useExtent = () => usePoll<Extent>('extent', () => '/api/outsight/extent', 60_000)
export const useHeat = (key: string, path: () => string, period: number) => usePoll<Heat>(key, path, period)
export const usePath = (key: string, path: () => string, period: number) => usePoll<PathAnswer>(key, path, period)
export const useChanges = (key: string, path: () => string, period: number) => usePoll<Changes>(key, path, period)
export const useServices = (key: string, path: () => string, period: number) => usePoll<Services>(key, path, period)
export const useHosts = (key: string, path: () => string, period: number) => usePoll<Hosts>(key, path, period)
export const useRecordings = () => usePoll<Recordings>('recordings', () => '/api/outsight/recordings', 10_000)
export const useFlight = (key: string, path: () => string, period: number) => usePoll<Flight>(key, path, period)
export const useStatus = () => usePoll<Status>('status', () => '/api/outsight/status', 15_000)

/** One line of a chart. */
export interface Line {
  name: string
  query: string
}

export interface Chart {
  /** Unix seconds, and for each line a value or null at each. */
  times: number[]
  values: (number | null)[][]
}

/** All series of a query over a window. */
export async function loadSeries(query: string, from: number, to: number, step: number, signal: AbortSignal): Promise<Series[]> {
  const p = new URLSearchParams({ query, start: String(from), end: String(to), step: String(step) })
  return (await get<{ data: { result: Series[] } }>('/api/v1/query_range?' + p, signal)).data.result
}

/** One value of an instant query, with its labels. */
export interface Sample {
  metric: Record<string, string>
  value: number
}

/** Answers of instant queries by name; one that failed keeps its last, and error says why. */
export interface Samples {
  of: Record<string, Sample[] | undefined>
  error?: string
}

/** Answers of instant queries by name, at a time (0: now), again every period ms. A query that finds no series answers none. */
export function useSamples(queries: Record<string, string>, at: number, period: number): Samples {
  const [samples, set] = useState<Samples>({ of: {} })
  const key = JSON.stringify([queries, at])
  useEffect(() => {
    const stop = new AbortController()
    let timer = 0
    const run = async () => {
      const next: Record<string, Sample[]> = {}
      let error: string | undefined
      for (const [name, query] of Object.entries(queries)) {
        const p = new URLSearchParams(at ? { query, time: String(at) } : { query })
        try {
          const answer = await get<{ data: { result: { metric: Record<string, string>; value: [number, string] }[] } }>('/api/v1/query?' + p, stop.signal)
          next[name] = answer.data.result.map((r) => ({ metric: r.metric, value: Number(r.value[1]) })).filter((s) => Number.isFinite(s.value))
        } catch (e) {
          if (stop.signal.aborted) return
          error = (e as Error).message
        }
      }
      if (stop.signal.aborted) return
      set((old) => ({ of: { ...old.of, ...next }, error }))
      if (period || error) timer = window.setTimeout(run, period || AGAIN)
    }
    set({ of: {} })
    void run()
    return () => {
      stop.abort()
      clearTimeout(timer)
    }
  }, [key, period])
  return samples
}

/** Loads something that is no JSON, as a file. */
export async function loadFile(path: string): Promise<Blob> {
  const response = await fetch(path, { headers: authorization(), signal: AbortSignal.timeout(TIMEOUT) })
  if (response.status === 401) tokenRefused()
  if (!response.ok) throw new Error(`The server answered ${response.status} ${response.statusText}.`)
  return response.blob()
}

/** Asks the Prometheus API for lines over a window. */
export async function loadChart(lines: Line[], from: number, to: number, step: number, signal: AbortSignal): Promise<Chart> {
  const first = Math.ceil(from / step) * step
  const times: number[] = []
  for (let t = first; t <= to; t += step) times.push(Math.round(t * 1000) / 1000)
  if (!times.length) return { times, values: lines.map(() => []) }
  const index = new Map(times.map((t, i) => [t, i]))
  const values = await Promise.all(
    lines.map(async ({ query }) => {
      const p = new URLSearchParams({ query, start: String(first), end: String(times[times.length - 1]), step: String(step) })
      const answer = await get<{ data: { result: { values: [number, string][] }[] } }>('/api/v1/query_range?' + p, signal)
      const column: (number | null)[] = times.map(() => null)
      for (const [t, v] of answer.data.result[0]?.values ?? []) {
        const i = index.get(Math.round(t * 1000) / 1000)
        if (i !== undefined) column[i] = Number.isFinite(Number(v)) ? Number(v) : null
      }
      return column
    }),
  )
  return { times, values }
}

/** A step that gives a window about 240 points, of a round length. */
export function stepOf(seconds: number): number {
  for (const s of [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600]) if (seconds / s <= 300) return s
  return Math.ceil(seconds / 300 / 3600) * 3600
}

export const asNumber = (v: Seconds | undefined): number => (v === undefined ? NaN : v === '+Inf' ? Infinity : v)
