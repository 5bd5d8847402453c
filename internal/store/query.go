package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"outsight/internal/model"
)

// Why a query failed. An error of a query wraps exactly one of these and reads as the cause.
var (
	// ErrBadQuery: the query cannot be understood, or its parameters make no sense.
	ErrBadQuery = errors.New("bad query")
	// ErrExecution: it makes no sense of the data, or would hold more than MaxSamples or its share of QueryBounds.Memory.
	ErrExecution = errors.New("query failed")
	// ErrTimeout: it took longer than QueryTimeout.
	ErrTimeout = errors.New("query timed out")
	// ErrCanceled: the client disconnected, or the store was closed meanwhile.
	ErrCanceled = errors.New("query canceled")
	// ErrBusy: too many queries wait already, or there is no memory for one more.
	ErrBusy = errors.New("too many queries")
	// ErrStorage: the data could not be read.
	ErrStorage = errors.New("reading data failed")
)

// queryError reads as err and is kind.
type queryError struct{ kind, err error }

func (e *queryError) Error() string   { return e.err.Error() }
func (e *queryError) Unwrap() []error { return []error{e.kind, e.err} }

func badQuery(format string, args ...any) error {
	return &queryError{ErrBadQuery, fmt.Errorf(format, args...)}
}

// Instant evaluates a PromQL query at one time. A query of a range ("x[1m]") gives each series
// with all its samples in the range. Histograms must have buckets of model.Scale.
func (s *Store) Instant(ctx context.Context, query string, at time.Time) ([]model.QueryResult, error) {
	return s.Results(ctx, Evaluation{Query: query, From: at, To: at})
}

// Range evaluates a PromQL query at from and every step until to, in at most MaxPoints steps.
func (s *Store) Range(ctx context.Context, query string, from, to time.Time, step time.Duration) ([]model.QueryResult,
	error) {
	if step <= 0 {
		return nil, badQuery("step %v: must be greater than 0", step)
	}
	return s.Results(ctx, Evaluation{Query: query, From: from, To: to, Step: step})
}

// Results evaluates a query. Histograms must have buckets of model.Scale.
func (s *Store) Results(ctx context.Context, e Evaluation) (results []model.QueryResult, err error) {
	err = s.evaluate(ctx, e, func(r *promql.Result, p *allowance) error {
		if err := p.reserve(resultSize(r.Value)); err != nil {
			return err
		}
		results, err = toResults(r)
		if err != nil {
			return &queryError{ErrExecution, shortened(err)}
		}
		return nil
	})
	return results, err
}

// Evaluation is a query and when to evaluate it.
type Evaluation struct {
	Query string
	// From and To are equal in an instant query, whose Step is 0.
	From, To time.Time
	Step     time.Duration
	// Timeout and Lookback replace those of Options; 0 does not, nor does a longer Timeout.
	Timeout, Lookback time.Duration
	// Limit is the greatest number of series in the answer, 0 for all.
	Limit int
	// Tenant whose series alone are read; empty for all.
	Tenant string
}

func (e *Evaluation) check() error {
	switch {
	case e.Step < 0 || e.Timeout < 0 || e.Lookback < 0 || e.Limit < 0:
		return badQuery("step %v, timeout %v, lookback %v, limit %d: must not be negative", e.Step, e.Timeout,
			e.Lookback, e.Limit)
	case e.To.Before(e.From):
		return badQuery("end %v is before start %v", e.To, e.From)
	case e.Step == 0 && !e.To.Equal(e.From):
		return badQuery("step 0: must be greater than 0")
	case e.Step > 0 && e.Step < time.Millisecond:
		return badQuery("step %v: at least 1ms", e.Step)
	case e.From.Year() < 0 || e.To.Year() > 9999:
		return badQuery("time %v to %v: only the years 0 to 9999", e.From, e.To)
	case e.Step > 0 && e.To.Sub(e.From)/e.Step > MaxPoints:
		return badQuery("more than %d steps: use a longer step", MaxPoints)
	}
	return nil
}

