package store

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"golang.org/x/sync/errgroup"

	"outsight/internal/model"
)

// Moments are the times at which the newest values of series are wanted.
type Moments struct {
	// Names of the series; all of their labels are returned. They are read by two goroutines, so put the largest first.
	Names []string
	// Sparse are those of Names whose series may be left out if they were zero at all of the times.
	Sparse []string
	// Times in ascending order.
	Times []time.Time
	// Recent is how old a sample may be to be the value of a time.
	Recent time.Duration
	// Tenant whose series alone are read; empty for all.
	Tenant string
}

// query is PromQL for the values at each of the times.
func (m *Moments) query() string {
	return fmt.Sprintf("last_over_time({%s=~%q}[%dms])", nameLabel, strings.Join(m.Names, "|"), m.Recent.Milliseconds())
}

// Values are what Last found, in blocks. Their labels may be kept, and are not to be changed.
type Values struct {
	Blocks  [][]model.NamedResult
	release func()
}

// Release says that the points and histograms of the results are needed no more, and that their memory may be used
// again. It need not be called, and may be called once.
func (v *Values) Release() {
	if v.release != nil {
		v.release()
	}
}

// Last is the newest sample of each series with one of the names at each of the times; a sample that is older than
// recent is none. It is what last_over_time says at these times, and takes a fourth of the time: samples are read out
// of the chunks, and series that differ in name and type alone share their labels. Where each of the times is Kept it
// reads no chunk at all. The results of one series come in the order of time, those of several in any. Histograms must
// have buckets of model.Scale. It may hold what queries for each of the times may hold together.
func (s *Store) Last(ctx context.Context, m Moments) (*Values, error) {
	if len(m.Names) == 0 || len(m.Times) == 0 {
		return &Values{}, nil
	}
	ctx, account, done, err := s.gate.enter(ctx, m.Tenant, 0)
	if err != nil {
		return nil, err
	}
	defer done()
	// Two readers may hold what a query for each of the times may, more of them no more than two.
	budget := func(readers int) readBudget {
		return readBudget{ctx: ctx, left: s.options.MaxSamples * len(m.Times) * min(readers, 2) / readers,
			allowance: allowance{account: account}}
	}
	switch values, ok, err := s.tracker.keeper.last(&m, budget); {
	case err != nil:
		return nil, s.gate.sort(ctx, err)
	case ok:
		return values, nil
	}
	// Two readers, one of them in this goroutine, so that the request's cost is known by its thread. The first error
	// ends the other reader, and is its cause.
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var halves [2]lastReader
	shared := &sharedLabels{known: map[string]map[string]string{}}
	for i := range halves {
		halves[i] = lastReader{recent: m.Recent.Milliseconds(), names: map[string]string{}, types: map[string]string{},
			shared: shared,
			known:  map[string]*lastLabels{}, before: &lastLabels{}, budget: budget(len(halves))}
	}
	for i, name := range m.Names {
		halves[i%len(halves)].names[name] = name
	}
	for i := range halves {
		if err := halves[i].match(); err != nil {
			return nil, err
		}
		defer halves[i].close()
	}
	// All are opened before any is read, so that what is stored meanwhile is in none of them.
	for _, times := range stretches(m.Times) {
		for i := range halves {
			if err := halves[i].open(s.queryable(m.Tenant), times); err != nil {
				return nil, s.gate.sort(ctx, err)
			}
		}
	}
	read := func(l *lastReader) {
		if err := l.read(ctx); err != nil {
			fail(err)
		}
	}
	var other sync.WaitGroup
	other.Go(func() { read(&halves[1]) })
	read(&halves[0])
	other.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, s.gate.sort(ctx, err)
	}
	return &Values{Blocks: append(halves[0].results, halves[1].results...)}, nil
}

// nearTimes are times whose values lie in the same or in neighbouring chunks: reading on is cheaper than finding the
// series again.
const nearTimes = 2 * time.Minute

// stretches are times that are near each other.
func stretches(times []time.Time) (all [][]time.Time) {
	for len(times) > 0 {
		near := 1
		for near < len(times) && times[near].Sub(times[near-1]) < nearTimes {
			near++
		}
		all, times = append(all, times[:near]), times[near:]
	}
	return all
}

