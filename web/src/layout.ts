// A layered drawing of a service map: callers before the called, few crossings, straight lines.
// "main" is the axis along which calls go, "cross" the other; direction says which is x.

export interface Size {
  width: number
  height: number
}
export interface Point {
  x: number
  y: number
}
export interface Link {
  id: string
  from: string
  to: string
}
export interface Placed {
  nodes: Map<string, Point> // centres
  edges: Map<string, { path: string; label: Point; back: boolean }>
  width: number
  height: number
}
export interface Options {
  direction: 'right' | 'down'
  node: Size
  label: Size
  /** Free space between layers and between neighbours. */
  layerGap: number
  nodeGap: number
}

interface Vertex {
  id: string
  dummy: boolean
  layer: number
  at: number // cross coordinate of the centre
  size: number // cross extent
  up: Vertex[]
  down: Vertex[]
}

interface Route {
  link: Link
  back: boolean // drawn against the layers
  chain: Vertex[] // from the lower layer to the higher
}

/**
 * Places nodes and routes links. Links that name an unknown node, or lead to where they start, are
 * left out. Parts of past nodes alone come last.
 */
export function place(ids: string[], links: Link[], o: Options, past = new Set<string>()): Placed {
  const known = new Set(ids)
  const real = links.filter((l) => l.from !== l.to && known.has(l.from) && known.has(l.to))
  const result: Placed = { nodes: new Map(), edges: new Map(), width: 0, height: 0 }
  const right = o.direction === 'right'
  const main = right ? o.node.width : o.node.height
  const cross = right ? o.node.height : o.node.width
  const gap = o.layerGap
  const present = (part: { ids: string[] }) => Number(part.ids.some((id) => !past.has(id)))
  const parts = components(ids, real).sort((a, b) => present(b) - present(a)).map((part) => {
    const { vertices, routes } = layer(part.ids, part.links, cross)
    const layers = byLayer(vertices)
    order(layers)
    align(layers, o.nodeGap)
    const low = Math.min(...vertices.map((v) => v.at - v.size / 2))
    const high = Math.max(...vertices.map((v) => v.at + v.size / 2))
    return { vertices, routes, low, broad: high - low, long: layers.length * (main + gap) - gap }
  })
  // Parts that do not touch stand below each other, whatever the direction.
  const broad = Math.max(0, ...parts.map((p) => p.broad))
  const apart = o.nodeGap * 1.6
  let offset = 0
  for (const part of parts) {
    const first = right ? 0 : offset
    const shift = (right ? offset : (broad - part.broad) / 2) - part.low
    for (const v of part.vertices) v.at += shift
    const point = (m: number, c: number): Point => (right ? { x: m, y: c } : { x: c, y: m })
    const start = (v: Vertex) => first + v.layer * (main + gap)
    for (const v of part.vertices) if (!v.dummy) result.nodes.set(v.id, point(start(v) + main / 2, v.at))
    draw(part.routes, result, { main, cross, point, start, label: o.label, right })
    offset += (right ? part.broad : part.long) + apart
  }
  offset = Math.max(0, offset - apart)
  separate(result.edges, o)
  result.width = right ? Math.max(0, ...parts.map((p) => p.long)) : broad
  result.height = offset
  return result
}

function components(ids: string[], links: Link[]) {
  const root = new Map(ids.map((id) => [id, id]))
  const find = (id: string): string => {
    while (root.get(id) !== id) id = root.get(id)!
    return id
  }
  for (const l of links) root.set(find(l.from), find(l.to))
  const parts = new Map<string, { ids: string[]; links: Link[] }>()
  for (const id of ids) {
    const r = find(id)
    if (!parts.has(r)) parts.set(r, { ids: [], links: [] })
    parts.get(r)!.ids.push(id)
  }
  for (const l of links) parts.get(find(l.from))!.links.push(l)
  return [...parts.values()].sort((a, b) => b.ids.length - a.ids.length)
}

