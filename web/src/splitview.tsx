import { digits, duration, format } from './format'
import { partsOf } from './split'
import type { Split } from './types'

/** Where the time of an edge's requests goes: a bar of four parts, and what each is. */
export function SplitView({ split }: { split: Split }) {
  const parts = partsOf(split)
  const lost = split.lost_there + split.lost_back
  return (
    <section class="group" data-split>
      <h3>Where the time goes <span class="muted">· mean, up to the first byte of a reply</span></h3>
      <svg class="stack" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={parts.map((p) => `${p.title} ${digits(p.share * 100)} %`).join(', ')}>
        {parts.map((p, i) => <rect key={p.title} class={`part-${i}`} x={p.from * 100} width={p.share * 100} height="10" />)}
      </svg>
      <ul class="host-parts">
        {parts.map((p, i) => (
          <li key={p.title} class="part" title={p.meaning}>
            <i class={`swatch part-${i}`} aria-hidden="true" /><span class="part-name">{p.title}</span><span class="part-value">{duration(p.seconds)} · {digits(p.share * 100)} %</span>
          </li>
        ))}
      </ul>
      <p class="muted small">{lost > 0 ? `Lost on the way: ${format(split.lost_there, '')} packets there, ${format(split.lost_back, '')} back.` : 'No packet was lost on the way.'}</p>
    </section>
  )
}
