import { expect, it } from 'vitest'
import { grewText, partsOf, wayOf } from './split'

it('the parts add up to the whole, in the order of their time', () => {
  const parts = partsOf({ client_seconds: 1, network_there_seconds: 2, server_seconds: 4, network_back_seconds: 1 })
  expect(parts.map((p) => p.share)).toEqual([0.125, 0.25, 0.5, 0.125])
  expect(parts.map((p) => p.from)).toEqual([0, 0.125, 0.375, 0.875])
  expect(parts.map((p) => p.title)).toEqual(['In the client', 'Network there', 'In the server', 'Network back'])
})

it('there and back are one part where clocks do not tell them apart', () => {
  const now = { client_seconds: 1, server_seconds: 2, network_both_seconds: 1 }
  expect(partsOf(now).map((p) => [p.title, p.share, p.from])).toEqual([['In the client', 0.25, 0], ['Network both ways', 0.25, 0.25], ['In the server', 0.5, 0.5]])
  expect(grewText(now, { ...now, network_both_seconds: 0.5 }, 60)).toMatch(/network both ways, from 500 ms to 1.00 s/)
  expect(grewText(now, { client_seconds: 1, server_seconds: 2, network_there_seconds: 1, network_back_seconds: 1 }, 60)).toBeUndefined()
})

it('nothing has no shares', () => {
  const parts = partsOf({ client_seconds: 0, network_there_seconds: 0, server_seconds: 0, network_back_seconds: 0 })
  expect(parts.map((p) => p.share)).toEqual([0, 0, 0, 0])
})

it('says which part grew against the time before', () => {
  const now = { client_seconds: 0.001, network_there_seconds: 0.0004, server_seconds: 0.006, network_back_seconds: 0.0001 }
  expect(grewText(now, { ...now, server_seconds: 0.003, client_seconds: 0.0009 }, 300)).toBe('What grew most against the 5 min before: in the server, from 3.00 ms to 6.00 ms, 2.00 times as long.')
  expect(grewText(now, { ...now, network_back_seconds: 0 }, 60)).toMatch(/network back, from < 1.02 µs to 100 µs\.$/)
  // What became faster is not told, nor what is a small share of the whole.
  expect(grewText(now, { ...now, server_seconds: 0.007, network_back_seconds: 0.00006 }, 60)).toBe('No part grew by over a tenth against the 60 s before.')
  expect(grewText(now, { ...now, network_back_seconds: undefined }, 60)).toBeUndefined()
})

it('the way between two hosts has its stacks, and the wire as well as it is known', () => {
  const ends = { at_cards_there: 40, sender_stack_there_p50: 1e-5, wire_there_p50: 6e-5, wire_above_minimum_there_p50: 1e-5, receiver_stack_there_p50: 3e-5 }
  expect(wayOf(ends, 'there')!.map((p) => [p.title, p.key, Math.round(p.share * 10)])).toEqual([
    ['Sender’s stack', 'sender_stack_there_p50', 1], ['Wire', 'wire_there_p50', 6], ['Receiver’s stack', 'receiver_stack_there_p50', 3],
  ])
  const free = wayOf({ ...ends, wire_there_p50: undefined }, 'there')!
  expect(free[1]).toMatchObject({ title: 'Wire, above the least', key: 'wire_above_minimum_there_p50', seconds: 1e-5 })
  expect(free[2]!.from + free[2]!.share).toBeCloseTo(1)
  expect(wayOf(ends, 'back')).toBeUndefined()
})