/** Breaks cycles, gives each node a layer, and long links a dummy in each layer between. */
function layer(ids: string[], links: Link[], cross: number) {
  const out = new Map<string, Link[]>(ids.map((id) => [id, []]))
  const degree = new Map<string, number>(ids.map((id) => [id, 0]))
  const called = new Set<string>()
  for (const l of links) {
    out.get(l.from)!.push(l)
    degree.set(l.from, degree.get(l.from)! + 1)
    degree.set(l.to, degree.get(l.to)! - 1)
    called.add(l.to)
  }
  const starts = [...ids].sort((a, b) => Number(called.has(a)) - Number(called.has(b)) || degree.get(b)! - degree.get(a)!)
  const state = new Map<string, 'open' | 'done'>()
  const back = new Set<Link>()
  const sorted: string[] = []
  const visit = (first: string) => {
    const stack: [string, number][] = [[first, 0]]
    state.set(first, 'open')
    while (stack.length) {
      const top = stack[stack.length - 1]!
      const l = out.get(top[0])![top[1]++]
      if (!l) {
        state.set(top[0], 'done')
        sorted.push(top[0])
        stack.pop()
      } else if (state.get(l.to) === 'open') back.add(l)
      else if (!state.has(l.to)) {
        state.set(l.to, 'open')
        stack.push([l.to, 0])
      }
    }
  }
  for (const id of starts) if (!state.has(id)) visit(id)
  sorted.reverse()
  const forward = links.map((l) => ({ link: l, back: back.has(l), from: back.has(l) ? l.to : l.from, to: back.has(l) ? l.from : l.to }))
  const layers = new Map<string, number>(ids.map((id) => [id, 0]))
  for (const id of sorted) for (const f of forward) if (f.from === id) layers.set(f.to, Math.max(layers.get(f.to)!, layers.get(id)! + 1))
  // A node that nobody calls stands right before the first that it calls.
  for (const id of ids) {
    const next = forward.filter((f) => f.from === id).map((f) => layers.get(f.to)!)
    if (next.length && !forward.some((f) => f.to === id)) layers.set(id, Math.min(...next) - 1)
  }
  const vertices = new Map<string, Vertex>()
  for (const id of sorted) vertices.set(id, { id, dummy: false, layer: layers.get(id)!, at: 0, size: cross, up: [], down: [] })
  const all = [...vertices.values()]
  const routes: Route[] = forward.map((f) => {
    const from = vertices.get(f.from)!
    const to = vertices.get(f.to)!
    const chain = [from]
    for (let l = from.layer + 1; l < to.layer; l++) {
      const dummy: Vertex = { id: f.link.id, dummy: true, layer: l, at: 0, size: 14, up: [], down: [] }
      all.push(dummy)
      chain.push(dummy)
    }
    chain.push(to)
    for (let i = 1; i < chain.length; i++) {
      chain[i - 1]!.down.push(chain[i]!)
      chain[i]!.up.push(chain[i - 1]!)
    }
    return { link: f.link, back: f.back, chain }
  })
  return { vertices: all, routes }
}

function byLayer(vertices: Vertex[]): Vertex[][] {
  const layers: Vertex[][] = []
  for (const v of vertices) (layers[v.layer] ??= []).push(v)
  return layers
}

/** Orders each layer by the middle of its neighbours, to and fro, and keeps the best order. */
function order(layers: Vertex[][]) {
  const index = () => layers.forEach((l) => l.forEach((v, i) => (v.at = i)))
  index()
  let least = crossings(layers)
  let best = layers.map((l) => [...l])
  for (let round = 0; round < 12 && least > 0; round++) {
    const down = round % 2 === 0
    for (const l of down ? layers : [...layers].reverse()) {
      const key = new Map(l.map((v) => [v, mean(down ? v.up : v.down) ?? v.at]))
      l.sort((a, b) => key.get(a)! - key.get(b)! || a.at - b.at)
      l.forEach((v, i) => (v.at = i))
    }
    const n = crossings(layers)
    if (n < least) {
      least = n
      best = layers.map((l) => [...l])
    }
  }
  best.forEach((l, i) => (layers[i] = l))
  index()
}

const mean = (vs: Vertex[]): number | undefined => (vs.length ? vs.reduce((sum, v) => sum + v.at, 0) / vs.length : undefined)

/** Counts crossings as inversions between the ends of links, with a Fenwick tree. */
function crossings(layers: Vertex[][]): number {
  let n = 0
  layers.forEach((l, i) => {
    const ends = l.flatMap((v) => v.down.map((d) => [v.at, d.at] as const)).sort((a, b) => a[0] - b[0] || a[1] - b[1])
    const tree = new Array<number>((layers[i + 1]?.length ?? 0) + 2).fill(0)
    ends.forEach(([, to], seen) => {
      let before = 0
      for (let k = to + 1; k > 0; k -= k & -k) before += tree[k]!
      n += seen - before
      for (let k = to + 1; k < tree.length; k += k & -k) tree[k]!++
    })
  })
  return n
}

