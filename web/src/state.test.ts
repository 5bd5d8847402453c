import { expect, it } from 'vitest'
import { parse, short, VIEW_KEYS, VIEWS, write } from './state'

it('writes nothing for the default', () => {
  expect(write(parse(''))).toBe('')
})

it('reads back what it writes', () => {
  for (const hash of [
    '#window=1h&node=abc&chart=usage.cpu_cores&sort=name&q=nginx',
    '#from=1790000000&to=1790000300.5&edge=a%3Eb&chart=client.p99',
    '#status=',
    '#view=matrix&by=process&share=0.01&quantity=p99',
    '#node=cpu&view=path&percentile=p50',
    '#view=changes&by=pod&ago=7d',
    '#edge=a%3Eb%2Fudp&chart=endpoint.rate&endpoint=http+GET+%2Fproduct%2F%3Aid&by=pod',
    '#strip=10s',
    '#view=recordings&strip=1m&zoom=1790000000000-1790000000250&mark=stall%401790000000100&kept=7',
    '#view=services&sort=-service.demand',
    '#view=hosts',
    '#view=placement&preset=fewest-hosts&together=cart%2Credis&on=db%3Dhost-1%2Chost-2&stay=legacy&without=0123456789ab',
    '#by=workload&nodes=all',
    '#view=health',
    '#view=whatif&load=400%2Fs&replicas=shop-cart%3A3&quota=a%3Ab%3A0.5&move=db%3Ahost-2&down=host-1',
    '#node=abc&load=3x&ask=',
    '#view=containers&q=cart',
    '#by=workload',
    '#view=matrix&by=namespace',
    '#strip=1m&zoom=1790000000000-1790000000250&mark=stall%401790000000100&lanes=all',
    '#edge=a%3Eb&strip=5m&mark=host-cpu%401790000000100',
    '#node=%2Fsystem.slice%2Fa%26b.service',
  ]) expect(write(parse(hash))).toBe(hash)
})

it('ignores what it does not understand', () => {
  expect(write(parse('#window=9y&from=5&to=3&chart=usage.x&sort=%3Cscript%3E&colour=red'))).toBe('')
  expect(write(parse('#node=a&chart=constructor.name'))).toBe('#node=a')
  expect(write(parse('#view=list&by=port&share=0.5&quantity=x&percentile=p95&ago=2d'))).toBe('')
  expect(write(parse('#edge=a&chart=endpoint.rate'))).toBe('#edge=a')
  expect(write(parse('#node=a&chart=endpoint.rate&endpoint=http+GET'))).toBe('#node=a')
  expect(write(parse('#preset=best&apart=&without=&load=0x&replicas=cart&quota=cart%3A-1&ask='))).toBe('')
  expect(write(parse('#strip=2h&zoom=1-2&mark=stall%401'))).toBe('')
  expect(write(parse('#strip=1m&zoom=5-5&mark=%3Cb%3E&lanes=7'))).toBe('#strip=1m')
  expect(write(parse('#strip=1m&kept=3'))).toBe('#strip=1m')
  expect(write(parse('#strip=1m&zoom=1-9&kept=-3'))).toBe('#strip=1m&zoom=1-9')
  expect(write(parse('#zoom=1-2&mark=stall%401&lanes=all'))).toBe('')
  expect(write(parse('#%E0%A4%A=%%&q=1'))).toBe('#q=1')
})

it('understands links of before', () => expect(write(parse('#view=heat&window=1h'))).toBe('#window=1h&view=matrix'))

it('has a key for each view', () => expect(new Set(VIEW_KEYS).size).toBe(VIEWS.length))

it('bounds the filter', () => {
  expect(parse('#q=' + 'x'.repeat(5000)).q).toHaveLength(200)
})

it('cuts container ids in URLs, and nothing else', () => {
  const id = '0123456789ab'.padEnd(64, 'f')
  expect(short(`${id}>10.0.0.1`)).toBe('0123456789ab>10.0.0.1')
  expect(short(`${id}/nginx>${id}/udp`)).toBe('0123456789ab/nginx>0123456789ab/udp')
  expect(short(`${id}0`)).toBe(`${id}0`)
  expect(short('host/vm')).toBe('host/vm')
})
