import { useEvents } from './data'
import { eventText, KINDS, whenText } from './events'
import { clock, span } from './format'

/** What happened to hosts in the window: which pairs of them are measured, and which containers moved. */
export function EventsView({ query, period }: { query: string; period: number }) {
  const { data, error } = useEvents(query, () => `/api/outsight/events?${query}`, period)
  return (
    <section class="events" data-events aria-label="Events">
      <h2>Events <span class="muted">{data && (data.events.length > 0 ? `· ${data.events.length + (data.omitted ?? 0)} in this time` : '· none in this time')}</span></h2>
      {error && <p class="inline-error" role="alert">{error}</p>}
      {data && data.events.length > 0 && (
        <ol>
          {data.events.map((e) => (
            <li key={`${e.time} ${e.kind} ${e.from} ${e.to} ${e.container ?? ''}`} data-event={e.kind}>
              <time dateTime={e.time} title={whenText(e)}>{clock(Date.parse(e.time) / 1000)}</time>
              <span class="pill">{KINDS[e.kind] ?? e.kind}</span>
              <span class="event-text">{eventText(e)}</span>
            </li>
          ))}
        </ol>
      )}
      {(data?.omitted ?? 0) > 0 && <p class="muted small">{data!.omitted} older ones are left out.</p>}
      {data && data.events.length > 0 && <p class="muted small">Hosts are looked at each {span(data.step_seconds)}; what began and ended in between is not told.</p>}
    </section>
  )
}
