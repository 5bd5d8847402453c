package api

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"outsight/internal/graph"
	"outsight/internal/otlp"
)

// From when to when there is data is told to the second, also of what ran for a minute, days ago.
func TestExtent(t *testing.T) {
	near := func(what string, got *time.Time, want time.Time) {
		t.Helper()
		if got == nil || got.Sub(want).Abs() > time.Second {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	st, sh, end := fill(t, 60, nil)
	for _, later := range []time.Duration{0, 10 * time.Second, 3 * time.Hour, 20 * 24 * time.Hour} {
		h := New(st, Options{Now: func() time.Time { return end.Add(later) }})
		var a extentAnswer
		get200(t, h, "/api/outsight/extent", &a)
		near("begin "+later.String()+" later", a.From, begin)
		near("end "+later.String()+" later", a.To, end)
	}
	var none extentAnswer
	get200(t, New(st, Options{Now: func() time.Time { return end.Add(40 * 24 * time.Hour) }}), "/api/outsight/extent",
		&none)
	if none.From != nil || none.To != nil {
		t.Errorf("where nothing is kept: %+v", none)
	}
	for _, days := range []int{40, 400, 4000} { // with a gap of so many
		h := New(st, Options{Now: func() time.Time { return end.AddDate(0, 0, days) },
			Oldest: func() time.Time { return st.Stats().Oldest }})
		var a extentAnswer
		get200(t, h, "/api/outsight/extent", &a)
		near(fmt.Sprint("begin ", days, " days later"), a.From, begin)
		near(fmt.Sprint("end ", days, " days later"), a.To, end)
	}
	// An answer is used again for a while, and then asked for anew.
	now := end
	h := New(st, Options{Now: func() time.Time { return now }})
	var a extentAnswer
	get200(t, h, "/api/outsight/extent", &a)
	now = end.Add(2 * extentKept)
	if err := st.Append(context.Background(), otlp.Convert(sh.at(now))); err != nil {
		t.Fatal(err)
	}
	get200(t, h, "/api/outsight/extent", &a)
	near("begin", a.From, begin)
	near("end", a.To, now)
}

// The baseline is the graph of the hour before the window, whatever the window.
func TestBaselineIsThePastHour(t *testing.T) {
	st, _, end := fill(t, 300, nil)
	h := New(st, Options{Now: func() time.Time { return end }})
	var a, again baselineAnswer
	get200(t, h, "/api/outsight/baseline?from=now-60s", &a)
	to := end.Add(-time.Minute).Truncate(baselineStep)
	if !a.To.Equal(to) || len(a.Edges) == 0 || math.Abs(a.CoveredSeconds-to.Sub(begin).Seconds()) > 1 {
		t.Fatalf("%s to %s covers %v s with %d edges, want up to %s", a.From, a.To, a.CoveredSeconds, len(a.Edges), to)
	}
	g := &graph.Graph{}
	get200(t, h, "/api/outsight/graph?from="+to.Add(-time.Hour).Format(time.RFC3339)+"&to="+to.Format(time.RFC3339), g)
	compared := 0
	for _, e := range g.Edges {
		side := e.Best()
		u, known := a.Edges[e.ID]
		if known != (side.Of(graph.Transactions) > 0) {
			t.Errorf("%s has %v transactions, and is in the baseline: %v", e.ID, side.Of(graph.Transactions), known)
		}
		if known && (u.Transactions != side.Of(graph.Transactions) || *u.P99 != *side.P99 || *u.P50 != *side.P50) {
			t.Errorf("%s: %+v, want %v, %v, %v", e.ID, u, side.Of(graph.Transactions), *side.P50, *side.P99)
		} else if known {
			compared++
		}
	}
	if compared == 0 {
		t.Error("no edge has a baseline")
	}
	get200(t, h, "/api/outsight/baseline?from=now-59s", &again)
	if !again.To.Equal(a.To) {
		t.Errorf("a second later it is of %s, want %s again", again.To, a.To)
	}
}
