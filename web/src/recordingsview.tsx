import { Fragment } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { useRecordings } from './data'
import { bytes, duration, format } from './format'
import { alike, kindOf, newest, opened, spanOf, timeOf, tookOf } from './recordings'
import type { Change, State } from './state'
import type { KeptAnomaly } from './types'
import { useExplainer } from './tip'
import { Filter } from './viewbar'

/** Short saturations whose surroundings are kept, and how to record more. */
export function RecordingsView({ state, change }: { state: State; change: Change }) {
  const { data, error } = useRecordings()
  // The strip is above the table.
  const open = (a: KeptAnomaly) => {
    change(opened(a))
    scrollTo({ top: 0 })
  }
  const [expanded, expand] = useState(new Set<string>())
  const turn = (key: string) => expand((old) => new Set(old.has(key) ? [...old].filter((k) => k !== key) : [...old, key]))
  // That of the address is shown, whatever it is together with.
  const kept = data?.anomalies.find((a) => a.number === state.kept)
  useEffect(() => {
    if (kept) expand((old) => new Set([...old, alike([kept])[0]!.key]))
  }, [kept?.number])
  const list = newest(data?.anomalies ?? [], state.q.toLowerCase())
  useExplainer(['kept'], (key, of) => {
    const a = data?.anomalies.find((a) => String(a.number) === of)
    if (!a) return undefined
    return key === 'took'
      ? { title: `It took ${tookOf(a)}`, what: 'from the first to the last tick at which the resource was at its limit', error: data?.flight ? `a tick (${data.flight.interval_ms} ms) at each end` : undefined }
      : { title: `${duration(a.waited_ms / 1000)} waited`, what: 'time of threads in run queues and of requests beyond the usual number, all of them summed', error: 'as of ticks: what is shorter than one is counted by its share' }
  })
  if (error && !data) return <p class="inline-error" role="alert">{error}</p>
  if (!data) return <p class="note">Reading…</p>
  return (
    <div class="recordings" data-recordings>
      {error && <p class="inline-error" role="alert">{error}</p>}
      <p class="path-summary" data-flight-span={data.flight ? 'there' : 'absent'}>
        {spanOf(data)}{' '}
        {data.flight?.from && <>It takes {bytes(data.flight.bytes)}. <button class="link" onClick={() => change({ strip: 300, zoom: undefined, mark: undefined, kept: undefined })}>Open the last minutes</button></>}
      </p>
      {data.flight && (
        <>
          <div class="bar-row">
            <h2>Kept anomalies</h2>
            <span class="muted">
              {list.length === data.anomalies.length ? list.length : `${list.length} of ${data.anomalies.length}`}{data.dropped > 0 && ` · ${format(data.dropped, '')} older ones made room`}
              {data.directory ? ` · files in ${data.directory}` : ' · in memory alone'}
            </span>
            <Filter state={state} change={change} what="container or cause" />
          </div>
          {data.problem && <p class="inline-error pad" role="alert">Not all are on the disk: {data.problem}</p>}
          {data.anomalies.length === 0 && <p class="note">No short saturation has been kept. The agent looks for them every half a minute, and keeps ten seconds before and after each.</p>}
          {list.length > 0 && (
            <div class="scroll">
              <table class="plain" data-kept>
                <thead>
                  <tr>{['Last', 'Container', 'What', 'Times', 'First', 'Longest', 'Waited', 'Cause and what waited', 'File'].map((t, i) => <th key={t} scope="col" class={i === 0 ? 'name' : i === 1 || i === 2 || i > 6 ? 'words' : undefined}>{t}</th>)}</tr>
                </thead>
                <tbody>
                  {alike(list).map((g) => {
                    const many = g.list.length > 1
                    const out = many && expanded.has(g.key)
                    const last = g.list[0]!
                    return (
                      <Fragment key={g.key}>
                        {many && (
                          <tr class="pick" data-alike={g.key} onClick={() => turn(g.key)}>
                            <th scope="row" class="name"><button aria-expanded={out} aria-label={`${g.list.length} times ${last.container}: ${kindOf(last)}, last at ${timeOf(last)}`}><span>{timeOf(last)}</span></button></th>
                            <td class="words">{last.container}</td>
                            <td class="words">{kindOf(last)}</td>
                            <td class="times"><strong data-count={g.list.length}>{g.list.length}</strong> {out ? '▾' : '▸'}</td>
                            <td>{timeOf(g.list[g.list.length - 1]!)}</td>
                            <td>{tookOf(g.longest)}</td>
                            <td>{duration(g.waited_ms / 1000)}</td>
                            <td class="words cause-line" title={[g.longest.text, ...g.longest.effects].join('\n')}>the longest: {g.longest.text}</td>
                            <td class="words muted" />
                          </tr>
                        )}
                        {(out || !many) && g.list.map((a) => (
                          <tr key={a.number} data-of={String(a.number)} data-anomaly={a.number} class={`pick${state.kept === a.number ? ' chosen' : ''}${many ? ' one-of' : ''}`} onClick={() => open(a)}>
                            <th scope="row" class="name"><button title="Open it tick by tick" aria-label={`${timeOf(a)}, ${a.container}: ${a.text}`}><span>{timeOf(a)}</span></button></th>
                            <td class="words">{a.container}</td>
                            <td class="words">{kindOf(a)}</td>
                            <td class="times muted">{many ? '' : '1'}</td>
                            <td class="muted">{many ? '' : timeOf(a)}</td>
                            <td data-explain="kept.took">{tookOf(a)}</td>
                            <td data-explain="kept.waited">{duration(a.waited_ms / 1000)}</td>
                            <td class="words cause-line" title={[a.text, ...a.effects].join('\n')}>{a.text}{a.effects.length > 0 && <small> {a.effects.slice(0, 3).join('; ')}{a.effects.length > 3 && ` and ${a.effects.length - 3} more`}</small>}</td>
                            <td class="words muted">{a.file ? `${a.file}, ${bytes(a.bytes ?? 0)}` : 'memory'}</td>
                          </tr>
                        ))}
                      </Fragment>
                    )
                  })}
                </tbody>
              </table>
            </div>
          )}
          {data.anomalies.length > 0 && list.length === 0 && <p class="note">Nothing kept contains “{state.q}”.</p>}
        </>
      )}
      <section class="how">
        <h3>To make a recording</h3>
        <dl>
          <div><dt><code>sudo outsight record -i 50ms -d recordings --for 10s</code></dt><dd>records every container from now on, in files for a spreadsheet or pandas; down to 1 ms</dd></div>
          <div><dt><code>sudo outsight record --last 5m -d recordings</code></dt><dd>writes what the flight recorder has of the last minutes</dd></div>
          <div><dt><code>sudo outsight record --anomaly {list[0]?.number ?? 'N'} -d recordings</code></dt><dd>writes what is kept around an anomaly</dd></div>
          <div><dt><code>outsight report --output html recordings/ &gt; report.html</code></dt><dd>finds the saturations in any of these, and who took the CPU</dd></div>
        </dl>
        <p class="muted small">Files of recordings lie where they were written: the agent does not know of them, and this page shows what it has itself.</p>
      </section>
    </div>
  )
}
