import { describe, expect, it } from 'vitest'
import { around, clockOf, indexAt, keyOf, labelOf, lengthOf, markOf, place, ROWS, ticksOf, widen } from './strip'
import type { Flight, Mark } from './types'

const stall = (from_ms: number, more: Partial<Mark> = {}): Mark => ({
  kind: 'stall', container: 'catalogue', id: 'c1', from_ms, to_ms: from_ms + 80, duration_ms: 80, resolution_ms: 50, open_end: false, sustained: false,
  waited_ms: 100, text: '', cpu: [{ container: 'payment', cpus: 0.2, usual_cpus: 0.1 }, { container: 'catalogue', cpus: 0.05, usual_cpus: 0 }], effects: [], chain: [], edges: [], ...more,
})
const flight = (marks: Mark[]) => ({ base_ms: 60_000, interval_ms: 50, marks }) as Flight

describe('the axis', () => {
  it('has round times, down to a millisecond', () => {
    expect(ticksOf([100, 60_100], 1000)).toEqual({ step: 10_000, at: [10_000, 20_000, 30_000, 40_000, 50_000, 60_000] })
    expect(ticksOf([1003, 1013], 1000)).toEqual({ step: 1, at: [1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011, 1012, 1013] })
    expect(ticksOf([0, 600_000], 700).step).toBe(120_000)
  })
  it('never has more labels than there is room for', () => {
    for (const length of [7, 30, 286, 1000, 59_999, 600_000, 3_600_000])
      for (const width of [150, 480, 1030]) expect(ticksOf([0, length], width).at.length).toBeLessThanOrEqual(width / 100 + 1)
  })
  it('tells milliseconds where they matter', () => {
    expect(clockOf(Date.UTC(2026, 0, 1, 0, 0, 7, 45), 50)).toMatch(/:07\.045$/)
    expect(clockOf(Date.UTC(2026, 0, 1, 0, 0, 7, 45), 1000)).toMatch(/:07$/)
    expect([0.5, 85.02, 286, 1000, 1340, 60_000, 300_000].map(lengthOf)).toEqual(['0.50 ms', '85 ms', '286 ms', '1 s', '1.34 s', '60 s', '5 min'])
  })
})

describe('saturations', () => {
  it('say what, how long, and who took the CPU', () => {
    expect(labelOf(stall(0))).toBe('catalogue stood still 80 ms')
    expect(labelOf(stall(0, { kind: 'run-queue' }))).toBe('catalogue waited for a CPU 80 ms · payment took 0.20')
    expect(labelOf(stall(0, { kind: 'host-cpu', container: 'payment' }))).toBe('all CPUs busy 80 ms · payment took 0.20')
  })
  it('are found by their key, also when their begin moves a little', () => {
    const marks = [stall(1000), stall(1100), stall(1000, { kind: 'one-cpu' })]
    expect(keyOf(marks[0]!, 60_000)).toBe('stall@61000')
    expect(markOf(flight(marks), 'stall@61004')).toBe(marks[0])
    expect(markOf(flight(marks), 'stall@61090')).toBe(marks[1])
    expect(markOf(flight(marks), 'stall@62000')).toBeUndefined()
    expect(markOf(flight(marks), undefined)).toBeUndefined()
  })
  it('are found by their key while they last, where more ticks show an earlier begin', () => {
    const long = stall(1000, { to_ms: 3000 })
    expect(markOf(flight([long]), 'stall@62000')).toBe(long)
    expect(markOf(flight([long, stall(1990)]), 'stall@62000')!.from_ms).toBe(1990)
    expect(markOf(flight([long]), 'stall@63000')).toBeUndefined()
  })
  it('lie beside each other, those with a label first that made others wait the longest', () => {
    const many = Array.from({ length: 40 }, (_, i) => stall(i * 25, { waited_ms: i }))
    const placed = place(many, [0, 1000], 1000, (text) => text.length * 6)
    expect(placed).toHaveLength(40)
    const labelled = placed.filter((p) => p.label !== undefined)
    expect(labelled.length).toBeGreaterThan(ROWS)
    expect(labelled.at(-1)!.mark.waited_ms).toBe(39)
    for (const a of labelled)
      for (const b of labelled) {
        const [p, q] = [a, b].map((x) => [Math.min(x.x, x.label!), Math.max(x.x + x.width, x.label! + labelOf(x.mark).length * 6)] as const)
        expect(a === b || a.row !== b.row || p![1] <= q![0] || p![0] >= q![1]).toBe(true)
        expect(p![0] >= 0 && p![1] <= 1000).toBe(true)
      }
    // Those without room are bars below all labels.
    const below = placed.filter((p) => p.label === undefined)
    expect(below.length).toBeGreaterThan(0)
    expect(new Set(below.map((p) => p.row))).toEqual(new Set([ROWS]))
  })
  it('of one container have a label before those of all of the host, and lie on top', () => {
    const busy = Array.from({ length: 30 }, (_, i) => stall(i * 30, { kind: 'run-queue', waited_ms: 1000 }))
    const placed = place([...busy, stall(450, { waited_ms: 1 })], [0, 1000], 1000, () => 150)
    expect(placed.at(-1)!.mark.kind).toBe('stall')
    expect(placed.at(-1)!.label).toBeDefined()
  })
  it('are cut at the edges, and never too narrow to be seen', () => {
    const [long] = place([stall(-500, { to_ms: 2000 })], [0, 1000], 400, () => 50)
    expect([long!.x, long!.width, long!.row]).toEqual([0, 400, 0])
    const [short] = place([stall(30_000)], [0, 60_000], 1000, () => 50)
    expect(short!.width).toBe(3)
  })
})

describe('the range', () => {
  it('widens around its middle, within what is kept', () => {
    expect(widen([1000, 1100], [0, 60_000])).toEqual([850, 1250])
    expect(widen([0, 100], [0, 60_000])).toEqual([0, 400])
    expect(widen([59_900, 60_000], [0, 60_000])).toEqual([59_600, 60_000])
    expect(widen([10_000, 50_000], [0, 60_000])).toEqual([0, 60_000])
    expect(around(stall(1000))).toEqual([900, 1180])
  })
  it('finds the value at a time', () => {
    expect([5, 10, 14, 15, 99].map((t) => indexAt([10, 15, 20], t))).toEqual([-1, 0, 0, 1, 2])
  })
})
