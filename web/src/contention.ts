import type { ContentionAnswer } from './types'

// Who took the CPU that a container waited for: "cart waited 38 ms/s: 31 behind batch, 7 own quota".

export interface Waited {
  /** Milliseconds of waiting per second, all threads together. */
  total: number
  parts: { ms: number; text: string; id?: string }[]
}

/** Under so many ms per second it is not worth a word. */
export const LEAST = 1

/** At most so many are named. */
const NAMED = 4

const WORDS: Record<string, string> = { own: 'own threads', idle: 'while a CPU was idle', other: 'others', quota: 'own quota', migrated: 'on a CPU that it was moved away from' }

/** What a node waited: that of all of its containers; undefined where none did. */
export const byOf = (a: ContentionAnswer): ContentionAnswer['containers'][number]['by'] => a.containers.flatMap((c) => c.by)

/**
 * What a container waited for: milliseconds of waiting per second by who ran meanwhile, and the time per second for
 * which its own quota held it back. Waiting beside an idle CPU is what a quota looks like, so that it is not
 * counted twice. Undefined where nothing is known, or nothing worth a word.
 */
export function waited(by: ContentionAnswer['containers'][number]['by'], throttledSeconds: number): Waited | undefined {
  if (by.length === 0 && !throttledSeconds) return undefined
  // Newer kernels say which waits were the quota's: then it is among the parts already.
  const known = by.some((s) => s.name === 'quota' && !s.id)
  const quota = known ? 0 : Math.max(0, throttledSeconds) * 1000
  const sums = new Map<string, { ms: number; text: string; id?: string }>()
  for (const s of by) {
    const { name = 'other', id = '' } = s
    const fixed = WORDS[name]
    const key = fixed && (id === '' || id === name) ? name : id || name
    const part = sums.get(key) ?? { ms: 0, text: fixed && key === name ? (name === 'own' || name === 'other' ? `behind ${fixed}` : fixed) : `behind ${name || id.slice(0, 12)}`, ...(key === name && fixed ? {} : { id }) }
    part.ms += Math.max(0, s.ms_per_second)
    sums.set(key, part)
  }
  const idle = sums.get('idle')
  if (idle) idle.ms = Math.max(0, idle.ms - quota)
  const parts = [...sums.values(), { ms: quota, text: 'own quota' }].filter((p) => p.ms > 0).sort((a, b) => b.ms - a.ms)
  const total = parts.reduce((sum, p) => sum + p.ms, 0)
  if (total < LEAST) return undefined
  // What rounds to nothing, and what is beyond the first few, is one part.
  const named = parts.slice(0, NAMED).filter((p) => p.ms >= 0.5)
  const rest = total - named.reduce((sum, p) => sum + p.ms, 0)
  if (rest >= 0.5) named.push({ ms: rest, text: 'for the rest' })
  return { total, parts: named }
}

/** Milliseconds per second as they are shown. */
export const msOf = (v: number): string => (v < 9.95 ? String(Number(v.toFixed(1))) : String(Math.round(v)))

/** The same as a sentence, without the name. */
export const textOf = (w: Waited): string => `waited ${msOf(w.total)} ms/s: ${w.parts.map((p) => `${msOf(p.ms)} ${p.text}`).join(', ')}`
