import { useEffect, useState } from 'preact/hooks'

export type Theme = 'auto' | 'light' | 'dark'

const KEY = 'outsight-theme'
const next: Record<Theme, Theme> = { auto: 'light', light: 'dark', dark: 'auto' }

function saved(): Theme {
  try {
    const t = localStorage.getItem(KEY)
    return t === 'light' || t === 'dark' ? t : 'auto'
  } catch {
    return 'auto' // storage is forbidden
  }
}

/** The reader's choice of colours; it is about the reader, so it is not part of the URL. */
export function useTheme(): [string, () => void] {
  const [theme, set] = useState<Theme>(saved)
  const [system, setSystem] = useState(() => matchMedia('(prefers-color-scheme: dark)').matches)
  useEffect(() => {
    const media = matchMedia('(prefers-color-scheme: dark)')
    const changed = () => setSystem(media.matches)
    media.addEventListener('change', changed)
    return () => media.removeEventListener('change', changed)
  }, [])
  useEffect(() => {
    if (theme === 'auto') delete document.documentElement.dataset.theme
    else document.documentElement.dataset.theme = theme
    try {
      localStorage.setItem(KEY, theme)
    } catch {
      // Storage is forbidden; the choice lasts as long as the page.
    }
  }, [theme])
  return [theme === 'auto' ? `auto ${system ? 'dark' : 'light'}` : theme, () => set((t) => next[t])]
}

/** The resolved value of a colour of the style sheet, for canvas. */
export function colour(name: string): string {
  const probe = document.createElement('span')
  probe.style.color = `var(${name})`
  document.body.append(probe)
  const value = getComputedStyle(probe).color
  probe.remove()
  return value
}
