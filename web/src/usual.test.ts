import { describe, expect, it } from 'vitest'
import type { Baseline, Edge, Side, Usual } from './types'
import { isBefore, paceLegend, paceOf, pacesOf, paceText, usualOf } from './usual'

const side = (transactions: number, all: number, more: Partial<Side> = {}): Side => ({ transactions, p50: all, p90: all, p99: all, ...more }) as Side
const usual = (transactions: number, all: number, more: Partial<Usual> = {}): Usual => ({ transactions, p50: all, p90: all, p99: all, ...more })
const baseline = (edges: Record<string, Usual>, covered = 3600): Baseline => ({ from: '', to: '', covered_seconds: covered, edges })

describe('the pace of an edge against its own past hour', () => {
  it('is warm from twice on, and hot from four times on', () => {
    expect([0.0199, 0.02, 0.0399, 0.04, 0.001].map((v) => paceOf(side(5000, v), usual(5000, 0.01)).heat)).toEqual(['calm', 'warm', 'warm', 'hot', 'calm'])
  })
  it('is that of all edges where all slow down, whatever the others do', () => {
    const edges = ['a', 'b', 'c'].map((id, i) => ({ id, client_side: side(5000, 0.05 * 10 ** i) }) as Edge)
    const paces = pacesOf(edges, baseline(Object.fromEntries(edges.map((e, i) => [e.id, usual(9000, 0.01 * 10 ** i)]))))
    expect([...paces.values()].map((p) => p.heat)).toEqual(['hot', 'hot', 'hot'])
  })
  it('is calm for what is always slow', () => {
    expect(paceOf(side(5000, 2), usual(5000, 1.9)).heat).toBe('calm')
    expect(paceOf(side(5000, Infinity, { p99: '+Inf' }), usual(5000, 1, { p99: '+Inf' })).heat).toBe('calm')
    expect(paceOf(side(5000, 1, { p99: '+Inf' }), usual(5000, 1)).heat).toBe('hot')
  })
  it('goes by the highest quantile that has ten transactions above it in both times', () => {
    const now = (n: number) => side(n, 0.01, { p90: 0.02, p99: 0.1 })
    expect([1000, 999, 100, 99, 20, 19].map((n) => paceOf(now(n), usual(1e6, 0.01)).quantile)).toEqual(['p99', 'p90', 'p90', 'p50', 'p50', undefined])
    expect(paceOf(now(1e6), usual(150, 0.01))).toMatchObject({ quantile: 'p90', heat: 'warm', times: 2 })
  })
  it('is no matter of some microseconds', () => {
    expect(paceOf(side(5000, 0.0003), usual(5000, 0.00003)).heat).toBe('calm')
    expect(paceOf(side(5000, 0.0004), usual(5000, 0.00003)).heat).toBe('hot')
    expect(paceOf(side(5000, 0.0004), usual(5000, 0)).heat).toBe('hot')
  })
  it('is calm, and says nothing, without a past', () => {
    for (const p of [paceOf(), paceOf(side(5000, 1)), paceOf(undefined, usual(1, 1)), paceOf(side(5000, 1, { p99: undefined, p90: undefined, p50: undefined }), usual(5000, 1))]) {
      expect(p).toEqual({ heat: 'calm' })
      expect(paceText(p)).toBe('')
    }
    expect(paceLegend(baseline({}, 59))).toBeUndefined()
    expect(usualOf({ id: 'a' } as Edge, baseline({ a: usual(1, 1) }, 59))).toBeUndefined()
    expect(usualOf({ id: 'a' } as Edge, baseline({ a: usual(1, 1) }, 60))).toBeDefined()
  })
  it('is of the hour before the window that is shown', () => {
    const gap = (s: number) => isBefore({ to: '2026-11-23T20:00:00Z' }, { from: new Date(Date.parse('2026-11-23T20:00:00Z') + s * 1000).toISOString() })
    expect([-3600, -2, 0, 70, 800, 1000].map(gap)).toEqual([false, false, true, true, true, false])
  })
  it('has the absolute numbers beside it', () => {
    expect(paceText(paceOf(side(5000, 0.0142), usual(5000, 0.00346)), baseline({}))).toBe('p99 14.2 ms, 4.1 × the 3.46 ms of its past hour')
    expect(paceText(paceOf(side(5000, 0.5), usual(5000, 0.01)), baseline({}, 300))).toBe('p99 500 ms, 50 × the 10.0 ms of its past 5 min')
    expect(paceLegend(baseline({}))).toEqual({ warm: '2 × slower', hot: '4 × slower than its own past hour' })
  })
})
