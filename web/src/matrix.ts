import { asNumber } from './data'
import { format, NONE } from './format'
import { ENDS_GROUPS, ENDS_MEANING, PROBE_GROUPS, SIDE_GROUPS, SIDE_MEANING } from './numbers'
import type { Grouping } from './state'
import { best, bytesPerSecond, type Edge, type Graph, type Matrix, type MatrixCell, type NumberInfo, type Seconds } from './types'

// What a matrix is drawn from: values, a logarithmic scale of colours, and a frame.

/** The numbers of a cell that the registry has not: bytes both ways. */
const BOTH: NumberInfo[] = [
  { key: 'bytes_per_second', title: 'Bytes both ways', unit: 'B/s', query: '' },
  { key: 'bytes', title: 'Bytes both ways in all', unit: 'B', query: '' },
]

type Choices = { title: string; numbers: NumberInfo[] }[]

/** The numbers that edges can be coloured by, under the headings of the panel. */
export function choicesOf(g: Graph): Choices {
  const all = [...g.numbers.side, ...g.numbers.ends]
  const groups = grouped([...SIDE_GROUPS, ...ENDS_GROUPS], all)
  const known = new Set(groups.flatMap((group) => group.numbers))
  groups.push({ title: 'Others', numbers: all.filter((n) => !known.has(n)) })
  return [{ title: 'Traffic', numbers: BOTH }, ...groups].filter((group) => group.numbers.length > 0)
}

const grouped = (groups: [string, string[]][], of: NumberInfo[]): Choices => groups.map(([title, keys]) => ({ title, numbers: keys.flatMap((k) => of.filter((n) => n.key === k)) }))

/** What is measured between two ends of a grouping: all the time, and between containers on request, too. */
const measuredOf = (by: Grouping): [string, string[]][] => PROBE_GROUPS.filter(([, keys]) => by === 'container' || (by === 'host' && !keys[0]?.startsWith('capacity')))

/** Those that a matrix can show, with what is measured between its ends. */
export const cellChoicesOf = (g: Graph, by: Grouping): Choices => [...choicesOf(g), ...grouped(measuredOf(by), g.numbers.probe).filter((group) => group.numbers.length > 0)]

/** What is known of both ends of an edge together, by the keys of numbers. */
export const endsOf = (e: Edge): Record<string, Seconds | undefined> => ({ network_seconds: e.network_seconds, ...e.split, ...e.network })

/** The number of an edge; undefined where there is none. */
export function numberOf(e: Edge, n: NumberInfo): Seconds | undefined {
  const s = best(e)
  // It is the difference of two percentiles.
  if (n.key === 'network_seconds') return e.network_seconds === undefined ? undefined : Math.max(0, e.network_seconds)
  if (n.key === 'bytes_per_second') return bytesPerSecond(s) || undefined
  if (n.key === 'bytes') return (s?.request_bytes ?? 0) + (s?.response_bytes ?? 0) || undefined
  return valueOf({ ...s, ...endsOf(e) }, n)
}

/** The number with a key; bytes both ways where there is none. */
export const choiceOf = (g: Graph, key: string, by: Grouping = 'container'): NumberInfo => cellChoicesOf(g, by).flatMap((group) => group.numbers).find((n) => n.key === key) ?? BOTH[0]!

/** What a number means, where its title does not say it. */
export const meaningOf = (key: string): string => SIDE_MEANING[key] ?? ENDS_MEANING[key] ?? (key.startsWith('bytes') ? 'Bytes of requests and of replies' : '')

/** What is asked of the server beside the number that is shown: what a cell says of itself. */
const TOLD: [key: string, unit: NumberInfo['unit'], what: string][] = [['bytes_per_second', 'B/s', ''], ['transactions_per_second', '/s', ' requests'], ['p99', 's', 'p99 ']]

/** The keys of the numbers to ask for. */
export const askedOf = (key: string): string => [...new Set([key, ...TOLD.map(([key]) => key)])].join()

/** Numbers that are only there where they were measured: 0 is a value. */
const MEASURED = new Set([...ENDS_GROUPS, ...PROBE_GROUPS].flatMap(([, keys]) => keys))