/** Gives each vertex the cross coordinate closest to its neighbours', keeping order and gaps. */
function align(layers: Vertex[][], gap: number) {
  for (const l of layers) {
    let at = 0
    for (const v of l) {
      v.at = at + v.size / 2
      at += v.size + gap
    }
    for (const v of l) v.at -= (at - gap) / 2
  }
  for (let round = 0; round < 10; round++) {
    const down = round % 2 === 0
    for (const l of down ? layers : [...layers].reverse()) {
      const near = (v: Vertex) => (round < 8 ? (down ? v.up : v.down) : [...v.up, ...v.down])
      settle(l, l.map((v) => mean(near(v)) ?? v.at), gap)
    }
  }
}

/** The least squares solution for wanted places under least distances (pooled neighbours). */
function settle(l: Vertex[], wanted: number[], gap: number) {
  const blocks: { first: number; count: number; weight: number; sum: number }[] = []
  const shift: number[] = []
  l.forEach((v, i) => (shift[i] = i ? shift[i - 1]! + (l[i - 1]!.size + v.size) / 2 + gap : 0))
  l.forEach((v, i) => {
    const weight = v.dummy ? 3 : 1
    blocks.push({ first: i, count: 1, weight, sum: weight * (wanted[i]! - shift[i]!) })
    while (blocks.length > 1) {
      const b = blocks[blocks.length - 1]!
      const a = blocks[blocks.length - 2]!
      if (a.sum / a.weight <= b.sum / b.weight) break
      blocks.pop()
      Object.assign(a, { count: a.count + b.count, weight: a.weight + b.weight, sum: a.sum + b.sum })
    }
  })
  for (const b of blocks) for (let i = b.first; i < b.first + b.count; i++) l[i]!.at = b.sum / b.weight + shift[i]!
}

interface Pen {
  main: number
  cross: number
  point: (main: number, cross: number) => Point
  start: (v: Vertex) => number
  label: Size
  right: boolean
}

/** Writes the curves. Ends at one side of a node are spread, in the order of where they lead. */
function draw(routes: Route[], result: Placed, pen: Pen) {
  const ports = new Map<string, number>()
  const spread = (end: 'first' | 'last') => {
    const groups = new Map<Vertex, Route[]>()
    for (const r of routes) {
      const v = end === 'first' ? r.chain[0]! : r.chain[r.chain.length - 1]!
      groups.set(v, [...(groups.get(v) ?? []), r])
    }
    for (const group of groups.values()) {
      const other = (r: Route) => (end === 'first' ? r.chain[1]! : r.chain[r.chain.length - 2]!).at
      group.sort((a, b) => other(a) - other(b) || Number(a.back) - Number(b.back))
      const space = Math.min(13, (pen.cross - 14) / group.length)
      group.forEach((r, i) => ports.set(end + r.link.id, (i - (group.length - 1) / 2) * space))
    }
  }
  spread('first')
  spread('last')
  const curves = routes.map((r) => {
    const last = r.chain.length - 1
    const stops: Stop[] = []
    r.chain.forEach((v, i) => {
      const at = v.at + (i === 0 ? ports.get('first' + r.link.id)! : i === last ? ports.get('last' + r.link.id)! : 0)
      if (i > 0) stops.push([pen.start(v), at])
      if (i < last) stops.push([pen.start(v) + pen.main, at])
    })
    // Room for the arrow, so that its tip touches the node.
    if (r.back) stops[0]![0] += TIP
    else stops[stops.length - 1]![0] -= TIP
    return { route: r, stops, points: sample(stops, pen) }
  })
  const taken: Point[] = []
  const covered = new Grid(pen.label)
  curves.forEach((c, i) => covered.add(i, c.points))
  for (const [i, c] of curves.entries()) {
    const label = labelPlace(c.stops, (at) => covered.others(i, at), taken, pen)
    taken.push(label)
    result.edges.set(c.route.link.id, { path: path(c.route.back ? [...c.stops].reverse() : c.stops, pen), label, back: c.route.back })
  }
}

type Stop = [main: number, cross: number]

