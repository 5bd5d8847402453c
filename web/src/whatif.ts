import { duration, format } from './format'
import { percent } from './placement'
import type { Changed, State } from './state'
import type { BoundedResource, Interval, Pool, WhatIf, WhatIfEntry, WhatIfResource } from './types'

// What would be if more requests came, or containers were others.

/** The loads that are offered; any other may be typed. */
export const LOADS = ['1x', '1.5x', '2x', '3x', '5x', '10x']

/** What a state asks the server for, besides the window. */
export const whatIfOf = (s: Pick<State, 'load' | 'changes'>): string => `&load=${encodeURIComponent(s.load)}` + s.changes.map(([kind, text]) => `&${kind}=${encodeURIComponent(text)}`).join('')

/** The name and the value of a change: "cart:3". A host that is down has no value. */
export function partsOfChange([kind, text]: Changed): [name: string, value: string] {
  if (kind === 'down') return [text, '']
  const at = text.lastIndexOf(':')
  return [text.slice(0, at), text.slice(at + 1)]
}

/** A change for people. */
export function changeText(c: Changed): string {
  const [name, value] = partsOfChange(c)
  return c[0] === 'down' ? `${name} is down` : c[0] === 'replicas' ? `${value} ${value === '1' ? 'replica' : 'replicas'} of ${name}` : c[0] === 'quota' ? `${name}: quota of ${value} cores` : `${name} on ${value}`
}

/** The changes with another value of a kind and a name, or without it. */
export function withChange(changes: Changed[], kind: Changed[0], name: string, value: string): Changed[] {
  const others = changes.filter((c) => c[0] !== kind || partsOfChange(c)[0] !== name)
  if (kind === 'down') return [...others, [kind, name]]
  return value === '' ? others : [...others, [kind, `${name}:${value}`]]
}

/** The value of a change of a kind and a name; '' for none. */
export const valueOf = (changes: Changed[], kind: Changed[0], name: string): string => changes.filter((c) => c[0] === kind).map(partsOfChange).find(([n]) => n === name)?.[1] ?? ''

const rate = (v: number) => format(v, '/s')

/** The bounds of an estimate: "72 to 95 %". */
export const bounds = (i: Interval, text: (v: number) => string): string => (i.high === undefined ? `${text(i.low)} or more` : `${text(i.low)} to ${text(i.high)}`)

/** Power and energy, as the command line has them. */
export const watts = (v: number): string => `${v.toFixed(1)} W`
export const joules = (v: number): string => `${Number(v.toPrecision(3))} J`

export const limitBounds = (i: Interval): string => bounds(i, rate)
export const usedBounds = (i: Interval): string => bounds(i, percent).replace(' % to', ' to')

/** The pool that is the limit. */
export const limitingPool = (a: WhatIf): Pool | undefined => a.pools.find((p) => `${p.client}>${p.server}` === a.limited_by)

/** How many there are, which may be a mean. */
export const poolNumber = (p: Pool): string => (p.open >= 10 ? p.open.toFixed(0) : String(Number(p.open.toPrecision(2))))

/** Connections, as the command line has them. */
export const poolName = (p: Pool): string => (p.ceiling ? `the ${poolNumber(p)} ${poolNumber(p) === '1' ? 'request' : 'requests'} at a time of ${p.name}` : p.open === 1 ? `the connection of ${p.name}` : `the ${p.open} connections of ${p.name}`)

/** How full a pool is. */
export const shareOf = (i: Interval, open: number): Interval => ({ value: i.value / open, low: i.low / open, high: i.high === undefined ? undefined : i.high / open })

/** What comes before the doubts about a limit. */
export const doubtsText = (a: WhatIf): string => (limitingPool(a) ? 'The limit may be another one:' : 'This may be used up before:')

export interface WhatIfVerdict {
  kind: 'good' | 'worse' | 'unsure'
  /** The sentence before the resource's name, the name, and the sentence after it. */
  before: string
  name: string
  after: string
  note: string
}

/** What runs out first, and whether the load of the scenario is there before. */
export function verdictOf(a: WhatIf): WhatIfVerdict {
  const at = `${rate(a.rate)}${a.mean_rate > 0 ? `, ${(a.rate / a.mean_rate).toFixed(1)} × the mean` : ''}`
  if (a.stretches === 0) return { kind: 'unsure', before: 'No requests came in: there is nothing to learn from', name: '', after: '', note: 'Choose a time in which there was some load.' }
  const pool = limitingPool(a)
  const name = pool ? poolName(pool) : a.resources.find((r) => r.node === a.limited_by)?.name
  if (!a.limit || !name) {
    const reasons = [...new Set(a.resources.map((r) => r.unknown).filter((text) => text !== undefined))]
    return { kind: 'unsure', before: 'It cannot be told what runs out first', name: '', after: '', note: reasons.length ? `${upper(reasons[0]!)}. Choose a longer time, or one with more and less load.` : 'Nothing takes more CPU time where more requests come.' }
  }
  const far = a.limit.value > 1.05 * a.greatest_rate ? `, ${(a.limit.value / a.greatest_rate).toFixed(1)} times the greatest rate that there was` : ''
  const text = `at ${rate(a.limit.value)} (${limitBounds(a.limit)})`
  if (a.upper_bound) {
    const most = `t most about ${rate(a.limit.value)}, by ${a.limited_by?.startsWith('cpus/') ? 'the ' : 'the CPU time of '}`
    const beyond = a.limit.high !== undefined && a.limit.high < a.rate
    return { kind: beyond ? 'worse' : 'unsure', before: beyond ? `There is no room. The limit is a${most}` : `The limit cannot be told. It is a${most}`, name, after: '', note: `The load asked for is ${at}${a.limit.value < a.rate ? ': it does not get there' : ''}.` }
  }
  // Where nobody was seen to wait for the pool, it may be none.
  if (a.limit.value < a.rate && (!pool || pool.waited)) return { kind: 'worse', before: '', name: pool ? upper(name) : name, after: ` ${!pool ? 'is used up' : pool.ceiling ? 'are all that get through' : pool.open === 1 ? 'is busy' : 'are all busy'} ${text}`, note: a.limit.value < a.mean_rate ? `Even the mean rate of this time, ${rate(a.mean_rate)}, is above that.` : `The load asked for is ${at}: it does not get there.` }
  if (a.limit.value < a.rate) return { kind: 'unsure', before: 'There may be no room. Used up first: ', name, after: `, ${text}`, note: `The load asked for is ${at}.` }
  const sure = a.limit.low >= a.rate && a.doubts.length === 0
  return { kind: sure ? 'good' : 'unsure', before: sure ? 'There is room. Used up first: ' : 'There may be room. Used up first: ', name, after: `, ${text}${far}`, note: `The load asked for is ${at}${sure ? '' : ': within the bounds of the limit'}.${mostText(a)}` }
}

