import { asNumber } from './data'
import { duration, format } from './format'
import type { Quantity } from './state'
import type { Heat, HeatCell, NumberInfo, Seconds } from './types'

// What a heat map is drawn from: values, a logarithmic scale of colours, and a frame.

interface Kind {
  title: string
  key: 'bytes_per_second' | 'transactions_per_second' | 'p99'
  unit: NumberInfo['unit']
}

export const KINDS: Record<Quantity, Kind> = {
  bytes: { title: 'bytes/s', key: 'bytes_per_second', unit: 'B/s' },
  requests: { title: 'requests/s', key: 'transactions_per_second', unit: '/s' },
  p99: { title: 'p99', key: 'p99', unit: 's' },
}

/** The value of a cell; undefined where there is none, or nothing happened. */
export function valueOf(cell: HeatCell, quantity: Quantity): Seconds | undefined {
  const v = cell[KINDS[quantity].key]
  // A duration of 0 is one that is too short to measure.
  return v === 0 && quantity !== 'p99' ? undefined : v
}

/** The cells to draw: of requests, those on which the source asks. */
export const cellsOf = (cells: HeatCell[], quantity: Quantity): HeatCell[] => (quantity === 'bytes' ? cells : cells.filter((c) => c.transactions_per_second !== undefined))

/** The heat map with its nodes in an earlier order, if they are the same nodes. */
export function steady(h: Heat, order: string[]): Heat {
  const place = new Map(order.map((id, i) => [id, i]))
  if (order.length !== h.nodes.length || !h.nodes.every((id) => place.has(id))) return h
  const names = new Map(h.nodes.map((id, i) => [id, h.names[i]!]))
  const to = (i: number) => place.get(h.nodes[i]!)!
  return { ...h, nodes: order, names: order.map((id) => names.get(id)!), cells: h.cells.map((c) => ({ ...c, source: to(c.source), destination: to(c.destination) })) }
}

/** How many colours there are. */
export const STEPS = 9

export interface Scale {
  low: number
  high: number
  /** The colour of a value, 0 for the lowest. */
  step: (v: Seconds) => number
}

/** A logarithmic scale over all values that are above 0 and finite. */
export function scaleOf(values: Seconds[]): Scale {
  const known = values.map(asNumber).filter((v) => v > 0 && Number.isFinite(v))
  const low = known.length ? Math.min(...known) : 1
  const high = known.length ? Math.max(...known) : 1
  return {
    low,
    high,
    step: (value) => {
      const v = asNumber(value)
      if (v >= high) return STEPS - 1
      if (!(v > low)) return 0
      return Math.min(STEPS - 1, Math.floor((Math.log(v / low) / Math.log(high / low)) * STEPS))
    },
  }
}

export interface Frame {
  cell: { width: number; height: number }
  left: number
  top: number
  width: number
  height: number
  /** Names above the columns are turned where they have no room beside each other. */
  turned: boolean
  /** Every how many columns has its name: all of them, unless they would lie on each other. */
  every: number
}

const LINE = 14 // px that a line of a name takes
/** How far names above columns are turned, in degrees. */
export const TURN = 50
/** How long names may be, in px. */
export const NAME = { row: 170, column: 120 }

/** Places a matrix of n rows and columns in a width; a large one is wider than that. */
export function frameOf(n: number, width: number): Frame {
  const left = Math.min(NAME.row + 10, width * 0.3)
  const room = (right: number) => (width - left - right) / Math.max(n, 1)
  const turned = room(8) < 84
  const right = turned ? NAME.column * Math.cos((TURN * Math.PI) / 180) : 8
  const cell = { width: Math.max(8, Math.min(150, room(right))), height: 0 }
  cell.height = Math.max(LINE, Math.min(30, cell.width))
  const top = turned ? NAME.column * Math.sin((TURN * Math.PI) / 180) + 12 : 24
  const every = turned ? Math.ceil(LINE / (cell.width * Math.sin((TURN * Math.PI) / 180)) - 0.01) : 1
  return { cell, left, top, turned, every, width: left + n * cell.width + right, height: top + n * cell.height + 4 }
}

/** All that is known of a cell, in words. */
export function textOf(cell: HeatCell): string {
  const list = [format(cell.bytes_per_second, 'B/s')]
  if (cell.transactions_per_second !== undefined) list.push(`${format(cell.transactions_per_second, '/s')} requests`)
  if (cell.p99 !== undefined) list.push(`p99 ${duration(cell.p99)}`)
  if (cell.transactions_per_second === undefined) list.push('replies alone')
  return list.join(' · ')
}

/** The cell to go to by an arrow key: the nearest that way, in the same line if there is one. */
export function next(cells: HeatCell[], at: HeatCell, key: string): HeatCell | undefined {
  const way = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[key]
  if (!way) return undefined
  const cost = (c: HeatCell) => {
    const down = c.source - at.source
    const right = c.destination - at.destination
    const along = down * way[0]! + right * way[1]!
    return along > 0 ? along + 1000 * Math.abs(down * way[1]! + right * way[0]!) : Infinity
  }
  return cells.reduce<HeatCell | undefined>((found, c) => (cost(c) < (found ? cost(found) : Infinity) ? c : found), undefined)
}

