import { describe, expect, it } from 'vitest'
import type { LabelledRow } from './data'
import { DROPS, droppedOf } from './drops'

const row = (reason: string, device: string, value: number, metric = DROPS): LabelledRow => ({ metric, host: 'vm', node: 'a', labels: { reason, ...(device && { device }) }, value, per_second: value / 10 })

describe('what the kernel dropped', () => {
  it('is added up over the containers of a node, the most first', () => {
    expect(droppedOf([row('NO_SOCKET', 'eth0', 3), row('SOCKET_RCVBUFF', 'eth0', 20), row('NO_SOCKET', 'eth0', 7), row('NO_SOCKET', '', 1)])).toEqual([
      { reason: 'SOCKET_RCVBUFF', device: 'eth0', packets: 20, perSecond: 2 },
      { reason: 'NO_SOCKET', device: 'eth0', packets: 10, perSecond: 1 },
      { reason: 'NO_SOCKET', device: '', packets: 1, perSecond: 0.1 },
    ])
  })
  it('has no row where nothing was dropped in the window, and none of other metrics', () => {
    expect(droppedOf([row('NO_SOCKET', 'eth0', 0), row('x', 'sda', 5, 'container_disk_errors_total')])).toEqual([])
  })
})
