import { useState } from 'preact/hooks'
import { bytes, counted, floorPercent, lackingOn, local, missing, span, unmatched, whenOf } from './format'
import { WINDOWS, type Change, type State } from './state'
import type { Graph, Status } from './types'

interface Props {
  graph?: Graph
  status?: Status
  state: State
  change: Change
  range: [number, number]
  theme: string
  nextTheme: () => void
  help: () => void
  away: boolean
}

export function Header({ graph, status, state, change, range, theme, nextTheme, help, away }: Props) {
  const live = state.from === undefined
  const [from, to] = range
  const host = graph?.hosts[0]
  const more = (graph?.hosts.length ?? 0) - 1
  return (
    <header class="header">
      <a class="brand" href="/" title="Outsight">
        <Logo />
        <span>Outsight</span>
      </a>
      <div class="host">
        {host && (
          <>
            <strong>{host.name}</strong>
            <span class="muted">
              {host.cores} cores{host.memory_bytes ? ` · ${bytes(host.memory_bytes)}` : ''}
              {more > 0 ? ` · and ${more} more` : ''}
            </span>
          </>
        )}
      </div>
      <Trust graph={graph} status={status} state={state} show={() => change({ status: !state.status, node: undefined, edge: undefined, chart: undefined })} />
      <nav class="time" aria-label="Time range">
        {!live && <button class="quiet" aria-label="Earlier" title="Earlier" onClick={() => shift(-1)}>‹</button>}
        <div class="segments" role="group" aria-label="Length of the window">
          {WINDOWS.map(([name, w]) => (
            <button
              key={name}
              aria-pressed={live ? state.window === w : Math.abs(to - from - w) < 1}
              onClick={() => change(live ? { window: w } : { from: state.to! - w, window: w })}
            >
              {name}
            </button>
          ))}
          <Custom live={live} range={range} change={change} />
        </div>
        {!live && <button class="quiet" aria-label="Later" title="Later" onClick={() => shift(1)}>›</button>}
        <button class={live ? (away ? 'live away' : graph && graph.completeness.covered_seconds <= 0 ? 'live' : 'live on') : 'live'} aria-pressed={live} disabled={!graph && live}
          title={live ? 'Following the present; click to hold this view still' : 'Holding still; click to follow the present'}
          onClick={() => change(live ? { from, to } : { from: undefined, to: undefined })}>
          <i aria-hidden="true" />
          {live ? 'Live' : 'Go live'}
        </button>
      </nav>
      <button class="quiet asks" data-help onClick={help} title="Help and keys (?)" aria-label="Help and keys">?</button>
      <button class="quiet theme" onClick={nextTheme} title={`Colours: ${theme}`} aria-label={`Colours: ${theme}. Change`}>
        <ThemeIcon theme={theme} />
      </button>
    </header>
  )

  function shift(by: number) {
    const d = by * (state.to! - state.from!)
    const end = Math.min(state.to! + d, Date.now() / 1000)
    change({ from: end - (state.to! - state.from!), to: end })
  }
}

/** How far the numbers can be trusted, in one line; opens the status. */
function Trust({ graph, status, state, show }: { graph?: Graph; status?: Status; state: State; show: () => void }) {
  if (!graph) return <span class="trust" />
  const c = graph.completeness
  const absent = status?.features.filter((f) => f.state === 'absent') ?? []
  const broken = absent.some((f) => f.required)
  const part = c.covered_seconds < c.window_seconds - 2
  const lacking = lackingOn(graph, state)
  const none = c.covered_seconds <= 0
  const bad = !none && (broken || lacking.length > 0)
  const seen = counted(graph)
  const hint = ['How far these numbers can be trusted', ...missing(graph)]
  if (seen !== undefined) hint.push(`Counted: ${floorPercent(seen)} of the bytes that were received are in an edge`)
  if (graph.unmatched_share > 0) hint.push(`Unmatched, with an end in no known container: ${unmatched(graph)}`)
  return (
    <button class={bad ? 'trust bad' : none ? 'trust none' : 'trust'} aria-expanded={Boolean(state.status)} onClick={show} title={hint.join('\n')}>
      <i aria-hidden="true" />
      {none ? 'No data in this time'
        : lacking.length > 0 ? <span data-lacking>Incomplete<span class="wide">: {lacking[0]}{lacking.length > 1 && ` and ${lacking.length - 1} more`}</span></span>
        : broken ? 'A required feature is absent'
        : part ? `${span(c.covered_seconds)} of ${span(c.window_seconds)} seen` : 'Complete'}
      {seen !== undefined && <span class="muted" data-counted={seen}><span class="wide"> · counted</span> {floorPercent(seen)}</span>}
      {!none && <span class="muted"> · ±{(graph.error_bound * 100).toFixed(1)} %</span>}
    </button>
  )
}

