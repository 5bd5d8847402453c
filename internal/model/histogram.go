package model

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// Scale is the resolution of every latency histogram, from the kernel to the screen: bucket
// boundaries are powers of base 2^(1/32) = 2^(2^-5) seconds, which OpenTelemetry calls scale 5
// and Prometheus calls schema 5. Histograms of one scale merge without loss.
const Scale = 5

const bucketsPerOctave = 1 << Scale

// RelativeError is the greatest relative error of a Quantile: a bucket's geometric middle
// against any value in the bucket, 2^(1/64) - 1.
const RelativeError = 0.010889

// ZeroThreshold is the width of the zero bucket: durations up to it are counted in
// Histogram.ZeroCount and are not distinguished.
const ZeroThreshold = 1024 * time.Nanosecond

// OverflowThreshold is the duration from which on values are counted in
// Histogram.OverflowCount and are not distinguished (2^36 ns, about 69 s).
const OverflowThreshold = (1 << 36) * time.Nanosecond

// MinBucket and MaxBucket are the lowest and the highest index of a bucket. Bucket i holds the
// durations in (2^((i-1)/32), 2^(i/32)] seconds, as Prometheus numbers them; OpenTelemetry's
// index of the same bucket is i-1.
const (
	MinBucket = bucketsPerOctave*10 - bucketOrigin
	MaxBucket = bucketsPerOctave*36 - bucketOrigin

	// floor(32 * log2(1e9)): the kernel measures nanoseconds, buckets are of seconds.
	bucketOrigin = 956
)

// Histogram is a cumulative exponential histogram of durations. The zero value is empty.
type Histogram struct {
	// Count is the number of durations seen: ZeroCount, OverflowCount and all Buckets.
	Count uint64
	// SumNS is the sum of all durations in nanoseconds.
	SumNS uint64
	// ZeroCount counts durations up to ZeroThreshold.
	ZeroCount uint64
	// OverflowCount counts durations from OverflowThreshold on.
	OverflowCount uint64
	// Offset is the index of Buckets[0].
	Offset int32
	// Buckets holds one count per bucket from Offset on, without empty ones at either end.
	Buckets []uint64
}

// BucketOf is the index of the bucket that holds d. It is the reference for the kernel's
// integer computation of the same index. d must lie between the two thresholds.
func BucketOf(d time.Duration) int32 {
	return int32(math.Ceil(math.Log2(d.Seconds()) * bucketsPerOctave))
}

// BucketUpperBound is the inclusive upper bound of bucket i, in seconds.
func BucketUpperBound(i int32) float64 { return math.Exp2(float64(i) / bucketsPerOctave) }

// BucketMiddle is the geometric middle of bucket i, in seconds: no value in it is farther away than
// RelativeError.
func BucketMiddle(i int32) float64 {
	if at := i - MinBucket; at >= 0 && at < int32(len(bucketMiddles)) {
		return bucketMiddles[at]
	}
	return bucketMiddle(i)
}

func bucketMiddle(i int32) float64 { return math.Exp2((float64(i) - 0.5) / bucketsPerOctave) }

// bucketMiddles are those of MinBucket to MaxBucket: a map of many edges needs millions.
var bucketMiddles = func() (middles [MaxBucket - MinBucket + 1]float64) {
	for at := range middles {
		middles[at] = bucketMiddle(MinBucket + int32(at))
	}
	return middles
}()

// Add adds a duration; one below 0 counts as 0.
func (h *Histogram) Add(d time.Duration) {
	one := Histogram{Count: 1, SumNS: uint64(max(d, 0))}
	switch {
	case d <= ZeroThreshold:
		one.ZeroCount = 1
	case d >= OverflowThreshold:
		one.OverflowCount = 1
	default:
		at := BucketOf(d)
		if end := h.Offset + int32(len(h.Buckets)); len(h.Buckets) > 0 && at >= h.Offset && at < end {
			h.Count, h.SumNS = h.Count+1, h.SumNS+one.SumNS
			h.Buckets[at-h.Offset]++
			return
		}
		one.Offset, one.Buckets = at, []uint64{1}
	}
	h.Merge(&one)
}

// Quantile is the duration, in seconds, below which the share q (0 to 1) of all durations
// lies; its relative error is at most RelativeError. It is NaN for an empty histogram, 0 where
// the quantile falls into the zero bucket, and +Inf where it falls past OverflowThreshold.
func (h *Histogram) Quantile(q float64) float64 {
	if h == nil || h.Count == 0 || q < 0 || q > 1 {
		return math.NaN()
	}
	rank := uint64(math.Ceil(q * float64(h.Count)))
	rank = max(rank, 1)
	seen := h.ZeroCount
	if rank <= seen {
		return 0
	}
	for i, n := range h.Buckets {
		if seen += n; rank <= seen {
			return BucketMiddle(h.Offset + int32(i))
		}
	}
	return math.Inf(1)
}

// Mean is the mean duration in seconds, NaN for an empty histogram.
func (h *Histogram) Mean() float64 {
	if h == nil || h.Count == 0 {
		return math.NaN()
	}
	return float64(h.SumNS) / float64(h.Count) / 1e9
}

// Clone is a copy that shares nothing with h; the clone of nil is nil.
func (h *Histogram) Clone() *Histogram {
	if h == nil {
		return nil
	}
	c := *h
	c.Buckets = append([]uint64(nil), h.Buckets...)
	return &c
}

