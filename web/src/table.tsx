import { Middle } from './middle'
import { useEffect, useRef, useState } from 'preact/hooks'
import { asNumber } from './data'
import { format } from './format'
import { matches } from './map'
import { LinesNote, Spark, useSparks } from './sparkview'
import { nodeOf, short, type Change, type State } from './state'
import { unnamed, type Graph, type Node, type NumberInfo, type Seconds } from './types'

interface Column {
  key: string // scope.key
  title: string
  hint: string
  unit: NumberInfo['unit']
}

const COLUMNS: Column[] = [
  { key: 'usage.cpu_cores', title: 'CPU', hint: 'CPU cores used', unit: 'cores' },
  { key: 'usage.run_queue_p99', title: 'Run queue p99', hint: 'Time that threads waited for a CPU', unit: 's' },
  { key: 'usage.memory_bytes', title: 'Memory', hint: 'Memory in use, page cache included', unit: 'B' },
  { key: 'usage.network_receive_bytes', title: 'Net in', hint: 'Bytes received', unit: 'B/s' },
  { key: 'usage.network_transmit_bytes', title: 'Net out', hint: 'Bytes sent', unit: 'B/s' },
  { key: 'usage.disk_read_bytes', title: 'Disk read', hint: 'Bytes read from block devices', unit: 'B/s' },
  { key: 'usage.disk_write_bytes', title: 'Disk write', hint: 'Bytes written to block devices', unit: 'B/s' },
  { key: 'served.transactions_per_second', title: 'Req/s', hint: 'Requests served', unit: '/s' },
  { key: 'served.p99', title: 'p99', hint: 'Response time of served requests', unit: 's' },
]

const TITLES = { container: 'Containers', process: 'Processes', pod: 'Pods and containers', workload: 'Workloads and containers', namespace: 'Namespaces and containers', host: 'Hosts' }

/** Of a process only its traffic is known; CPU and memory are its container's. */
const FLOWS: Column[] = [
  ...COLUMNS.filter((c) => c.key.startsWith('served.')),
  { key: 'served.response_bytes_per_second', title: 'Served', hint: 'Bytes of replies', unit: 'B/s' },
  { key: 'called.transactions_per_second', title: 'Asked req/s', hint: 'Requests made', unit: '/s' },
  { key: 'called.p99', title: 'Asked p99', hint: 'Response time of requests made', unit: 's' },
  { key: 'called.response_bytes_per_second', title: 'Received', hint: 'Bytes of replies to its requests', unit: 'B/s' },
]

/** The number of a node under a scope and key, as "usage.cpu_cores". */
export function numberOf(n: Node, path: string): Seconds | undefined {
  const [scope, key] = path.split('.') as ['usage' | 'served' | 'called', string]
  return (n[scope] as Record<string, Seconds> | undefined)?.[key]
}

/** How many rows are drawn at first, and more each time that the last of them comes into sight. */
const ROWS = 60