// evaluate runs a query when the scheduler lets it, and passes the answer to use, which must not keep it.
func (s *Store) evaluate(ctx context.Context, e Evaluation, use func(*promql.Result, *allowance) error) error {
	if err := e.check(); err != nil {
		return err
	}
	ctx, account, done, err := s.gate.enter(ctx, e.Tenant, e.Timeout)
	if err != nil {
		return err
	}
	defer done()
	expr, err := parse(s.parser, e.Query)
	if err != nil {
		return err
	}
	m := &meter{allowance: allowance{account: account}}
	if m.cost, err = costOf(expr, e.To.Sub(e.From), e.Step); err != nil {
		return err
	}
	if err := m.begin(); err != nil {
		return err
	}
	from := metered{s.queryable(e.Tenant), m}
	options := promql.NewPrometheusQueryOpts(false, e.Lookback)
	var query promql.Query
	if e.Step == 0 {
		query, err = s.engine.NewInstantQuery(ctx, from, options, e.Query, e.From)
	} else {
		query, err = s.engine.NewRangeQuery(ctx, from, options, e.Query, e.From, e.To, e.Step)
	}
	if err != nil {
		return &queryError{ErrBadQuery, shortened(err)}
	}
	defer query.Close()
	result := query.Exec(ctx)
	if result.Err != nil {
		return s.gate.sort(ctx, result.Err)
	}
	return use(result, &m.allowance)
}

// resultBytes is near what a result takes in memory, without its points and its labels; pointBytes, what one of its
// points does.
const resultBytes, pointBytes = 7 * sampleBytes, 3 * sampleBytes

// resultSize is near what the results of a query take in memory.
func resultSize(v parser.Value) (n int64) {
	of := func(l labels.Labels, points int) {
		// A map allocates twice its entries, and a string for each name and value.
		n += resultBytes + 2*int64(l.ByteSize()) + 64*int64(l.Len()) + pointBytes*int64(points)
	}
	switch v := v.(type) {
	case promql.Vector:
		for i := range v {
			of(v[i].Metric, 1)
		}
	case promql.Matrix:
		for i := range v {
			of(v[i].Metric, len(v[i].Floats)+len(v[i].Histograms))
		}
	}
	return n
}

func toResults(r *promql.Result) ([]model.QueryResult, error) {
	switch v := r.Value.(type) {
	case promql.Scalar:
		return []model.QueryResult{{Labels: map[string]string{},
			Points: []model.Point{{Time: time.UnixMilli(v.T), Value: v.V}}}}, nil
	case promql.Vector:
		results := make([]model.QueryResult, 0, len(v))
		for _, sample := range v {
			p, err := point(sample.T, sample.F, sample.H)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sample.Metric, err)
			}
			results = append(results, model.QueryResult{Labels: sample.Metric.Map(), Points: []model.Point{p}})
		}
		return results, nil
	case promql.Matrix:
		results := make([]model.QueryResult, 0, len(v))
		for _, series := range v {
			points, err := points(series)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", series.Metric, err)
			}
			results = append(results, model.QueryResult{Labels: series.Metric.Map(), Points: points})
		}
		return results, nil
	}
	return nil, fmt.Errorf("a query that gives a %s has no series", r.Value.Type())
}

// points merges the numbers and histograms of a series in the order of their times.
func points(s promql.Series) ([]model.Point, error) {
	merged := make([]model.Point, 0, len(s.Floats)+len(s.Histograms))
	f := 0
	for _, h := range s.Histograms {
		for ; f < len(s.Floats) && s.Floats[f].T < h.T; f++ {
			merged = append(merged, model.Point{Time: time.UnixMilli(s.Floats[f].T), Value: s.Floats[f].F})
		}
		p, err := point(h.T, 0, h.H)
		if err != nil {
			return nil, err
		}
		merged = append(merged, p)
	}
	for _, p := range s.Floats[f:] {
		merged = append(merged, model.Point{Time: time.UnixMilli(p.T), Value: p.F})
	}
	return merged, nil
}

func point(at int64, v float64, h *histogram.FloatHistogram) (model.Point, error) {
	p := model.Point{Time: time.UnixMilli(at), Value: v}
	if h == nil {
		return p, nil
	}
	var err error
	p.Histogram, err = fromNative(h)
	return p, err
}
