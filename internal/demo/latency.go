package demo

import (
	"math"
	"time"
)

// latencies is a histogram with buckets that grow by 0.2 %, so that a bucket's middle is within
// 0.1 % of any value in it: ten times finer than what is to be judged by it. It is not safe for
// concurrent use.
type latencies struct {
	buckets []uint64
	count   uint64
	sum     time.Duration
	max     time.Duration
}

const (
	latencyGrowth  = 1.002
	latencyBuckets = 9300 // 1 us * 1.002^9300 is about 117 s; callTimeout is 10 s
)

var logLatencyGrowth = math.Log(latencyGrowth)

func (l *latencies) add(d time.Duration) {
	if l.buckets == nil {
		l.buckets = make([]uint64, latencyBuckets)
	}
	i := 0
	if d > time.Microsecond {
		i = int(math.Log(float64(d)/float64(time.Microsecond)) / logLatencyGrowth)
	}
	l.buckets[min(i, latencyBuckets-1)]++
	l.count++
	l.sum += d
	l.max = max(l.max, d)
}

func (l *latencies) quantile(q float64) time.Duration {
	if l.count == 0 {
		return 0
	}
	rank, seen := max(uint64(math.Ceil(q*float64(l.count))), 1), uint64(0)
	for i, n := range l.buckets {
		if seen += n; seen >= rank {
			middle := time.Duration(float64(time.Microsecond) * math.Pow(latencyGrowth, float64(i)+0.5))
			return min(middle, l.max)
		}
	}
	return l.max
}

func (l *latencies) summary() LatencySummary {
	s := LatencySummary{
		Count: l.count, P50: l.quantile(.5), P75: l.quantile(.75), P90: l.quantile(.9),
		P99: l.quantile(.99), P999: l.quantile(.999), Max: l.max,
	}
	if l.count > 0 {
		s.Mean = l.sum / time.Duration(l.count)
	}
	return s
}
