package store

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"

	"outsight/internal/model"
)

// observe adds a duration the way the kernel does: three ranges, told apart by the thresholds.
func observe(h *model.Histogram, d time.Duration) {
	h.Count++
	h.SumNS += uint64(d)
	switch {
	case d <= model.ZeroThreshold:
		h.ZeroCount++
	case d >= model.OverflowThreshold:
		h.OverflowCount++
	default:
		one := &model.Histogram{Count: 1, Offset: model.BucketOf(d), Buckets: []uint64{1}}
		h.Count--
		h.Merge(one)
	}
}

// float is h as a query gives it back.
func float(h *model.Histogram) *model.FloatHistogram {
	f := &model.FloatHistogram{Count: float64(h.Count), Sum: float64(h.SumNS) / 1e9, ZeroCount: float64(h.ZeroCount),
		Offset: h.Offset}
	for _, n := range h.Buckets {
		f.Buckets = append(f.Buckets, float64(n))
	}
	if h.OverflowCount > 0 {
		f.Merge(&model.FloatHistogram{Offset: model.OverflowBucket, Buckets: []float64{float64(h.OverflowCount)}})
	}
	return f
}

func durations(seed uint64, n int) []time.Duration {
	rnd := rand.New(rand.NewPCG(seed, 7))
	out := make([]time.Duration, n)
	for i := range out {
		// Log-normal around 2 ms, wide enough to reach both thresholds now and then.
		out[i] = time.Duration(math.Exp(rnd.NormFloat64()*3) * 2e6)
	}
	return out
}

func histogramOf(t testing.TB, s *Store, query string, seconds float64) *model.FloatHistogram {
	t.Helper()
	r, err := s.Instant(context.Background(), query, at(seconds))
	if err != nil || len(r) != 1 || len(r[0].Points) != 1 || r[0].Points[0].Histogram == nil {
		t.Fatalf("%s: got %+v, %v", query, r, err)
	}
	return r[0].Points[0].Histogram
}

