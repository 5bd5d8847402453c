package store

import (
	"context"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

const tooManySamples = promql.ErrTooManySamples("a read of samples")

// bounded is a store of which a remote read takes no more than its budget.
type bounded struct {
	storage.SampleAndChunkQueryable
	budget *readBudget
}

// Querier implements storage.Queryable.
func (b bounded) Querier(from, to int64) (storage.Querier, error) {
	q, err := b.SampleAndChunkQueryable.Querier(from, to)
	if err != nil {
		return nil, err
	}
	return boundedQuerier{q, b.budget}, nil
}

// ChunkQuerier implements storage.ChunkQueryable.
func (b bounded) ChunkQuerier(from, to int64) (storage.ChunkQuerier, error) {
	q, err := b.SampleAndChunkQueryable.ChunkQuerier(from, to)
	if err != nil {
		return nil, err
	}
	return boundedChunkQuerier{q, b.budget}, nil
}

type boundedQuerier struct {
	storage.Querier
	budget *readBudget
}

func (q boundedQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) storage.SeriesSet {
	return boundedSet{q.Querier.Select(ctx, sorted, hints, matchers...), q.budget}
}

type boundedSet struct {
	storage.SeriesSet
	budget *readBudget
}

func (s boundedSet) Next() bool {
	return s.budget.inTime() && s.SeriesSet.Next() && s.budget.take(1+labelBytes(s.SeriesSet.At().Labels())/sampleBytes)
}

func (s boundedSet) At() storage.Series { return boundedSeries{s.SeriesSet.At(), s.budget} }
func (s boundedSet) Err() error         { return s.budget.or(s.SeriesSet.Err()) }

// sampleBytes is what a sample takes in memory.
const sampleBytes = 16

func labelBytes(l labels.Labels) (n int) {
	l.Range(func(l labels.Label) { n += len(l.Name) + len(l.Value) + sampleBytes })
	return n
}

type boundedSeries struct {
	storage.Series
	budget *readBudget
}

func (s boundedSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	own, ok := it.(*boundedIterator)
	if !ok {
		own = &boundedIterator{budget: s.budget}
	}
	own.Iterator = s.Series.Iterator(own.Iterator)
	return own
}

type boundedIterator struct {
	chunkenc.Iterator
	budget *readBudget
}

func (i *boundedIterator) Next() chunkenc.ValueType {
	if v := i.Iterator.Next(); v != chunkenc.ValNone && i.budget.take(1) {
		return v
	}
	return chunkenc.ValNone
}

func (i *boundedIterator) AtHistogram(h *histogram.Histogram) (int64, *histogram.Histogram) {
	at, h := i.Iterator.AtHistogram(h)
	i.budget.take(1 + 8*(16+len(h.PositiveSpans)+len(h.NegativeSpans)+len(h.PositiveBuckets)+len(h.NegativeBuckets)+len(h.CustomValues))/sampleBytes)
	return at, h
}

func (i *boundedIterator) AtFloatHistogram(h *histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	at, h := i.Iterator.AtFloatHistogram(h)
	i.budget.take(1 + h.Size()/sampleBytes)
	return at, h
}

func (i *boundedIterator) Err() error { return i.budget.or(i.Iterator.Err()) }

type boundedChunkQuerier struct {
	storage.ChunkQuerier
	budget *readBudget
}

func (q boundedChunkQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) storage.ChunkSeriesSet {
	return boundedChunkSet{q.ChunkQuerier.Select(ctx, sorted, hints, matchers...), q.budget}
}

// boundedChunkSet is bounded in time alone: what was streamed is not held.
type boundedChunkSet struct {
	storage.ChunkSeriesSet
	budget *readBudget
}

func (s boundedChunkSet) Next() bool { return s.budget.inTime() && s.ChunkSeriesSet.Next() }
func (s boundedChunkSet) At() storage.ChunkSeries {
	return boundedChunkSeries{s.ChunkSeriesSet.At(), s.budget}
}
func (s boundedChunkSet) Err() error { return s.budget.or(s.ChunkSeriesSet.Err()) }

type boundedChunkSeries struct {
	storage.ChunkSeries
	budget *readBudget
}

func (s boundedChunkSeries) Iterator(it chunks.Iterator) chunks.Iterator {
	own, ok := it.(*boundedChunkIterator)
	if !ok {
		own = &boundedChunkIterator{budget: s.budget}
	}
	own.Iterator = s.ChunkSeries.Iterator(own.Iterator)
	return own
}

type boundedChunkIterator struct {
	chunks.Iterator
	budget *readBudget
}

func (i *boundedChunkIterator) Next() bool { return i.budget.inTime() && i.Iterator.Next() }
func (i *boundedChunkIterator) Err() error { return i.budget.or(i.Iterator.Err()) }
