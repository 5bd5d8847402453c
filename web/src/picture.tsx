import { useState } from 'preact/hooks'
import { loadFile } from './data'

interface Props {
  /** Where the server has it, and what the file is called. */
  path: string
  file: string
  what: string
  title: string
  /** What is posted, where a GET is not enough. */
  body?: string
}

/**
 * Saves what is shown as a file. It is loaded here and not by following a link, because a link cannot send the
 * token that the server may ask for.
 */
export function Save({ path, file, what, title, body }: Props) {
  const [state, set] = useState<'' | 'loading' | 'failed'>('')
  const save = async () => {
    set('loading')
    try {
      const url = URL.createObjectURL(await loadFile(path, body))
      const link = document.createElement('a')
      Object.assign(link, { href: url, download: file })
      link.click()
      setTimeout(() => URL.revokeObjectURL(url), 10_000)
      set('')
    } catch {
      set('failed')
    }
  }
  return (
    <button class="toggle" data-save={file} disabled={state === 'loading'} onClick={save} title={title}>
      {state === 'failed' ? `${what[0]!.toUpperCase()}${what.slice(1)} failed, again?` : `Save ${what}`}
    </button>
  )
}