// What goes in comes out: raw, as a difference, as a sum over series, and after a restart.
func TestHistogramRoundTrip(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	a, b := &model.Histogram{}, &model.Histogram{}
	states := map[float64]*model.Histogram{}
	for i := range 20 {
		for _, d := range durations(uint64(i), 500) {
			observe(a, d)
			observe(b, d*3)
		}
		states[float64(i)] = a.Clone()
		appendAll(t, s, histogramAt(float64(i), a.Clone(), "h", "id", "a"), histogramAt(float64(i), b.Clone(), "h",
			"id", "b"))
	}
	if a.ZeroCount == 0 || a.OverflowCount == 0 || len(a.Buckets) < 500 {
		t.Fatalf("the durations do not reach everywhere: %d, %d, %d buckets", a.ZeroCount, a.OverflowCount, len(a.Buckets))
	}
	check := func(s *Store) {
		t.Helper()
		for i, state := range states {
			if got := histogramOf(t, s, `h{id="a"}`, i); !reflect.DeepEqual(got, float(state)) {
				t.Errorf("at %v: got %+v, want %+v", i, got, float(state))
			}
		}
		both := a.Clone()
		both.Merge(b)
		if got := histogramOf(t, s, `sum(h)`, 19); !sameBuckets(got, float(both)) {
			t.Errorf("sum: got %+v, want %+v", got, float(both))
		}
		gained := float(states[19].Since(states[9]))
		if got := histogramOf(t, s, `h{id="a"} - h{id="a"} offset 10s`, 19); !sameBuckets(got, gained) {
			t.Errorf("difference: got %+v, want %+v", got, gained)
		}
		// The exact difference over a range; where the range begins between two samples, the
		// one before it counts.
		for _, query := range []string{`increase(h{id="a"}[10s] anchored)`, `increase(h{id="a"}[9500ms] anchored)`} {
			if got := histogramOf(t, s, query, 19); !sameBuckets(got, gained) {
				t.Errorf("%s: got %+v, want %+v", query, got, gained)
			}
		}
		// rate divides each count by the time, all by the same.
		rate := histogramOf(t, s, `rate(h{id="a"}[11s])`, 19)
		for i, n := range rate.Buckets {
			want := gained.Buckets[int32(i)+rate.Offset-gained.Offset] / 10
			if math.Abs(n-want) > 1e-9*want {
				t.Errorf("rate: bucket %d: got %v, want %v", i, n, want)
			}
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(open(t, dir, Options{}))
}

// sameBuckets compares all but the sum, which adding in another order may round differently.
func sameBuckets(got, want *model.FloatHistogram) bool {
	return got.Count == want.Count && got.ZeroCount == want.ZeroCount && got.Offset == want.Offset &&
		slices.Equal(got.Buckets, want.Buckets) && math.Abs(got.Sum-want.Sum) < 1e-9*want.Sum
}

// A restart of the agent sets its histograms to zero; nothing is counted twice or negative.
func TestHistogramReset(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	for i, n := range []uint64{10, 20, 5, 9} {
		h := &model.Histogram{Count: n, Offset: -10, Buckets: []uint64{n}}
		appendAll(t, s, histogramAt(float64(i), h, "h"), counterAt(float64(i), float64(n), "c"))
	}
	if got := histogramOf(t, s, "increase(h[3s] anchored)", 3); got.Count != 10+5+4 {
		t.Errorf("got %v, want 19", got.Count)
	}
	want(t, s, "increase(c[3s] anchored)", 3, "3:19")
}

// Quantiles that people see are within the bound that the page states for them; those that
// PromQL works out are within twice that.
func TestQuantilesAgainstExactValues(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	all := slices.DeleteFunc(durations(3, 100_000), func(d time.Duration) bool {
		return d <= model.ZeroThreshold || d >= model.OverflowThreshold
	})
	h := &model.Histogram{}
	for _, d := range all {
		observe(h, d)
	}
	slices.Sort(all)
	appendAll(t, s, histogramAt(0, h, "h"))
	stored := histogramOf(t, s, "h", 0)
	for _, q := range []float64{0.001, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1} {
		exact := all[max(int(math.Ceil(q*float64(len(all)))), 1)-1].Seconds()
		near := func(what string, got, bound float64) {
			t.Helper()
			if e := math.Abs(got-exact) / exact; !(e <= bound) {
				t.Errorf("%s of %v: got %v, want %v, off by %.3f %%", what, q, got, exact, 100*e)
			}
		}
		near("Histogram", h.Quantile(q), model.RelativeError)
		near("FloatHistogram", stored.Quantile(q), model.RelativeError)
		r, err := s.Instant(context.Background(), fmt.Sprintf("histogram_quantile(%g, h)", q), at(0))
		if err != nil {
			t.Fatal(err)
		}
		near("histogram_quantile", r[0].Points[0].Value, 2.2e-2)
	}
	overflown := histogramOf(t, s, "h", 0)
	overflown.Merge(&model.FloatHistogram{Count: 1e9, Offset: model.OverflowBucket, Buckets: []float64{1e9}})
	if got := overflown.Quantile(0.5); !math.IsInf(got, 1) {
		t.Errorf("past the end: got %v", got)
	}
}

func TestForeignHistograms(t *testing.T) {
	fine := &histogram.FloatHistogram{
		Schema: 6, Count: 6, Sum: 1,
		PositiveSpans: []histogram.Span{{Offset: 63, Length: 3}}, PositiveBuckets: []float64{1, 2, 3},
	}
	// Buckets 63 and 64 of schema 6 are bucket 32 of schema 5, bucket 65 is in 33.
	got, err := fromNative(fine)
	if err != nil || got.Offset != 32 || !slices.Equal(got.Buckets, []float64{3, 3}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []*histogram.FloatHistogram{
		{Schema: 4},
		{Schema: histogram.CustomBucketsSchema},
		{Schema: 5, PositiveSpans: []histogram.Span{{Offset: -16000, Length: 1}, {Offset: 30000, Length: 1}},
			PositiveBuckets: []float64{1, 1}},
	} {
		if got, err := fromNative(bad); err == nil {
			t.Errorf("%+v: got %+v", bad, got)
		}
	}
}
