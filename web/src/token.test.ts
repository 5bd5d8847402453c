import { expect, it } from 'vitest'
import { split } from './token'

it('takes the token out of a hash and leaves the view', () => {
  expect(split('#token=abc')).toEqual({ hash: '', token: 'abc' })
  expect(split('#window=60&token=a%2Bb&view=heat')).toEqual({ hash: '#window=60&view=heat', token: 'a+b' })
  expect(split('#token=')).toEqual({ hash: '', token: '' })
})

it('leaves a hash without a token as it is', () => {
  for (const hash of ['', '#window=60&node=abc', '#tokens=1']) expect(split(hash)).toEqual({ hash })
})
