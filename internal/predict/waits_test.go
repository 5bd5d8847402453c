package predict

import (
	"math/rand/v2"
	"testing"

	"outsight/internal/graph"
)

// TestWhatP99GrowsFor: what is used up first is what it grows for, and by as much as p99 does. It does not grow at the mean rate,
// or below.
func TestWhatP99GrowsFor(t *testing.T) {
	same := func(*rand.Rand) float64 { return 1 }
	f := func(want string, h *History, rate float64) {
		t.Helper()
		p, err := h.Predict(Scenario{Rate: rate})
		if err != nil || len(p.Entries) != 1 || p.Entries[0].Then == nil {
			t.Fatalf("%s: %v, %+v", want, err, p)
		}
		e := &p.Entries[0]
		if len(e.Waits) == 0 || e.Waits[0].For != want {
			t.Fatalf("p99 grows from %v to %v for %+v, want %s", e.Before.P99.Value, e.Then.P99.Value, e.Waits, want)
		}
		grown := 0.0
		for i := range e.Waits {
			grown += e.Waits[i].grows()
		}
		if by := e.Then.P99.Value - e.Before.P99.Value; grown < 0.8*by || grown > 1.2*by {
			t.Errorf("%s: p99 grows by %v, of which %+v", want, by, e.Waits)
		}
		if p, err = h.Predict(Scenario{Times: 0.9}); err != nil || p.Entries[0].Waits != nil {
			t.Errorf("%s: with a tenth less p99 grows for %+v, %v", want, p.Entries[0].Waits, err)
		}
	}
	r := rand.New(rand.NewPCG(1, 31))
	f("CPU time of cart", watched(r, 75, 200), 400)
	pool := &pooled{connections: 4, hold: 0.02, takes: same}
	f("the 4 connections of web to db", pool.past(r), 0.8*pool.limit())
	f("the 4 requests at a time of web to db", pool.unseen(r), 0.8*pool.limit())
	f("the quota of cart", withQuota(r), 500)
}

// withQuota is a history of a container with a quota, whose threads could use two cores.
func withQuota(r *rand.Rand) *History {
	var h History
	for range 30 {
		rate := 150 + 100*r.Float64()
		h.Add(&graph.Analysis{ArrivalRate: rate, Entries: []graph.Entry{queue(r, rate, int(60*rate))}, Resources: []graph.Resource{
			{Node: "2", Name: "cart", Host: "a", CPUCores: 0.001 * rate * (1 + 0.01*r.NormFloat64()), Parallel: 0.6, ParallelBy: "quota"},
		}}, map[string]float64{"a": 8}, nil)
	}
	return &h
}
