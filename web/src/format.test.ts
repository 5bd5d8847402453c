import { describe, expect, it } from 'vitest'
import { bytes, counted, duration, floorPercent, format, lackingOn, missing, span, unmatched, whenOf } from './format'
import type { Affected, Graph, Side } from './types'

describe('units', () => {
  const cases: [string, string][] = [
    [duration(0), '< 1.02 µs'],
    [duration(0.00312), '3.12 ms'],
    [duration(0.0009996), '1.00 ms'],
    [duration(0.9996), '1.00 s'],
    [duration(0.0999), '99.9 ms'],
    [duration(12), '12.0 s'],
    [duration('+Inf'), '> 68.7 s'],
    [duration(undefined), '–'],
    [duration(-0.0002), '−200 µs'],
    [format(0, '/s'), '0/s'],
    [format(999.6, '/s'), '1.00k/s'],
    [format(0.0005, '/s'), '0.0005/s'],
    [format(0.00123, '/s'), '0.0012/s'],
    [format(1_240_000, 'B/s'), '1.24 MB/s'],
    [format(12, 'B/s'), '12.0 B/s'],
    [format(13107200, 'B'), '12.5 MiB'],
    [bytes(1000), '0.98 KiB'],
    [format(0.4211, 'cores'), '0.421'],
    [format(0.0001, 'cores'), '< 0.001'],
    [format(0.031, 'ratio'), '3.10 %'],
    [format(12345, ''), '12,345'],
    [format(undefined, '/s'), '–'],
    [span(59), '59 s'],
    [span(300), '5 min'],
    [span(200), '3 min 20 s'],
    [span(3600), '60 min'],
    [span(21600), '6 h'],
    [span(8100), '2 h 15 min'],
  ]
  it.each(cases)('%s is %s', (got, want) => expect(got).toBe(want))
})

describe('what is missing', () => {
  const graph = (rest: Partial<Graph>, lacks = {}) =>
    ({ omitted_edges: 0, completeness: { state: 'incomplete', tables: [], sinks: [], ...lacks }, ...rest }) as unknown as Graph
  it('is nothing where nothing was lost', () => expect(missing(graph({}))).toEqual([]))
  it('tells what was received and not counted, and never rounds it away', () => {
    expect(missing(graph({ counted_share: { vm: 1 } }))).toEqual([])
    expect(missing(graph({ counted_share: { vm: 0.99999 } }))[0]).toMatch(/^99.9 % of the bytes received on vm/)
    expect(counted(graph({ counted_share: { a: 1, b: 0.5 } }))).toBe(0.5)
    expect(counted(graph({ counted_share: {} }))).toBeUndefined()
    expect([floorPercent(1), floorPercent(0.99999)]).toEqual(['100 %', '99.9 %'])
  })
  it('tells the share of edges and of traffic to where nobody is known', () => {
    expect(unmatched(graph({ unmatched_share: 0.125, unmatched_bytes_share: 0.0004 }))).toBe('13 % of edges, < 0.1 % of traffic')
    expect(unmatched(graph({ unmatched_share: 0.4, unmatched_bytes_share: 1 }))).toBe('40 % of edges, 100 % of traffic')
    expect(unmatched(graph({ unmatched_share: 0, unmatched_bytes_share: 0 }))).toBe('')
  })
  it('names each table, each kind of thing left out, and no sink', () => {
    const tables = [{ host: 'vm', name: 'edges', dropped: 12345, used: 16384, capacity: 16384, full: true, affects: 'edges' as const }, { host: 'vm', name: 'connections', dropped: 1 }]
    const unplaced = { request_bytes: 1024000, response_bytes: 1024 } as Side
    expect(missing(graph({ omitted_edges: 4, unplaced }, { tables, sinks: [{ host: 'vm', name: 'agent/sink-store', dropped: 3 }] }))).toEqual([
      'bytes, requests and latency of edges: 12,345 drops of “edges”, which is full',
      'any number: 1 drops of “connections”',
      '0.98 MiB of connections are in no edge, because the table of edges was full',
      '4 less busy edges are left out',
    ])
  })
})

describe('what lacks something on the screen', () => {
  const graph = (affects: (Affected | undefined)[], rest: Partial<Graph> = {}) =>
    ({ omitted_edges: 0, completeness: { tables: affects.map((affects) => ({ host: 'vm', name: 'x', dropped: 1, affects })), sinks: [] }, ...rest }) as unknown as Graph
  it('is nothing where other numbers lack it', () => {
    expect(lackingOn(graph(['contention', 'flight', 'names', 'endpoints', 'disks', 'energy', 'history']), { view: 'map' })).toEqual([])
    expect(lackingOn(graph(['usage', 'edges']), { view: 'recordings' })).toEqual([])
    expect(lackingOn(graph(['edges']), { view: 'hosts' })).toEqual([])
  })
  it('is what the view shows, once', () => {
    expect(lackingOn(graph(['usage', 'edges', 'edges']), { view: 'map' })).toEqual(['CPU, memory and I/O of containers', 'bytes, requests and latency of edges'])
    expect(lackingOn(graph(['edges', 'usage']), { view: 'matrix' })).toEqual(['bytes, requests and latency of edges'])
    expect(lackingOn(graph([undefined]), { view: 'recordings' })).toEqual(['any number'])
  })
  it('is of the panel and the strip, where they are open', () => {
    expect(lackingOn(graph(['contention', 'endpoints']), { view: 'map', edge: 'a>b' })).toEqual(['who waited behind whom', 'requests by endpoint'])
    expect(lackingOn(graph(['flight']), { view: 'map', strip: 60 })).toEqual(['ticks of the last minutes'])
  })
  it('is what is left out of a graph', () => {
    expect(lackingOn(graph([], { unplaced: {} as Side, omitted_edges: 2 }), { view: 'map' })).toEqual(['bytes, requests and latency of edges', 'edges'])
  })
})

describe('a window', () => {
  it('has its date, its time and its zone', () => {
    const at = (text: string) => Date.parse(text) / 1000
    expect(whenOf(at('2026-11-23T20:01:36'), at('2026-11-23T20:06:36'))).toMatch(/^23 Nov 2026, 20:01:36 – 20:06:36 UTC([+−]\d+(:\d\d)?)?$/)
    expect(whenOf(at('2026-12-31T23:59:00'), at('2027-01-01T00:04:00'))).toMatch(/^31 Dec 2026, 23:59:00 – 1 Jan 2027, 00:04:00 UTC/)
  })
})
