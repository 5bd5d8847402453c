package model

// OverflowBucket is the index under which sparse forms of a Histogram (Prometheus native
// histograms) keep OverflowCount. It is the first one whose lower bound lies above
// OverflowThreshold, so that no duration that was distinguished shares it. The bucket stands for
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
	// Who stores histograms does this for each of them every second, and keeps the last one.
	if runs, counts := h.sparseSize(); counts > 0 {
		spans, deltas = make([]Span, 0, runs), make([]int64, 0, counts)
	}
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

// sparseSize is how many spans and counts Sparse gives.
func (h *Histogram) sparseSize() (runs, counts int) {
	next := int32(0)
	add := func(index int32) {
		if gap := index - next; runs == 0 || gap > mergeGap {
			runs++
		} else {
			counts += int(gap)
		}
		counts++
		next = index + 1
	}
	for i, n := range h.Buckets {
		if n != 0 {
			add(h.Offset + int32(i))
		}
	}
	if h.OverflowCount != 0 {
		add(OverflowBucket)
	}
	return runs, counts
}

// Dense is h as the counts of consecutive buckets and the index of the first of them, the OverflowCount in the
// bucket OverflowBucket. The counts are h's own where nothing overflowed.
func (h *Histogram) Dense() (offset int32, counts []uint64) {
	if h.OverflowCount == 0 {
		return h.Offset, h.Buckets
	}
	if len(h.Buckets) == 0 {
		return OverflowBucket, []uint64{h.OverflowCount}
	}
	counts = make([]uint64, OverflowBucket-h.Offset+1)
	copy(counts, h.Buckets)
	counts[len(counts)-1] = h.OverflowCount
	return h.Offset, counts
}

// NewDense is the histogram of which offset and counts are the dense form, without empty buckets at either
// end. It fails where a count lies outside of the buckets that there are.
func NewDense(offset int32, counts []uint64, count, zero, sumNS uint64) (h *Histogram, ok bool) {
	h = &Histogram{Count: count, ZeroCount: zero, SumNS: sumNS, Offset: offset, Buckets: counts}
	if n := len(counts); n > 0 && offset <= OverflowBucket && int64(offset)+int64(n)-1 == OverflowBucket {
		h.OverflowCount, h.Buckets = counts[n-1], counts[:n-1]
	}
	h.trim()
	return h, len(h.Buckets) == 0 || h.Offset >= MinBucket && int64(h.Offset)+int64(len(h.Buckets))-1 <= MaxBucket
}
