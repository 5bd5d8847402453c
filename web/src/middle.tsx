/** How many of a name's last letters always stay: names of one application differ at their ends. */
const TAIL = 7

/**
 * A name that is cut in its middle where there is no room, with all of it as its title. What is drawn is the style sheet's: for readers of
 * the screen, and for who copies it, the name is in one piece.
 */
export function Middle({ text, title = text }: { text: string; title?: string }) {
  const letters = [...text]
  if (letters.length <= TAIL + 3) return <span class="middle" title={title}>{text}</span>
  return (
    <span class="middle" title={title}>
      <span class="hidden">{text}</span>
      <span class="middle-head" aria-hidden="true" data-text={letters.slice(0, -TAIL).join('')} />
      <span class="middle-tail" aria-hidden="true" data-text={letters.slice(-TAIL).join('')} />
    </span>
  )
}
