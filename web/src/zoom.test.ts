import { describe, expect, it } from 'vitest'
import type { Options, Placed } from './layout'
import { fontAt, lastPart, LEAST_FONT, narrowed, scaleOf, scrolled, twoLines } from './zoom'

const frame = { width: 1400, height: 600 }

describe('the scale of a map', () => {
  it('is that of its frame, as long as names have room', () => {
    expect([{ width: 1000, height: 400 }, { width: 1750, height: 400 }, { width: 9000, height: 400 }].map((m) => scaleOf('auto', m, frame))).toEqual([1, 0.8, 0.62])
  })
  it('shows all of it where it is asked to, and is bounded', () => {
    expect(scaleOf('fit', { width: 1400, height: 1200 }, frame)).toBe(0.5)
    expect(scaleOf('fit', { width: 90_000, height: 1200 }, frame)).toBe(0.25)
    expect([0.01, 0.5, 50].map((z) => scaleOf(z, frame, frame))).toEqual([0.25, 0.5, 3])
    expect(scaleOf('fit', { width: 0, height: 0 }, frame)).toBe(1)
    expect(scaleOf('auto', frame, { width: 0, height: 0 })).toBe(1)
  })
  it('never makes letters smaller than 11 px', () => {
    for (const size of [11, 13]) for (let scale = 0.25; scale <= 3; scale += 0.05) expect(fontAt(size, scale) * scale).toBeGreaterThanOrEqual(LEAST_FONT - 1e-9)
    expect(fontAt(13, 1)).toBe(13)
  })
  it('keeps what is at the pointer where it is', () => {
    expect(scrolled(100, 50, 1, 2)).toBe(250)
    expect(scrolled(scrolled(100, 50, 1, 2), 50, 2, 1)).toBe(100)
  })
})

describe('a narrow frame', () => {
  const shape: Options = { direction: 'down', node: { width: 140, height: 56 }, label: { width: 100, height: 22 }, layerGap: 80, nodeGap: 12 }
  const placed = (width: number) => ({ width }) as Placed
  it('has narrower nodes, so that the broadest row fits', () => {
    expect(narrowed(shape, placed(292), 350)).toBeUndefined()
    const four = narrowed(shape, placed(4 * 152 - 12), 350)!
    expect(4 * four.node.width + 3 * four.nodeGap).toBeLessThanOrEqual(350)
    expect(four.node.width).toBe(83)
    expect(narrowed(shape, placed(20 * 152), 350)!.node.width).toBe(72)
  })
  it('has the latency alone, and all of what has no parts', () => expect(['120/s · 3.2 ms', '0.20 packets/s', ''].map(lastPart)).toEqual(['3.2 ms', '0.20 packets/s', '']))
  it('parts names where they can be', () => {
    expect(['shop-catalogue', 'a-b-c', 'postgres', 'x', '-y'].map(twoLines)).toEqual([['shop-', 'catalogue'], ['a-', 'b-c'], ['post', 'gres'], ['x', ''], ['-', 'y']])
  })
})
