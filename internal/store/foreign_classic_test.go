package store

import (
	"testing"

	"github.com/prometheus/prometheus/model/histogram"

	"outsight/internal/model"
)

// Histograms of other senders have other scales, and may have negative values.
func TestClassicOfAnotherScale(t *testing.T) {
	for _, schema := range []int32{-1, 3, 8} {
		h := &histogram.Histogram{Schema: schema, Count: 8, ZeroCount: 1,
			// The bucket up to 4, whatever the schema.
			PositiveSpans:   []histogram.Span{{Offset: map[int32]int32{-1: 1, 3: 16, 8: 512}[schema], Length: 1}},
			PositiveBuckets: []int64{5},
			NegativeSpans:   []histogram.Span{{Offset: 0, Length: 1}}, NegativeBuckets: []int64{2}}
		below, above := 0, 0
		cumulative(h, classicBounds(2), func(b bound, n uint64) {
			want := uint64(3)
			if model.BucketUpperBound(b.index) >= 4 {
				want = 8
				above++
			} else {
				below++
			}
			if n != want {
				t.Errorf("schema %d: %d up to %s, want %d", schema, n, b.le, want)
			}
		})
		if below == 0 || above == 0 {
			t.Errorf("%d bounds below and %d above", below, above)
		}
	}
}
