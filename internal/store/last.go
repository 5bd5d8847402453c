package store

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"golang.org/x/sync/errgroup"

	"outsight/internal/model"
)

// Moments are the times at which the values of series are wanted.
type Moments struct {
	// Names of the series; all of their labels are wanted.
	Names []string
	// Times in ascending order.
	Times []time.Time
	// Recent is how old a sample may be to be the value of a time.
	Recent time.Duration
	// Tenant whose series alone are read; empty for all.
	Tenant string
}

// query is PromQL that gives the values at each of the times.
func (m *Moments) query() string {
	return fmt.Sprintf("last_over_time({%s=~%q}[%dms])", nameLabel, strings.Join(m.Names, "|"), m.Recent.Milliseconds())
}

// Last is the newest sample of each series with one of these names at each of some times, which are in ascending order; a sample
// that is older than recent is none. It is what last_over_time says at these times, and takes a fifth of the time: samples are
// read out of the chunks, and series that differ in name and type alone share their labels. The results of a series come in the order of time.
// Histograms must have buckets of model.Scale.
func (s *Store) Last(ctx context.Context, names []string, times []time.Time, recent time.Duration) ([]model.NamedResult, error) {
	return s.LastOf(ctx, Moments{Names: names, Times: times, Recent: recent})
}

// LastOf is Last of one tenant's series.
func (s *Store) LastOf(ctx context.Context, m Moments) ([]model.NamedResult, error) {
	if len(m.Names) == 0 || len(m.Times) == 0 {
		return nil, nil
	}
	ctx, done, err := s.gate.turn(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer done()
	// Two halves at once, of which one is read here: what a request costs is known by its own thread.
	var halves [2]lastReader
	shared := &sharedLabels{known: map[string]map[string]string{}}
	for i := range halves {
		halves[i] = lastReader{from: s.queryable(m.Tenant), recent: m.Recent.Milliseconds(), names: map[string]string{},
			shared: shared, known: map[string]map[string]string{}, budget: readBudget{ctx: ctx, left: s.options.MaxSamples / len(halves)}}
	}
	for i, name := range m.Names {
		halves[i%len(halves)].names[name] = name
	}
	var other errgroup.Group
	other.Go(func() error { return halves[1].read(ctx, m.Times) })
	err = halves[0].read(ctx, m.Times)
	if otherErr := other.Wait(); err == nil {
		err = otherErr
	}
	if err != nil {
		return nil, s.gate.sort(err)
	}
	return append(halves[0].results, halves[1].results...), nil
}

// lastReader reads the newest samples at some times.
type lastReader struct {
	from   storage.Queryable
	recent int64 // ms
	// names that are read.
	names  map[string]string
	shared *sharedLabels
	// known are labels that are shared, of those that this reader has met: others need not wait for it.
	known map[string]map[string]string
	// key is room for the bytes of labels.
	key     []byte
	budget  readBudget
	results []model.NamedResult
	// points are what results have a part of.
	points []model.Point
	// native are the histograms of the sample before and of the one that is read.
	native [2]*histogram.FloatHistogram
}

// nearTimes are times whose values lie in the same chunks or in neighbours: it is cheaper to read on than to find the series again.
const nearTimes = 2 * time.Minute

func (l *lastReader) read(ctx context.Context, times []time.Time) error {
	if len(l.names) == 0 {
		return nil
	}
	if !l.budget.inTime() {
		return l.budget.err
	}
	var names []string
	for name := range l.names {
		names = append(names, name)
	}
	named, err := labels.NewMatcher(labels.MatchRegexp, nameLabel, strings.Join(names, "|"))
	if err != nil {
		return badQuery("names of series: %w", err)
	}
	for len(times) > 0 {
		near := 1
		for near < len(times) && times[near].Sub(times[near-1]) < nearTimes {
			near++
		}
		if err := l.stretch(ctx, named, times[:near]); err != nil {
			return err
		}
		times = times[near:]
	}
	return nil
}

// stretch reads the samples at times that are near each other.
func (l *lastReader) stretch(ctx context.Context, named *labels.Matcher, times []time.Time) error {
	from, to := times[0].UnixMilli()-l.recent+1, times[len(times)-1].UnixMilli()
	querier, err := l.from.Querier(from, to)
	if err != nil {
		return &queryError{ErrStorage, err}
	}
	defer querier.Close()
	set := querier.Select(ctx, false, &storage.SelectHints{Start: from, End: to, Func: "last_over_time"}, named)
	var samples chunkenc.Iterator
	for l.budget.take(1) && set.Next() {
		series := set.At()
		samples = series.Iterator(samples)
		points, err := l.at(samples, times)
		if err != nil {
			return &queryError{ErrExecution, fmt.Errorf("%s: %w", series.Labels(), err)}
		}
		if len(points) > 0 {
			of := series.Labels()
			l.results = append(l.results, model.NamedResult{Name: l.names[of.Get(nameLabel)], Type: of.Get(model.TypeLabel),
				QueryResult: model.QueryResult{Labels: l.labels(of), Points: points}})
		}
	}
	if l.budget.err != nil {
		return l.budget.err
	}
	return set.Err()
}

// sharedLabels are the labels of series without name and type, by their bytes.
type sharedLabels struct {
	// mu guards known.
	mu    sync.Mutex
	known map[string]map[string]string
}

// labels are those of a series without its name and type.
func (l *lastReader) labels(of labels.Labels) map[string]string {
	l.key = of.BytesWithoutLabels(l.key, nameLabel, model.TypeLabel) // in order
	known := l.known[string(l.key)]
	if known == nil {
		key := string(l.key)
		known = l.shared.find(key, of)
		l.known[key] = known
		l.budget.take(1 + labelBytes(of)/sampleBytes)
	}
	return known
}

// find is what of is without its name and type.
func (s *sharedLabels) find(key string, of labels.Labels) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.known[key]
	if known == nil {
		known = of.Map()
		delete(known, nameLabel)
		delete(known, model.TypeLabel)
		s.known[key] = known
	}
	return known
}