// lastReader reads the newest samples of some series at some times.
type lastReader struct {
	recent int64 // ms
	// names that are read, and types that were met.
	names, types map[string]string
	named        *labels.Matcher
	stretches    []lastStretch
	shared       *sharedLabels
	// known are labels that are shared, of those that this reader has met, by their bytes: others need not wait for it.
	known map[string]*lastLabels
	// before are the labels of the previous series.
	before *lastLabels
	// key is a buffer for the bytes of labels.
	key    []byte
	budget readBudget
	// results are in blocks, because there are many: to make one large array longer copies it.
	results [][]model.NamedResult
	// points are what results have a part of.
	points []model.Point
	// native are the histograms of the sample before and of the one that is read.
	native [2]*histogram.FloatHistogram
}

// lastStretch is what is to be read for times that are near each other.
type lastStretch struct {
	times    []time.Time
	from, to int64 // ms
	querier  storage.Querier
}

func (l *lastReader) match() (err error) {
	names := slices.Sorted(maps.Keys(l.names))
	if l.named, err = labels.NewMatcher(labels.MatchRegexp, nameLabel, strings.Join(names, "|")); err != nil {
		return badQuery("names of series: %w", err)
	}
	return nil
}

func (l *lastReader) open(from storage.Queryable, times []time.Time) (err error) {
	if len(l.names) == 0 {
		return nil
	}
	s := lastStretch{times: times, from: times[0].UnixMilli() - l.recent + 1, to: times[len(times)-1].UnixMilli()}
	if s.querier, err = from.Querier(s.from, s.to); err != nil {
		return promql.ErrStorage{Err: err}
	}
	l.stretches = append(l.stretches, s)
	return nil
}

func (l *lastReader) close() {
	for _, s := range l.stretches {
		_ = s.querier.Close() // it was for reading
	}
}

