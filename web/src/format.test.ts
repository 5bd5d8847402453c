import { describe, expect, it } from 'vitest'
import { bytes, duration, format, span } from './format'

describe('units', () => {
  const cases: [string, string][] = [
    [duration(0), '< 1.02 µs'],
    [duration(0.00312), '3.12 ms'],
    [duration(0.0999), '99.9 ms'],
    [duration(12), '12.0 s'],
    [duration('+Inf'), '> 68.7 s'],
    [duration(undefined), '–'],
    [duration(-0.0002), '−200 µs'],
    [format(0, '/s'), '0/s'],
    [format(999.6, '/s'), '1.00k/s'],
    [format(0.0005, '/s'), '0.0005/s'],
    [format(0.00123, '/s'), '0.0012/s'],
    [format(1_240_000, 'B/s'), '1.24 MB/s'],
    [format(12, 'B/s'), '12.0 B/s'],
    [format(13107200, 'B'), '12.5 MiB'],
    [bytes(1000), '0.98 KiB'],
    [format(0.4211, 'cores'), '0.421'],
    [format(0.0001, 'cores'), '< 0.001'],
    [format(0.031, 'ratio'), '3.10 %'],
    [format(12345, ''), '12,345'],
    [format(undefined, '/s'), '–'],
    [span(59), '59 s'],
    [span(300), '5 min'],
    [span(200), '3 min 20 s'],
    [span(3600), '60 min'],
    [span(21600), '6 h'],
    [span(8100), '2 h 15 min'],
  ]
  it.each(cases)('%s is %s', (got, want) => expect(got).toBe(want))
})
