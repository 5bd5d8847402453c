import { describe, expect, it } from 'vitest'
import { factsOf, pairing, unseen } from './facts'
import type { Edge, NumberInfo, Side } from './types'

const info = (key: string, unit: NumberInfo['unit'] = ''): NumberInfo => ({ key, title: key, unit, query: key })
const numbers = [info('p50', 's'), info('transactions'), info('rtt_min', 's'), info('resets'), info('held'), info('pushes'), info('unseen_bytes', 'B'), info('new')]
const edge = (client: Partial<Side>, rest: Partial<Edge> = {}) => ({ transport: 'tcp', paired: false, confidence: 'none', client_side: client, ...rest }) as Edge
const shown = (e: Edge) => factsOf(e, numbers).map((g) => `${g.title}: ${g.rows.map((r) => r.key)}`)

describe('facts of an edge', () => {
  it('are in groups, without those that are 0 or not there', () =>
    expect(shown(edge({ transactions: 5, p50: 0.1, resets: 0, pushes: 3 }))).toEqual(['Requests: transactions', 'Latency: p50', 'Streams: pushes']))
  it('are shown where one side has them', () =>
    expect(shown(edge({ resets: 0 }, { server_side: { resets: 2 } as Side }))).toEqual(['Connection: resets']))
  it('keep durations that are too short to tell', () => expect(shown(edge({ p50: 0 }))).toEqual(['Latency: p50']))
  it('keep numbers of a newer server', () => expect(shown(edge({ new: 1 } as unknown as Side))).toEqual(['Others: new']))
})

describe('worth of an edge', () => {
  it('tells what was not seen', () => {
    expect(unseen(edge({ completeness: 1 }, { server_side: {} as Side }))).toBeUndefined()
    expect(unseen(edge({ completeness: 0.9999 }))).toMatch(/^99.9 %/)
    expect(unseen(edge({ completeness: 1 }, { server_side: { completeness: 0.5 } as Side }))).toMatch(/^50 %/)
  })
  it('tells how the ends were found', () => {
    expect(pairing(edge({}, { paired: true, server_side: {} as Side }))).toMatch(/^Paired/)
    expect(pairing(edge({}, { confidence: 'listener' }))).toMatch(/client side.*listens/)
    expect(pairing(edge({}))).toMatch(/outside/)
  })
})
