package store

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"
)

// Evaluate answers a query as the other system does. Functions of native histograms work on
// classic ones as well; see HistogramForm.
func (r *Remote) Evaluate(ctx context.Context, e Evaluation) (a Answer, err error) {
	if err := e.check(); err != nil {
		return a, err
	}
	query, err := r.translate(e.Query, e.Tenant)
	if err != nil {
		return a, err
	}
	// VictoriaMetrics would leave out the newest samples without nocache.
	form := url.Values{"query": {query}, "nocache": {"1"}}
	path := "query"
	if e.Step == 0 {
		form.Set("time", wireTime(e.From))
	} else {
		path = "query_range"
		form.Set("start", wireTime(e.From))
		form.Set("end", wireTime(e.To))
		form.Set("step", wireSeconds(e.Step))
	}
	if e.Lookback > 0 {
		form.Set("lookback_delta", wireSeconds(e.Lookback))
	}
	if e.Limit > 0 {
		form.Set("limit", strconv.Itoa(e.Limit))
	}
	ctx, account, done, err := r.gate.enter(ctx, e.Tenant, e.Timeout)
	if err != nil {
		return a, err
	}
	defer done()
	if deadline, ok := ctx.Deadline(); ok {
		form.Set("timeout", wireSeconds(max(time.Until(deadline), time.Millisecond)))
	}
	a, err = r.query(ctx, account, http.MethodPost, path, form)
	if err != nil {
		return a, err
	}
	return r.limited(a, e.Limit)
}

// translate is a query as the other system is to evaluate it, for one tenant unless it is empty.
func (r *Remote) translate(query, tenant string) (string, error) {
	expr, err := parse(r.parser, query)
	if err != nil {
		return "", err
	}
	w := rewriter{parser: r.parser, form: r.options.Histograms}
	expr = w.rewrite(expr, whole)
	if w.err != nil {
		return "", &queryError{ErrBadQuery, w.err}
	}
	if tenant == "" {
		return expr.String(), nil
	}
	scope(expr, tenant)
	query = expr.String()
	if err := checkScoped(r.parser, query, tenant); err != nil {
		return "", &queryError{ErrExecution, err}
	}
	return query, nil
}

// Find answers l as the other system does.
func (r *Remote) Find(ctx context.Context, l Lookup) (a Answer, err error) {
	sets, err := matchers(r.parser, l)
	if err != nil {
		return a, err
	}
	if l.Tenant != "" {
		if len(sets) == 0 {
			sets = [][]*labels.Matcher{nil}
		}
		for i := range sets {
			sets[i] = append(sets[i], tenantMatcher(l.Tenant))
		}
	}
	form := url.Values{}
	for _, set := range sets {
		form.Add("match[]", (&parser.VectorSelector{LabelMatchers: set}).String())
	}
	// Without a time, some systems search the last minutes alone.
	from, to := l.From, l.To
	if from.IsZero() || from.Unix() < 0 {
		from = time.Unix(0, 0)
	}
	if to.IsZero() {
		to = time.Now().Add(time.Hour)
	}
	form.Set("start", wireTime(from))
	form.Set("end", wireTime(to))
	if l.Limit > 0 {
		form.Set("limit", strconv.Itoa(l.Limit+1)) // one more shows that there are
	}
	method, path := http.MethodPost, "series"
	switch l.What {
	case FindLabelNames:
		path = "labels"
	case FindLabelValues:
		method, path = http.MethodGet, "label/"+url.PathEscape(l.Label)+"/values"
	}
	ctx, account, done, err := r.gate.enter(ctx, l.Tenant, 0)
	if err != nil {
		return a, err
	}
	defer done()
	a, err = r.query(ctx, account, method, path, form)
	if err != nil {
		return a, err
	}
	var all []json.RawMessage
	if err := json.Unmarshal(a.JSON, &all); err != nil || all == nil {
		return Answer{}, r.badAnswer(fmt.Errorf("the data of %s are no list", path))
	}
	if l.Limit > 0 && len(all) > l.Limit {
		a.JSON, err = json.Marshal(all[:l.Limit])
		a.warn(errTruncated)
	}
	return a, err
}

// Format is Store.Format.
func (r *Remote) Format(query string) (string, error) { return format(r.parser, query) }

// Metadata is what the other system knows of its metrics, as JSON of its API: an object of lists by
// name. There are no tenants in it.
func (r *Remote) Metadata(ctx context.Context, metric string, limit int) (Answer, error) {
	form := url.Values{}
	if metric != "" {
		form.Set("metric", metric)
	}
	if limit > 0 {
		form.Set("limit", strconv.Itoa(limit))
	}
	ctx, account, done, err := r.gate.enter(ctx, "", 0)
	if err != nil {
		return Answer{}, err
	}
	defer done()
	return r.query(ctx, account, http.MethodGet, "metadata", form)
}

func (a *Answer) warn(err error) {
	var notes annotations.Annotations
	notes.Add(err)
	warnings, _ := notes.AsStrings("", maxNotes, maxNotes)
	a.Warnings = append(a.Warnings, warnings...)
}

// wireTime and wireSeconds are seconds with milliseconds, which is what stores count in.
func wireTime(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1e3, 'f', 3, 64) }

func wireSeconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
