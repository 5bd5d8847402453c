import { VIEW_KEYS, VIEWS, WINDOWS, type State, type View } from './state'

// What keys do. Single letters can be turned off, for people who speak to their browser.

export interface Key {
  keys: string
  does: string
}

/** All keys, for the help. */
export const KEYS: Key[] = [
  ...VIEWS.map(([, title, what], i) => ({ keys: VIEW_KEYS[i]!, does: `${title}: ${what}` })),
  { keys: '/', does: 'filter by name' },
  { keys: 'l', does: 'hold still, or follow the present' },
  { keys: 'm', does: 'the last minutes, tick by tick' },
  { keys: '[ and ]', does: 'a shorter or longer window' },
  { keys: '+ − 0', does: 'the map: nearer, farther, all of it (or Ctrl and the wheel, two fingers; drag to move it)' },
  { keys: '?', does: 'this help' },
  { keys: 'Esc', does: 'close what is open' },
]

export type Action = { view: View } | { window: number } | 'filter' | 'live' | 'minutes' | 'help'

/** What a key does, undefined where it does nothing. */
export function actionOf(key: string, state: Pick<State, 'window' | 'from'>): Action | undefined {
  const view = key.length === 1 ? VIEWS[VIEW_KEYS.indexOf(key)]?.[0] : undefined
  if (view) return { view }
  const at = WINDOWS.findIndex(([, w]) => w === state.window)
  switch (key) {
    case '/':
      return 'filter'
    case 'l':
      return 'live'
    case 'm':
      return 'minutes'
    case '?':
      return 'help'
    case '[':
    case ']': {
      const next = WINDOWS[at + (key === '[' ? -1 : 1)]
      return state.from === undefined && next ? { window: next[1] } : undefined
    }
  }
  return undefined
}

const KEY = 'outsight-keys'

export function keysOn(): boolean {
  try {
    return localStorage.getItem(KEY) !== 'off'
  } catch {
    return true // storage is forbidden
  }
}

export function turnKeys(on: boolean) {
  try {
    localStorage.setItem(KEY, on ? 'on' : 'off')
  } catch {
    // Storage is forbidden; they stay on.
  }
}

