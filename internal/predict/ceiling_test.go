package predict

import (
	"math/rand/v2"
	"testing"

	"outsight/internal/graph"
)

// gated is a front that lets some requests through to another server at a time, each over a connection of its own, so that
// nothing tells how many: at rates from least to most, above 200/s of which requests wait in the front. slower is how many
// times as long the server takes there, used how much of its CPU time the front takes.
func gated(r *rand.Rand, least, most, slower, used float64) *History {
	const limit, atOnce = 200.0, 4.0
	var h History
	for i := range 24 {
		asked := least + (most-least)*float64(i)/23
		served, waits, takes := asked, 0.002*asked/limit, 0.02
		if asked > limit {
			served, waits, takes = limit*(1+0.01*r.NormFloat64()), 0.2*asked/limit, 0.02*slower
		}
		busy := served * takes
		latency, back := graph.Seconds(takes+waits+0.001), graph.Seconds(takes)
		front := min(used, 0.001*served)
		if asked > limit {
			front = used
		}
		h.Add(&graph.Analysis{ArrivalRate: served, Entries: []graph.Entry{{Node: "1", Name: "front", ArrivalRate: served, Mean: &latency,
			P50: &latency, P95: &latency, P99: &latency}}, Resources: []graph.Resource{
			{Node: "1", Name: "front", Host: "a", CPUCores: front, Parallel: 1, ParallelBy: "threads", ArrivalRate: &served, Latency: &latency},
			{Node: "2", Name: "back", Host: "a", CPUCores: 0.0005 * served, Parallel: 2, ParallelBy: "cores", ArrivalRate: &served, Latency: &back},
		}, Connections: []graph.Connections{{Client: "1", Server: "2", Name: "front to back", Requests: served * 5, Busy: busy,
			Open: float64(r.IntN(5)), Rate: served, Spread: 0.1}}}, map[string]float64{"a": 2}, nil)
	}
	return &h
}

// Where more waited than was let through, that is the limit; below, and where something else explains it, nothing is told.
func TestCeiling(t *testing.T) {
	f := func(name string, h *History, want bool) {
		t.Helper()
		p, err := h.Predict(Scenario{Times: 1})
		if err != nil {
			t.Fatal(err)
		}
		pool := p.LimitingPool()
		if (pool != nil) != want {
			t.Errorf("%s: the limit is %+v by %s, want a ceiling: %v", name, p.Limit, p.LimitName(), want)
		}
		if pool == nil || !want {
			return
		}
		if p.LimitName() != "the 4 requests at a time of front to back" || p.Limit.Value < 195 || p.Limit.Value > 205 || p.Limit.Low > 200 ||
			*p.Limit.High < 200 || p.UpperBound {
			t.Errorf("%s: %s at %+v (%v)", name, p.LimitName(), p.Limit, *p.Limit.High)
		}
		if above, err := h.Predict(Scenario{Rate: 300}); err != nil || !above.Entries[0].Saturated || above.Entries[0].Then != nil {
			t.Errorf("%s: above the limit %+v, %v", name, above.Entries[0], err)
		}
		if twice, err := h.Predict(Scenario{Times: 1, Replicas: map[string]int{"front": 2}}); err != nil || twice.LimitingPool() != nil ||
			len(twice.Doubts) == 0 || !twice.UpperBound {
			t.Errorf("%s: of two replicas it is not known how many each lets through: %+v, %v", name, twice.Limit, err)
		}
	}
	r := rand.New(rand.NewPCG(1, 51))
	f("crowded", gated(r, 50, 300, 1, 0.3), true)
	f("never crowded", gated(r, 50, 190, 1, 0.3), false)
	f("the other server is slower", gated(r, 50, 300, 3, 0.3), false)
	f("the front has no CPU time left", gated(r, 50, 300, 1, 0.95), false)
}
