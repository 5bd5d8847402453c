package model

// OverflowBucket is the index under which sparse forms of a Histogram (Prometheus native
// histograms) keep OverflowCount. It is the first one whose lower bound lies above
// OverflowThreshold, so that no duration that was told apart shares it. The bucket stands for
// every longer duration, not only for those up to its nominal upper bound.
const OverflowBucket = MaxBucket + 1

// mergeGap is the longest run of empty buckets that stays inside a span: a new span costs
// more than two empty buckets do.
const mergeGap = 2

// Span is a run of consecutive buckets in the sparse form of a Histogram.
type Span struct {
	// Offset is the index of the first bucket, counted from the end of the span before; in
	// the first span it is the index itself.
	Offset int32
	Length uint32
}

// Sparse is h as spans of buckets with one count for each bucket in them, less the count of the
// bucket before (the first: its count). OverflowCount is in the bucket OverflowBucket. total is
// the sum of all counts, ZeroCount included: it equals Count unless h was put together badly,
// and it is what a reader that checks sums must be given.
func (h *Histogram) Sparse() (spans []Span, deltas []int64, total uint64) {
	total = h.ZeroCount
	next, last := int32(0), uint64(0)
	add := func(index int32, n uint64) {
		gap := index - next
		switch {
		case len(spans) == 0 || gap > mergeGap:
			spans = append(spans, Span{Offset: gap, Length: 1})
		default:
			for range gap {
				deltas = append(deltas, -int64(last))
				last = 0
			}
			spans[len(spans)-1].Length += uint32(gap) + 1
		}
		deltas = append(deltas, int64(n-last))
		next, last = index+1, n
		total += n
	}
	for i, n := range h.Buckets {
		if n != 0 {
			add(h.Offset+int32(i), n)
		}
	}
	if h.OverflowCount != 0 {
		add(OverflowBucket, h.OverflowCount)
	}
	return spans, deltas, total
}