/** That the limit may be less, and why, where there is no sign of something else. */
const mostText = (a: WhatIf): string => (a.at_most && a.limit && a.doubts.length === 0 ? ` The limit is that at most: from ${rate(a.limit.low)} on, ${a.at_most}.` : '')

const upper = (text: string): string => text[0]!.toUpperCase() + text.slice(1)

/** How an entry's durations were found, and how far off that was on the window's own past. */
export function modelText(e: WhatIfEntry): string {
  if (!e.model) return ''
  const what = e.model === 'queueing' ? 'queueing' : 'the Universal Scalability Law'
  const off = e.model === 'queueing' ? e.tested?.queueing_error : e.tested?.scalability_error
  return off === undefined || !e.tested ? `${what}, with too little of the past to test it on` : `${what}, ${percent(off)} off on the past at up to ${e.tested.times.toFixed(1)} times the load that it knew`
}

/** What requests wait for where p99 is longer; '' where it is not, or that is not known. */
export function waitsText(e: WhatIfEntry): string {
  if (!e.waits?.length) return ''
  return `p99 at ${e.name} is longer because requests wait for ${e.waits.map((w) => `${w.for} (+${duration(w.longer)})`).join(', ')}.`
}

/** The bar of an estimate, on a scale to this share: what is filled, and where the bounds are; of 100. */
export const SCALE = 1.5
export function barOf(i: Interval): { value: number; low: number; high: number; over: boolean } {
  const x = (v: number) => Math.max(0, Math.min(100, (100 * v) / SCALE))
  return { value: x(i.value), low: x(i.low), high: x(i.high ?? SCALE), over: i.value >= 1 }
}

/** What of a resource is used up first of it, for people: "2 of 2 cores". */
export const ofText = (r: WhatIfResource): string => `${r.parallel.toFixed(2)} by ${BY[r.parallel_by] ?? r.parallel_by}`

const BY: Record<string, string> = { left: 'what others leave', cores: 'its host’s cores', threads: 'its busy threads', quota: 'its quota' }

/** In how long a resource is used up, and between what that is. */
export function runOutText(r: BoundedResource, now: number): { when: string; between: string } {
  const left = (time: string) => spanAhead(Date.parse(time) / 1000 - now)
  const out = r.runs_out
  if (!out) return { when: 'not in sight', between: '' }
  if (!out.at) return { when: 'perhaps', between: `in ${left(out.earliest)} or later` }
  return { when: `in ${left(out.at)}`, between: out.latest ? `${left(out.earliest)} to ${left(out.latest)}` : `${left(out.earliest)} or later` }
}

/** An amount of a resource, in its unit. */
export function amountText(r: BoundedResource, v: number): string {
  switch (r.kind) {
    case 'memory':
    case 'filesystem':
      return format(v, 'B')
    case 'cpu':
      return `${v.toFixed(2)} cores`
    case 'requests':
      return format(v, '/s')
    case 'connections':
    case 'requests at a time':
      return v.toFixed(1)
    default:
      return v.toFixed(0)
  }
}

/** What is bounded, as the command line calls it. */
export function boundedName(r: BoundedResource): string {
  const kind = r.kind === 'cpu' ? 'CPU' : r.kind
  if (r.kind === 'requests') return `requests, limited by ${r.by ?? 'what is not known'}`
  return r.kind === 'filesystem' ? `filesystem ${r.name}` : `${kind} of ${r.node ? r.name : 'the host'}`
}

/** A length of time in its two largest units, as the command line has it. */
export function spanAhead(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds))
  const parts: [number, string][] = [[Math.floor(s / 86_400), 'd'], [Math.floor(s / 3600) % 24, 'h'], [Math.floor(s / 60) % 60, 'min'], [s % 60, 's']]
  const first = parts.findIndex(([n]) => n > 0)
  return first < 0 ? '0 s' : parts.slice(first, first + 2).map(([n, unit]) => `${n} ${unit}`).join(' ')
}

/** How the use goes on, in words. */
export function courseText(r: BoundedResource): string {
  const amount = (v: number) => amountText(r, v)
  const c = r.course
  if (!c) return ''
  const daily = c.daily ? `goes up and down by ${amount(c.daily)} each day` : ''
  const line = c.kind === 'grows' || c.kind === 'daily, grows' ? `grows by ${amount(c.per_day.value)} a day` : c.kind === 'falls' ? `falls by ${amount(-c.per_day.value)} a day` : ''
  return [line, daily].filter(Boolean).join(', ') || 'steady'
}
