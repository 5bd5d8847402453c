package model

import (
	"math"
	"reflect"
	"testing"
	"time"
)

// histogramOf counts durations.
func histogramOf(durations ...time.Duration) *Histogram {
	h := &Histogram{}
	for _, d := range durations {
		one := &Histogram{Count: 1, SumNS: uint64(d)}
		switch {
		case d <= ZeroThreshold:
			one.ZeroCount = 1
		case d >= OverflowThreshold:
			one.OverflowCount = 1
		default:
			one.Offset, one.Buckets = BucketOf(d), []uint64{1}
		}
		h.Merge(one)
	}
	return h
}

func TestSince(t *testing.T) {
	f := func(now, before, want *Histogram) {
		t.Helper()
		if got := now.Since(before); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	const ms, s = time.Millisecond, time.Second
	f(nil, nil, nil)
	f(nil, histogramOf(ms), nil)
	f(histogramOf(ms), nil, histogramOf(ms))
	f(histogramOf(ms, ms, s), histogramOf(ms), histogramOf(ms, s))
	f(histogramOf(ms, s, 0, 100*s), histogramOf(ms, s), histogramOf(0, 100*s))
	// A restarted counter that is larger already, lower or higher than the one before.
	f(histogramOf(s, s, s), histogramOf(ms), histogramOf(s, s, s))
	f(histogramOf(ms, ms, 2*s), histogramOf(s), histogramOf(ms, ms, 2*s))
	f(histogramOf(ms, s, 3*s), histogramOf(ms, ms), histogramOf(ms, s, 3*s))
	f(histogramOf(ms), histogramOf(ms, ms), histogramOf(ms))
}

func TestMergeIsExact(t *testing.T) {
	a, b := histogramOf(3*time.Microsecond, time.Second), histogramOf(0, time.Millisecond, 100*time.Second)
	a.Merge(b)
	want := histogramOf(time.Second, time.Millisecond, 3*time.Microsecond, 100*time.Second, 0)
	if !reflect.DeepEqual(a, want) {
		t.Errorf("got %+v, want %+v", a, want)
	}
}

func TestQuantileIsWithinTheBound(t *testing.T) {
	var all []time.Duration
	for d := 2 * time.Microsecond; d < time.Minute; d += d / 37 {
		all = append(all, d)
	}
	h := histogramOf(all...)
	for i, d := range all {
		q := (float64(i) + 0.5) / float64(len(all))
		if e := math.Abs(h.Quantile(q)/d.Seconds() - 1); e > RelativeError {
			t.Errorf("quantile %.4f is off by %.3f %%", q, 100*e)
		}
	}
	if q := histogramOf(100 * time.Second).Quantile(0.5); !math.IsInf(q, 1) {
		t.Errorf("past the last bucket: %v, want +Inf", q)
	}
	if q := (*Histogram)(nil).Quantile(0.5); !math.IsNaN(q) {
		t.Errorf("of nothing: %v, want NaN", q)
	}
}
