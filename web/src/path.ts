import { asNumber } from './data'
import { duration, format, NONE } from './format'
import { nodeOf, short } from './state'
import type { Graph, Hop, PathAnswer, Resource } from './types'

// Operational analysis and the critical path, in words and in widths.

const CPUS = 'cpus/'

/** The node of a resource: of a host's CPUs, the host. Undefined where the map has none. */
export const nodeFor = (g: Graph, r: Resource) => nodeOf(g, r.node.startsWith(CPUS) ? `host/${r.node.slice(CPUS.length)}` : r.node)

/** How much CPU a resource could use at most, and why no more. */
export function limitOf(r: Resource): string {
  if (!(r.parallel > 0)) return NONE
  switch (r.parallel_by) {
    case 'threads':
      return `${r.parallel.toFixed(1)} busy threads`
    case 'quota':
      return `a quota of ${Number(r.parallel.toPrecision(4))} cores`
    case 'left':
      return `${r.parallel.toFixed(2)} cores that others leave`
  }
  return r.parallel === 1 ? '1 core' : `${Math.round(r.parallel)} cores`
}

/** Beyond so many times the observed rate, an estimate is said to be far away. */
const FAR = 4

/** What runs out first, at which rate, and whether that is far away; undefined where it is not known. */
export function firstLimit(a: PathAnswer): { name: string; text: string; far: boolean } | undefined {
  const r = a.resources.find((r) => r.node === a.bottleneck)
  if (!r || a.saturation_rate === undefined || a.extrapolation === undefined) return undefined
  const verb = r.parallel_by === 'left' ? 'run out' : `is used up (${limitOf(r)})`
  return { name: r.name, text: `${verb} at about ${format(a.saturation_rate, '/s')}, ${a.extrapolation.toFixed(1)} times what comes in now.`, far: a.extrapolation > FAR }
}

export const PARTS = [['network', 'network'], ['own', 'own'], ['others', 'other servers']] as const
export type PartKey = (typeof PARTS)[number][0]

type CriticalPath = NonNullable<PathAnswer['critical_path']>

export interface Bar {
  key: PartKey
  x: number
  width: number
}

/**
 * The bar of each hop, in percent. By the mean, the parts of one request one after the other, so that those of all hops together are the
 * whole; by a percentile, how long the hop's calls take beside the longest of them.
 */
export function barsOf(p: CriticalPath): Bar[][] {
  const whole = asNumber(p.whole)
  const longest = Math.max(0, ...p.hops.map((h) => asNumber(h.weight)).filter(Number.isFinite))
  let x = 0
  return p.hops.map((h) => {
    if (p.statistic !== 'mean') {
      const share = Math.min(1, asNumber(h.weight) / longest)
      return share > 0 ? [{ key: 'own' as const, x: 0, width: 100 * share }] : []
    }
    const of = h.of_request
    return !of || !(whole > 0 && Number.isFinite(whole)) ? [] : PARTS.map(([key]) => {
      const part = { key, x, width: (100 * of[key]) / whole }
      x += part.width
      return part
    })
  })
}

/** What a hop is of one request, in seconds; undefined by a percentile. */
export const ofRequest = (h: Hop): number | undefined => h.of_request && h.of_request.network + h.of_request.own + h.of_request.others

/** What the path is of, in a sentence: the statistic, and what the parts add up to. */
export function wholeOf(p: CriticalPath): string {
  const entry = p.hops[0]?.name ?? ''
  if (p.statistic !== 'mean') return `${p.statistic} of each call; that of a request to ${entry} is ${duration(p.whole)}. Percentiles of several calls do not add up: the mean does.`
  return `the mean: a request to ${entry} takes ${duration(p.whole)}, and the parts below add up to it.`
}

/** The path for the next request, which keeps it unless another is clearly ahead; '' for none, or where it is too long for an address. */
export function formerOf(p?: CriticalPath): string {
  const text = p ? p.hops.map((h) => encodeURIComponent(short(h.node))).join(',') : ''
  return text.length <= 1000 ? text : ''
}
