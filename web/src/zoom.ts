import type { Options, Placed, Size } from './layout'

// How large a map is drawn, and how large its letters are then.

/** No letter is smaller on the screen, in px. */
export const LEAST_FONT = 11

/** A map that is shown as it comes is no smaller than this: it scrolls instead. */
const LEAST_AUTO = 0.62

export const [LEAST_ZOOM, MOST_ZOOM] = [0.25, 3]

/** 'auto': as wide as its frame, as long as names have room; 'fit': all of it; else so many times as large. */
export type Zoom = 'auto' | 'fit' | number

const clamp = (v: number, least: number, most: number) => Math.max(least, Math.min(most, v))

/** The scale of a map of a size in a frame. */
export function scaleOf(zoom: Zoom, map: Size, frame: Size): number {
  if (typeof zoom === 'number') return clamp(zoom, LEAST_ZOOM, MOST_ZOOM)
  if (!(frame.width > 0) || !(map.width > 0)) return 1
  const wide = frame.width / map.width
  return zoom === 'auto' ? clamp(wide, LEAST_AUTO, 1) : clamp(Math.min(wide, frame.height / map.height), LEAST_ZOOM, 1)
}

/** The size of letters in a drawing of a scale, so that they are never smaller than can be read. */
export const fontAt = (size: number, scale: number): number => Math.max(size, LEAST_FONT / scale)

/** Below this scale only names have room. */
export const NAMES_ONLY = 0.55

/** Below this scale a card has no room for its icon. */
export const ICONS = 0.8

/** A step of the buttons and keys. */
export const STEP = 1.25

/** Where to scroll so that what was at a place of the frame stays there. */
export const scrolled = (scroll: number, at: number, before: number, after: number): number => ((scroll + at) * after) / before - at

/** A narrow shape whose broadest row fits, where its nodes stay wide enough for a name in two lines. */
export function narrowed(shape: Options, placed: Placed, room: number): Options | undefined {
  if (placed.width <= room) return undefined
  const row = Math.max(1, Math.round((placed.width + shape.nodeGap) / (shape.node.width + shape.nodeGap)))
  const gap = 6
  return { ...shape, node: { width: clamp(Math.floor((room + gap) / row) - gap, LEAST_CARD, shape.node.width), height: 58 }, nodeGap: gap, label: { width: 62, height: 21 } }
}

/** The narrowest card, and from which width on a card has an icon and its name in one line. */
export const [LEAST_CARD, WIDE_CARD] = [72, 124]

/** The last of some numbers: the latency of "120/s · 3.2 ms". */
export const lastPart = (text: string): string => text.slice(text.lastIndexOf(' · ') < 0 ? 0 : text.lastIndexOf(' · ') + 3)

/** A name in two lines, parted where it has a hyphen or the like, near its middle. */
export function twoLines(name: string): [string, string] {
  const places = [...name.matchAll(/[-_./ ](?=.)/g)].map((m) => m.index + 1)
  const middle = name.length / 2
  const at = places.length ? places.reduce((a, b) => (Math.abs(b - middle) < Math.abs(a - middle) ? b : a)) : Math.ceil(middle)
  return [name.slice(0, at), name.slice(at)]
}
