import { digits, duration, span } from './format'
import type { Seconds, Split } from './types'

export interface Part {
  title: string
  /** The key of its number. */
  key: keyof Split
  seconds: number
  /** Of the whole, 0 to 1, and that of the parts before it. */
  share: number
  from: number
  meaning: string
}

/** The parts of the time that a client waits for the first byte of a reply, in their order: the network there and back, or both ways. */
const PARTS: Pick<Part, 'title' | 'key' | 'meaning'>[] = [
  { title: 'In the client', key: 'client_seconds', meaning: 'Until the request is sent, and from the arrival of the reply until it is read' },
  { title: 'Network there', key: 'network_there_seconds', meaning: 'A packet on its way to the server' },
  { title: 'Network both ways', key: 'network_both_seconds', meaning: 'A packet on its way to the server, and one to the client: the clocks of the two hosts do not tell them apart' },
  { title: 'In the server', key: 'server_seconds', meaning: 'From the arrival of the request in its socket to the first byte of the reply' },
  { title: 'Network back', key: 'network_back_seconds', meaning: 'A packet on its way to the client' },
]

/** What is asked of the server for the parts of a split over time. */
export const splitLines = (split: Split) => partsOf(split).map((p) => ({ name: p.title, number: `ends.${p.key}` }))

export function partsOf(split: Split): Part[] {
  const parts = PARTS.flatMap((p) => (split[p.key] === undefined ? [] : [{ ...p, seconds: split[p.key]! }]))
  const whole = parts.reduce((sum, p) => sum + p.seconds, 0)
  let from = 0
  return parts.map((p) => {
    const part = { ...p, share: whole > 0 ? p.seconds / whole : 0, from }
    from += part.share
    return part
  })
}

/** One of the parts of the way of packets between two hosts. */
export interface WayPart {
  title: string
  /** The key of its number. */
  key: string
  seconds: number
  share: number
  from: number
}

/** The way of packets one way between two hosts, at the median: the sender's stack, the wire, the receiver's stack. Where the wire is not known, because of the clocks, it is by how much it is above the least. Undefined where packets were not seen at both hosts' interfaces. */
export function wayOf(ends: Record<string, Seconds | undefined>, way: 'there' | 'back'): WayPart[] | undefined {
  if (ends[`at_cards_${way}`] === undefined) return undefined
  const known = ends[`wire_${way}_p50`] !== undefined
  const parts = [
    { title: 'Sender’s stack', key: `sender_stack_${way}_p50` },
    known ? { title: 'Wire', key: `wire_${way}_p50` } : { title: 'Wire, above the least', key: `wire_above_minimum_${way}_p50` },
    { title: 'Receiver’s stack', key: `receiver_stack_${way}_p50` },
  ].map((p) => ({ ...p, seconds: Number(ends[p.key] ?? 0) }))
  const whole = parts.reduce((sum, p) => sum + p.seconds, 0)
  let from = 0
  return parts.map((p) => {
    const part = { ...p, share: whole > 0 ? p.seconds / whole : 0, from }
    from += part.share
    return part
  })
}

/** Which part grew against an earlier time of so many seconds, in a sentence; undefined where nothing is known of it. */
export function grewText(now: Split, before: Partial<Split>, seconds: number): string | undefined {
  const parts = partsOf(now)
  const were = parts.map((p) => before[p.key])
  if (were.some((v) => v === undefined)) return undefined
  const against = `against the ${span(seconds)} before`
  const whole = were.reduce<number>((sum, v) => sum + v!, 0)
  const grown = parts.map((p, i) => ({ p, was: were[i]!, by: p.seconds - were[i]! })).sort((a, b) => b.by - a.by)[0]!
  // Less than a tenth of the part, or than a hundredth of the whole, is no news.
  if (grown.by <= grown.was / 10 || grown.by <= whole / 100) return `No part grew by over a tenth ${against}.`
  const times = grown.was > 0 ? `, ${digits(grown.p.seconds / grown.was)} times as long` : ''
  return `What grew most ${against}: ${grown.p.title.toLowerCase()}, from ${duration(grown.was)} to ${duration(grown.p.seconds)}${times}.`
}
