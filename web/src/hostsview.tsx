import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { useHosts } from './data'
import { windowOf } from './explain'
import { bytes, digits, duration, format, NONE } from './format'
import { HOST_MEANING } from './numbers'
import { agentOf, agentParts, barOf, heardOf, LINES, linesOf, memoryOf, partLine, probeEnds, probesOf, probeText, probeTitle, seenOf, SHOWN_PROBES, sizeOf, WHAT } from './hosts'
import type { Lines } from './spark'
import { LinesNote, Spark, useLines } from './sparkview'
import { short, type Change, type State } from './state'
import { useExplainer } from './tip'
import type { HostPart, HostRow, NumberInfo, Probe } from './types'
import { Filter } from './viewbar'

interface Props {
  state: State
  change: Change
  /** The window, as a query string, and how often to ask, in ms. */
  query: string
  period: number
}

/** What each host is used for, and by whom it is watched. */
export function HostsView({ state, change, query, period }: Props) {
  const { data, error, at } = useHosts(query, () => `/api/outsight/hosts?${query}`, period)
  const q = state.q.toLowerCase()
  const rows = (data?.hosts ?? []).filter((h) => q === '' || h.name.toLowerCase().includes(q) || h.parts.some((p) => p.name.toLowerCase().includes(q)))
  // Those whose containers are looked at: all where there are few, and those that were opened.
  const [opened, open] = useState<Record<string, boolean>>({})
  const isOpen = (h: HostRow) => opened[h.name] ?? rows.length <= 4
  const sparks = useLines(data, 'hosts', data && linesOf(rows.filter(isOpen), data.numbers))
  const now = state.from === undefined ? (at ?? 0) : Date.parse(data?.to ?? '') / 1000
  useExplainer(['host'], (key, of) => {
    const h = data?.hosts.find((h) => h.name === of)
    if (!h || !data) return undefined
    const window = windowOf(data)
    if (key.startsWith('part.')) {
      const p = h.parts[Number(key.slice(5))]
      return p && { title: `${p.name} · ${h.name}`, value: `${format(p.cpu_cores, 'cores')} CPUs, ${digits(p.share * 100)} %`, what: WHAT[p.kind], error: 'none: counted by the scheduler’s hook; the parts add up to the whole', window, action: p.node ? 'shows the container' : undefined }
    }
    if (key.startsWith('probe.')) {
      const p = probesOf(h, data.probes ?? [])[Number(key.slice(6))]
      const ways = p?.there && p.back ? ` One way ${duration(p.there.p50)}, back ${duration(p.back.p50)}, ± ${duration(p.clock_error_seconds)}.` : ''
      return p && { title: `Network between ${probeEnds(p)}`, value: probeText(p).text, what: `Median of the round trips of ${p.sent} packets of STAMP, from interface to interface; p99 ${duration(p.round_trip?.p99)}. Jitter is by how much two of them in a row differ, on average.${ways}`, error: 'round trips 1.1 %; lost is what did not come back within a second', window }
    }
    const number = data.numbers.find((n) => `number.${n.key}` === key)
    if (number) return { title: `${number.title} · ${h.name}`, value: format(h.numbers[number.key], number.unit), what: HOST_MEANING[number.key], error: 'none: counted, not sampled', window }
    const facts: Record<string, [string, string, string]> = {
      cpu: ['CPUs kept busy', `${format(h.cpu_cores, 'cores')} of ${h.cores}`, 'of containers and of everything else'],
      memory: ['Memory of its containers', bytes(h.containers_memory_bytes ?? 0), 'page cache included; of all memory of the host'],
      in: ['Network in', format(h.network_receive_bytes, 'B/s'), 'of its containers’ interfaces; what runs in no container is not in it'],
      out: ['Network out', format(h.network_transmit_bytes, 'B/s'), 'of its containers’ interfaces; what runs in no container is not in it'],
      agent: ['What watching it takes', agentOf(h), 'CPU time and memory of the agent’s own process; its kernel programs are under Health'],
      seen: ['What of it is in the numbers', seenOf(h, data.completeness.window_seconds).text, 'share of the bytes that the kernel received for programs and that are counted in an edge'],
    }
    const t = facts[key]
    return t && { title: `${t[0]} · ${h.name}`, value: t[1], what: t[2], error: 'none: counted, not sampled', window }
  })
  if (error && !data) return <p class="inline-error" role="alert">{error}</p>
  if (!data) return <p class="note">Reading…</p>
  return (
    <div class="hosts" data-hosts>
      {error && <p class="inline-error" role="alert">{error}</p>}
      <div class="bar-row">
        <h2>Hosts</h2>
        <span class="muted">{rows.length === data.hosts.length ? rows.length : `${rows.length} of ${data.hosts.length}`}</span>
        <Filter state={state} change={change} what="host or container" />
      </div>
      {data.hosts.length === 0 && <p class="note">No agent wrote in this time. <code>outsight up</code> watches this machine, and <code>outsight-agent --server URL</code> sends what it sees here.</p>}
      {rows.map((h) => <HostCard key={h.name} host={h} now={now} window={data.completeness.window_seconds} change={change} numbers={data.numbers} lines={sparks.lines} probes={probesOf(h, data.probes ?? [])} open={isOpen(h)} toggle={(on) => on !== isOpen(h) && open((old) => ({ ...old, [h.name]: on }))} />)}
      <LinesNote of={sparks} />
    </div>
  )
}

