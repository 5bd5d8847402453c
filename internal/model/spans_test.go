package model

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// dense undoes Sparse the way Prometheus's documentation of spans and deltas reads.
func dense(spans []Span, deltas []int64) map[int32]uint64 {
	counts := map[int32]uint64{}
	index, n, d := int32(0), int64(0), 0
	for _, s := range spans {
		index += s.Offset
		for range s.Length {
			n += deltas[d]
			d++
			if n != 0 {
				counts[index] = uint64(n)
			}
			index++
		}
	}
	return counts
}

func TestSparseSpans(t *testing.T) {
	f := func(h Histogram, spans []Span, deltas []int64) {
		t.Helper()
		gotSpans, gotDeltas, _ := h.Sparse()
		if !slices.Equal(gotSpans, spans) || !slices.Equal(gotDeltas, deltas) {
			t.Errorf("%+v: got spans %v deltas %v, want %v %v", h, gotSpans, gotDeltas, spans, deltas)
		}
	}
	f(Histogram{}, nil, nil)
	f(Histogram{ZeroCount: 3}, nil, nil)
	f(Histogram{Offset: -7, Buckets: []uint64{4, 6}}, []Span{{-7, 2}}, []int64{4, 2})
	// Two empty buckets stay inside, three begin a new span.
	f(Histogram{Offset: 5, Buckets: []uint64{4, 0, 0, 6}}, []Span{{5, 4}}, []int64{4, -4, 0, 6})
	f(Histogram{Offset: 5, Buckets: []uint64{4, 0, 0, 0, 6}}, []Span{{5, 1}, {3, 1}}, []int64{4, 2})
	f(Histogram{OverflowCount: 9}, []Span{{OverflowBucket, 1}}, []int64{9})
	f(Histogram{Offset: MaxBucket, Buckets: []uint64{1}, OverflowCount: 1}, []Span{{MaxBucket, 2}}, []int64{1, 0})
}

func TestSparseKeepsEveryCount(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		h := Histogram{Offset: MinBucket + rnd.Int32N(400), ZeroCount: rnd.Uint64N(3), OverflowCount: rnd.Uint64N(2)}
		want, sum := map[int32]uint64{}, h.ZeroCount+h.OverflowCount
		for i := range rnd.IntN(400) {
			n := rnd.Uint64N(4) * rnd.Uint64N(2) * rnd.Uint64N(1<<40)
			h.Buckets = append(h.Buckets, n)
			if sum += n; n != 0 {
				want[h.Offset+int32(i)] = n
			}
		}
		if h.OverflowCount != 0 {
			want[OverflowBucket] = h.OverflowCount
		}
		spans, deltas, total := h.Sparse()
		got := dense(spans, deltas)
		if len(got) != len(want) || total != sum {
			t.Fatalf("got %d buckets of total %d, want %d of %d", len(got), total, len(want), sum)
		}
		for i, n := range want {
			if got[i] != n {
				t.Fatalf("bucket %d: got %d, want %d", i, got[i], n)
			}
		}
	}
}
