import { expect, it } from 'vitest'
import { actionOf, KEYS } from './keys'
import { VIEW_KEYS, VIEWS } from './state'

it('has a key for each view, in their order', () => {
  expect(VIEW_KEYS).toHaveLength(VIEWS.length)
  VIEWS.forEach(([view], i) => expect(actionOf(VIEW_KEYS[i]!, { window: 300 })).toEqual({ view }))
  expect(actionOf('0', { window: 300 })).toBeUndefined()
})

it('makes a live window shorter and longer, and leaves one that is held', () => {
  expect(actionOf('[', { window: 300 })).toEqual({ window: 60 })
  expect(actionOf(']', { window: 300 })).toEqual({ window: 900 })
  expect(actionOf('[', { window: 60 })).toBeUndefined()
  expect(actionOf(']', { window: 300, from: 1 })).toBeUndefined()
})

it('does nothing for others, and tells all that do something', () => {
  for (const key of ['a', 'Enter', ' ', '', 'constructor']) expect(actionOf(key, { window: 300 })).toBeUndefined()
  expect(KEYS).toHaveLength(VIEWS.length + 7)
})
