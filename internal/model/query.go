package model

import (
	"math"
	"time"
)

// FloatHistogram is a Histogram whose counts are rates or differences, as a query over stored
// histograms returns it. Bucket boundaries are those of Histogram; durations are in seconds.
type FloatHistogram struct {
	Count, Sum, ZeroCount float64
	// Offset is the index of Buckets[0].
	Offset  int32
	Buckets []float64
}

// Quantile is the duration, in seconds, below which the share q (0 to 1) lies; relative error at
// most RelativeError. NaN for an empty histogram, 0 in the zero bucket, +Inf past the last one.
func (h *FloatHistogram) Quantile(q float64) float64 {
	var one [1]float64
	h.Quantiles(one[:], q)
	return one[0]
}

// Quantiles puts the Quantile of each of the shares, which are in ascending order, into values.
func (h *FloatHistogram) Quantiles(values []float64, shares ...float64) {
	bucket, seen := -1, 0.0 // what was seen up to this bucket
	var buckets []float64
	if h != nil {
		seen, buckets = h.ZeroCount, h.Buckets
	}
	for i, q := range shares {
		if h == nil || h.Count <= 0 || q < 0 || q > 1 {
			values[i] = math.NaN()
			continue
		}
		rank := q * h.Count
		if rank <= h.ZeroCount && h.ZeroCount > 0 {
			values[i] = 0
			continue
		}
		for bucket < 0 || bucket < len(buckets) && (buckets[bucket] <= 0 || rank > seen*(1+1e-12)) {
			if bucket++; bucket < len(buckets) {
				seen += buckets[bucket]
			}
		}
		values[i] = math.Inf(1)
		if at := int64(h.Offset) + int64(bucket); bucket < len(buckets) && at <= MaxBucket {
			values[i] = BucketMiddle(int32(at))
		}
	}
}

// Merge adds other to h.
func (h *FloatHistogram) Merge(other *FloatHistogram) {
	if other == nil {
		return
	}
	h.Count += other.Count
	h.Sum += other.Sum
	h.ZeroCount += other.ZeroCount
	if len(other.Buckets) == 0 {
		return
	}
	first, end := other.Offset, other.Offset+int32(len(other.Buckets))
	if first >= h.Offset && end <= h.Offset+int32(len(h.Buckets)) {
		into := h.Buckets[first-h.Offset:][:len(other.Buckets)]
		for i, n := range other.Buckets {
			into[i] += n
		}
		return
	}
	if len(h.Buckets) > 0 {
		first, end = min(first, h.Offset), max(end, h.Offset+int32(len(h.Buckets)))
	}
	merged := make([]float64, end-first)
	for i, n := range h.Buckets {
		merged[h.Offset-first+int32(i)] += n
	}
	for i, n := range other.Buckets {
		merged[other.Offset-first+int32(i)] += n
	}
	h.Offset, h.Buckets = first, merged
}

// Point is the value of a time series at one time.
type Point struct {
	Time      time.Time
	Value     float64
	Histogram *FloatHistogram
}

// Labels that say which series it is of those that a thing has.
const (
	NameLabel = "__name__" // in PromQL
	TypeLabel = "type"
)

// QueryResult is one time series of a query's answer: one Point for an instant query, several
// for a range query.
type QueryResult struct {
	Labels map[string]string
	Points []Point
}
