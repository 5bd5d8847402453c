package main

import (
	"testing"
	"time"

	"outsight/internal/predict"
)

func TestLookTime(t *testing.T) {
	f := func(rate, times float64, want time.Duration) {
		t.Helper()
		if got := lookTime(20*time.Second, rate, times); got != want {
			t.Errorf("at %v/s, %v times the first rate: %v, want %v", rate, times, got, want)
		}
	}
	f(10, 1, 20*time.Second)   // nothing is told of it
	f(20, 2, 50*time.Second)   // 1000 requests come, as it is as long as may be
	f(100, 10, 30*time.Second) // 3000
	f(500, 50, 20*time.Second)
}

// Windows are counted up to 80 % of the limit, and those in which nothing was seen not at all.
func TestCountLatencies(t *testing.T) {
	high := 0.015
	told := func(at, value, seen, low, highest float64) toldLatency {
		return toldLatency{at: at, seen: seen, low: low, high: highest,
			entry: predict.Entry{Then: &predict.Latencies{P99: predict.Interval{Value: value, Low: 0.008, High: &high}}}}
	}
	all := []toldLatency{
		told(50, 0.01, 0.011, 0.0105, 0.0115), // near, within, known
		told(50, 0.01, 0.014, 0.0135, 0.0145), // within, known, not near
		told(60, 0.01, 0.014, 0.009, 0.02),    // within, not near, not further off than chance
		told(70, 0.01, 0.016, 0.015, 0.017),   // known, neither
		{at: 50, seen: 0.016, low: 0.008, high: 0.02, // within, as nothing bounds it from above
			entry: predict.Entry{Then: &predict.Latencies{P99: predict.Interval{Value: 0.01, Low: 0.008}}}},
		told(81, 0.01, 0.01, 0.01, 0.01), // above 80 %
		told(75, 0.01, 0, 0, 0),          // not seen
		{at: 70, seen: 0.01, entry: predict.Entry{Saturated: true}},
	}
	want := latencyCounts{all: 5, within: 4, near: 1, closed: 4, closedWithin: 3, known: 3, knownNear: 1, chance: 2, endless: 1}
	if got := countLatencies(all, 100); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
