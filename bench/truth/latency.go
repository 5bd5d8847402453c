package truth

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"outsight/internal/kernel"
	"outsight/internal/model"
)

// Levels are the quantiles that are compared.
var Levels = []float64{0.50, 0.75, 0.90, 0.99, 0.999}

// Latencies compares an edge's histogram with the log of its transactions.
type Latencies struct {
	// Counted is the number of entries of the histogram, Logged that of the log.
	Counted, Logged uint64
	// Misplaced transactions are in one of the two and not in the same bucket of the other.
	Misplaced uint64
	Quantiles []Quantile
}

// Quantile is one of Levels in seconds: of the exact durations, and as Outsight tells it.
type Quantile struct{ Level, Exact, Told float64 }

// Error is the relative error.
func (q Quantile) Error() float64 { return math.Abs(q.Told/q.Exact - 1) }

// WorstError is the greatest relative error of all quantiles.
func (l Latencies) WorstError() float64 {
	worst := 0.0
	for _, q := range l.Quantiles {
		worst = max(worst, q.Error())
	}
	return worst
}

// CompareLatencies compares what one end of a service's connections has counted with the log.
func CompareLatencies(p *kernel.Probes, log []kernel.Transaction, service netip.AddrPort, role model.Role) (Latencies,
	error) {
	edges, err := p.ReadEdges()
	if err != nil {
		return Latencies{}, err
	}
	counted := &model.Histogram{}
	for _, e := range edges {
		if e.Key.Service == service && e.Key.Role == role {
			counted.Merge(e.Counters.Latency)
		}
	}
	var durations []time.Duration
	for _, t := range log {
		if t.Edge.Service == service && t.Edge.Role == role {
			durations = append(durations, t.Latency())
		}
	}
	slices.Sort(durations)
	l := Latencies{Counted: counted.Count, Logged: uint64(len(durations)), Misplaced: misplaced(counted, durations)}
	for _, level := range Levels {
		l.Quantiles = append(l.Quantiles, Quantile{level, Exact(durations, level).Seconds(), counted.Quantile(level)})
	}
	return l, nil
}

// Exact is the quantile of sorted durations, 0 where there are none: of n durations the one whose
// rank is the least that is not below level·n, as model.Histogram has it.
func Exact(sorted []time.Duration, level float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(level*float64(len(sorted)))), 1)-1]
}

// The two cells of a histogram that are no buckets, as keys beside the indices of buckets.
const (
	zeroBucket     = math.MinInt32
	overflowBucket = math.MaxInt32
)

// misplaced takes each duration out of the bucket in which it must have been counted, and sums up
// what is left over or missing.
func misplaced(counted *model.Histogram, durations []time.Duration) uint64 {
	left := map[int32]int64{zeroBucket: int64(counted.ZeroCount), overflowBucket: int64(counted.OverflowCount)}
	for i, n := range counted.Buckets {
		left[counted.Offset+int32(i)] = int64(n)
	}
	for _, d := range durations {
		switch {
		case d <= model.ZeroThreshold:
			left[zeroBucket]--
		case d >= model.OverflowThreshold:
			left[overflowBucket]--
		default:
			left[model.BucketOf(d)]--
		}
	}
	var sum uint64
	for _, n := range left {
		sum += uint64(max(n, -n))
	}
	return sum
}