// Merge adds other to h. The result is exact: both have the same bucket boundaries.
func (h *Histogram) Merge(other *Histogram) {
	if other == nil || other.Count == 0 {
		return
	}
	h.Count += other.Count
	h.SumNS += other.SumNS
	h.ZeroCount += other.ZeroCount
	h.OverflowCount += other.OverflowCount
	if len(other.Buckets) == 0 {
		return
	}
	if len(h.Buckets) == 0 {
		h.Offset = other.Offset
		h.Buckets = append([]uint64(nil), other.Buckets...)
		return
	}
	first := min(h.Offset, other.Offset)
	end := max(h.Offset+int32(len(h.Buckets)), other.Offset+int32(len(other.Buckets)))
	if first != h.Offset || int(end-first) != len(h.Buckets) {
		merged := make([]uint64, end-first)
		copy(merged[h.Offset-first:], h.Buckets)
		h.Offset, h.Buckets = first, merged
	}
	for i, n := range other.Buckets {
		h.Buckets[other.Offset-first+int32(i)] += n
	}
}

// Since is what h gained after before, an earlier state of the same histogram; nil for a nil h.
// Where h is not a later state of it (a counter restarted), h itself is what was gained.
func (h *Histogram) Since(before *Histogram) *Histogram {
	if h == nil {
		return nil
	}
	d := &Histogram{}
	d.SetSince(h, before)
	return d
}

// SetSince makes h what now.Since(before) is, in the memory that h has. It shares nothing with either.
func (h *Histogram) SetSince(now, before *Histogram) {
	buckets := append(h.Buckets[:0], now.Buckets...)
	*h = *now
	h.Buckets = buckets
	if before == nil || before.Count == 0 || now.Count < before.Count || now.SumNS < before.SumNS ||
		now.ZeroCount < before.ZeroCount || now.OverflowCount < before.OverflowCount {
		return
	}
	for i, n := range before.Buckets {
		at := int(before.Offset-now.Offset) + i
		if n == 0 {
			continue
		}
		if at < 0 || at >= len(buckets) || buckets[at] < n {
			copy(buckets, now.Buckets)
			return
		}
		buckets[at] -= n
	}
	h.Count -= before.Count
	h.SumNS -= before.SumNS
	h.ZeroCount -= before.ZeroCount
	h.OverflowCount -= before.OverflowCount
	h.trim()
}

func (h *Histogram) trim() *Histogram {
	for len(h.Buckets) > 0 && h.Buckets[0] == 0 {
		h.Buckets = h.Buckets[1:]
		h.Offset++
	}
	for len(h.Buckets) > 0 && h.Buckets[len(h.Buckets)-1] == 0 {
		h.Buckets = h.Buckets[:len(h.Buckets)-1]
	}
	if len(h.Buckets) == 0 {
		h.Offset, h.Buckets = 0, nil
	}
	return h
}

// HistogramCells is how many cells a histogram has in the kernel: HISTOGRAM_CELLS of bpf/include/histogram.h.
const HistogramCells = 840

// The cells of a histogram in the kernel.
const (
	zeroCell     = 0
	firstCell    = 1
	overflowCell = firstCell + int(MaxBucket-MinBucket) + 1
)

// SetCells makes h the sum of histograms in the kernel, in the memory that h has. The kernel may be changing the lanes'
// cells; sumNS is the sum that belongs to them. They hold count durations or more. Where the buckets that they had before
// hold so many, the others are not looked at: what the kernel counts there just now is in the next reading, which has
// another count. before may be nil.
func (h *Histogram) SetCells(before *Histogram, lanes [][HistogramCells]uint64, count, sumNS uint64) {
	h.SumNS = sumNS
	if before != nil && len(before.Buckets) > 0 {
		first := firstCell + int(before.Offset-MinBucket)
		if h.sumCells(lanes, first, first+len(before.Buckets)); h.Count == count {
			return
		}
	}
	used := func(cell int) bool {
		for i := range lanes {
			if atomic.LoadUint64(&lanes[i][cell]) != 0 {
				return true
			}
		}
		return false
	}
	first, end := firstCell, overflowCell
	for first < end && !used(first) {
		first++
	}
	for end > first && !used(end-1) {
		end--
	}
	h.sumCells(lanes, first, end)
}

// sumCells makes the cells from first to end, which is not one of them, the buckets.
func (h *Histogram) sumCells(lanes [][HistogramCells]uint64, first, end int) {
	h.ZeroCount, h.OverflowCount, h.Offset = 0, 0, MinBucket+int32(first-firstCell)
	h.Buckets = slices.Grow(h.Buckets[:0], end-first)[:end-first]
	clear(h.Buckets)
	for i := range lanes {
		lane := &lanes[i]
		h.ZeroCount += atomic.LoadUint64(&lane[zeroCell])
		h.OverflowCount += atomic.LoadUint64(&lane[overflowCell])
		for at := range h.Buckets {
			h.Buckets[at] += atomic.LoadUint64(&lane[first+at])
		}
	}
	h.Count = h.ZeroCount + h.OverflowCount
	for _, n := range h.Buckets {
		h.Count += n
	}
}

// HistogramOfCells is what the HistogramCells cells of a histogram in the kernel mean; sumNS is the sum that belongs to
// them. See docs/format/histogram.md.
func HistogramOfCells(cells []uint64, sumNS uint64) *Histogram {
	first, end := firstCell, overflowCell
	for first < end && cells[first] == 0 {
		first++
	}
	for end > first && cells[end-1] == 0 {
		end--
	}
	r := &Histogram{
		SumNS: sumNS, ZeroCount: cells[zeroCell], OverflowCount: cells[overflowCell],
		Offset: MinBucket + int32(first-firstCell), Buckets: slices.Clone(cells[first:end]),
	}
	r.Count = r.ZeroCount + r.OverflowCount
	for _, n := range r.Buckets {
		r.Count += n
	}
	return r
}
