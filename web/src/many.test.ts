import { describe, expect, it } from 'vitest'
import { drawnOf, FEW, foundBy, READABLE, saidOf } from './many'
import type { Edge, Node } from './types'

const edge = (client: string, server: string, bytes = 1) => ({ id: `${client}>${server}`, client, server, client_side: { request_bytes_per_second: bytes } }) as Edge
/** A chain of so many nodes, the busier the later. */
const chain = (n: number) => Array.from({ length: n - 1 }, (_, i) => edge(`n${i}`, `n${i + 1}`, i))
const none = new Set<string>()

describe('a map with many nodes', () => {
  it('is drawn as it is while it can be read, or when all is asked for', () => {
    expect(drawnOf(chain(READABLE), false, undefined, none)).toMatchObject({ nodes: READABLE, drawn: READABLE })
    expect(drawnOf(chain(500), true, undefined, none).edges).toHaveLength(499)
    expect(saidOf(drawnOf(chain(5), false, undefined, none), false)).toBe('')
  })
  it('has the busiest of more, in the order in which they came', () => {
    const d = drawnOf(chain(500), false, undefined, none)
    expect(d).toMatchObject({ nodes: 500, drawn: FEW })
    expect(d.edges.at(-1)!.id).toBe('n498>n499')
    expect(d.edges).toEqual([...d.edges].sort((a, b) => Number(a.id.match(/\d+/)![0]) - Number(b.id.match(/\d+/)![0])))
    expect(saidOf(d, false)).toMatch(/^The 80 of 500 nodes/)
  })
  it('has what is searched for and its neighbours', () => {
    const found = foundBy([{ id: 'n7', name: 'cart' }, { id: 'n8', name: 'x' }] as Node[], (n) => n.name.includes('cart'))
    const d = drawnOf(chain(500), false, found, none)
    expect(d.edges.map((e) => e.id)).toEqual(['n6>n7', 'n7>n8'])
    expect(saidOf(d, true)).toMatch(/^3 of 500 nodes/)
  })
  it('has what is chosen, however quiet it is', () => {
    expect(drawnOf(chain(500), false, undefined, new Set(['n0'])).edges[0]!.id).toBe('n0>n1')
    expect(drawnOf(chain(500), false, undefined, new Set(['n3>n4'])).edges[0]!.id).toBe('n3>n4')
  })
  it('counts one that calls itself once', () => expect(drawnOf([...chain(500), edge('n499', 'n499', 1000)], false, undefined, none).drawn).toBe(FEW))
})
