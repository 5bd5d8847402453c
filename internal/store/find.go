package store

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// What a Lookup is to find.
type What uint8

// The things that a Lookup can find.
const (
	// FindSeries: the labels of each series.
	FindSeries What = iota
	// FindLabelNames: all names of labels.
	FindLabelNames
	// FindLabelValues: all values of one label.
	FindLabelValues
)

// Lookup asks which series there are, without their samples.
type Lookup struct {
	What What
	// Label whose values are wanted, for FindLabelValues.
	Label string
	// Matchers are PromQL selectors of which a series must match one. FindSeries needs one;
	// without any the others search all series.
	Matchers []string
	// From and To bound the time in which a series must have existed. The zero Time does not.
	From, To time.Time
	// Limit is the greatest number of things found, 0 for all.
	Limit int
	// Tenant whose series alone are searched; empty for all.
	Tenant string
}

// errTruncated is the warning of an answer that was cut at Limit.
var errTruncated = errors.New("results truncated due to limit")

// Find answers l with a JSON array in the form of Prometheus's API.
func (s *Store) Find(ctx context.Context, l Lookup) (Answer, error) {
	sets, err := matchers(s.parser, l)
	if err != nil {
		return Answer{}, err
	}
	ctx, account, done, err := s.gate.enter(ctx, l.Tenant, 0)
	if err != nil {
		return Answer{}, err
	}
	defer done()
	from, to := l.milliseconds()
	querier, err := s.queryable(l.Tenant).Querier(from, to)
	if err != nil {
		return Answer{}, &queryError{ErrStorage, err}
	}
	defer querier.Close()
	f := finder{querier: querier, from: from, to: to, limit: l.Limit, allowance: allowance{account: account}}
	if l.What == FindSeries {
		err = f.series(ctx, sets)
	} else {
		err = f.strings(ctx, l, sets)
	}
	if err != nil {
		return Answer{}, s.gate.sort(ctx, err)
	}
	f.answer.annotate("", f.notes)
	return f.answer, nil
}

func matchers(p parser.Parser, l Lookup) ([][]*labels.Matcher, error) {
	if l.What == FindSeries && len(l.Matchers) == 0 {
		return nil, badQuery("no match[] parameter provided")
	}
	if l.Limit < 0 {
		return nil, badQuery("limit %d: must not be negative", l.Limit)
	}
	var sets [][]*labels.Matcher
	for _, m := range l.Matchers {
		if err := checkText(m); err != nil {
			return nil, err
		}
		set, err := p.ParseMetricSelector(m)
		if err != nil {
			return nil, &queryError{ErrBadQuery, err}
		}
		if !slices.ContainsFunc(set, func(m *labels.Matcher) bool { return !m.Matches("") }) {
			return nil, badQuery("match[] must contain at least one non-empty matcher")
		}
		sets = append(sets, set)
	}
	return sets, nil
}

// milliseconds is the range of l in the TSDB's unit.
func (l *Lookup) milliseconds() (from, to int64) {
	from, to = math.MinInt64, math.MaxInt64
	if !l.From.IsZero() {
		from = l.From.UnixMilli()
	}
	if !l.To.IsZero() {
		to = l.To.UnixMilli()
	}
	return from, to
}

// finder collects an answer.
type finder struct {
	querier   storage.Querier
	from, to  int64
	limit     int
	allowance allowance
	answer    Answer
	notes     annotations.Annotations
}

func (f *finder) series(ctx context.Context, sets [][]*labels.Matcher) error {
	hints := &storage.SelectHints{Start: f.from, End: f.to, Func: "series", Limit: f.hint()}
	var selected []storage.SeriesSet
	for _, set := range sets {
		selected = append(selected, f.querier.Select(ctx, len(sets) > 1, hints, set...))
	}
	all := selected[0]
	if len(selected) > 1 {
		all = storage.NewMergeSeriesSet(selected, 0, storage.ChainedSeriesMerge)
	}
	w := newWriter(&f.allowance)
	defer w.release()
	w.array()
	n := 0
	for all.Next() {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if f.limit > 0 && n > f.limit {
			f.notes.Add(errTruncated)
			break
		}
		if !w.item() {
			return w.err
		}
		w.labels(all.At().Labels())
	}
	w.endArray()
	f.notes.Merge(all.Warnings())
	f.answer.JSON = w.bytes()
	return all.Err()
}

func (f *finder) strings(ctx context.Context, l Lookup, sets [][]*labels.Matcher) error {
	if len(sets) == 0 {
		sets = [][]*labels.Matcher{nil}
	}
	var all []string
	for _, set := range sets {
		hints := &storage.LabelHints{Limit: f.hint()}
		var found []string
		var notes annotations.Annotations
		var err error
		if l.What == FindLabelNames {
			found, notes, err = f.querier.LabelNames(ctx, hints, set...)
		} else {
			found, notes, err = f.querier.LabelValues(ctx, l.Label, hints, set...)
		}
		if err != nil {
			return err
		}
		f.notes.Merge(notes)
		bytes := int64(0)
		for _, v := range found {
			bytes += int64(len(v)) + sampleBytes
		}
		if err := f.allowance.reserve(bytes); err != nil {
			return err
		}
		all = append(all, found...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if f.limit > 0 && len(all) > f.limit {
		all = all[:f.limit]
		f.notes.Add(errTruncated)
	}
	w := newWriter(&f.allowance)
	defer w.release()
	w.array()
	for _, v := range all {
		if !w.item() {
			return w.err
		}
		w.string(v)
	}
	w.endArray()
	f.answer.JSON = w.bytes()
	return nil
}

// hint is one more than the limit, so that a cut shows.
func (f *finder) hint() int {
	if f.limit == 0 {
		return 0
	}
	return f.limit + 1
}

// Format is a PromQL query laid out over lines; an error wraps ErrBadQuery.
func (s *Store) Format(query string) (string, error) { return format(s.parser, query) }

func format(p parser.Parser, query string) (string, error) {
	expr, err := parse(p, query)
	if err != nil {
		return "", err
	}
	return parser.Prettify(expr), nil
}