interface CardProps {
  host: HostRow
  now: number
  window: number
  change: Change
  numbers: NumberInfo[]
  lines: Lines
  probes: Probe[]
  open: boolean
  toggle: (open: boolean) => void
}

function HostCard({ host: h, now, window, change, numbers, lines, probes, open, toggle }: CardProps) {
  const heard = heardOf(h, now)
  const seen = seenOf(h, window)
  const memory = memoryOf(h)
  const bar = barOf(h.parts)
  const choose = (node: string) => change({ node: short(node), edge: undefined, status: undefined, chart: undefined, by: 'container' })
  const line = (key: string) => <Spark values={lines.get(LINES[key] ?? `host.${key}`)?.get(h.name)} />
  const lineOfPart = (p: HostPart) => {
    const [path, of] = partLine(h, p) ?? []
    return path && of ? lines.get(path)?.get(of) : undefined
  }
  const fact = (key: string, title: string, text: ComponentChildren, bad = false) => (
    <div><dt>{title}</dt><dd class={bad ? 'bad' : undefined} data-explain={`host.${key}`} tabindex={0}>{text}</dd></div>
  )
  const agent = agentParts(h)
  return (
    <article class="host-card" data-of={h.name} data-host={h.name}>
      <div class="host-head">
        <h3>{h.name}</h3>
        <span class="muted">{sizeOf(h)}</span>
        <span class={heard.late ? 'pill bad' : 'pill'} data-heard title={h.last_heard ? `Its agent wrote last at ${h.last_heard}` : 'No agent wrote in this time'}><i aria-hidden="true" />heard of {heard.text}</span>
        <span class="muted small">agent {h.version || 'of unknown version'}</span>
      </div>
      <div class="host-bar">
        <span class="muted small">CPU</span>
        <svg class="stack" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={`CPU of ${h.name}: ${h.parts.map((p) => `${p.name} ${digits(p.share * 100)} %`).join(', ')}`} data-shares={h.parts.reduce((sum, p) => sum + p.share, 0)}>
          {bar.map((b, i) => <rect key={b.part.kind + (b.part.node ?? '')} class={b.shade} x={b.x} width={b.width} height="10" data-explain={`host.part.${i}`} onClick={() => b.part.node && choose(b.part.node)} />)}
        </svg>
        <span data-explain="host.cpu" tabindex={0}>{line('cpu')}<strong>{format(h.cpu_cores, 'cores')}</strong> of {h.cores}</span>
      </div>
      {memory !== undefined && (
        <div class="host-bar">
          <span class="muted small">Memory</span>
          <svg class="stack" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
            <rect class="track" width="100" height="10" />
            <rect class={memory >= 0.9 ? 'part-full' : 'part-0'} width={memory * 100} height="10" />
          </svg>
          <span data-explain="host.memory" tabindex={0}>{line('memory')}<strong>{bytes(h.containers_memory_bytes!)}</strong> of {bytes(h.memory_bytes!)} in containers</span>
        </div>
      )}
      <dl class="host-facts">
        <div><dt>Containers</dt><dd>{line('containers')}{h.containers}</dd></div>
        {fact('in', 'Network in', h.network_receive_bytes === undefined ? NONE : <>{line('in')}{format(h.network_receive_bytes, 'B/s')}</>)}
        {fact('out', 'Network out', h.network_transmit_bytes === undefined ? NONE : <>{line('out')}{format(h.network_transmit_bytes, 'B/s')}</>)}
        {fact('agent', 'Agent takes', agent.cpu || agent.memory ? <>{agent.cpu && <>{line('agent')}{agent.cpu}</>}{agent.cpu && agent.memory && ' · '}{agent.memory && <>{line('agent-memory')}{agent.memory}</>}</> : NONE)}
        {numbers.map((n) => h.numbers[n.key] !== undefined && fact(`number.${n.key}`, n.title, <>{line(n.key)}{format(h.numbers[n.key], n.unit)}</>))}
        {fact('seen', 'Counted', <>{h.counted_share !== undefined && line('seen')}{seen.text}</>, seen.bad)}
      </dl>
      {probes.length > 0 && (
        <dl class="host-facts" data-probes>
          {probes.slice(0, SHOWN_PROBES).map((p, i) => fact(`probe.${i}`, probeTitle(h, p), probeText(p).text, probeText(p).bad))}
          {probes.length > SHOWN_PROBES && <div><dt>and</dt><dd>{probes.length - SHOWN_PROBES} more: <code>outsight probe --server URL</code></dd></div>}
        </dl>
      )}
      <details open={open} onToggle={(e) => toggle(e.currentTarget.open)}>
        <summary class="muted small">CPU by container; the parts add up to all {h.cores} cores</summary>
        <ul class="host-parts">
          {bar.map((b, i) => {
            const text = <><i class={`swatch ${b.shade}`} aria-hidden="true" /><span class="part-name">{b.part.kind === 'host' ? 'in no container' : b.part.name}</span><Spark values={lineOfPart(b.part)} /><span class="part-value">{format(b.part.cpu_cores, 'cores')} · {digits(b.part.share * 100)} %</span></>
            return (
              <li key={b.part.kind + (b.part.node ?? '')}>
                {b.part.node ? <button class="part" data-explain={`host.part.${i}`} onClick={() => choose(b.part.node!)}>{text}</button> : <span class="part" data-explain={`host.part.${i}`} tabindex={0}>{text}</span>}
              </li>
            )
          })}
        </ul>
      </details>
    </article>
  )
}
