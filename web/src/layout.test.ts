import { describe, expect, it } from 'vitest'
import { place, type Link, type Options } from './layout'

const right: Options = { direction: 'right', node: { width: 100, height: 40 }, label: { width: 60, height: 20 }, layerGap: 80, nodeGap: 20 }
const link = (from: string, to: string): Link => ({ id: `${from}>${to}`, from, to })

/** A graph that is the same in every run. */
function generated(nodes: number, edges: number) {
  let seed = 7
  const next = (n: number) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n
  const ids = Array.from({ length: nodes }, (_, i) => `n${i}`)
  const links = new Map<string, Link>()
  while (links.size < edges) {
    const l = link(`n${next(nodes)}`, `n${next(nodes)}`)
    links.set(l.id, l)
  }
  return { ids, links: [...links.values()] }
}

const overlaps = (points: { x: number; y: number }[], width: number, height: number) => {
  let n = 0
  for (let i = 0; i < points.length; i++) for (let j = i + 1; j < points.length; j++) if (Math.abs(points[i]!.x - points[j]!.x) < width - 0.1 && Math.abs(points[i]!.y - points[j]!.y) < height - 0.1) n++
  return n
}

describe('place', () => {
  it('puts the caller before the called', () => {
    const links = [link('gate', 'cart'), link('gate', 'pay'), link('cart', 'db'), link('pay', 'db'), link('gate', 'db')]
    const { nodes, edges } = place(['db', 'pay', 'cart', 'gate'], links, right)
    for (const l of links) expect(nodes.get(l.from)!.x).toBeLessThan(nodes.get(l.to)!.x)
    expect(edges.size).toBe(5)
    const down = place(['db', 'pay', 'cart', 'gate'], links, { ...right, direction: 'down' })
    for (const l of links) expect(down.nodes.get(l.from)!.y).toBeLessThan(down.nodes.get(l.to)!.y)
  })

  it('draws one link of a cycle backwards and keeps both apart', () => {
    const { edges } = place(['a', 'b'], [link('a', 'b'), link('b', 'a')], right)
    expect([...edges.values()].map((e) => e.back).sort()).toEqual([false, true])
    expect(edges.get('a>b')!.path).not.toBe(edges.get('b>a')!.path)
  })

  it('uncrosses what can be uncrossed', () => {
    const { nodes } = place(['a', 'b', 'x', 'y'], [link('a', 'y'), link('b', 'x'), link('a', 'x')], right)
    const crossed = (nodes.get('a')!.y - nodes.get('b')!.y) * (nodes.get('y')!.y - nodes.get('x')!.y) < 0
    expect(crossed).toBe(false)
  })

  it('leaves out a link to itself or to nobody', () => {
    const { nodes, edges } = place(['a', 'b'], [link('a', 'a'), link('a', 'gone'), link('a', 'b')], right)
    expect([...edges.keys()]).toEqual(['a>b'])
    expect(nodes.size).toBe(2)
  })

  it('lets no node and no label lie on another, and nothing outside', () => {
    const { ids, links } = generated(30, 45)
    for (const direction of ['right', 'down'] as const) {
      const p = place(ids, links, { ...right, direction })
      expect(p.nodes.size).toBe(30)
      if (direction === 'right') {
        const labels = [...p.edges.values()].map((e) => e.label)
        expect(overlaps(labels, 60, 20)).toBe(0)
        const on = labels.filter((l) => [...p.nodes.values()].some((n) => Math.abs(n.x - l.x) < 80 && Math.abs(n.y - l.y) < 30))
        expect(on).toEqual([])
      }
      expect(overlaps([...p.nodes.values()], 100, 40)).toBe(0)
      expect(p.edges.size).toBe(links.filter((l) => l.from !== l.to).length)
      for (const at of p.nodes.values()) {
        expect(at.x).toBeGreaterThanOrEqual(50)
        expect(at.y).toBeGreaterThanOrEqual(20)
        expect(at.x).toBeLessThanOrEqual(p.width - 49.9)
        expect(at.y).toBeLessThanOrEqual(p.height - 19.9)
      }
    }
  })

  it('gives the same drawing whenever it is asked', () => {
    const { ids, links } = generated(20, 30)
    expect([...place(ids, links, right).nodes]).toEqual([...place(ids, links, right).nodes])
  })

  it('puts parts of the past below', () => {
    const { nodes } = place(['a', 'b', 'c', 'd', 'e'], [link('a', 'b'), link('b', 'c'), link('d', 'e')], right, new Set(['a', 'b', 'c']))
    expect(nodes.get('d')!.y).toBeLessThan(nodes.get('a')!.y)
  })

  it('has an answer for nothing', () => {
    expect(place([], [], right)).toMatchObject({ width: 0, height: 0 })
  })

  it('places a large map in bounded work', () => {
    const { ids, links } = generated(200, 400)
    expect(place(ids, links, right).nodes.size).toBe(200)
  })
})
