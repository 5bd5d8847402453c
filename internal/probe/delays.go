package probe

import (
	"math"
	"slices"
	"time"
)

// Delays are how long packets took, in seconds. They are exact: of all packets, not of a histogram.
type Delays struct {
	Count int     `json:"count"`
	Min   float64 `json:"min_seconds"`
	Mean  float64 `json:"mean_seconds"`
	P50   float64 `json:"p50_seconds"`
	P90   float64 `json:"p90_seconds"`
	P99   float64 `json:"p99_seconds"`
	Max   float64 `json:"max_seconds"`
	// Jitter is the mean deviation of neighbours as RFC 3550 smooths it, Spread what 99 % of the packets took at most above
	// the fastest (RFC 5481, PDV).
	Jitter float64 `json:"jitter_seconds"`
	Spread float64 `json:"spread_seconds"`
}

// delaysOf are those of packets in the order in which they arrived; nil of none.
func delaysOf(all []time.Duration) *Delays {
	if len(all) == 0 {
		return nil
	}
	d := Delays{Count: len(all)}
	for i := 1; i < len(all); i++ {
		difference := math.Abs((all[i] - all[i-1]).Seconds())
		d.Jitter += (difference - d.Jitter) / 16
	}
	sorted := slices.Sorted(slices.Values(all))
	for _, one := range sorted {
		d.Mean += one.Seconds() / float64(len(sorted))
	}
	d.Min, d.Max = sorted[0].Seconds(), sorted[len(sorted)-1].Seconds()
	d.P50, d.P90, d.P99 = quantile(sorted, 0.5), quantile(sorted, 0.9), quantile(sorted, 0.99)
	d.Spread = d.P99 - d.Min
	return &d
}

// quantile is the least value, in seconds, that so large a share is not above.
func quantile(sorted []time.Duration, share float64) float64 {
	return sorted[max(int(math.Ceil(share*float64(len(sorted))))-1, 0)].Seconds()
}

// aboveMinimum are the delays less the least of them: what is known where the two ends have clocks of their own.
func (d *Delays) aboveMinimum() *Delays {
	if d == nil {
		return nil
	}
	above := *d
	for _, v := range []*float64{&above.Mean, &above.P50, &above.P90, &above.P99, &above.Max, &above.Min} {
		*v -= d.Min
	}
	return &above
}
