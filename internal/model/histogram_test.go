package model

import (
	"math"
	"math/rand/v2"
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

// TestAdd: adding one duration at a time is what merging histograms of one each is.
func TestAdd(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var all []time.Duration
	got := &Histogram{}
	for range 2000 {
		d := time.Duration(math.Exp(rnd.Float64() * 26)) // 1 ns to 195 s
		all = append(all, d)
		got.Add(d)
	}
	got.Add(-time.Second)
	if want := histogramOf(append(all, 0)...); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestSince(t *testing.T) {
	room := &Histogram{}
	f := func(now, before, want *Histogram) {
		t.Helper()
		unchanged := now.Clone()
		if got := now.Since(before); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if now == nil {
			return
		}
		if room.SetSince(now, before); !reflect.DeepEqual(room, want) || !reflect.DeepEqual(now, unchanged) {
			t.Errorf("in the room of another: got %+v, want %+v", room, want)
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

// TestQuantilesAreEachAQuantile: several at once are what each is alone, and that is where the counts reach the share.
func TestQuantilesAreEachAQuantile(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	shares := []float64{0, 0.001, 0.25, 0.5, 0.5, 0.75, 0.9, 0.99, 1}
	for range 2000 {
		h := &FloatHistogram{Offset: MaxBucket - int32(rnd.IntN(900)), Buckets: make([]float64, rnd.IntN(40))}
		if rnd.IntN(3) == 0 {
			h.ZeroCount = float64(rnd.IntN(20))
		}
		h.Count = h.ZeroCount
		for i := range h.Buckets {
			if rnd.IntN(2) == 0 {
				h.Buckets[i] = float64(rnd.IntN(10))
				h.Count += h.Buckets[i]
			}
		}
		got := make([]float64, len(shares))
		h.Quantiles(got, shares...)
		for i, q := range shares {
			want := math.Inf(1)
			switch seen := h.ZeroCount; {
			case h.Count == 0:
				want = math.NaN()
			case q*h.Count <= seen && seen > 0:
				want = 0
			default:
				for j, n := range h.Buckets {
					if seen += n; n > 0 && q*h.Count <= seen {
						if at := h.Offset + int32(j); at <= MaxBucket {
							want = BucketMiddle(at)
						}
						break
					}
				}
			}
			if one := h.Quantile(q); math.Float64bits(got[i]) != math.Float64bits(want) ||
				math.Float64bits(one) != math.Float64bits(want) {
				t.Fatalf("%+v: quantile %v is %v, %v alone, want %v", h, q, got[i], one, want)
			}
		}
	}
	none := []float64{1}
	if (*FloatHistogram)(nil).Quantiles(none, 0.5); !math.IsNaN(none[0]) {
		t.Errorf("the quantile of no histogram is %v", none[0])
	}
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

// TestMiddleOfBuckets: the middle is as far above the lower bound as below the upper one, past the registry's buckets, too.
func TestMiddleOfBuckets(t *testing.T) {
	for i := int32(MinBucket) - 40; i <= MaxBucket+40; i++ {
		want := math.Sqrt(BucketUpperBound(i-1)) * math.Sqrt(BucketUpperBound(i))
		if got := BucketMiddle(i); math.Abs(got/want-1) > 1e-12 {
			t.Errorf("bucket %d: %v, want %v", i, got, want)
		}
	}
}