const TIP = 7

function path(way: Stop[], pen: Pen): string {
  const text = (main: number, cross: number) => {
    const p = pen.point(main, cross)
    return `${round(p.x)} ${round(p.y)}`
  }
  let d = 'M' + text(...way[0]!)
  for (let i = 1; i < way.length; i++) {
    const [am, ac] = way[i - 1]!
    const [bm, bc] = way[i]!
    const middle = (am + bm) / 2
    d += `C${text(middle, ac)} ${text(middle, bc)} ${text(bm, bc)}`
  }
  return d
}

const along = ([am, ac]: Stop, [bm, bc]: Stop, t: number, pen: Pen): Point =>
  pen.point(curve(am, (am + bm) / 2, (am + bm) / 2, bm, t), curve(ac, ac, bc, bc, t))

function sample(stops: Stop[], pen: Pen): Point[] {
  const points: Point[] = []
  for (let i = 1; i < stops.length; i++) for (let t = 0; t <= 1; t += 0.05) points.push(along(stops[i - 1]!, stops[i]!, t, pen))
  return points
}

/** Points of curves, found by where they are. */
class Grid {
  private cells = new Map<string, { curve: number; point: Point }[]>()
  constructor(private size: Size) {}

  private cell = (p: Point): [number, number] => [Math.floor(p.x / this.size.width), Math.floor(p.y / this.size.height)]

  add(curve: number, points: Point[]) {
    for (const point of points) {
      const key = this.cell(point).join()
      const cell = this.cells.get(key)
      if (cell) cell.push({ curve, point })
      else this.cells.set(key, [{ curve, point }])
    }
  }

  /** How many points of other curves a label at a place covers. */
  others(curve: number, at: Point): number {
    const [x, y] = this.cell(at)
    let n = 0
    for (let i = x - 1; i <= x + 1; i++)
      for (let j = y - 1; j <= y + 1; j++)
        for (const c of this.cells.get(`${i},${j}`) ?? [])
          if (c.curve !== curve && Math.abs(c.point.x - at.x) < this.size.width / 2 && Math.abs(c.point.y - at.y) < this.size.height / 2) n++
    return n
  }
}

/** Where on its curve a label covers the fewest other curves and no other label. */
function labelPlace(stops: Stop[], others: (at: Point) => number, taken: Point[], pen: Pen): Point {
  const { width, height } = pen.label
  let best: Point = { x: 0, y: 0 }
  let least = Infinity
  for (const segment of new Set([0, stops.length - 2])) {
    const [from, to] = [stops[segment]![0], stops[segment + 1]![0]]
    for (const t of [0.5, 0.44, 0.56, 0.38, 0.62, 0.32, 0.68]) {
      const at = along(stops[segment]!, stops[segment + 1]!, t, pen)
      // Between the layers a label lies on no node, wherever it is moved to along them.
      const [main, half] = pen.right ? [at.x, width / 2] : [at.y, height / 2]
      if (t !== 0.5 && (main - half < from || main + half > to)) continue
      const cost = 40 * taken.filter((p) => Math.abs(p.x - at.x) < width && Math.abs(p.y - at.y) < height).length + 3 * others(at) + Math.abs(t - 0.5)
      if (cost < least) [least, best] = [cost, at]
    }
  }
  return best
}

const curve = (a: number, b: number, c: number, d: number, t: number) =>
  a * (1 - t) ** 3 + 3 * b * t * (1 - t) ** 2 + 3 * c * t * t * (1 - t) + d * t ** 3

const round = (v: number) => Math.round(v * 10) / 10

/** Moves labels that lie on each other apart, across the links. */
function separate(edges: Placed['edges'], o: Options) {
  const labels = [...edges.values()].map((e) => e.label)
  const { width, height } = o.label
  for (let pass = 0; pass < 200; pass++) {
    let moved = false
    for (let i = 0; i < labels.length; i++)
      for (let j = i + 1; j < labels.length; j++) {
        const a = labels[i]!
        const b = labels[j]!
        const dx = width - Math.abs(a.x - b.x)
        const dy = height - Math.abs(a.y - b.y)
        if (dx <= 0.01 || dy <= 0.01) continue
        moved = true
        const up = a.y <= b.y ? -1 : 1
        a.y += (up * dy) / 2
        b.y -= (up * dy) / 2
      }
    if (!moved) return
  }
}
