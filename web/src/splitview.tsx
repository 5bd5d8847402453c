import { digits, duration, format } from './format'
import { partsOf } from './split'
import type { Split } from './types'

/** Where the time of an edge's requests goes. */
export function SplitView({ split }: { split: Split }) {
  const lost = split.lost_there + split.lost_back
  return (
    <section class="group" data-split>
      <h3>Where the time goes</h3>
      <dl class="numbers">
        {partsOf(split).map((p) => <div key={p.title} title={p.meaning}><dt>{p.title}</dt><dd>{duration(p.seconds)} ({digits(100 * p.share)} %)</dd></div>)}
      </dl>
      <p class="muted small">Means, up to the first byte of a reply. {lost > 0 ? `Lost on the way: ${format(split.lost_there, '')} packets there, ${format(split.lost_back, '')} back.` : 'No packet was lost on the way.'}</p>
    </section>
  )
}
