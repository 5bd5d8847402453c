import { bytesPerSecond, best, type Edge, type Node } from './types'

// What a map with many nodes draws: no more than can be read, unless all of it is asked for.

/** Up to so many nodes with edges all are drawn. */
export const READABLE = 120

/** How many nodes are drawn of more. */
export const FEW = 80

export interface Drawn {
  edges: Edge[]
  /** How many nodes with edges there are, and how many are drawn. */
  nodes: number
  drawn: number
}

/**
 * The edges to draw: all where they can be read; else those of what is searched for or chosen, and beside these the
 * ones with the most bytes. found says what is searched for, undefined where nothing is.
 */
export function drawnOf(edges: Edge[], all: boolean, found: ((id: string) => boolean) | undefined, chosen: Set<string>): Drawn {
  const nodes = new Set(edges.flatMap((e) => [e.client, e.server]))
  if (all || nodes.size <= READABLE) return { edges, nodes: nodes.size, drawn: nodes.size }
  const shown = new Set<string>()
  const taken = new Set<Edge>()
  const take = (list: Edge[]) => {
    for (const e of list) {
      const more = Number(!shown.has(e.client)) + Number(!shown.has(e.server) && e.client !== e.server)
      if (shown.size + more > FEW) continue
      taken.add(e)
      shown.add(e.client)
      shown.add(e.server)
    }
  }
  const order = [...edges].sort((a, b) => bytesPerSecond(best(b)) - bytesPerSecond(best(a)) || a.id.localeCompare(b.id))
  take(order.filter((e) => chosen.has(e.id) || chosen.has(e.client) || chosen.has(e.server)))
  if (found) take(order.filter((e) => found(e.client) || found(e.server)))
  else take(order)
  return { edges: edges.filter((e) => taken.has(e)), nodes: nodes.size, drawn: shown.size }
}

/** What is said of what is not drawn; empty where all is. */
export const saidOf = (d: Drawn, searched: boolean): string =>
  d.drawn === d.nodes ? '' : searched ? `${d.drawn} of ${d.nodes} nodes are drawn: what is searched for, and its neighbours.` : `The ${d.drawn} of ${d.nodes} nodes with the most traffic are drawn. Search by name, or group by workload, namespace or host.`

/** The ids of nodes that a search finds. */
export const foundBy = (nodes: Node[], matches: (n: Node) => boolean): ((id: string) => boolean) => {
  const ids = new Set(nodes.filter(matches).map((n) => n.id))
  return (id) => ids.has(id)
}
