import { useEffect, useState } from 'preact/hooks'
import { authorization, keepToken, onRefused } from './token'

/** Asks for a token when the server does. */
export function Login() {
  const [asked, setAsked] = useState(false)
  useEffect(() => onRefused(() => setAsked(true)), [])
  if (!asked) return null
  const send = (e: Event) => {
    e.preventDefault()
    keepToken(String(new FormData(e.target as HTMLFormElement).get('token') ?? ''))
    location.reload()
  }
  return (
    <div class="login" role="dialog" aria-modal="true" aria-labelledby="login">
      <form onSubmit={send}>
        <h2 id="login">This server asks for a token</h2>
        <p>{authorization().Authorization ? 'It does not know the one that this tab has.' : 'It is a line of the file that the server was started with. This tab keeps it until it is closed.'}</p>
        <input name="token" type="password" autocomplete="current-password" aria-label="Token" autofocus required />
        <button type="submit">Open</button>
      </form>
    </div>
  )
}
