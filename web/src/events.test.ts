import { expect, it } from 'vitest'
import { eventText, whenText } from './events'
import type { HostEvent } from './types'

const event = (more: Partial<HostEvent>): HostEvent => ({ kind: 'pair_measured', time: '2026-11-25T18:00:00Z', within_seconds: 5, from: 'a', to: 'b', ...more })

it('says what happened, and when', () => {
  expect(eventText(event({}))).toBe('a and b talk: the network between them is measured')
  expect(eventText(event({ kind: 'pair_ended' }))).toMatch(/^a and b talk no more/)
  expect(eventText(event({ kind: 'container_moved', container: 'shop/web-0/web' }))).toBe('shop/web-0/web ran on a, and runs on b now')
  expect(eventText(event({ kind: 'route_changed', before: '192.0.2.1 *', now: 'direct' }))).toBe(
    'Packets from a to b take another route: no router; before: 192.0.2.1 → one that does not answer',
  )
  const containers = { client: 'web', server: 'shop/db-0/db' }
  expect(eventText(event(containers))).toBe('web on a and shop/db-0/db on b talk: the network between them is measured')
  expect(eventText(event({ ...containers, kind: 'pair_handed_over', from_before: 'a', to_before: 'c' }))).toBe(
    'The network is measured between web on a and shop/db-0/db on b now; before: web on a and shop/db-0/db on c')
  expect(eventText(event({ kind: 'of_tomorrow' as HostEvent['kind'] }))).toBe('of_tomorrow of a and b')
  expect([whenText(event({})), whenText(event({ within_seconds: 0 }))]).toEqual(['in the 5 s before', 'or before'])
})
