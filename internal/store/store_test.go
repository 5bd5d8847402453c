package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
)

var t0 = time.UnixMilli(1_700_000_000_000)

func at(seconds float64) time.Time {
	return t0.Add(time.Duration(seconds * float64(time.Second)))
}

// open opens a store that is closed at the end of the test.
func open(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// labelled makes labels from names and values in turn, in order, with a host unless one is given.
func labelled(pairs ...string) []model.Label {
	m := map[string]string{"host": "h"}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	var labels []model.Label
	for _, name := range slices.Sorted(maps.Keys(m)) {
		labels = append(labels, model.Label{Name: name, Value: m[name]})
	}
	return labels
}

func counterAt(seconds, v float64, name string, pairs ...string) model.Series {
	return model.Series{Name: name, Labels: labelled(pairs...), Kind: model.Counter, Time: at(seconds), Value: v}
}

func histogramAt(seconds float64, h *model.Histogram, name string, pairs ...string) model.Series {
	return model.Series{Name: name, Labels: labelled(pairs...), Kind: model.HistogramSeries, Time: at(seconds),
		Histogram: h}
}

func appendAll(t testing.TB, s *Store, batch ...model.Series) {
	t.Helper()
	if err := s.Append(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
}

// lines is what a query gives, a line for each series, for comparison.
func lines(t testing.TB, s *Store, query string, seconds float64) []string {
	t.Helper()
	results, err := s.Instant(context.Background(), query, at(seconds))
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	out := []string{}
	for _, r := range results {
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
			if name != "host" {
				fmt.Fprintf(&b, "%s=%s ", name, r.Labels[name])
			}
		}
		for _, p := range r.Points {
			if p.Histogram != nil {
				fmt.Fprintf(&b, "%g:histogram(%g) ", p.Time.Sub(t0).Seconds(), p.Histogram.Count)
			} else {
				fmt.Fprintf(&b, "%g:%g ", p.Time.Sub(t0).Seconds(), p.Value)
			}
		}
		out = append(out, strings.TrimSpace(b.String()))
	}
	slices.Sort(out)
	return out
}

func want(t testing.TB, s *Store, query string, seconds float64, expected ...string) {
	t.Helper()
	if got := lines(t, s, query, seconds); !slices.Equal(got, append([]string{}, expected...)) {
		t.Errorf("%s at %g: got %q, want %q", query, seconds, got, expected)
	}
}

func TestAppendAndQuery(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	for i := range 11 {
		appendAll(t, s, counterAt(float64(i), float64(3*i), "c_total", "id", "a"), counterAt(float64(i), 7, "g", "id", "a"))
	}
	want(t, s, "c_total", 10, "__name__=c_total id=a 10:30")
	want(t, s, "rate(c_total[10s])", 10, "id=a 10:3")
	want(t, s, "c_total[3s]", 10, "__name__=c_total id=a 8:24 9:27 10:30")
	want(t, s, "sum(c_total) + sum(g)", 10, "10:37")
	want(t, s, "42", 10, "10:42")
	want(t, s, "nothing", 10)

	r, err := s.Range(context.Background(), "c_total", at(0), at(10), 5*time.Second)
	if err != nil || len(r) != 1 || len(r[0].Points) != 3 || r[0].Points[2].Value != 30 ||
		!r[0].Points[1].Time.Equal(at(5)) {
		t.Errorf("got %+v, %v", r, err)
	}
	stats := s.Stats()
	if stats.Samples != 22 || stats.Batches != 11 || stats.Live != 2 || stats.Series != 2 || stats.Sources != 1 ||
		stats.Bytes <= 0 {
		t.Errorf("got %+v", stats)
	}
	if !stats.Oldest.Equal(at(0)) || !stats.Newest.Equal(at(10)) {
		t.Errorf("got %v to %v", stats.Oldest, stats.Newest)
	}
}

// A series ends when its host's batch no longer has it, and no other host's batch ends it.
func TestSeriesEnd(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	h := &model.Histogram{Count: 1, ZeroCount: 1}
	appendAll(t, s, counterAt(0, 1, "c", "id", "a"), counterAt(0, 1, "c", "id", "b"), histogramAt(0, h, "h", "id", "b"),
		counterAt(0, 1, "c", "host", "other", "id", "z"))
	appendAll(t, s, counterAt(1, 2, "c", "id", "a"))
	want(t, s, "c", 1, "__name__=c id=a 1:2", "__name__=c id=z 1:1")
	want(t, s, "h", 1)
	want(t, s, "h", 0.5, "__name__=h id=b 0.5:histogram(1)")
	want(t, s, "c", 0.9, "__name__=c id=a 0.9:1", "__name__=c id=b 0.9:1", "__name__=c id=z 0.9:1")
	if stats := s.Stats(); stats.Ended != 2 || stats.Live != 2 || stats.Samples != 5 {
		t.Errorf("got %+v", stats)
	}
	// It comes back, and an older batch does not end it.
	appendAll(t, s, counterAt(3, 3, "c", "id", "a"), counterAt(3, 5, "c", "id", "b"))
	appendAll(t, s, counterAt(2, 2, "c", "id", "a"))
	want(t, s, `c{host="h"}`, 3, "__name__=c id=a 3:3", "__name__=c id=b 3:5")
}

// At the bound of series those that the store has are taken after a restart, too; new ones are not.
func TestFullStoreGoesOnAfterARestart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{MaxSeries: 3})
	appendAll(t, s, counterAt(0, 1, "c", "id", "1"), counterAt(0, 1, "c", "id", "2"), counterAt(0, 1, "c", "id", "3"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{MaxSeries: 3})
	appendAll(t, s, counterAt(1, 2, "c", "id", "1"), counterAt(1, 2, "c", "id", "2"), counterAt(1, 2, "c", "id", "3"))
	err := s.Append(context.Background(), []model.Series{counterAt(2, 3, "c", "id", "1"),
		counterAt(2, 3, "c", "id", "4"), counterAt(2, 3, "c", "id", "3")})
	var rejected *RejectedError
	if !errors.As(err, &rejected) || rejected.Samples != 1 || !errors.Is(err, ErrRejected) {
		t.Errorf("%v, want one sample rejected", err)
	}
	want(t, s, "c", 2, "__name__=c id=1 2:3", "__name__=c id=3 2:3")
}

