package store

import (
	"math/bits"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/histogram"

	"outsight/internal/model"
)

// keptReader reads kept values. What it has read lasts until it is used again.
type keptReader struct {
	// names are those that are asked for, sparse whether their series are left out that were zero, and places where
	// they are in names, by the keeper's numbers; -1 of others.
	names  []string
	sparse []bool
	places []int32
	times  []time.Time
	budget readBudget
	views  []keptView
	merger momentMerger
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
	r.names, r.sparse, r.places = m.Names, make([]bool, len(m.Names)), slices.Repeat([]int32{-1}, len(k.names))
	r.times, r.budget, r.views = m.Times, budget, make([]keptView, len(m.Times))
	for i, name := range m.Names {
		r.sparse[i] = slices.Contains(m.Sparse, name)
		if n, ok := k.names[name]; ok {
			r.places[n] = int32(i)
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
			name := r.place(row)
			if name < 0 {
				continue
			}
			read := r.numbers
			if row.isHistogram {
				read = r.distributions
			}
			r.now = r.now[:0]
			if zero := read(row); len(r.now) == 0 || zero && r.sparse[name] {
				continue
			}
			if !r.add(name, row.kind, th.labels) {
				return nil, true
			}
		}
	}
	return r.taken(), true
}

// add makes the points of a series a result; false where there is no room.
func (r *keptReader) add(name int32, kind string, labels map[string]string) bool {
	points := r.points.take(len(r.now))
	copy(points, r.now)
	r.found = append(r.found, model.NamedResult{Name: r.names[name], Type: kind,
		QueryResult: model.QueryResult{Labels: labels, Points: points}})
	return r.budget.take((resultBytes + len(points)*pointBytes) / sampleBytes)
}

// taken are the results of a source, which last as long as the points do.
func (r *keptReader) taken() []model.NamedResult {
	results := r.results.take(len(r.found))
	copy(results, r.found)
	return results
}

// place is where the name of a series is in names; -1 where it is not asked for.
func (r *keptReader) place(row *keptRow) int32 {
	if int(row.name) >= len(r.places) {
		return -1 // the first of its name came after begin
	}
	return r.places[row.name]
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

// decode is what encodeKept has encoded. It panics with errBadMoment where that makes no sense.
func (r *keptReader) decode(b []byte) *model.FloatHistogram {
	d := momentDecoder{rest: b}
	count, zeros, sum := d.number(), d.number(), d.float()
	if len(d.rest) == 0 && !d.bad {
		return r.histogram(count, zeros, sum, 0, 0)
	}
	first, width := d.signed(), d.number()
	if width > maxBuckets {
		d.fail()
		width = 0
	}
	h := r.histogram(count, zeros, sum, int32(first), int(width))
	for i := 0; i < len(h.Buckets); i++ {
		count := d.number()
		if count == 0 {
			i += int(min(d.number(), maxBuckets))
			continue
		}
		h.Buckets[i] = float64(count)
	}
	if d.bad {
		panic(errBadMoment)
	}
	return h
}
