import { expect, it } from 'vitest'
import { partsOf } from './split'

it('the parts add up to the whole, in the order of their time', () => {
  const parts = partsOf({ client_seconds: 1, network_there_seconds: 2, server_seconds: 4, network_back_seconds: 1, lost_there: 0, lost_back: 0 })
  expect(parts.map((p) => p.share)).toEqual([0.125, 0.25, 0.5, 0.125])
  expect(parts.map((p) => p.from)).toEqual([0, 0.125, 0.375, 0.875])
  expect(parts.map((p) => p.title)).toEqual(['In the client', 'Network there', 'In the server', 'Network back'])
})

it('nothing has no shares', () => {
  const parts = partsOf({ client_seconds: 0, network_there_seconds: 0, server_seconds: 0, network_back_seconds: 0, lost_there: 0, lost_back: 0 })
  expect(parts.map((p) => p.share)).toEqual([0, 0, 0, 0])
})
