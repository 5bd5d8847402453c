import { useEffect, useRef, useState } from 'preact/hooks'
import { authorization, tokenRefused } from './token'
import type { Baseline, Changes, ContentionAnswer, Events, Extent, Flight, Graph, Hosts, Matrix, PathAnswer, Placement, Probe, Recordings, RunOut, Seconds, Services, Status, WhatIf } from './types'

const TIMEOUT = 25_000

/** When what failed is tried again that is read once otherwise, in ms. */
export const AGAIN = 10_000

async function get<T>(path: string, signal: AbortSignal, body?: string): Promise<T> {
  let response: Response
  try {
    response = await fetch(path, { ...sent(body), signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT)]) })
  } catch (e) {
    if (signal.aborted) throw e
    throw new Error((e as Error).name === 'TimeoutError' ? `The server has not answered for ${TIMEOUT / 1000} s.` : 'The server cannot be reached.')
  }
  if (response.status === 401) {
    tokenRefused()
    throw new Error('The server asks for a token.')
  }
  const answer = await response.json().catch(() => undefined)
  if (!response.ok) throw new Error(answer?.error ?? `The server answered ${response.status} ${response.statusText}.`)
  if (answer === undefined) throw new Error('The answer of the server is not JSON.')
  return answer as T
}

/** A request without a body, or one that posts it. */
const sent = (body?: string): RequestInit => ({ headers: authorization(), ...(body !== undefined && { method: 'POST', body }) })

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
 * Where there is a body, it is posted.
 */
export function usePoll<T>(key: string, path: () => string, period: number, body?: string): Loaded<T> {
  const [loaded, set] = useState<Loaded<T>>({ loading: true })
  const make = useRef(path)
  make.current = path
  const post = useRef(body)
  post.current = body
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
        const data = await get<T>(make.current(), stop.signal, post.current)
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
export const useMatrix = (key: string, path: () => string, period: number) => usePoll<Matrix>(key, path, period)
export const usePath = (key: string, path: () => string, period: number) => usePoll<PathAnswer>(key, path, period)
export const useChanges = (key: string, path: () => string, period: number) => usePoll<Changes>(key, path, period)
export const useServices = (key: string, path: () => string, period: number) => usePoll<Services>(key, path, period)
export const usePlacement = (key: string, path: () => string, period: number, body?: string) => usePoll<Placement>(key, path, period, body)
export const useWhatIf = (key: string, path: () => string, period: number) => usePoll<WhatIf>(key, path, period)
export const useRunOut = (key: string, path: () => string, period: number) => usePoll<RunOut>(key, path, period)
export const useHosts = (key: string, path: () => string, period: number) => usePoll<Hosts>(key, path, period)
export const useRecordings = () => usePoll<Recordings>('recordings', () => '/api/outsight/recordings', 10_000)
export const useFlight = (key: string, path: () => string, period: number) => usePoll<Flight>(key, path, period)
export const useLabelled = (key: string, path: () => string, period: number) => usePoll<Labelled>(key, path, period)
export const useContention = (key: string, path: () => string, period: number) => usePoll<ContentionAnswer>(key, path, period)
export const useEvents = (key: string, path: () => string, period: number) => usePoll<Events>(key, path, period)
/** A chart that is read once. */
export const useChart = (path: string) => usePoll<Chart>(path, () => path, 0)
export const useProbes = (path: string) => usePoll<{ probes: Probe[] }>(path, () => path, 0)
export const useStatus = () => usePoll<Status>('status', () => '/api/outsight/status', 15_000)

/** Values at times; null where there is none. "+Inf" is a duration past the end of its histogram. */
export type Values = (Seconds | null)[]

/** Numbers over time, as the server computes them of the frames around each point. */
export interface Chart {
  /** The ends of the points, in Unix seconds; each is over the time since the one before. */
  times: number[]
  step_seconds: number
  /** By the paths that were asked for, as "client.p99". */
  lines: Record<string, Values>
}

/** Numbers of many nodes over time: by their paths, as "usage.cpu_cores", then by whose they are. */
export interface ManyLines {
  times: number[]
  step_seconds: number
  lines: Record<string, Record<string, Values>>
}

/** A series with labels of its own, as a disk of a container has. */
export interface LabelledRow {
  metric: string
  host: string
  /** The node of the grouping that it is of; absent where it is of the host. */
  node?: string
  labels: Record<string, string>
  /** What a counter gained, or what a level was at the end; per_second is of a counter. */
  value?: number
  per_second?: number
  /** One per second of counters, or the levels, at the answer's times. */
  values?: Values
}

export interface Labelled {
  from: string
  to: string
  covered_seconds: number
  times?: number[]
  step_seconds?: number
  rows: LabelledRow[]
  omitted: number
}

/** Loads once, for what is not asked again and again. */
export const load = get

/** The query of the series of these metrics, of a window. */
export const labelledPath = (metrics: readonly string[], window: string): string => `/api/outsight/labelled?metrics=${metrics.join()}&${window}`

/** Loads something that is no JSON, as a file. */
export async function loadFile(path: string, body?: string): Promise<Blob> {
  const response = await fetch(path, { ...sent(body), signal: AbortSignal.timeout(TIMEOUT) })
  if (response.status === 401) tokenRefused()
  if (!response.ok) throw new Error(`The server answered ${response.status} ${response.statusText}.`)
  return response.blob()
}

/** How many points a chart has at most. */
export const POINTS = 240

export const asNumber = (v: Seconds | undefined): number => (v === undefined ? NaN : v === '+Inf' ? Infinity : v)
