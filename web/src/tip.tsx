import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { linesOf, type Explanation } from './explain'

// The explanation of what is pointed at, or focused with the keyboard. An element asks for it by
// data-explain="scope.key"; what it is about is data-of of it or of what it is in. The text is made
// only then: a table has thousands of numbers.

type Explainer = (key: string, of: string | undefined, element: HTMLElement) => Explanation | undefined

const explainers = new Map<string, Explainer>()

/** Explains what asks for a scope, as long as the component is there. */
export function useExplainer(scopes: string[], f: Explainer) {
  const newest = useRef(f)
  newest.current = f
  useEffect(() => {
    const explain: Explainer = (...a) => newest.current(...a)
    for (const s of scopes) explainers.set(s, explain)
    return () => {
      for (const s of scopes) if (explainers.get(s) === explain) explainers.delete(s)
    }
  }, [scopes.join()])
}

function explanation(element: HTMLElement): Explanation | undefined {
  const path = element.dataset.explain!
  const at = path.indexOf('.')
  return explainers.get(path.slice(0, at))?.(path.slice(at + 1), element.closest<HTMLElement>('[data-of]')?.dataset.of, element)
}

const DELAY = 250 // ms for which the pointer must stay

export function Tip() {
  const [shown, show] = useState<{ element: HTMLElement; of: Explanation } | undefined>()
  const box = useRef<HTMLDivElement>(null)
  useEffect(() => {
    let timer = 0
    let current: HTMLElement | undefined
    const set = (element: HTMLElement | undefined, wait: number) => {
      if (element === current) return
      current = element
      clearTimeout(timer)
      timer = window.setTimeout(() => {
        const of = element?.isConnected ? explanation(element) : undefined
        show(of && { element: element!, of })
      }, wait)
    }
    const find = (e: Event) => (e.target instanceof Element ? (e.target.closest<HTMLElement>('[data-explain]') ?? undefined) : undefined)
    const over = (e: PointerEvent) => {
      if (e.pointerType === 'touch') return
      // What is read must stay: the pointer may go into it.
      if (e.target instanceof Element && e.target.closest('.tip-box')) return clearTimeout(timer), void (current = undefined)
      const element = find(e)
      set(element, element ? DELAY : 120)
    }
    const focus = (e: FocusEvent) => {
      const element = find(e)
      if (element?.matches(':focus-visible')) set(element, DELAY)
    }
    const hide = () => {
      current = undefined
      clearTimeout(timer)
      show(undefined)
    }
    const press = (e: KeyboardEvent) => {
      if (e.key !== 'Escape' || !box.current) return
      e.stopPropagation() // it closes this alone
      hide()
    }
    document.addEventListener('pointerover', over)
    document.addEventListener('focusin', focus)
    document.addEventListener('focusout', hide)
    document.addEventListener('pointerdown', hide)
    addEventListener('scroll', hide, true)
    addEventListener('hashchange', hide)
    document.addEventListener('keydown', press, true)
    return () => {
      clearTimeout(timer)
      document.removeEventListener('pointerover', over)
      document.removeEventListener('focusin', focus)
      document.removeEventListener('focusout', hide)
      document.removeEventListener('pointerdown', hide)
      removeEventListener('scroll', hide, true)
      removeEventListener('hashchange', hide)
      document.removeEventListener('keydown', press, true)
    }
  }, [])
  useLayoutEffect(() => {
    const element = box.current
    if (!shown || !element) return
    const at = shown.element.getBoundingClientRect()
    const { width, height } = element.getBoundingClientRect()
    const [wide, high] = [document.documentElement.clientWidth, innerHeight]
    const below = at.bottom + 6 + height <= high || at.top - 6 - height < 0
    element.style.left = `${Math.max(8, Math.min(at.left + at.width / 2 - width / 2, wide - width - 8))}px`
    element.style.top = `${Math.max(8, below ? Math.min(at.bottom + 6, high - height - 8) : at.top - 6 - height)}px`
    shown.element.setAttribute('aria-describedby', 'tip')
    return () => shown.element.removeAttribute('aria-describedby')
  }, [shown])
  if (!shown) return null
  const { title, value } = shown.of
  return (
    <div class="tip-box" id="tip" role="tooltip" data-tip ref={box}>
      <p class="tip-title"><strong>{title}</strong>{value?.trim() && <span>{value}</span>}</p>
      <dl>
        {linesOf(shown.of).map(([name, text]) => (
          <div key={name} class={name === '' ? 'what' : undefined}>
            <dt>{name}</dt>
            <dd>{name === 'PromQL' ? <code>{text}</code> : text}</dd>
          </div>
        ))}
      </dl>
    </div>
  )
}
