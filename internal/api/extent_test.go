package api

import (
	"errors"
	"math"
	"testing"
	"time"

	"outsight/internal/graph"
)

// From when to when there is data is that of the first and the last frame, however long ago that was.
func TestExtent(t *testing.T) {
	k, sh, end := fill(t, 60, nil)
	for _, later := range []time.Duration{0, 3 * time.Hour, 400 * 24 * time.Hour} {
		var a extentAnswer
		get200(t, New(Options{Log: k.log, Now: func() time.Time { return end.Add(later) }}), "/api/outsight/extent", &a)
		if a.From == nil || a.To == nil || !a.From.Equal(begin) || !a.To.Equal(end) {
			t.Errorf("%s later: %v to %v, want %v to %v", later, a.From, a.To, begin, end)
		}
	}
	s := sh.at(end.Add(time.Second))
	s.Host.Name = "other"
	if err := errors.Join(k.send(s), k.flush()); err != nil {
		t.Fatal(err)
	}
	h := New(Options{Log: k.log})
	var a, none extentAnswer
	get200(t, h, "/api/outsight/extent", &a)
	if !a.From.Equal(begin) || !a.To.Equal(end.Add(time.Second)) {
		t.Errorf("with another host %v to %v", a.From, a.To)
	}
	if get200(t, New(Options{Log: nothing{}}), "/api/outsight/extent", &none); none.From != nil || none.To != nil {
		t.Errorf("where nothing is kept: %+v", none)
	}
}

// The baseline is the graph of the hour before the window, whatever the window.
func TestBaselineIsThePastHour(t *testing.T) {
	k, _, end := fill(t, 300, nil)
	h := New(Options{Log: k.log, Now: func() time.Time { return end }})
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
