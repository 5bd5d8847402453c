package predict

import (
	"math/rand/v2"
	"testing"
)

// TestWhatP99IsLongerFor: what is used up first is what it is longer for, by as much as p99 is. It is longer for nothing where
// the rate is lower.
func TestWhatP99IsLongerFor(t *testing.T) {
	same := func(*rand.Rand) float64 { return 1 }
	f := func(want string, h *History, s Scenario) {
		t.Helper()
		p, err := h.Predict(s)
		if err != nil || len(p.Entries) != 1 || p.Entries[0].Then == nil {
			t.Fatalf("%s: %v, %+v", want, err, p)
		}
		e := &p.Entries[0]
		if len(e.Waits) == 0 || e.Waits[0].For != want {
			t.Fatalf("p99 goes from %v to %v for %+v, want %s", e.Before.P99.Value, e.Then.P99.Value, e.Waits, want)
		}
		if by := e.Then.P99.Value - e.Before.P99.Value; e.Waits[0].Longer < 0.5*by || e.Waits[0].Longer > 1.2*by {
			t.Errorf("%s: p99 is longer by %v, of which %+v", want, by, e.Waits)
		}
		if p, err = h.Predict(Scenario{Times: 0.9}); err != nil || p.Entries[0].Waits != nil {
			t.Errorf("%s: with a tenth less p99 is longer for %+v, %v", want, p.Entries[0].Waits, err)
		}
	}
	r := rand.New(rand.NewPCG(1, 31))
	f("CPU time of cart", watched(r, 75, 200), Scenario{Rate: 400})
	pool := &pooled{connections: 4, hold: 0.02, takes: same}
	f("the 4 connections of web to db", pool.past(r), Scenario{Rate: 0.8 * pool.limit()})
	f("the 4 requests at a time of web to db", pool.unseen(r), Scenario{Rate: 0.8 * pool.limit()})
	f("the quota of web", quotaPast(r), Scenario{Rate: 70})
	f("the quota of web", quotaPast(r), Scenario{Times: 1, Quota: map[string]float64{"web": 0.1}})
}

// TestShorterP99IsLongerForNothing: where cart, at which nearly all of the time is waited, has three replicas, web waits
// longer at a higher rate, and p99 is shorter.
func TestShorterP99IsLongerForNothing(t *testing.T) {
	h := watched(rand.New(rand.NewPCG(2, 31)), 200, 450)
	p, err := h.Predict(Scenario{Times: 1.2, Replicas: map[string]int{"cart": 3}})
	if err != nil || p.Entries[0].Then == nil {
		t.Fatalf("%v, %+v", err, p)
	}
	if e := &p.Entries[0]; e.Then.P99.Value >= e.Before.P99.Value || e.Waits != nil {
		t.Errorf("p99 goes from %v to %v for %+v", e.Before.P99.Value, e.Then.P99.Value, e.Waits)
	}
}
