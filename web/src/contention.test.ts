import { describe, expect, it } from 'vitest'
import { textOf, waited } from './contention'

const by = (name: string, value: number, id = name) => ({ name, id: id || undefined, seconds: value * 60, ms_per_second: value * 1000, preemptions: 0 })
const say = (...a: Parameters<typeof waited>) => {
  const w = waited(...a)
  return w && textOf(w)
}

describe('who took the CPU', () => {
  it('is said with the greatest first', () => expect(say([by('batch', 0.031, 'c1')], 0.007)).toBe('waited 38 ms/s: 31 behind batch, 7 own quota'))
  it('says nothing where nothing is known', () => {
    expect(waited([], 0)).toBeUndefined()
    expect(waited([by('batch', 0)], 0)).toBeUndefined()
  })
  it('says nothing of less than a millisecond a second', () => expect(waited([by('batch', 0.0004)], 0.0005)).toBeUndefined())
  it('has words for those that are no container', () =>
    expect(say([by('own', 0.02, ''), by('other', 0.01, ''), by('idle', 0.003, '')], 0)).toBe('waited 33 ms/s: 20 behind own threads, 10 behind others, 3 while a CPU was idle'))
  it('takes what a quota explains for the quota alone', () => expect(say([by('idle', 0.02, ''), by('x', 0.005)], 0.015)).toBe('waited 25 ms/s: 15 own quota, 5 while a CPU was idle, 5 behind x'))
  it('counts a quota once where the waits tell of it', () =>
    expect(say([by('quota', 0.04, ''), by('idle', 0.02, ''), by('migrated', 0.003, '')], 0.03)).toBe('waited 63 ms/s: 40 own quota, 20 while a CPU was idle, 3 on a CPU that it was moved away from'))
  it('believes the id and not the name: a container may be called "own" or "quota"', () => {
    expect(say([by('own', 0.02, 'abc'), by('own', 0.01, '')], 0)).toBe('waited 30 ms/s: 20 behind own, 10 behind own threads')
    expect(say([by('a', 0.002, '1'), by('a', 0.002, '2')], 0)).toBe('waited 4 ms/s: 2 behind a, 2 behind a')
  })
  it('keeps the sum when many are left out', () => {
    const w = waited(Array.from({ length: 9 }, (_, i) => by(`c${i}`, 0.01 - i / 1000)), 0)!
    expect(w.parts).toHaveLength(5)
    expect(w.parts.reduce((sum, p) => sum + p.ms, 0)).toBeCloseTo(w.total)
    expect(textOf(w)).toBe('waited 54 ms/s: 10 behind c0, 9 behind c1, 8 behind c2, 7 behind c3, 20 for the rest')
  })
  it('adds up what is told of several hosts or CPUs', () => expect(say([by('b', 0.002), by('b', 0.003)], 0.002)).toBe('waited 7 ms/s: 5 behind b, 2 own quota'))
})
