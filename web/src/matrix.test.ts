import { describe, expect, it } from 'vitest'
import { askedOf, cellChoicesOf, choiceOf, choicesOf, frameOf, NAME, next, numberOf, scaleOf, steady, STEPS, textOf, TURN, valueOf } from './matrix'
import type { Edge, Graph, Matrix, MatrixCell, NumberInfo, Seconds } from './types'

const cell = (row: number, column: number, numbers: Record<string, Seconds> = {}): MatrixCell => ({ row, column, edges: [`${row}>${column}`], edge_count: 1, numbers })
const p99: NumberInfo = { key: 'p99', title: 'p99', unit: 's', query: '' }
const rate: NumberInfo = { key: 'transactions_per_second', title: 'Requests', unit: '/s', query: '' }
const loss: NumberInfo = { key: 'loss_ratio', title: 'Lost both ways', unit: 'ratio', query: '' }
const graph = {
  numbers: {
    side: [rate, p99, { ...rate, key: 'brand_new', title: 'Brand new' }],
    ends: [{ ...p99, key: 'delay_there_p50' }, loss, { ...p99, key: 'server_seconds' }],
    probe: [{ ...p99, key: 'probe_jitter' }, { ...rate, key: 'capacity_there' }],
  },
} as unknown as Graph

it('offers what the registry has, also what this page does not know yet', () => {
  expect(choicesOf(graph).map((group) => [group.title, group.numbers.map((n) => n.key)])).toEqual([
    ['Traffic', ['bytes_per_second', 'bytes']], ['Requests', ['transactions_per_second']], ['Latency', ['p99']],
    ['Between the ends', ['delay_there_p50', 'loss_ratio']], ['Where the time goes', ['server_seconds']], ['Others', ['brand_new']]])
  expect(cellChoicesOf(graph, 'pod')).toEqual(choicesOf(graph))
  expect(cellChoicesOf(graph, 'container')).toEqual([...choicesOf(graph), { title: 'Measured between the two', numbers: [graph.numbers.probe[0]] }, { title: 'Capacity, measured on request', numbers: [graph.numbers.probe[1]] }])
  expect(cellChoicesOf(graph, 'host').at(-1)).toMatchObject({ title: 'Measured between the two', numbers: [{ key: 'probe_jitter' }] })
  expect([choiceOf(graph, 'probe_jitter', 'host').key, choiceOf(graph, 'probe_jitter', 'pod').key]).toEqual(['probe_jitter', 'bytes_per_second'])
  expect([choiceOf(graph, 'capacity_there').key, choiceOf(graph, 'capacity_there', 'host').key]).toEqual(['capacity_there', 'bytes_per_second'])
  expect([choiceOf(graph, 'p99').key, choiceOf(graph, 'gone').key]).toEqual(['p99', 'bytes_per_second'])
  expect([askedOf('p99'), askedOf('jitter')]).toEqual(['p99,bytes_per_second,transactions_per_second', 'jitter,bytes_per_second,transactions_per_second,p99'])
})

it('reads the number of an edge of the map', () => {
  const e = { client_side: { request_bytes: 3, response_bytes: 4, request_bytes_per_second: 1, p99: 0 }, network_seconds: -1e-9 } as unknown as Edge
  const of = (key: string, unit: NumberInfo['unit']) => numberOf(e, { key, title: '', unit, query: '' })
  expect([of('bytes', 'B'), of('bytes_per_second', 'B/s'), of('p99', 's'), of('jitter', 's')]).toEqual([7, 1, 0, undefined])
  expect(numberOf({} as Edge, p99)).toBeUndefined()
  const both = { split: { server_seconds: 3 }, network: { delay_there_p50: '+Inf', loss_ratio: 0 } } as unknown as Edge
  expect(['server_seconds', 'delay_there_p50', 'network_seconds'].map((key) => numberOf(both, { ...p99, key }))).toEqual([3, '+Inf', undefined])
  expect([numberOf(both, loss), numberOf({} as Edge, loss)]).toEqual([0, undefined])
})