/** The value of a cell or a sum; undefined where there is none, or nothing happened. */
export function valueOf(numbers: Record<string, Seconds | undefined>, n: Pick<NumberInfo, 'key' | 'unit'>): Seconds | undefined {
  const v = numbers[n.key]
  // A duration of 0 is one that is too short to measure.
  return v === 0 && n.unit !== 's' && !MEASURED.has(n.key) ? undefined : v
}

/** What an edge of a cell that has several is called: they differ by the transport. */
export const transportOf = (edge: string): string => (edge.endsWith('/udp') ? 'UDP' : 'TCP')

/** The matrix with its rows and columns in an earlier order, if they are the same ones. */
export function steady(m: Matrix, before?: Matrix): Matrix {
  const places = (is: Matrix['rows'], was: Matrix['rows'] | undefined) => {
    const place = new Map((was ?? []).map((e, i) => [e.id, i]))
    return was?.length === is.length && is.every((e) => place.has(e.id)) ? is.map((e) => place.get(e.id)!) : is.map((_, i) => i)
  }
  const [rows, columns] = [places(m.rows, before?.rows), places(m.columns, before?.columns)]
  const put = (list: Matrix['rows'], to: number[]) => list.reduce<Matrix['rows']>((all, e, i) => ((all[to[i]!] = e), all), [])
  return { ...m, rows: put(m.rows, rows), columns: put(m.columns, columns), cells: m.cells.map((c) => ({ ...c, row: rows[c.row]!, column: columns[c.column]! })) }
}

/** How many colours there are. */
export const STEPS = 9

export interface Scale {
  low: number
  high: number
  /** The colour of a value, 0 for the lowest. */
  step: (v: Seconds) => number
}

/** A logarithmic scale over all values that are above 0 and finite; 0 has the colour of the lowest. */
export function scaleOf(values: Seconds[]): Scale {
  const known = values.map(asNumber).filter((v) => v > 0 && Number.isFinite(v))
  const low = known.length ? Math.min(...known) : 0
  const high = known.length ? Math.max(...known) : 0
  return {
    low,
    high,
    step: (value) => {
      const v = asNumber(value)
      if (v >= high && v > 0) return STEPS - 1
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

/** Places a matrix of so many rows and columns in a width; a large one is wider than that. */
export function frameOf(rows: number, n: number, width: number): Frame {
  const left = Math.min(NAME.row + 10, width * 0.3)
  const room = (right: number) => (width - left - right) / Math.max(n, 1)
  const turned = room(8) < 84
  const right = turned ? NAME.column * Math.cos((TURN * Math.PI) / 180) : 8
  const cell = { width: Math.max(8, Math.min(150, room(right))), height: 0 }
  cell.height = Math.max(LINE, Math.min(30, cell.width))
  const top = turned ? NAME.column * Math.sin((TURN * Math.PI) / 180) + 12 : 24
  const every = turned ? Math.ceil(LINE / (cell.width * Math.sin((TURN * Math.PI) / 180)) - 0.01) : 1
  return { cell, left, top, turned, every, width: left + n * cell.width + right, height: top + rows * cell.height + 4 }
}

/** What a cell or a sum says of itself: the number that is shown, then what it is usually asked for. */
export function textOf(numbers: Record<string, Seconds>, shown: NumberInfo): string {
  const list = TOLD.flatMap(([key, unit, what]) => {
    if (key === shown.key || numbers[key] === undefined) return []
    return unit === 's' ? what + format(numbers[key], unit) : format(numbers[key], unit) + what
  })
  const first = numbers[shown.key] === undefined ? NONE : format(numbers[shown.key], shown.unit)
  return [`${shown.title} ${first}`, ...list].join(' · ')
}

/** The cell to go to by an arrow key: the nearest that way, in the same line if there is one. */
export function next(cells: MatrixCell[], at: MatrixCell, key: string): MatrixCell | undefined {
  const way = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[key]
  if (!way) return undefined
  const cost = (c: MatrixCell) => {
    const down = c.row - at.row
    const right = c.column - at.column
    const along = down * way[0]! + right * way[1]!
    return along > 0 ? along + 1000 * Math.abs(down * way[1]! + right * way[0]!) : Infinity
  }
  return cells.reduce<MatrixCell | undefined>((found, c) => (cost(c) < (found ? cost(found) : Infinity) ? c : found), undefined)
}
