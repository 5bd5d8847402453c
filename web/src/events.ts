import { span } from './format'
import type { HostEvent } from './types'

// What happened to hosts, in words.

export const KINDS: Record<HostEvent['kind'], string> = { pair_measured: 'Hosts measured', pair_ended: 'Measurement ended', route_changed: 'Route changed', container_moved: 'Container moved' }

/** What happened, in a sentence. */
export function eventText({ kind, from, to, container, before, now }: HostEvent): string {
  switch (kind) {
    case 'pair_measured':
      return `${from} and ${to} talk: the network between them is measured`
    case 'pair_ended':
      return `${from} and ${to} talk no more, or one of them is gone: the network between them is measured no more`
    case 'route_changed':
      return `Packets from ${from} to ${to} take another route: ${routeText(now)}; before: ${routeText(before)}`
    case 'container_moved':
      return `${container} ran on ${from}, and runs on ${to} now`
  }
  return `${kind} of ${from} and ${to}` // of a newer server
}

/** The routers of a route, as the API writes it. */
export const routeText = (route: string | undefined): string => (route === 'direct' ? 'no router' : (route ?? '?').split(' ').map((r) => (r === '*' ? 'one that does not answer' : r)).join(' → '))

/** How sure its time is. */
export const whenText = (e: HostEvent): string => (e.within_seconds > 0 ? `in the ${span(e.within_seconds)} before` : 'or before')
