import { expect, it } from 'vitest'
import type { BoundedResource, WhatIf, WhatIfResource } from './types'
import { amountText, barOf, boundedName, bounds, changeText, doubtsText, modelText, shareOf, usedBounds, valueOf, verdictOf, waitsText, whatIfOf, withChange } from './whatif'

const resource = (part: Partial<WhatIfResource>): WhatIfResource => ({ node: 'cart', name: 'shop-cart', host: 'a', parallel: 1, parallel_by: 'threads', ...part })
const answer = (part: Partial<WhatIf>): WhatIf => ({ from: '', to: '', step_seconds: 5, mean_rate: 100, rate: 200, stretches: 20, least_rate: 50, greatest_rate: 150, resources: [resource({})], hosts: ['a'], power: [], pools: [], doubts: [], entries: [], limited_by: 'cart', ...part })

it('says whether there is room, and when it is not known', () => {
  const f = (part: Partial<WhatIf>, kind: string, want: RegExp) => {
    const v = verdictOf(answer(part))
    expect(v.kind).toBe(kind)
    expect(v.before + v.name + v.after + '. ' + v.note).toMatch(want)
  }
  f({ limit: { value: 300, low: 280, high: 330 } }, 'good', /^There is room. Used up first: shop-cart, at 300\/s \(280\/s to 330\/s\), 2.0 times the greatest rate that there was. The load asked for is 200\/s, 2.0 × the mean.$/)
  f({ limit: { value: 150, low: 140, high: 170 } }, 'worse', /^shop-cart is used up at 150\/s .* does not get there/)
  f({ limit: { value: 90, low: 80, high: 99 } }, 'worse', /^shop-cart is used up at 90.*Even the mean rate of this time, 100\/s, is above that/)
  const most = 'a request takes 10 ms in shop-cart'
  f({ limit: { value: 300, low: 150, high: 330 }, at_most: most }, 'unsure', /within the bounds of the limit. The limit is that at most: from 150\/s on, a request takes 10 ms in shop-cart.$/)
  f({ limit: { value: 300, low: 250, high: 330 }, at_most: most }, 'good', /The limit is that at most: from 250\/s on/)
  const doubts = [{ node: 'cart', text: 'x' }]
  f({ limit: { value: 300, low: 150, high: 330 }, at_most: most, doubts, upper_bound: true }, 'unsure', /^The limit cannot be told. It is at most about 300\/s, by the CPU time of shop-cart\. The load asked for is 200\/s, 2.0 × the mean\.$/)
  f({ limit: { value: 150, low: 100, high: 190 }, doubts, upper_bound: true }, 'worse', /^There is no room. The limit is at most about 150\/s, by the CPU time of shop-cart\. The load asked for is 200\/s, 2.0 × the mean: it does not get there\.$/)
  f({ limit: { value: 150, low: 100, high: 330 }, doubts, upper_bound: true, limited_by: 'cpus/a', resources: [resource({ node: 'cpus/a', name: 'CPUs of a' })] }, 'unsure', /^The limit cannot be told. It is at most about 150\/s, by the CPUs of a\. The load asked for is 200\/s, 2.0 × the mean: it does not get there\.$/)
  f({ limit: { value: 210, low: 150 } }, 'unsure', /^There may be room.*\(150\/s or more\)/)
  f({ resources: [resource({ unknown: 'the rate of requests hardly changed' })] }, 'unsure', /It cannot be told.*The rate of requests hardly changed/)
  f({ stretches: 0, resources: [] }, 'unsure', /No requests came in/)
})

it('names connections as the limit, and says where they may be none', () => {
  const pool = { client: 'web', server: 'db', name: 'web to db', open: 4, before: { value: 1, low: 1 }, busy: { value: 2, low: 1, high: 3 }, fixed: true, waited: true }
  const limited = { limit: { value: 210, low: 205, high: 250 }, limited_by: 'web>db', pools: [pool] }
  const doubts = [{ node: 'web', text: 'nobody was seen to wait' }]
  const f = (part: Partial<WhatIf>, kind: string, want: RegExp) => {
    const v = verdictOf(answer({ ...limited, ...part }))
    expect(v.kind).toBe(kind)
    expect(v.before + v.name + v.after + '. ' + v.note).toMatch(want)
  }
  f({}, 'good', /^There is room. Used up first: the 4 connections of web to db, at 210\/s \(205\/s to 250\/s\)/)
  f({ rate: 300 }, 'worse', /^The 4 connections of web to db are all busy at 210\/s .* does not get there/)
  f({ rate: 300, pools: [{ ...pool, open: 1 }] }, 'worse', /^The connection of web to db is busy at 210\/s/)
  f({ rate: 300, pools: [{ ...pool, waited: false }], doubts }, 'unsure', /^There may be no room. Used up first: the 4 connections of web to db, at 210\/s .*\. The load asked for is 300\/s/)
  f({ pools: [{ ...pool, waited: false }], doubts }, 'unsure', /^There may be room. Used up first: the 4 connections/)
  expect(doubtsText(answer({ ...limited, doubts }))).toBe('The limit may be another one:')
  expect(doubtsText(answer({ limit: limited.limit, pools: [pool], doubts }))).toBe('This may be used up before:')
  expect(shareOf(pool.busy, 4)).toEqual({ value: 0.5, low: 0.25, high: 0.75 })
})