// A source that is silent for long is forgotten, and its series end where they were left.
func TestSilentSourceIsForgotten(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	now := time.Now()
	s.tracker.now = func() time.Time { return now }
	appendAll(t, s, counterAt(0, 1, "c", "host", "gone"))
	// The clock of the other is far ahead: that says nothing of this one.
	appendAll(t, s, counterAt(599, 1, "c"))
	now = now.Add(599 * time.Second)
	appendAll(t, s, counterAt(600, 1, "c"))
	if got := s.Stats().Sources; got != 2 {
		t.Errorf("got %d sources, want 2", got)
	}
	now = now.Add(2 * time.Second)
	appendAll(t, s, counterAt(601, 1, "c"))
	if stats := s.Stats(); stats.Sources != 1 || stats.Ended != 1 {
		t.Errorf("got %+v", stats)
	}
	want(t, s, `c{host="gone"}`, 0, "__name__=c 0:1")
	want(t, s, `c{host="gone"}`, 1)
}

// What was counted before a series was first seen is not lost, nor counted twice.
func TestStartIsZero(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	h := &model.Histogram{Count: 4, ZeroCount: 4}
	start := func(series model.Series, seconds float64) model.Series {
		series.Start = at(seconds)
		return series
	}
	// Not in the first batch of a source: of what was before nothing is known.
	appendAll(t, s, start(counterAt(10, 100, "c", "id", "old"), 5))
	appendAll(t, s,
		start(counterAt(11, 101, "c", "id", "old"), 5),
		start(counterAt(11, 9, "c", "id", "new"), 10.5),
		start(histogramAt(11, h, "h", "id", "new"), 10.5),
		// Older than the last batch: it may be counted in another series.
		start(counterAt(11, 50, "c", "id", "renamed"), 9),
		start(model.Series{Name: "g", Labels: labelled(), Kind: model.Gauge, Value: 3, Time: at(11)}, 10.5))
	want(t, s, "c[1m]", 11,
		"__name__=c id=new 10.5:0 11:9",
		"__name__=c id=old 10:100 11:101",
		"__name__=c id=renamed 11:50")
	want(t, s, "h[1m]", 11, "__name__=h id=new 10.5:histogram(0) 11:histogram(4)")
	want(t, s, "g[1m]", 11, "__name__=g 11:3")
	want(t, s, "increase(c[1m] anchored)", 11, "id=new 11:9", "id=old 11:1", "id=renamed 11:0")
}

