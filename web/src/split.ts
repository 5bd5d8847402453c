import type { Split } from './types'

export interface Part {
  title: string
  seconds: number
  /** Of the whole, 0 to 1, and that of the parts before it. */
  share: number
  from: number
  meaning: string
}

/** The four parts of the time that a client waits for the first byte of a reply, in their order. */
export function partsOf(split: Split): Part[] {
  const parts: Omit<Part, 'share' | 'from'>[] = [
    { title: 'In the client', seconds: split.client_seconds, meaning: 'Until the request is sent, and from the arrival of the reply until it is read' },
    { title: 'Network there', seconds: split.network_there_seconds, meaning: 'A packet on its way to the server' },
    { title: 'In the server', seconds: split.server_seconds, meaning: 'From the arrival of the request in its socket to the first byte of the reply' },
    { title: 'Network back', seconds: split.network_back_seconds, meaning: 'A packet on its way to the client' },
  ]
  const whole = parts.reduce((sum, p) => sum + p.seconds, 0)
  let from = 0
  return parts.map((p) => {
    const part = { ...p, share: whole > 0 ? p.seconds / whole : 0, from }
    from += part.share
    return part
  })
}