it('writes changes, and has one for each kind and name', () => {
  expect(changeText(['replicas', 'shop-cart:3']) + changeText(['quota', 'a:b:0.5']) + changeText(['move', 'db:host-2']) + changeText(['down', 'a:1'])).toBe('3 replicas of shop-carta:b: quota of 0.5 coresdb on host-2a:1 is down')
  const changes = withChange(withChange([['quota', 'cart:2']], 'replicas', 'cart', '3'), 'replicas', 'cart', '4')
  expect(changes).toEqual([['quota', 'cart:2'], ['replicas', 'cart:4']])
  expect(valueOf(changes, 'replicas', 'cart') + valueOf(changes, 'move', 'cart')).toBe('4')
  expect(withChange(withChange([['down', 'b']], 'down', 'a', ''), 'down', 'a', '')).toEqual([['down', 'b'], ['down', 'a']])
  expect(withChange(changes, 'replicas', 'cart', '')).toEqual([['quota', 'cart:2']])
  expect(whatIfOf({ load: '400/s', changes })).toBe('&load=400%2Fs&quota=cart%3A2&replicas=cart%3A4')
})

it('says by which model durations were found, and how good it was', () => {
  const e = { node: 'web', name: 'web', rate: 1, tested: { queueing_error: 0.125, scalability_error: 0.3, times: 1.5 } }
  expect(modelText({ ...e, model: 'queueing' })).toBe('queueing, 12.5 % off on the past at up to 1.5 times the load that it knew')
  expect(modelText({ ...e, model: 'scalability' })).toMatch(/30.0 % off/)
  expect(modelText({ ...e, model: 'queueing', tested: undefined })).toMatch(/too little of the past/)
  expect(modelText({ ...e })).toBe('')
})

it('says what requests wait for where p99 is longer', () => {
  const e = { node: 'web', name: 'web', rate: 1 }
  expect(waitsText({ ...e, waits: [{ for: 'the quota of cart', longer: 0.012 }, { for: 'CPUs of a', longer: 0.002 }] })).toBe('p99 at web is longer because requests wait for the quota of cart (+12.0 ms), CPUs of a (+2.00 ms).')
  expect(waitsText(e)).toBe('')
})

it('draws the bounds of an estimate on its scale', () => {
  expect(barOf({ value: 0.75, low: 0.6, high: 0.9 })).toEqual({ value: 50, low: 40, high: 60, over: false })
  expect(barOf({ value: 3, low: 1 })).toMatchObject({ value: 100, high: 100, over: true })
  expect(usedBounds({ value: 0.75, low: 0.72, high: 0.95 })).toBe('72.0 to 95.0 %')
  expect(bounds({ value: 1, low: 0.5 }, String)).toBe('0.5 or more')
})

it('names what is bounded as the command line does', () => {
  const f = (part: Partial<BoundedResource>, name: string, used: string) => {
    const r = { kind: 'memory', name: 'cart', host: 'a', used: 2, capacity: 10, ...part } as BoundedResource
    expect(boundedName(r)).toBe(name)
    expect(amountText(r, r.used)).toBe(used)
  }
  f({ kind: 'cpu' }, 'CPU of the host', '2.00 cores')
  f({ kind: 'filesystem', name: '/var' }, 'filesystem /var', '2.00 B')
  f({ kind: 'accept queue', node: '1', name: 'cart at 10.0.0.2:80' }, 'accept queue of cart at 10.0.0.2:80', '2')
  f({ kind: 'connections', node: '1', name: 'web to db', used: 2.5 }, 'connections of web to db', '2.5')
  f({ kind: 'requests at a time', node: '1', name: 'web to db', used: 2.5 }, 'requests at a time of web to db', '2.5')
  f({ kind: 'requests', name: 'requests', by: 'cart', used: 120 }, 'requests, limited by cart', '120/s')
})
