import { describe, expect, it } from 'vitest'
import { extentOf, lastOf, whyNot, type Span } from './extent'
import { parse } from './state'

const hour = 3600
const now = 1_790_000_000
const there: Span = [now - 2 * hour, now]

describe('from when to when there is data', () => {
  it('is known where the server tells it', () => {
    expect(extentOf({ from: '2026-11-23T20:00:00Z', to: '2026-11-23T21:00:00Z' })).toEqual([1795464000, 1795467600])
    for (const e of [undefined, { from: null, to: null }, { from: '2026-11-23T20:00:00Z', to: null }]) expect(extentOf(e)).toBeUndefined()
  })
  it('has a last part, which is no longer than all of it, and never empty', () => {
    expect(lastOf([100, 1000], 300)).toEqual([700, 1000])
    expect(lastOf([900, 1000], 300)).toEqual([900, 1000])
    expect(lastOf([1000, 1000], 300)).toEqual([1000, 1001])
  })
})

describe('what can be compared', () => {
  const live = parse('')
  const window: Span = [now - 300, now]
  it('is what there is data of', () => {
    expect((['', '1h', '1d', '7d'] as const).map((ago) => whyNot(ago, live, window, there, now))).toEqual([undefined, undefined, 'data begin 2 h ago', 'data begin 2 h ago'])
    expect(whyNot('1h', live, window, [now - 1000, now], now)).toBe('data begin 17 min ago')
    expect(whyNot('', live, window, [now - 200, now], now)).toBe('data begin 200 s ago'.replace('200 s', '3 min 20 s'))
    // A window of long ago, and data that ended.
    expect(whyNot('1h', live, [now - 300, now], [now - 9 * hour, now - 3 * hour], now)).toBe('data end 3 h ago')
  })
  it('does not overlap the window', () => expect(whyNot('1h', parse('#window=6h'), [now - 6 * hour, now], there, now)).toBe('shorter than the window'))
  it('is not known before the server has told', () => expect(whyNot('7d', live, window, undefined, now)).toBeUndefined())
})
