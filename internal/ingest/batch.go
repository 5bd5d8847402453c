package ingest

import (
	"sync"

	"outsight/internal/model"
)

// Batch is what a request holds.
type Batch struct {
	// Series in the order of the request. Labels are shared with those of other batches and must not be changed.
	Series []model.Series
	// Points is the number of data points in the request, of which Rejected have no place in Series.
	Points   uint64
	Rejected Rejections
	// ours is whether all of it is in otlp.Scope.
	ours bool
	// counts are those of the histograms' buckets, parts of which they are; wanted is how many there were in all.
	counts []uint64
	wanted int
	// built is what was made for the batch besides, in bytes: labels that were not known yet.
	built int
	// labels are the bytes of all labels of its series, known ones too, as the store counts them.
	labels int64
}

// shareBytes is about what the batch takes in memory, without labels that it shares with others.
func (b *Batch) bytes() int { return b.built + 8*b.wanted + seriesBytes*len(b.Series) }

// Bounds of what a batch keeps for the next one: a great request must not stay in memory after it.
const (
	maxPooledSeries = 32 << 10 // of 128 bytes
	maxPooledCounts = 256 << 10
	minCapacity  = 1 << 10
)

// batches are those that can be used again. An agent sends as much every second as the second before, which would be
// garbage of about two megabytes each.
var batches = sync.Pool{New: func() any { return new(Batch) }}

// newBatch makes a batch with room for so many series.
func newBatch(series int) *Batch {
	b := batches.Get().(*Batch)
	if cap(b.Series) < series {
		b.Series = make([]model.Series, 0, series)
	}
	b.ours = true
	return b
}

// capacity is counts with room for n more.
func (b *Batch) capacity(n int) []uint64 {
	b.wanted += n
	if cap(b.counts)-len(b.counts) < n {
		// What was handed out stays where it is.
		b.counts = make([]uint64, 0, max(n, minCapacity))
	}
	return b.counts
}

// release gives the batch back. Nobody may have its series, or what their histograms point to, from then on; labels
// stay.
func (b *Batch) release() {
	if b == nil {
		return
	}
	series, counts := b.Series, b.counts
	clear(series)
	if cap(series) > maxPooledSeries {
		series = nil
	}
	// As many as were wanted this time, but a great histogram says what it may have and not what it has.
	if want := min(b.wanted, maxPooledCounts); cap(counts) < want {
		counts = make([]uint64, 0, want)
	} else if cap(counts) > maxPooledCounts {
		counts = nil
	}
	*b = Batch{Series: series[:0], counts: counts[:0]}
	batches.Put(b)
}
