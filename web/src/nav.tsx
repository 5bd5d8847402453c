import { When } from './header'
import { CLOSED, pastOf } from './strip'
import { VIEW_KEYS, VIEWS, type Change, type State } from './state'

/** The views, as tabs. */
export function Nav({ state, change, range }: { state: State; change: Change; range: [number, number] }) {
  return (
    <nav class="nav" aria-label="Views">
      <div class="tabs">
        {VIEWS.map(([view, title, what], i) => (
          <button key={view} data-view={view} aria-current={state.view === view ? 'page' : undefined} title={`${what[0]!.toUpperCase()}${what.slice(1)} (${VIEW_KEYS[i]})`} onClick={() => change({ view })}>{title}</button>
        ))}
      </div>
      <When state={state} range={range} />
      <button class="toggle" data-strip-open aria-pressed={state.strip !== undefined} title="Every container at full resolution, and its short saturations (m)"
        onClick={() => change(state.strip ? CLOSED : { strip: 60, zoom: pastOf(state) })}>
        Last minutes
      </button>
    </nav>
  )
}
