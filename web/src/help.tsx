import { useEffect, useRef, useState } from 'preact/hooks'
import { KEYS, keysOn, turnKeys } from './keys'

/** What the keys do, and what the page promises of its numbers. */
export function Help({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const [on, set] = useState(keysOn)
  useEffect(() => dialog.current?.showModal(), [])
  return (
    <dialog class="help" ref={dialog} aria-labelledby="help" onClose={close} onClick={(e) => e.target === dialog.current && dialog.current?.close()}>
      <div class="help-body">
        <div class="panel-head">
          <h2 id="help">Keys</h2>
          <button class="quiet" aria-label="Close the help" title="Close (Esc)" onClick={() => dialog.current?.close()}>×</button>
        </div>
        <dl class="keys">
          {KEYS.map((k) => <div key={k.keys}><dt><kbd>{k.keys}</kbd></dt><dd>{k.does}</dd></div>)}
        </dl>
        <label class="small">
          <input type="checkbox" name="keys" checked={on} onChange={(e) => (turnKeys(e.currentTarget.checked), set(e.currentTarget.checked))} /> Keys are on (Esc always is)
        </label>
        <p class="muted small">Hover over a number, or focus it with Tab, for what it is, its query, and how far it holds. The address of the page is the view: send it to show others the same.</p>
      </div>
    </dialog>
  )
}
