package store

import (
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/histogram"

	"outsight/internal/model"
)

// native is h as it is stored. It shares nothing with h.
func native(h *model.Histogram) *histogram.Histogram {
	spans, deltas, total := h.Sparse()
	n := &histogram.Histogram{
		Schema:          model.Scale,
		ZeroThreshold:   model.ZeroThreshold.Seconds(),
		ZeroCount:       h.ZeroCount,
		Count:           total,
		Sum:             float64(h.SumNS) / 1e9,
		PositiveSpans:   make([]histogram.Span, len(spans)),
		PositiveBuckets: deltas,
	}
	for i, s := range spans {
		n.PositiveSpans[i] = histogram.Span(s)
	}
	return n
}

// nativeForeign is h as it is stored.
func nativeForeign(h *model.ForeignHistogram) *histogram.Histogram {
	n := &histogram.Histogram{
		Schema: h.Scale, ZeroThreshold: h.ZeroThreshold, ZeroCount: h.ZeroCount, Count: h.Count, Sum: h.Sum,
	}
	n.PositiveSpans, n.PositiveBuckets = spansOf(h.PositiveOffset, h.Positive)
	n.NegativeSpans, n.NegativeBuckets = spansOf(h.NegativeOffset, h.Negative)
	return n
}

func spansOf(offset int32, counts []uint64) ([]histogram.Span, []int64) {
	// Sparse does not look at anything else.
	spans, deltas, _ := (&model.Histogram{Offset: offset, Buckets: counts}).Sparse()
	out := make([]histogram.Span, len(spans))
	for i, s := range spans {
		out[i] = histogram.Span(s)
	}
	return out, deltas
}

// fromNative converts the histogram of an answer. Other bucket schemas than model.Scale are an error. Buckets of
// negative values, which durations do not have, are left out.
func fromNative(n *histogram.FloatHistogram) (*model.FloatHistogram, error) {
	if n.UsesCustomBuckets() || n.Schema < model.Scale {
		return nil, fmt.Errorf("a histogram of schema %d has coarser buckets than schema %d", n.Schema, model.Scale)
	}
	if n.Schema > model.Scale {
		n = n.CopyToSchema(model.Scale)
	}
	h := &model.FloatHistogram{Count: n.Count, Sum: n.Sum, ZeroCount: n.ZeroCount}
	first, last := int32(math.MaxInt32), int32(math.MinInt32)
	eachBucket(n, func(i int32, _ float64) { first, last = min(first, i), max(last, i) })
	if first > last {
		return h, nil
	}
	if last-first > maxBuckets {
		return nil, fmt.Errorf("a histogram from bucket %d to %d is wider than %d buckets", first, last, maxBuckets)
	}
	h.Offset, h.Buckets = first, make([]float64, last-first+1)
	eachBucket(n, func(i int32, count float64) { h.Buckets[i-first] = count })
	return h, nil
}

// eachBucket calls f for each bucket that is not empty.
func eachBucket(n *histogram.FloatHistogram, f func(i int32, count float64)) {
	i, counts := int32(0), n.PositiveBuckets
	for _, span := range n.PositiveSpans {
		i += span.Offset
		for _, count := range counts[:span.Length] {
			if count != 0 {
				f(i, count)
			}
			i++
		}
		counts = counts[span.Length:]
	}
}

// maxBuckets bounds the width of a histogram of foreign samples: 32 buckets in each octave of a double would be 65,536.
// Ours are at most 834 wide.
const maxBuckets = 1 << 13