export function Table({ graph, state, change }: { graph: Graph; state: State; change: Change }) {
  const [limit, more] = useState(ROWS)
  const end = useRef<HTMLTableRowElement>(null)
  const all = graph.nodes.filter((n) => n.kind !== 'outside')
  const q = state.q.toLowerCase()
  const rows = all.filter((n) => q === '' || matches(n, q))
  const columns = state.by === 'process' ? FLOWS : COLUMNS
  const order = state.sort.includes('name') || columns.some((c) => state.sort.endsWith(c.key)) ? state.sort : '-' + columns[0]!.key
  const down = order.startsWith('-')
  const by = order.replace('-', '')
  rows.sort((a, b) => (down ? -1 : 1) * (by === 'name' ? a.name.localeCompare(b.name) : compare(numberOf(a, by), numberOf(b, by), down)) || a.name.localeCompare(b.name))
  const drawn = rows.slice(0, limit)
  useEffect(() => more(ROWS), [state.by, state.q])
  useEffect(() => {
    if (!end.current) return
    const watch = new IntersectionObserver((seen) => seen.some((s) => s.isIntersecting) && more((n) => n + ROWS), { rootMargin: '300px' })
    watch.observe(end.current)
    return () => watch.disconnect()
  }, [drawn.length < rows.length, limit])
  const sparks = useSparks(graph, columns.map((c) => c.key), state.by, drawn)
  const cores = graph.hosts.reduce((sum, h) => sum + h.cores, 0)
  const used = all.reduce((sum, n) => sum + (asNumber(n.usage?.cpu_cores) || 0), 0)
  const most = Math.max(1e-9, ...all.map((n) => asNumber(n.usage?.memory_bytes) || 0))
  const chosen = nodeOf(graph, state.node)
  const sort = (key: string) => change({ sort: by === key ? (down ? key : '-' + key) : key === 'name' ? key : '-' + key }, true)
  const heading = (key: string, title: string, hint: string) => (
    <th key={key} scope="col" class={key === 'name' ? 'name' : undefined} aria-sort={by === key ? (down ? 'descending' : 'ascending') : undefined}>
      <button title={key === 'name' ? hint : `${hint}. Click to sort`} onClick={() => sort(key)}>
        {title}
        <i aria-hidden="true">{by === key ? (down ? '↓' : '↑') : ''}</i>
      </button>
    </th>
  )
  return (
    <section class="containers" aria-label="Table of containers">
      <div class="bar-row">
        <h2>{TITLES[state.by]}</h2>
        <span class="muted">
          {rows.length === all.length ? all.length : `${rows.length} of ${all.length}`}{state.by === 'process' ? '' : ` · ${format(used, 'cores')} of ${cores} cores used`}
        </span>
      </div>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              {heading('name', 'Name', 'Name and image')}
              {columns.map((c) => heading(c.key, c.title, c.hint))}
            </tr>
          </thead>
          <tbody>
            {drawn.map((n) => (
              <tr key={n.id} data-of={n.id} class={`${n === chosen ? 'chosen' : ''}${n.gone ? ' gone' : ''}${unnamed(n) ? ' unnamed' : ''}`}>
                <th scope="row" class="name">
                  <button data-node={n.id} title={n.image ?? n.id} onClick={() => change({ node: short(n.id), edge: undefined, status: undefined, chart: undefined })}>
                    <Middle text={n.name} />
                    <small>{n.gone ? 'ended' : (n.image ?? (n.kind === 'host' ? (state.by === 'host' ? '' : 'in no container') : ['process', 'pod', 'workload', 'namespace', 'cluster-service'].includes(n.kind) ? n.kind : n.runtime))}</small>
                  </button>
                </th>
                {columns.map((c) => {
                  const v = numberOf(n, c.key)
                  const share = c.key === 'usage.cpu_cores' ? asNumber(v) / cores : c.key === 'usage.memory_bytes' ? asNumber(v) / most : undefined
                  return (
                    <td key={c.key}>
                      {v === undefined ? (
                        <span class="none" title="Not available">–</span>
                      ) : (
                        <button class={isZero(v) ? 'zero' : ''} data-number={c.key} data-explain={c.key} onClick={() => change({ node: short(n.id), edge: undefined, status: undefined, chart: c.key })}>
                          <Spark values={sparks.lines.get(c.key)?.get(n.id)} />
                          {format(v, c.unit)}
                          {share !== undefined && <Meter share={share} />}
                        </button>
                      )}
                    </td>
                  )
                })}
              </tr>
            ))}
            {drawn.length < rows.length && (
              <tr ref={end} key="more">
                <td colSpan={columns.length + 1} class="words"><button class="link" data-more onClick={() => more((n) => n + ROWS)}>{rows.length - drawn.length} more</button></td>
              </tr>
            )}
          </tbody>
        </table>
        <LinesNote of={sparks} />
        {rows.length === 0 && <p class="note">No name or image contains “{state.q}”. <button class="link" onClick={() => change({ q: '' }, true)}>Show all</button></p>}
      </div>
    </section>
  )
}

function Meter({ share }: { share: number }) {
  const width = Math.max(0, Math.min(1, share || 0)) * 100
  return (
    <svg class="meter" viewBox="0 0 100 2" preserveAspectRatio="none" aria-hidden="true">
      <rect width={width} height="2" />
    </svg>
  )
}

const isZero = (v: Seconds) => v === 0

/** Numbers before absent ones, whatever the direction. */
function compare(a: Seconds | undefined, b: Seconds | undefined, down: boolean): number {
  const x = asNumber(a)
  const y = asNumber(b)
  if (Number.isNaN(x) || Number.isNaN(y)) return (Number(Number.isNaN(x)) - Number(Number.isNaN(y))) * (down ? -1 : 1)
  return x === y ? 0 : x < y ? -1 : 1
}
