import { expect, it } from 'vitest'
import { partsOf } from './split'

it('the parts add up to the whole, in the order of their time', () => {
  const parts = partsOf({ client_seconds: 0.001, network_there_seconds: 0.002, server_seconds: 0.006, network_back_seconds: 0.001, lost_there: 0, lost_back: 0 })
  expect(parts.map((p) => p.share)).toEqual([0.1, 0.2, 0.6, 0.1])
  expect(parts.map((p) => p.title)).toEqual(['In the client', 'Network there', 'In the server', 'Network back'])
})

it('nothing has no shares', () => {
  const parts = partsOf({ client_seconds: 0, network_there_seconds: 0, server_seconds: 0, network_back_seconds: 0, lost_there: 0, lost_back: 0 })
  expect(parts.map((p) => p.share)).toEqual([0, 0, 0, 0])
})
