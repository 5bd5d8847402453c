package predict

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"outsight/internal/graph"
)

// calling is a history of a web with a limit by CPU time of 400/s, that calls a database over so many connections, which
// takes 30 ms of each request, at rates from 20/s to 60/s. change may alter a stretch.
func calling(open float64, change func(i int, a *graph.Analysis)) *History {
	r := rand.New(rand.NewPCG(3, 4))
	var h History
	for i := range 30 {
		rate := 20 + 40*r.Float64()
		latency, own := graph.Seconds(0.034), graph.Seconds(0.0005)
		a := &graph.Analysis{ArrivalRate: rate, Resources: []graph.Resource{{Node: "1", Name: "web", Host: "a",
			CPUCores: 0.0025*rate + 1e-4*r.NormFloat64(), Parallel: 1, ParallelBy: "quota", ArrivalRate: &rate, Latency: &latency,
			Waits: &own}}, Connections: []graph.Connections{{Client: "1", Server: "2", Name: "web to db", Requests: 60 * rate,
			Busy: 0.03*rate + 0.01*r.NormFloat64(), Open: open}}}
		if change != nil {
			change(i, a)
		}
		h.Add(a, map[string]float64{"a": 4}, nil)
	}
	return &h
}

// Connections of which there are always as many are told with the rate at which all of them are busy: for certain where
// requests must have found them so before, and as a doubt where they need not have. A number of connections that changes,
// or that takes several requests at a time, is no pool.
func TestPools(t *testing.T) {
	f := func(name string, h *History, s Scenario, limit float64, fixed, doubt bool) {
		t.Helper()
		p, err := h.Predict(s)
		if err != nil {
			t.Fatal(err)
		}
		if p.Limit == nil || math.Abs(p.Limit.Value/400-1) > 0.05 || p.LimitedBy != "1" {
			t.Errorf("%s: the limit by CPU time is %+v", name, p.Limit)
		}
		if limit == 0 != (len(p.Pools) == 0) {
			t.Fatalf("%s: pools %+v", name, p.Pools)
		}
		// With 34 ms for a request, several are there at a time from 30/s on.
		if doubt != (len(p.Doubts) == 1) || p.Limit.Low > p.GreatestRate || p.AtMost == "" {
			t.Errorf("%s: doubts %+v, limit %+v after at most %v/s", name, p.Doubts, p.Limit, p.GreatestRate)
		}
		if limit == 0 {
			return
		}
		if pool := p.Pools[0]; math.Abs(pool.Limit.Value/limit-1) > 0.05 || pool.Limit.Low > limit || *pool.Limit.High < limit ||
			pool.Fixed != fixed || math.Abs(pool.Busy.Value-0.03*p.Rate) > 0.05 {
			t.Errorf("%s: %+v, limit %+v, want %v and %v", name, pool, pool.Limit, limit, fixed)
		}
	}
	f("few", calling(4, nil), Scenario{Times: 2}, 133, true, true)
	f("more than are needed yet", calling(10, nil), Scenario{Times: 1}, 333, false, true)
	f("many", calling(50, nil), Scenario{Times: 1}, 1667, false, false)
	f("as many as are needed", calling(4, func(i int, a *graph.Analysis) { a.Connections[0].Open += float64(i % 3) }), Scenario{Times: 1}, 0,
		false, false)
	f("several at a time", calling(1, nil), Scenario{Times: 1}, 0, false, false)
	// Each of the replicas may have as many, or not.
	f("replicas", calling(4, nil), Scenario{Times: 1, Replicas: map[string]int{"web": 1}}, 133, false, true)
	f("replicas of more than are needed yet", calling(10, nil), Scenario{Times: 1, Replicas: map[string]int{"web": 1}}, 0, false, false)
}

// A duration has no upper bound at a rate that a pool may not serve, and has one up to the rate that there was, or without
// a pool.
func TestDurationsBehindAPool(t *testing.T) {
	entry := func(_ int, a *graph.Analysis) {
		of := func(seconds graph.Seconds) *graph.Seconds { return &seconds }
		a.Entries = []graph.Entry{{Node: "1", Name: "web", ArrivalRate: a.ArrivalRate, Mean: of(0.034), P50: of(0.033),
			P95: of(0.04), P99: of(0.05)}}
	}
	for _, c := range []struct {
		open, times float64
		bounded     bool
	}{{4, 2, false}, {4, 0.5, true}, {50, 2, true}} {
		p, err := calling(c.open, entry).Predict(Scenario{Times: c.times})
		if err != nil || len(p.Entries) != 1 || p.Entries[0].Then == nil {
			t.Fatal(p, err)
		}
		if p99 := p.Entries[0].Then.P99; (p99.High != nil) != c.bounded || p99.Low > p99.Value {
			t.Errorf("%v connections, %v times the rate (limit %+v): p99 %+v", c.open, c.times, p.Limit, p99)
		}
	}
}

// What waits for most of the time in which it answers is said to be able to be the limit before.
func TestWaits(t *testing.T) {
	doubts := func(waits, latency graph.Seconds) []Doubt {
		p, err := calling(50, func(_ int, a *graph.Analysis) { a.Resources[0].Waits, a.Resources[0].Latency = &waits, &latency }).
			Predict(Scenario{Times: 1})
		if err != nil {
			t.Fatal(err)
		}
		return p.Doubts
	}
	if d := doubts(0.02, 0.03); len(d) != 1 || d[0].Node != "1" || !strings.Contains(d[0].Text, "web answers in 30 ms, of which 20 ms") {
		t.Errorf("%+v", d)
	}
	if d := doubts(0.01, 0.03); len(d) != 0 {
		t.Errorf("a third of the time: %+v", d)
	}
	if d := doubts(0.0005, 0.0006); len(d) != 0 {
		t.Errorf("half a millisecond: %+v", d)
	}
}