function Custom({ live, range: [from, to], change }: { live: boolean; range: [number, number]; change: Change }) {
  const [open, setOpen] = useState(false)
  const [error, setError] = useState('')
  const known = WINDOWS.some(([, w]) => Math.abs(to - from - w) < 1)
  return (
    <div class="custom">
      <button aria-pressed={!live && !known} aria-expanded={open} onClick={() => setOpen(!open)}>
        {live || known ? 'Custom' : span(to - from)}
      </button>
      {open && (
        <form
          class="popover"
          onKeyDown={(e) => e.key === 'Escape' && setOpen(false)}
          onSubmit={(e) => {
            e.preventDefault()
            const data = new FormData(e.currentTarget)
            const [a, b] = ['from', 'to'].map((name) => new Date(String(data.get(name))).getTime() / 1000)
            if (!(a! < b!)) return setError('“From” must be before “to”.')
            setError('')
            setOpen(false)
            change({ from: a, to: b })
          }}
        >
          <label>
            From <input name="from" type="datetime-local" step="1" required value={local(from)} />
          </label>
          <label>
            To <input name="to" type="datetime-local" step="1" required value={local(to)} />
          </label>
          {error && <p role="alert">{error}</p>}
          <button type="submit" class="primary">Show</button>
        </form>
      )}
    </div>
  )
}

/** Of when the numbers are, always with the date and the zone. */
export function When({ state, range: [from, to] }: { state: State; range: [number, number] }) {
  const [a, b] = to > from ? [from, to] : [state.from ?? 0, state.to ?? 0]
  if (!(b > a)) return null
  return <time class="when muted" data-when title={`${new Date(a * 1000).toISOString()} – ${new Date(b * 1000).toISOString()}`}>{whenOf(a, b)}</time>
}

export function Period({ range: [from, to] }: { range: [number, number] }) {
  return <span class="muted">{whenOf(from, to)}</span>
}

const Logo = () => (
  <svg viewBox="0 0 32 32" width="24" height="24" aria-hidden="true">
    <rect class="logo-back" width="32" height="32" rx="8" />
    <path class="logo-line" d="M10 16C15 16 14 9.500 20.500 9.500M10 16C15 16 14 22.500 20.500 22.500" />
    <g class="logo-dot">
      <circle cx="8.500" cy="16" r="3.600" />
      <circle cx="23.500" cy="9.500" r="3" />
      <circle cx="23.500" cy="22.500" r="3" />
    </g>
  </svg>
)

function ThemeIcon({ theme }: { theme: string }) {
  return (
    <svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true" class="icon">
      {theme === 'light' && (
        <>
          <circle cx="10" cy="10" r="3.600" />
          <path d="M10 2v2.200M10 15.800V18M2 10h2.200M15.800 10H18M4.300 4.300l1.600 1.600M14.100 14.100l1.600 1.600M4.300 15.700l1.600-1.600M14.100 5.900l1.600-1.600" />
        </>
      )}
      {theme === 'dark' && <path d="M16.500 11.700A7 7 0 0 1 8.300 3.500a7 7 0 1 0 8.200 8.200Z" />}
      {theme.startsWith('auto') && (
        <>
          <circle cx="10" cy="10" r="6.800" />
          <path class="fill" d="M10 3.200a6.800 6.800 0 0 1 0 13.600Z" />
        </>
      )}
    </svg>
  )
}
