import { describe, expect, it } from 'vitest'
import { cellsOf, frameOf, NAME, next, scaleOf, steady, STEPS, textOf, TURN, valueOf } from './heat'
import type { Heat, HeatCell } from './types'

const cell = (source: number, destination: number, rest: Partial<HeatCell> = {}): HeatCell => ({ source, destination, edge: `${source}>${destination}`, ...rest })

describe('the scale of a heat map', () => {
  it('is logarithmic, from the least value to the greatest', () => {
    const s = scaleOf([1, 1e9, 31, 1000, 0])
    expect([1, 1e9, 1.1, 9.9, 10.1, 9.9e8].map(s.step)).toEqual([0, STEPS - 1, 0, 0, 1, STEPS - 1])
    expect([s.low, s.high]).toEqual([1, 1e9])
  })
  it('has an answer for nothing, for one value, and for what is past a histogram', () => {
    expect(scaleOf([]).step(0)).toBe(0)
    expect(scaleOf([0.003]).step(0.003)).toBe(STEPS - 1)
    const s = scaleOf([0.001, '+Inf', 0.1])
    expect(['+Inf' as const, 0, 0.1].map(s.step)).toEqual([STEPS - 1, 0, STEPS - 1])
    expect(s.high).toBe(0.1)
  })
})

describe('a cell', () => {
  it('has a value only where something happened', () => {
    expect(valueOf(cell(0, 1, { bytes_per_second: 0 }), 'bytes')).toBeUndefined()
    expect(valueOf(cell(0, 1, { transactions_per_second: 0 }), 'requests')).toBeUndefined()
    expect(valueOf(cell(0, 1, { p99: 0 }), 'p99')).toBe(0)
    expect(valueOf(cell(0, 1), 'p99')).toBeUndefined()
  })
  it('of replies alone is one of bytes, but not of requests', () => {
    const cells = [cell(0, 1, { bytes_per_second: 5, transactions_per_second: 0 }), cell(1, 0, { bytes_per_second: 5 })]
    expect(cellsOf(cells, 'bytes')).toEqual(cells)
    expect(cellsOf(cells, 'p99')).toEqual([cells[0]])
  })
  it('says what is known', () => {
    expect(textOf(cell(0, 1, { bytes_per_second: 1200, transactions_per_second: 12, p99: 0.0031 }))).toBe('1.20 kB/s · 12.0/s requests · p99 3.10 ms')
    expect(textOf(cell(1, 0, { bytes_per_second: 5 }))).toBe('5.00 B/s · replies alone')
  })
})

describe('the frame of a heat map', () => {
  // Turned names are parallel lines: what parts them is the columns' distance times the sine.
  const apart = (n: number, width: number) => {
    const f = frameOf(n, width)
    return f.turned ? f.every * f.cell.width * Math.sin((TURN * Math.PI) / 180) : f.cell.width
  }
  it('lets no name lie on another, however many there are', () => {
    for (const width of [360, 760, 1240, 1880]) for (const n of [1, 2, 8, 20, 60, 200]) {
      const f = frameOf(n, width)
      expect(apart(n, width), `${n} in ${width}`).toBeGreaterThanOrEqual(f.turned ? 13.9 : 76)
      expect(f.cell.height).toBeGreaterThanOrEqual(14)
      expect(f.width).toBeGreaterThanOrEqual(f.left + n * f.cell.width)
    }
  })
  it('shows every name of 8 nodes upright, and of 60 turned, without scrolling', () => {
    expect(frameOf(8, 1240)).toMatchObject({ turned: false, every: 1 })
    const many = frameOf(60, 1240)
    expect(many).toMatchObject({ turned: true, every: 2 })
    expect(many.width).toBeLessThanOrEqual(1240)
    expect(frameOf(60, 1880).every).toBe(1)
    expect(many.top).toBeGreaterThan(NAME.column * 0.7)
  })
})

it('keeps the order of nodes while they are the same', () => {
  const heat = { nodes: ['b', 'a', 'c'], names: ['B', 'A', 'C'], cells: [cell(0, 2), cell(1, 0)] } as Heat
  const kept = steady(heat, ['a', 'b', 'c'])
  expect(kept.names).toEqual(['A', 'B', 'C'])
  expect(kept.cells.map((c) => [c.source, c.destination])).toEqual([[1, 2], [0, 1]])
  expect(steady(heat, ['a', 'b', 'd'])).toBe(heat)
  expect(steady(heat, [])).toBe(heat)
})

describe('the arrow keys', () => {
  const cells = [cell(0, 1), cell(0, 4), cell(2, 0), cell(2, 4)]
  const go = (at: HeatCell, key: string) => next(cells, at, key)?.edge
  it('go to the nearest cell in the line', () => {
    expect(go(cells[0]!, 'ArrowRight')).toBe('0>4')
    expect(go(cells[3]!, 'ArrowUp')).toBe('0>4')
    expect(go(cells[3]!, 'ArrowLeft')).toBe('2>0')
  })
  it('go to another line where this one has none', () => expect(go(cells[0]!, 'ArrowDown')).toBe('2>0'))
  it('stay where there is none', () => {
    expect(go(cells[0]!, 'ArrowUp')).toBeUndefined()
    expect(go(cells[0]!, 'a')).toBeUndefined()
  })
})
