import { useLayoutEffect, useState } from 'preact/hooks'

// How much room text takes, and how much there is.

let canvas: CanvasRenderingContext2D | null | undefined

/** How wide a text is, in px. */
export function textWidth(text: string, size: number, weight = 400): number {
  canvas ??= document.createElement('canvas').getContext('2d')
  if (!canvas) return text.length * size * 0.56
  canvas.font = `${weight} ${size}px ${getComputedStyle(document.body).fontFamily}`
  return canvas.measureText(text).width
}

const fitted = new Map<string, string>()

/** Shortens a name in its middle, because both ends of names distinguish them. */
export function fit(text: string, width: number, size: number, weight: number): string {
  const key = `${width} ${size} ${text}`
  const known = fitted.get(key)
  if (known !== undefined) return known
  let out = text
  for (let n = Math.min(text.length, 200) - 1; n > 2 && textWidth(out, size, weight) > width; n--) out = text.slice(0, Math.ceil(n * 0.6)) + '…' + text.slice(text.length - Math.floor(n * 0.4))
  if (fitted.size > 5000) fitted.clear()
  fitted.set(key, out)
  return out
}

/** The width of an element, which may change. It is known before anything is painted. */
export function useWidth(ref: { current: HTMLElement | null }): number {
  const [width, set] = useState(0)
  useLayoutEffect(() => {
    if (!ref.current) return
    set(ref.current.clientWidth)
    const watch = new ResizeObserver((entries) => set(entries[0]!.contentRect.width))
    watch.observe(ref.current)
    return () => watch.disconnect()
  }, [])
  return width
}
