package ingest

import (
	"sync"

	"outsight/internal/model"
)

// Batch is a decoded request.
type Batch struct {
	// Series in the order of the request. Labels are shared with those of other batches and must not be changed.
	Series []model.Series
	// Points is the number of data points of the request; the Rejected ones are not in Series.
	Points   uint64
	Rejected Rejections
	// ours means that all of its scopes are otlp.Scope.
	ours bool
	// counts backs the buckets of the histograms; wanted is how many of them the request needed.
	counts []uint64
	wanted int
	// built is the size in bytes of labels made for this batch.
	built int
	// labels are the bytes of all labels of its series, known ones too, as the store counts them.
	labels int64
}

// bytes is roughly the memory of the batch, in bytes, without labels shared with other batches.
func (b *Batch) bytes() int { return b.built + 8*b.wanted + seriesBytes*len(b.Series) }

// Bounds of what a pooled batch keeps: a large request must not stay in memory after it.
const (
	maxPooledSeries = 32 << 10 // of 128 bytes
	maxPooledCounts = 256 << 10
	minCapacity     = 1 << 10
)

// batches is a pool. An agent sends the same amount each second, which would be about two megabytes of garbage.
var batches = sync.Pool{New: func() any { return new(Batch) }}

// newBatch returns a batch with capacity for n series.
func newBatch(series int) *Batch {
	b := batches.Get().(*Batch)
	if cap(b.Series) < series {
		b.Series = make([]model.Series, 0, series)
	}
	b.ours = true
	return b
}

// capacity returns counts with capacity for n more.
func (b *Batch) capacity(n int) []uint64 {
	b.wanted += n
	if cap(b.counts)-len(b.counts) < n {
		// Slices of it that are in use stay where they are.
		b.counts = make([]uint64, 0, max(n, minCapacity))
	}
	return b.counts
}

// release returns the batch to the pool. Its series and the buckets of their histograms must not be used after that;
// labels may.
func (b *Batch) release() {
	if b == nil {
		return
	}
	series, counts := b.Series, b.counts
	clear(series)
	if cap(series) > maxPooledSeries {
		series = nil
	}
	// Not more than this time: a histogram states how many buckets it may have, not how many it has.
	if want := min(b.wanted, maxPooledCounts); cap(counts) < want {
		counts = make([]uint64, 0, want)
	} else if cap(counts) > maxPooledCounts {
		counts = nil
	}
	*b = Batch{Series: series[:0], counts: counts[:0]}
	batches.Put(b)
}