func TestRedeliveryIsIdempotent(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	h := &model.Histogram{Count: 4, ZeroCount: 4}
	batch := func(i float64) []model.Series {
		return []model.Series{counterAt(i, i, "c"), histogramAt(i, h, "h")}
	}
	for _, i := range []float64{1, 2, 3, 3, 2, 1, 4, 2, 2} {
		appendAll(t, s, batch(i)...)
	}
	check := func(s *Store) {
		t.Helper()
		want(t, s, "c[1m]", 10, "__name__=c 1:1 2:2 3:3 4:4")
		want(t, s, "h[1m]", 10, "__name__=h 1:histogram(4) 2:histogram(4) 3:histogram(4) 4:histogram(4)")
	}
	check(s)
	if stats := s.Stats(); stats.Conflicts != 0 || stats.TooOld != 0 {
		t.Errorf("got %+v", stats)
	}
	// And after a restart.
	dir := s.db.Dir()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir, Options{})
	for _, i := range []float64{3, 4} {
		appendAll(t, again, batch(i)...)
	}
	check(again)
}

func TestAppendRejects(t *testing.T) {
	s := open(t, t.TempDir(), Options{OutOfOrder: time.Minute, MaxSeries: 2})
	appendAll(t, s, counterAt(1000, 1, "c"))
	err := s.Append(context.Background(), []model.Series{
		counterAt(1000, 2, "c"),
		counterAt(100, 1, "c"),
		{Name: "", Kind: model.Gauge, Time: at(1000)},
		{Name: "h", Kind: model.HistogramSeries, Labels: labelled(), Time: at(1000)},
		counterAt(1000, 1, "d"),
		counterAt(1000, 1, "e"),
		counterAt(970, 5, "c"),
	})
	if !errors.Is(err, ErrRejected) {
		t.Fatalf("got %v, want ErrRejected", err)
	}
	stats := s.Stats()
	if stats.Conflicts != 1 || stats.TooOld != 1 || stats.Malformed != 2 || stats.NoRoom != 1 || stats.Samples != 3 {
		t.Errorf("got %+v", stats)
	}
	// The rest is there, the sample inside the out-of-order window too.
	want(t, s, "d", 1000, "__name__=d 1000:1")
	want(t, s, "c[1h]", 1000, "__name__=c 970:5 1000:1")

	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Append(canceled, []model.Series{counterAt(1001, 1, "c")}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestClosed(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	appendAll(t, s, counterAt(1, 1, "c"))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Append(context.Background(), []model.Series{counterAt(2, 1, "c")}); !errors.Is(err, ErrClosed) {
		t.Errorf("append: got %v", err)
	}
	if _, err := s.Instant(context.Background(), "c", at(2)); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrCanceled) {
		t.Errorf("query: got %v", err)
	}
	if got := s.Stats(); got.Samples != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestCloseEndsSeries(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	appendAll(t, s, counterAt(1, 1, "c"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{})
	want(t, s, "c", 1, "__name__=c 1:1")
	want(t, s, "c", 2)
	appendAll(t, s, counterAt(3, 4, "c"))
	want(t, s, "c", 3, "__name__=c 3:4")
	want(t, s, "c[1m]", 3, "__name__=c 1:1 3:4")
}

func TestQueryBounds(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxSamples: 10, QueryTimeout: time.Hour})
	for i := range 30 {
		appendAll(t, s, counterAt(float64(i), float64(i), "c"))
	}
	f := func(e Evaluation, want error) {
		t.Helper()
		_, err := s.Evaluate(context.Background(), e)
		if !errors.Is(err, want) {
			t.Errorf("%.40s: got %v, want %v", e.Query, err, want)
		}
	}
	instant := func(q string) Evaluation { return Evaluation{Query: q, From: at(29), To: at(29)} }
	f(instant("sum_over_time(c[5s])"), nil)
	f(instant("sum_over_time(c[1m])"), ErrExecution)
	f(instant("rate("), ErrBadQuery)
	f(instant(strings.Repeat("(", MaxQueryBytes+1)), ErrBadQuery)
	f(instant(strings.Repeat("(", MaxQueryBytes)), ErrBadQuery)
	f(instant(strings.Repeat("-", MaxQueryBytes-1)+"1"), nil)
	f(instant("label_replace(c, \"a\", \"$1\", \"b\", \"(\")"), ErrExecution)
	f(Evaluation{Query: "c", From: at(0), To: at(11000), Step: time.Second}, ErrExecution)
	f(Evaluation{Query: "c", From: at(0), To: at(11001), Step: time.Second}, ErrBadQuery)
	f(Evaluation{Query: "c", From: at(2), To: at(1), Step: time.Second}, ErrBadQuery)
	f(Evaluation{Query: "c", From: at(1), To: at(2)}, ErrBadQuery)
	f(Evaluation{Query: "c", From: at(1), To: at(2), Step: -1}, ErrBadQuery)
	f(Evaluation{Query: "c", From: at(1), To: at(2), Step: time.Microsecond}, ErrBadQuery)
	f(Evaluation{Query: "c", From: time.Unix(1<<40, 0), To: time.Unix(1<<40, 0)}, ErrBadQuery)
	f(Evaluation{Query: "c", From: at(1), To: at(1), Timeout: time.Nanosecond}, ErrTimeout)
	if _, err := s.Range(context.Background(), "c", at(0), at(1), 0); !errors.Is(err, ErrBadQuery) {
		t.Errorf("got %v", err)
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Instant(canceled, "c", at(1)); !errors.Is(err, ErrCanceled) {
		t.Errorf("got %v", err)
	}
	if got := s.Stats(); got.QueriesTooLarge != 2 || got.QueriesTooSlow != 1 {
		t.Errorf("got %+v", got)
	}
}

// Queries take turns; past the waiting line they are turned away.
func TestQueriesTakeTurns(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxQueries: 1})
	_, _, done, err := s.gate.enter(context.Background(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan error)
	const asked = maxWaitingFactor + 3
	ctx, cancel := context.WithCancel(context.Background())
	for range asked {
		go func() {
			_, err := s.Instant(ctx, "1", at(0))
			results <- err
		}()
	}
	for range 3 {
		if err := <-results; !errors.Is(err, ErrBusy) {
			t.Errorf("got %v, want ErrBusy", err)
		}
	}
	done()
	for range maxWaitingFactor {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	cancel()
	if got := s.Stats(); got.QueriesTurnedAway != 3 || got.Queries != asked+1 || s.gate.scheduler.waiting != 0 {
		t.Errorf("got %+v, %d wait", got, s.gate.scheduler.waiting)
	}
}

func TestCloseCancelsQueries(t *testing.T) {
	s, err := Open(t.TempDir(), Options{MaxQueries: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, _, done, err := s.gate.enter(context.Background(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan error)
	go func() {
		_, err := s.Instant(context.Background(), "1", at(0))
		waits <- err
	}()
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	<-ctx.Done()
	if err := <-waits; !errors.Is(err, ErrCanceled) {
		t.Errorf("got %v", err)
	}
	done()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestFindAndFormat(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	appendAll(t, s, counterAt(0, 1, "c", "id", "a"), counterAt(0, 1, "c", "id", "b"), counterAt(0, 1, "d", "id", "ü\"\\"))
	f := func(l Lookup, want string, warnings int) {
		t.Helper()
		a, err := s.Find(context.Background(), l)
		if err != nil || string(a.JSON) != want || len(a.Warnings) != warnings {
			t.Errorf("%+v: got %s %q %v, want %s", l, a.JSON, a.Warnings, err, want)
		}
	}
	f(Lookup{What: FindLabelNames}, `["__name__","host","id"]`, 0)
	f(Lookup{What: FindLabelValues, Label: "id"}, `["a","b","ü\"\\"]`, 0)
	f(Lookup{What: FindLabelValues, Label: "none"}, `[]`, 0)
	f(Lookup{What: FindLabelValues, Label: "id", Matchers: []string{"c"}, Limit: 1}, `["a"]`, 1)
	f(Lookup{What: FindLabelValues, Label: "id", Matchers: []string{"c", "d", "c"}}, `["a","b","ü\"\\"]`, 0)
	f(Lookup{What: FindSeries, Matchers: []string{"c"}},
		`[{"__name__":"c","host":"h","id":"a"},{"__name__":"c","host":"h","id":"b"}]`, 0)
	f(Lookup{What: FindSeries, Matchers: []string{"c", `{id="a"}`}, Limit: 1}, `[{"__name__":"c","host":"h","id":"a"}]`, 1)
	f(Lookup{What: FindSeries, Matchers: []string{"c"}, From: at(7200), To: at(7300)}, `[]`, 0)
	f(Lookup{What: FindSeries, Matchers: []string{"none"}}, `[]`, 0)
	for _, bad := range []Lookup{
		{What: FindSeries},
		{What: FindSeries, Matchers: []string{"{"}},
		{What: FindSeries, Matchers: []string{`{id=~".*"}`}},
		{What: FindLabelNames, Limit: -1},
		{What: FindLabelNames, Matchers: []string{strings.Repeat("a", MaxQueryBytes+1)}},
	} {
		if _, err := s.Find(context.Background(), bad); !errors.Is(err, ErrBadQuery) {
			t.Errorf("%+v: got %v", bad, err)
		}
	}
	if got, err := s.Format("sum( rate(c[5m]))by(id)"); err != nil || got != "sum by (id) (rate(c[5m]))" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := s.Format("("); !errors.Is(err, ErrBadQuery) {
		t.Errorf("got %v", err)
	}
}

func TestRelease(t *testing.T) {
	f := func(module, want string) {
		t.Helper()
		if got := release(module); got != want {
			t.Errorf("%q: got %q, want %q", module, got, want)
		}
	}
	f("v0.313.5", "3.13.5")
	f("v0.320.0-rc.1", "3.20.0-rc.1")
	f("", "3.13.0")
	f("v1.0.0", "3.13.0")
}

// What the TSDB tells of its routine is for debugging; its warnings are not.
func TestLogLevels(t *testing.T) {
	var b bytes.Buffer
	logger := slog.New(demoted{slog.NewTextHandler(&b, nil)}).With("k", "v").WithGroup("g")
	logger.Info("routine")
	logger.Warn("damage")
	if got := b.String(); strings.Contains(got, "routine") || !strings.Contains(got, "level=WARN msg=damage k=v") {
		t.Errorf("got %q", got)
	}
}
