package predict

import (
	"fmt"
	"math/rand/v2"
	"slices"
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
		latency, back, own := graph.Seconds(takes+waits+0.001), graph.Seconds(takes), graph.Seconds(waits)
		front := min(used, 0.001*served)
		if asked > limit {
			front = used
		}
		h.Add(&graph.Analysis{ArrivalRate: served, Entries: []graph.Entry{{Node: "1", Name: "front", ArrivalRate: served, Mean: &latency,
			P50: &latency, P95: &latency, P99: &latency}}, Resources: []graph.Resource{
			{Node: "1", Name: "front", Host: "a", CPUCores: front, Parallel: 1, ParallelBy: "threads", ArrivalRate: &served, Latency: &latency,
				Waits: &own},
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
			*p.Limit.High < 200 || p.UpperBound || len(p.Doubts) > 0 {
			t.Errorf("%s: %s at %+v (%v)", name, p.LimitName(), p.Limit, *p.Limit.High)
		}
		if above, err := h.Predict(Scenario{Rate: 300}); err != nil || !above.Entries[0].Saturated || above.Entries[0].Then != nil ||
			above.Entries[0].Waits != nil {
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

// asking is a front that gets 200/s served at most. For a request it waits own seconds for its disk, and calls one server after
// the other, of which each takes so long; above 200/s requests wait in it, or, where slow, in the first of the servers.
func asking(r *rand.Rand, own float64, slow bool, takes ...float64) *History {
	var h History
	for i := range 24 {
		served, waits, queue := 50+100*float64(i)/11, own, 0.0
		if i >= 12 {
			served, queue = 200*(1+0.01*r.NormFloat64()), 0.05*float64(i-8)
		}
		if !slow {
			waits += queue
		}
		latency, front := waits+0.001, graph.Seconds(waits)
		a := &graph.Analysis{ArrivalRate: served}
		for j, seconds := range takes {
			if slow && j == 0 {
				seconds += queue
			}
			latency += seconds
			back, node, name := graph.Seconds(seconds), fmt.Sprint(j+2), fmt.Sprintf("back-%d", j)
			a.Resources = append(a.Resources, graph.Resource{Node: node, Name: name, Host: "a", CPUCores: 0.0001 * served, Parallel: 2,
				ParallelBy: "cores", ArrivalRate: &served, Latency: &back})
			a.Connections = append(a.Connections, graph.Connections{Client: "1", Server: node, Name: "front to " + name, Requests: served * 5,
				Busy: served * seconds, Open: float64(r.IntN(5)), Rate: served, Spread: 0.1})
		}
		whole := graph.Seconds(latency)
		a.Resources = append(a.Resources, graph.Resource{Node: "1", Name: "front", Host: "a", CPUCores: 0.001 * served, Parallel: 1,
			ParallelBy: "threads", ArrivalRate: &served, Latency: &whole, Waits: &front})
		h.Add(a, map[string]float64{"a": 2}, nil)
	}
	return &h
}

// What a client waits for in itself or at another server is no ceiling of a fast one that it asks as well, and what it waits
// for while nothing is full stays a doubt.
func TestCeilingOfSeveral(t *testing.T) {
	f := func(name string, h *History, want string, doubt bool) {
		t.Helper()
		p, err := h.Predict(Scenario{Times: 1})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if pool := p.LimitingPool(); pool != nil {
			got = pool.Server
		}
		if got != want {
			t.Errorf("%s: the limit is %+v by %s, want that of calls to %q", name, p.Limit, p.LimitName(), want)
		}
		if slices.ContainsFunc(p.Doubts, func(d Doubt) bool { return d.Node == "1" }) != doubt {
			t.Errorf("%s: doubts %+v, want one of the front: %v", name, p.Doubts, doubt)
		}
	}
	r := rand.New(rand.NewPCG(1, 52))
	f("four at a time to a slow one, beside a fast one", asking(r, 0, false, 0.02, 0.0001), "2", false)
	f("a full disk, beside a fast one", asking(r, 0.004, false, 0.0001), "", true)
	f("a full disk, beside one that takes half of a request", asking(r, 0.004, false, 0.0025), "", true)
	f("a slow one that is full, beside a fast one", asking(r, 0, true, 0.005, 0.0001), "", false)
	f("a slow one that is full, beside one that takes one", asking(r, 0, true, 0.005, 0.005), "", false)
	f("as many to one as to another", asking(r, 0, false, 0.01, 0.01), "", true)
	f("a disk that takes most of the time", asking(r, 0.0065, false, 0.005), "2", true)
}
