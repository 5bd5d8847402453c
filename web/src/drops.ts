import type { LabelledRow } from './data'

// What the kernel dropped of a container, by reason and device: "SOCKET_RCVBUFF at eth0".

export interface Dropped {
  reason: string
  device: string
  packets: number
  perSecond: number
}

export const DROPS = 'container_network_drops_total'

/** The rows of all containers of a node together, the most first. */
export function droppedOf(rows: LabelledRow[]): Dropped[] {
  const all = new Map<string, Dropped>()
  for (const r of rows) {
    if (r.metric !== DROPS || !r.value) continue
    const { reason = '', device = '' } = r.labels
    const sum = all.get(`${reason} ${device}`) ?? { reason, device, packets: 0, perSecond: 0 }
    all.set(`${reason} ${device}`, { ...sum, packets: sum.packets + r.value, perSecond: sum.perSecond + (r.per_second ?? 0) })
  }
  return [...all.values()].sort((a, b) => b.packets - a.packets || a.reason.localeCompare(b.reason))
}
