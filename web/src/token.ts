// The token that the server may ask for. It is kept for this tab alone, and never in the URL for longer
// than it takes to read it there: a link to a view is shared without it.

const KEY = 'outsight-token'

/** The hash without its token, and the token if there was one. */
export function split(hash: string): { hash: string; token?: string } {
  const p = new URLSearchParams(hash.replace(/^#/, ''))
  const token = p.get('token')
  if (token === null) return { hash }
  p.delete('token')
  const rest = p.toString()
  return { hash: rest ? '#' + rest : '', token }
}

/** Takes a token out of the URL, as in "/#token=...", and says whether there was one. */
export function takeToken(): boolean {
  const { hash, token } = split(location.hash)
  if (token === undefined) return false
  keepToken(token)
  history.replaceState(null, '', location.pathname + location.search + hash)
  return true
}

export function keepToken(token: string) {
  if (token.trim()) sessionStorage.setItem(KEY, token.trim())
  else sessionStorage.removeItem(KEY)
}

/** The headers that requests need. */
export function authorization(): Record<string, string> {
  const token = sessionStorage.getItem(KEY)
  return token ? { Authorization: 'Bearer ' + token } : {}
}

let ask: (() => void) | undefined
let refused = false

/** Calls f when the server has asked for a token, or for another one. */
export function onRefused(f: () => void): () => void {
  ask = f
  if (refused) f()
  return () => (ask = undefined)
}

export function tokenRefused() {
  refused = true
  ask?.()
}
