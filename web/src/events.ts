import { span } from './format'
import type { HostEvent } from './types'

// What happened to hosts, in words.

export const KINDS: Record<HostEvent['kind'], string> = { pair_measured: 'Measured', pair_ended: 'Measurement ended', pair_handed_over: 'Handed over', route_changed: 'Route changed', container_moved: 'Container moved' }

/** What happened, in a sentence. */
export function eventText({ kind, from, to, client, server, from_before, to_before, container, before, now }: HostEvent): string {
  const ends = (x: string | undefined, y: string | undefined) => (client ? [`${client} on ${x}`, `${server} on ${y}`] : [x, y])
  const [x, y] = ends(from, to)
  switch (kind) {
    case 'pair_measured':
      return `${x} and ${y} talk: the network between them is measured`
    case 'pair_ended':
      return `${x} and ${y} talk no more, or one of them is gone: the network between them is measured no more`
    case 'pair_handed_over':
      return `The network is measured between ${x} and ${y} now; before: ${ends(from_before, to_before).join(' and ')}`
    case 'route_changed':
      return `Packets from ${x} to ${y} take another route: ${routeText(now)}; before: ${routeText(before)}`
    case 'container_moved':
      return `${container} ran on ${from}, and runs on ${to} now`
  }
  return `${kind} of ${x} and ${y}` // of a newer server
}

/** The routers of a route, as the API writes it. */
export const routeText = (route: string | undefined): string => (route === 'direct' ? 'no router' : (route ?? '?').split(' ').map((r) => (r === '*' ? 'one that does not answer' : r)).join(' → '))

/** How sure its time is. */
export const whenText = (e: HostEvent): string => (e.within_seconds > 0 ? `in the ${span(e.within_seconds)} before` : 'or before')