describe('the scale of a heat map', () => {
  it('is logarithmic, from the least value to the greatest', () => {
    const s = scaleOf([1, 1e9, 31, 1000, 0])
    expect([1, 1e9, 1.1, 9.9, 10.1, 9.9e8].map(s.step)).toEqual([0, STEPS - 1, 0, 0, 1, STEPS - 1])
    expect([s.low, s.high]).toEqual([1, 1e9])
  })
  it('has an answer for nothing, for one value, and for what is past a histogram', () => {
    expect(scaleOf([]).step(0)).toBe(0)
    expect([scaleOf([0, 0]).step(0), scaleOf([0, 0.1]).step(0), scaleOf([0, 0.1]).step(0.1)]).toEqual([0, 0, STEPS - 1])
    expect(scaleOf([0.003]).step(0.003)).toBe(STEPS - 1)
    const s = scaleOf([0.001, '+Inf', 0.1])
    expect(['+Inf' as const, 0, 0.1].map(s.step)).toEqual([STEPS - 1, 0, STEPS - 1])
    expect(s.high).toBe(0.1)
  })
})

describe('a cell', () => {
  it('has a value only where something happened', () => {
    expect(valueOf({ transactions_per_second: 0 }, rate)).toBeUndefined()
    expect(valueOf({ p99: 0 }, p99)).toBe(0)
    expect(valueOf({}, p99)).toBeUndefined()
    // That nothing was lost was measured; that nothing is known of it is no 0.
    expect([valueOf({ loss_ratio: 0 }, loss), valueOf({}, loss)]).toEqual([0, undefined])
  })
  it('says what is shown, and what else is known', () => {
    expect(textOf({ bytes_per_second: 1200, transactions_per_second: 12, p99: 0.0031 }, p99)).toBe('p99 3.10 ms · 1.20 kB/s · 12.0/s requests')
    expect(textOf({ bytes_per_second: 5 }, rate)).toBe('Requests – · 5.00 B/s')
  })
})

describe('the frame of a heat map', () => {
  // Turned names are parallel lines: what parts them is the columns' distance times the sine.
  const apart = (n: number, width: number) => {
    const f = frameOf(n, n, width)
    return f.turned ? f.every * f.cell.width * Math.sin((TURN * Math.PI) / 180) : f.cell.width
  }
  it('lets no name lie on another, however many there are', () => {
    for (const width of [360, 760, 1240, 1880]) for (const n of [1, 2, 8, 20, 60, 200]) {
      const f = frameOf(n, n, width)
      expect(apart(n, width), `${n} in ${width}`).toBeGreaterThanOrEqual(f.turned ? 13.9 : 76)
      expect(f.cell.height).toBeGreaterThanOrEqual(14)
      expect(f.width).toBeGreaterThanOrEqual(f.left + n * f.cell.width)
    }
  })
  it('shows every name of 8 nodes upright, and of 60 turned, without scrolling', () => {
    expect(frameOf(8, 8, 1240)).toMatchObject({ turned: false, every: 1 })
    const many = frameOf(60, 60, 1240)
    expect(many).toMatchObject({ turned: true, every: 2 })
    expect(many.width).toBeLessThanOrEqual(1240)
    expect(frameOf(60, 60, 1880).every).toBe(1)
    expect(many.top).toBeGreaterThan(NAME.column * 0.7)
  })
})

it('keeps the order of rows and columns while they are the same', () => {
  const ends = (...ids: string[]) => ids.map((id) => ({ id, name: id, kind: 'container', sum: {} }) as Matrix['rows'][0])
  const of = (rows: Matrix['rows'], columns: Matrix['columns']) => ({ rows, columns, cells: [cell(0, 1), cell(1, 0)] }) as unknown as Matrix
  const kept = steady(of(ends('b', 'a'), ends('x', 'y')), of(ends('a', 'b'), ends('x', 'z')))
  expect([kept.rows, kept.columns].map((l) => l.map((e) => e.id))).toEqual([['a', 'b'], ['x', 'y']])
  expect(kept.cells.map((c) => [c.row, c.column])).toEqual([[1, 1], [0, 0]])
  expect(steady(of(ends('b', 'a'), ends('x', 'y')), undefined).rows.map((e) => e.id)).toEqual(['b', 'a'])
})

describe('the arrow keys', () => {
  const cells = [cell(0, 1), cell(0, 4), cell(2, 0), cell(2, 4)]
  const go = (at: MatrixCell, key: string) => next(cells, at, key)?.edges[0]
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
