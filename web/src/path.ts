import { asNumber } from './data'
import { format, NONE } from './format'
import { nodeOf } from './state'
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

/** What runs out first, at which rate, and whether that is far away; undefined where it cannot be told. */
export function firstLimit(a: PathAnswer): { name: string; text: string; far: boolean } | undefined {
  const r = a.resources.find((r) => r.node === a.bottleneck)
  if (!r || a.saturation_rate === undefined || a.extrapolation === undefined) return undefined
  const verb = r.parallel_by === 'left' ? 'run out' : `is used up (${limitOf(r)})`
  return { name: r.name, text: `${verb} at about ${format(a.saturation_rate, '/s')}, ${a.extrapolation.toFixed(1)} times what comes in now.`, far: a.extrapolation > FAR }
}

export const PARTS = [['own', 'own'], ['next', 'waits for the next'], ['others', 'waits for others']] as const

/** The longest time in which a hop answers, in seconds; all bars are shares of it. */
export const longest = (hops: Hop[]): number => Math.max(0, ...hops.map((h) => asNumber(h.served)).filter(Number.isFinite))

/** The parts of a hop's bar in percent of the longest. What waits for several at a time waits for more than its length. */
export function partsOf(h: Hop, longest: number): { key: (typeof PARTS)[number][0]; x: number; width: number }[] {
  const total = h.own + h.next + h.others
  const served = asNumber(h.served)
  const scale = total > 0 && longest > 0 && Number.isFinite(served) ? ((served / longest) * 100) / total : 0
  let x = 0
  return PARTS.map(([key]) => {
    const part = { key, x, width: h[key] * scale }
    x += part.width
    return part
  })
}
