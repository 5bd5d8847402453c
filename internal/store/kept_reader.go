package store

import (
	"encoding/binary"
	"math"
	"math/bits"
	"time"

	"github.com/prometheus/prometheus/model/histogram"

	"outsight/internal/model"
)

// keptReader reads kept values. What it has read lasts until it is used again.
type keptReader struct {
	// wanted is by the number of a name whether its series are read, sparse whether those are left out that were zero.
	wanted, sparse []bool
	names          []string
	times          []time.Time
	budget         readBudget
	views          []keptView
	// found are the results of a source so far, now the points of a series.
	found      []model.NamedResult
	now        []model.Point
	results    arena[model.NamedResult]
	points     arena[model.Point]
	histograms arena[model.FloatHistogram]
	buckets    arena[float64]
}

// arena is memory that is given away in parts and taken back all at once.
type arena[T any] struct {
	chunks [][]T
	// used is how many chunks are full.
	used int
}

// arenaChunk is how many there are in a chunk, where no more are asked for at once.
const arenaChunk = 1 << 12

// take gives away n, which are as their last user left them.
func (a *arena[T]) take(n int) []T {
	for ; a.used < len(a.chunks); a.used++ {
		c := &a.chunks[a.used]
		if from := len(*c); cap(*c)-from >= n {
			*c = (*c)[:from+n]
			return (*c)[from : from+n : from+n]
		}
	}
	a.chunks = append(a.chunks, make([]T, n, max(arenaChunk, 1<<bits.Len(uint(n-1)))))
	return a.chunks[a.used][:n:n]
}

// reset takes all back.
func (a *arena[T]) reset() {
	for i := range a.chunks {
		a.chunks[i] = a.chunks[i][:0]
	}
	a.used = 0
}

// begin makes it read what m asks for.
func (r *keptReader) begin(k *keeper, m *Moments, budget readBudget) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.names)
	r.wanted, r.sparse, r.names = make([]bool, n), make([]bool, n), make([]string, n)
	r.times, r.budget, r.views = m.Times, budget, make([]keptView, len(m.Times))
	for _, name := range m.Names {
		if n, ok := k.names[name]; ok {
			r.wanted[n], r.names[n] = true, name
		}
	}
	for _, name := range m.Sparse {
		if n, ok := k.names[name]; ok {
			r.sparse[n] = true
		}
	}
	r.results.reset()
	r.points.reset()
	r.histograms.reset()
	r.buckets.reset()
}

// read are the values of a source; false where not all are kept. The series of a thing come one after the other.
func (r *keptReader) read(s *keptSource) (results []model.NamedResult, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, t := range r.times {
		if r.views[i], known = s.view(t.UnixMilli()); !known {
			return nil, false
		}
	}
	r.found = r.found[:0]
	for _, th := range s.things {
		for i := range th.rows {
			row := &th.rows[i]
			if n := int(row.name); n >= len(r.wanted) || !r.wanted[n] {
				continue
			}
			read := r.numbers
			if row.isHistogram {
				read = r.distributions
			}
			r.now = r.now[:0]
			if zero := read(row); len(r.now) == 0 || zero && r.sparse[row.name] {
				continue
			}
			points := r.points.take(len(r.now))
			copy(points, r.now)
			r.found = append(r.found, model.NamedResult{Name: r.names[row.name], Type: row.kind, QueryResult: model.QueryResult{Labels: th.labels, Points: points}})
			if !r.budget.take((resultBytes + len(points)*pointBytes) / sampleBytes) {
				return nil, true
			}
		}
	}
	results = r.results.take(len(r.found))
	copy(results, r.found)
	return results, true
}

// numbers puts the values of a series into the points; zero is whether all are.
func (r *keptReader) numbers(row *keptRow) (zero bool) {
	zero = true
	for i := range r.views {
		if v, ok := r.views[i].number(row.slot); ok {
			r.now = append(r.now, model.Point{Time: r.times[i], Value: v})
			zero = zero && v == 0
		}
	}
	return zero
}

// distributions is numbers for a series of histograms.
func (r *keptReader) distributions(row *keptRow) (zero bool) {
	zero = true
	for i := range r.views {
		h, encoded := r.views[i].histogram(row.slot)
		p := model.Point{Time: r.times[i]}
		switch {
		case h != nil:
			p.Histogram = r.native(h)
		case len(encoded) > 0:
			p.Histogram = r.decode(encoded)
		default:
			continue
		}
		r.now = append(r.now, p)
		zero = zero && p.Histogram.Count == 0
	}
	return zero
}

// histogram is a new one with so many buckets from first on, all of which are empty.
func (r *keptReader) histogram(count, zeros uint64, sum float64, first int32, width int) *model.FloatHistogram {
	h := &r.histograms.take(1)[0]
	*h = model.FloatHistogram{Count: float64(count), ZeroCount: float64(zeros), Sum: sum}
	if width > 0 {
		h.Offset, h.Buckets = first, r.buckets.take(width)
		clear(h.Buckets)
	}
	r.budget.take(resultBytes/sampleBytes + width/2)
	return h
}

func (r *keptReader) native(from *histogram.Histogram) *model.FloatHistogram {
	first, width := extentOf(from)
	h := r.histogram(from.Count, from.ZeroCount, from.Sum, first, width)
	eachCount(from, func(i int32, count uint64) { h.Buckets[i-first] = float64(count) })
	return h
}

// decode is what encodeKept has encoded.
func (r *keptReader) decode(b []byte) *model.FloatHistogram {
	count, n := binary.Uvarint(b)
	b = b[n:]
	zeros, n := binary.Uvarint(b)
	b = b[n:]
	sum := math.Float64frombits(binary.LittleEndian.Uint64(b))
	if b = b[8:]; len(b) == 0 {
		return r.histogram(count, zeros, sum, 0, 0)
	}
	first, n := binary.Varint(b)
	b = b[n:]
	width, n := binary.Uvarint(b)
	b = b[n:]
	h := r.histogram(count, zeros, sum, int32(first), int(width))
	for i := 0; i < len(h.Buckets); i++ {
		count, n := binary.Uvarint(b)
		b = b[n:]
		if count == 0 {
			empty, n := binary.Uvarint(b)
			b = b[n:]
			i += int(empty)
			continue
		}
		h.Buckets[i] = float64(count)
	}
	return h
}
