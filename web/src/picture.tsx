import { useState } from 'preact/hooks'
import { loadFile } from './data'

/**
 * Saves the map as an image. It is loaded here and not by following a link, because a link cannot send the
 * token that the server may ask for.
 */
export function Picture({ query }: { query: string }) {
  const [state, set] = useState<'' | 'loading' | 'failed'>('')
  const save = async () => {
    set('loading')
    try {
      const url = URL.createObjectURL(await loadFile(`/api/outsight/picture?${query}`))
      const link = document.createElement('a')
      Object.assign(link, { href: url, download: 'outsight-map.svg' })
      link.click()
      setTimeout(() => URL.revokeObjectURL(url), 10_000)
      set('')
    } catch {
      set('failed')
    }
  }
  return (
    <button class="toggle" data-picture disabled={state === 'loading'} onClick={save} title="Saves the map as an SVG image: height for memory, border for CPU, width of lines for bytes">
      {state === 'failed' ? 'Picture failed, again?' : 'Save picture'}
    </button>
  )
}