// read reads all; what a damaged chunk makes the decoder panic with is an error.
func (l *lastReader) read(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reading samples: %v", p)
		}
	}()
	for _, s := range l.stretches {
		if err := l.stretch(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (l *lastReader) stretch(ctx context.Context, s lastStretch) error {
	if !l.budget.inTime() {
		return l.budget.err
	}
	set := s.querier.Select(ctx, false, &storage.SelectHints{Start: s.from, End: s.to, Func: "last_over_time"}, l.named)
	var samples chunkenc.Iterator
	for l.budget.take(1) && set.Next() {
		series := set.At()
		samples = series.Iterator(samples)
		points, err := l.at(samples, s.times)
		if err != nil {
			return err
		}
		if len(points) == 0 {
			continue
		}
		of := series.Labels()
		l.add(model.NamedResult{Name: l.names[of.Get(nameLabel)], Type: l.typeOf(of),
			QueryResult: model.QueryResult{Labels: l.labels(of), Points: points}})
		l.budget.take(resultBytes / sampleBytes)
	}
	if l.budget.err != nil {
		return l.budget.err
	}
	if err := set.Err(); err != nil && ctx.Err() == nil {
		return promql.ErrStorage{Err: err}
	}
	return ctx.Err()
}

// blockResults is how many results are in a block.
const blockResults = 1 << 10

func (l *lastReader) add(r model.NamedResult) {
	if n := len(l.results); n == 0 || len(l.results[n-1]) == blockResults {
		l.results = append(l.results, make([]model.NamedResult, 0, blockResults))
	}
	block := &l.results[len(l.results)-1]
	*block = append(*block, r)
}

// resultBytes is near what a result takes in memory, without its points and its labels; pointBytes, what one of its
// points does.
const resultBytes, pointBytes = 7 * sampleBytes, 3 * sampleBytes

// typeOf is a copy: a part of the labels would keep all of them in memory.
func (l *lastReader) typeOf(of labels.Labels) string {
	name := of.Get(model.TypeLabel)
	if name == "" {
		return ""
	}
	known, ok := l.types[name]
	if !ok {
		known = strings.Clone(name)
		l.types[known] = known
	}
	return known
}

// sharedLabels are the labels of series without name and type, by their bytes.
type sharedLabels struct {
	// mu guards known.
	mu    sync.Mutex
	known map[string]map[string]string
}

// lastLabels are labels that series share.
type lastLabels struct {
	key    string
	labels map[string]string
	// next are those of the series that followed one with these labels. An agent reports all of its edges metric by
	// metric, in one order, and a store keeps that: so the next ones are mostly found without the map.
	next *lastLabels
}

// labels returns the labels of a series without its name and type.
func (l *lastReader) labels(of labels.Labels) map[string]string {
	l.key = of.BytesWithoutLabels(l.key, nameLabel, model.TypeLabel) // in order
	found := l.before.next
	if found == nil || found.key != string(l.key) {
		found = l.known[string(l.key)]
	}
	if found == nil {
		key := string(l.key)
		found = &lastLabels{key: key, labels: l.shared.find(key, of)}
		l.known[key] = found
		l.budget.take(1 + labelBytes(of)/sampleBytes)
	}
	l.before.next, l.before = found, found
	return found.labels
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
	newest := lastSample{at: math.MinInt64}
	for _, t := range times {
		until := t.UnixMilli()
		for kind := samples.Seek(until - l.recent + 1); kind != chunkenc.ValNone; kind = samples.Next() {
			at := samples.AtT()
			if at > until {
				break
			}
			if at > newest.at {
				l.take(samples, kind, at, &newest)
			}
		}
		if err := samples.Err(); err != nil {
			return nil, promql.ErrStorage{Err: err}
		}
		if newest.at <= until-l.recent {
			continue
		}
		p := model.Point{Time: time.UnixMilli(until), Value: newest.value}
		if h := newest.native; h != nil {
			var err error
			if p.Histogram, err = fromNative(h); err != nil {
				return nil, err
			}
			l.budget.take(resultBytes/sampleBytes + len(p.Histogram.Buckets)/2)
		}
		l.points = append(l.points, p)
	}
	l.budget.take((len(l.points) - begin) * pointBytes / sampleBytes)
	return l.points[begin:len(l.points):len(l.points)], nil
}

// lastSample is the newest sample of a series so far.
type lastSample struct {
	at     int64 // ms
	value  float64
	native *histogram.FloatHistogram
}

// take makes the sample of the time at, where samples are, the newest. The mark of an end is no value, and what is at
// its end may go back to a sample before when it is asked to go on.
func (l *lastReader) take(samples chunkenc.Iterator, kind chunkenc.ValueType, at int64, newest *lastSample) {
	if kind == chunkenc.ValFloat {
		if _, v := samples.At(); !value.IsStaleNaN(v) {
			newest.at, newest.value, newest.native = at, v, nil
		}
		return
	}
	_, h := samples.AtFloatHistogram(l.native[1])
	if l.native[1] = h; !value.IsStaleNaN(h.Sum) {
		newest.at, newest.value, newest.native = at, 0, h
		l.native[0], l.native[1] = l.native[1], l.native[0]
	}
}

// Last is Store.Last over the other system. Two times are read at once.
func (r *Remote) Last(ctx context.Context, m Moments) (*Values, error) {
	if len(m.Names) == 0 {
		return &Values{}, nil
	}
	query, blocks := m.query(), make([][]model.NamedResult, len(m.Times))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for i, t := range m.Times {
		group.Go(func() error {
			results, err := r.Results(ctx, Evaluation{Query: query, From: t, To: t, Tenant: m.Tenant})
			for _, result := range results {
				blocks[i] = append(blocks[i], result.TakeName())
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return &Values{Blocks: blocks}, nil
}

// Last is Store.Last over the tenant's series.
func (t *Tenant) Last(ctx context.Context, m Moments) (*Values, error) {
	m.Tenant = t.name
	return t.store.Last(ctx, m)
}

// Kept is the newest moment at or before t, no more than most before it, at which Last finds the values of KeptRecent
// side by side, in memory or in a file; false where there is none.
func (s *Store) Kept(t time.Time, most time.Duration) (time.Time, bool) {
	return s.tracker.keeper.near(t, most, s.oldest())
}

// Kept finds none: the other system has the values.
func (r *Remote) Kept(t time.Time, _ time.Duration) (time.Time, bool) { return t, false }

// Kept is that of the store: moments are the same for all tenants.
func (t *Tenant) Kept(at time.Time, most time.Duration) (time.Time, bool) {
	return t.store.Kept(at, most)
}