// at are the values of a series at the times, where it has some.
func (l *lastReader) at(samples chunkenc.Iterator, times []time.Time) ([]model.Point, error) {
	if cap(l.points)-len(l.points) < len(times) {
		l.points = make([]model.Point, 0, max(1<<12, len(times)))
	}
	begin := len(l.points)
	var newest struct {
		at     int64
		value  float64
		native *histogram.FloatHistogram
		any    bool
	}
	for _, t := range times {
		until := t.UnixMilli()
		for kind := samples.Seek(until - l.recent + 1); kind != chunkenc.ValNone && samples.AtT() <= until; kind = samples.Next() {
			if kind == chunkenc.ValFloat {
				// The mark of an end is no value.
				if at, v := samples.At(); !value.IsStaleNaN(v) {
					newest.at, newest.value, newest.native, newest.any = at, v, nil, true
				}
				continue
			}
			at, h := samples.AtFloatHistogram(l.native[1])
			if l.native[1] = h; !value.IsStaleNaN(h.Sum) {
				newest.at, newest.native, newest.any = at, h, true
				l.native[0], l.native[1] = l.native[1], l.native[0]
			}
		}
		if err := samples.Err(); err != nil {
			return nil, err
		}
		if !newest.any || newest.at <= until-l.recent {
			continue
		}
		p := model.Point{Time: time.UnixMilli(until), Value: newest.value}
		if h := newest.native; h != nil {
			var err error
			if p.Histogram, err = fromNative(h); err != nil {
				return nil, err
			}
			p.Value = 0
			l.budget.take(1 + len(p.Histogram.Buckets)/2)
		}
		l.points = append(l.points, p)
	}
	l.budget.take(len(l.points) - begin)
	return l.points[begin:len(l.points):len(l.points)], nil
}

// Last is Store.Last over the other system.
func (r *Remote) Last(ctx context.Context, names []string, times []time.Time, recent time.Duration) ([]model.NamedResult, error) {
	return r.LastOf(ctx, Moments{Names: names, Times: times, Recent: recent})
}

// LastOf is Last of one tenant's series. Two times are read at once.
func (r *Remote) LastOf(ctx context.Context, m Moments) (named []model.NamedResult, err error) {
	if len(m.Names) == 0 {
		return nil, nil
	}
	query, read := m.query(), make([][]model.QueryResult, len(m.Times))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for i, t := range m.Times {
		group.Go(func() (err error) {
			read[i], err = r.Results(ctx, Evaluation{Query: query, From: t, To: t, Tenant: m.Tenant})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, results := range read {
		for _, result := range results {
			named = append(named, result.TakeName())
		}
	}
	return named, nil
}

// Last is Store.Last over the tenant's series.
func (t *Tenant) Last(ctx context.Context, names []string, times []time.Time, recent time.Duration) ([]model.NamedResult, error) {
	return t.store.LastOf(ctx, Moments{Names: names, Times: times, Recent: recent, Tenant: t.name})
}
