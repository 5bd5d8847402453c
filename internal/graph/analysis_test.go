package graph

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"outsight/internal/model"
)

func ptr[T any](v T) *T { return &v }

// answering is a side with so many transactions per second of a mean time that is every percentile too.
func answering(rate, mean float64) *Side {
	s := Seconds(mean)
	return &Side{values: of(Transactions, 10*rate), TransactionsPerSecond: &rate, Mean: &s, P50: &s, P75: &s, P90: &s,
		P99: &s}
}

func call(client, server string, rate, mean float64) *Edge {
	side := answering(rate, mean)
	return &Edge{ID: client + ">" + server, Client: client, Server: server, ClientSide: side, ServerSide: side,
		Paired: true}
}

func using(id string, cpu, busy float64, served *Side) *Node {
	return &Node{ID: id, Name: id, Kind: KindContainer, Host: "vm", Served: served,
		Usage: &Usage{CPUCores: &cpu, BusyThreads: &busy}}
}

// office is a chain load -> web -> app -> db, app -> cache, and a worker that polls db.
func office() *Graph {
	g := &Graph{Nodes: []*Node{
		using("load", 0.3, 1, nil),
		using("web", 0.2, 4, answering(100, 0.020)),
		using("app", 0.5, 1, answering(100, 0.015)),
		using("db", 0.4, 3, answering(250, 0.004)),
		using("cache", 0.1, 1, answering(300, 0.001)),
		using("worker", 0.2, 1, nil),
		{ID: "host/vm", Name: "host", Kind: KindHost, Host: "vm", Usage: &Usage{CPUCores: ptr(0.5)}},
	}, Edges: []*Edge{
		call("load", "web", 100, 0.021), call("web", "app", 100, 0.016), call("app", "db", 200, 0.005),
		call("app", "cache", 300, 0.001), call("worker", "db", 50, 0.002),
	}}
	return g
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b), 1) }

func TestAnalyse(t *testing.T) {
	a := office().Analyse(map[string]float64{"vm": 4})
	if len(a.Entries) != 1 || a.Entries[0].Node != "web" || a.ArrivalRate != 100 || !slices.Equal(a.Entries[0].Clients,
		[]string{"load"}) {
		t.Fatalf("entries %+v, rate %v: what a worker polls is none", a.Entries, a.ArrivalRate)
	}
	want := map[string][3]float64{ // parallel, utilisation, what it could serve
		"app": {1, 0.5, 200}, "cache": {1, 0.1, 3000}, "db": {3, 0.4 / 3, 250 / (0.4 / 3)}, "web": {4, 0.05, 2000},
		"cpus/vm": {4 - 0.5 - 0.2, 1.5 / 3.3, 0},
	}
	for _, r := range a.Resources {
		w, ok := want[r.Node]
		if !ok || !near(r.Parallel, w[0]) || !near(r.Utilisation, w[1]) || !near(*r.Demand, w[1]/100) ||
			(r.MaxArrivalRate != nil) != (w[2] > 0) || r.MaxArrivalRate != nil && !near(*r.MaxArrivalRate, w[2]) {
			t.Errorf("%+v, want %v", r, w)
		}
		delete(want, r.Node)
	}
	if len(want) > 0 {
		t.Errorf("no resources %v", want)
	}
	if a.Bottleneck != "app" || !near(*a.SaturationRate, 200) || !near(*a.Extrapolation, 2) {
		t.Errorf("%v at %v, %v times", a.Bottleneck, *a.SaturationRate, *a.Extrapolation)
	}
}

// What of the time in which a node answers is neither its own, nor waits for a CPU, nor for those whom it calls; and how
// many requests are under way over connections to others.
func TestWaitsOfNodes(t *testing.T) {
	g := office()
	g.Edges[2].ClientSide.Open, g.Edges[2].ServerSide.Open = 5, 5
	g.Nodes[3].Usage.runQueue = 0.1
	a := g.AnalyseWithConnections(map[string]float64{"vm": 4})
	// app: 15 ms less 5 of its own, 10 of two calls of db and 3 of three of cache; they are at the same time, so none is left.
	want := map[string]float64{"web": 0.020 - 0.002 - 0.016, "app": 0, "db": 0.004 - 0.0016 - 0.0004, "cache": 0.001 - 0.1/300}
	for _, r := range a.Resources {
		if w, ok := want[r.Node]; ok != (r.Waits != nil) || ok && !near(float64(*r.Waits), w) {
			t.Errorf("%s waits %v, want %v", r.Node, r.Waits, w)
		}
	}
	found := map[string]Connections{}
	for _, c := range a.Connections {
		found[c.Name] = c
	}
	if c := found["app to db"]; len(found) != 3 || c.Client != "app" || c.Server != "db" || !near(c.Busy, 1) || c.Open != 5 ||
		!near(c.Requests, 2000) {
		t.Errorf("connections %+v: those of who is not reached are none", found)
	}
}

// Of each entry it is told which hosts its requests reach: neither those of its clients, nor those of another entry.
func TestHostsOfEntries(t *testing.T) {
	on := func(host string, n *Node) *Node {
		n.Host = host
		return n
	}
	g := &Graph{Nodes: []*Node{on("a", using("load", 0, 1, nil)), on("b", using("web", 1, 1, nil)), on("c", using("db", 1, 1, nil)),
		on("d", using("other", 1, 1, nil))},
		Edges: []*Edge{call("load", "web", 2, 1), call("web", "db", 2, 1), call("load", "other", 1, 1)}}
	entries := g.AnalyseWithConnections(map[string]float64{"a": 2, "b": 2, "c": 2, "d": 2}).Entries
	if len(entries) != 2 || !maps.Equal(entries[0].Hosts, map[string]bool{"b": true, "c": true}) ||
		!maps.Equal(entries[1].Hosts, map[string]bool{"d": true}) {
		t.Errorf("got %+v", entries)
	}
}

// Of more entries than are walked at a time each has its own hosts, also where calls go in a circle.
func TestHostsOfManyEntries(t *testing.T) {
	const entries = 150
	at := func(id string, host int) *Node {
		n := using(id, 0, 1, nil)
		n.Host = strconv.Itoa(host)
		return n
	}
	g := &Graph{Nodes: []*Node{at("load", entries+2), at("p", entries), at("q", entries+1)},
		Edges: []*Edge{call("p", "q", 1, 1), call("q", "p", 1, 1)}}
	for i := range entries {
		web, db := "web"+strconv.Itoa(i), "db"+strconv.Itoa(i)
		g.Nodes = append(g.Nodes, at(web, i), at(db, i+1))
		g.Edges = append(g.Edges, call("load", web, float64(entries-i), 1), call(web, db, 1, 1))
		if i%2 == 0 {
			g.Edges = append(g.Edges, call(db, "q", 1, 1))
		}
	}
	found := g.AnalyseWithConnections(nil).Entries
	if len(found) != entries {
		t.Fatalf("%d entries, want %d", len(found), entries)
	}
	for i, e := range found {
		want := map[string]bool{strconv.Itoa(i): true, strconv.Itoa(i + 1): true}
		if i%2 == 0 {
			want[strconv.Itoa(entries)], want[strconv.Itoa(entries+1)] = true, true
		}
		if e.Node != "web"+strconv.Itoa(i) || !maps.Equal(e.Hosts, want) {
			t.Errorf("%s reaches %v, want %v", e.Node, e.Hosts, want)
		}
	}
}

// Entries that reach each other are both entries; what either reaches besides is none.
func TestEntriesInACycle(t *testing.T) {
	g := &Graph{Nodes: []*Node{using("user", 0, 1, nil), using("a", 1, 1, nil), using("b", 1, 1, nil),
		using("c", 1, 1, nil)},
		Edges: []*Edge{call("user", "a", 1, 1), call("user", "b", 2, 1), call("user", "c", 3, 1), call("a", "b", 1, 1),
			call("b", "a", 1, 1), call("b", "c", 1, 1)}}
	entries := g.Entries()
	if len(entries) != 2 || entries[0].Node != "b" || entries[1].Node != "a" {
		t.Errorf("got %+v", entries)
	}
}

// A load generator whose processes talk to each other is no entry: its requests do not come from outside.
func TestEntryIsNotItsOwnClient(t *testing.T) {
	g := &Graph{Nodes: []*Node{using("load", 0, 1, nil), using("web", 1, 1, nil)},
		Edges: []*Edge{call("load", "load", 1, 1), call("load", "web", 100, 1)}}
	entries := g.Entries()
	if len(entries) != 1 || entries[0].Node != "web" || entries[0].ArrivalRate != 100 {
		t.Errorf("got %+v, want web with 100/s", entries)
	}
}

func TestQuotaLimits(t *testing.T) {
	g := office()
	g.Nodes[3].Usage.CPUQuotaCores = ptr(0.5)
	a := g.Analyse(map[string]float64{"vm": 4})
	if a.Bottleneck != "db" || !near(*a.SaturationRate, 125) || a.Resources[0].ParallelBy != "quota" || a.Resources[0].Cores != 3 {
		t.Errorf("%v at %v by %v", a.Bottleneck, *a.SaturationRate, a.Resources[0].ParallelBy)
	}
}

func TestNothingToAnalyse(t *testing.T) {
	idle := &Graph{Nodes: []*Node{using("a", 0, 1, nil)}}
	if a := idle.Analyse(nil); a.SaturationRate != nil || len(a.Entries) != 0 || idle.CriticalPath(P99, idle.Entries(),
		nil) != nil || idle.CriticalPath(Mean, idle.Entries(), nil) != nil {
		t.Errorf("got %+v", a)
	}
}

func nodesOf(p *Path) (nodes []string) {
	for _, h := range p.Hops {
		nodes = append(nodes, h.Node)
	}
	return nodes
}

func TestCriticalPathAndItsTimes(t *testing.T) {
	g := office()
	p := g.CriticalPath(Mean, g.Entries(), nil)
	for _, h := range p.Hops {
		if !near(h.Own+h.Next+h.Others, float64(*h.Served)) {
			t.Errorf("%s: %v + %v + %v is not %v", h.Node, h.Own, h.Next, h.Others, *h.Served)
		}
	}
	if !slices.Equal(nodesOf(p), []string{"web", "app", "db"}) || !near(float64(*p.Whole), 0.020) {
		t.Fatalf("%v with %v", nodesOf(p), *p.Whole)
	}
	if h := p.Hops[1]; !near(h.Next, 0.010) || !near(h.Others, 0.003) || !near(h.Own, 0.002) {
		t.Errorf("app: %+v", h)
	}
	if h := p.Hops[2]; !near(h.OfRequest.Calls, 2) || !near(h.OfRequest.Seconds(), 0.016*10/15) {
		t.Errorf("of a request, db has %+v: of the 16 ms that web waits for app, 10 of 15", h.OfRequest)
	}
	g.Edges[2] = call("app", "db", 400, 0.005) // 20 ms of waiting in an answer of 15
	p = g.CriticalPath(Mean, g.Entries(), nil)
	if h := p.Hops[1]; !h.Concurrent || h.Own != 0 {
		t.Errorf("app, which calls at a time: %+v", h)
	}
	if !near(partsOf(p), 0.020) {
		t.Errorf("the parts of one that calls at a time are %v in sum, want 0.020", partsOf(p))
	}
	// By a percentile, all that is told is of the percentile.
	p = office().CriticalPath(P90, office().Entries(), nil)
	if h := p.Hops[1]; !slices.Equal(nodesOf(p), []string{"web", "app", "db"}) || h.Own != 0 || h.Next != 0 ||
		h.OfRequest != nil || !near(float64(*h.Weight), 0.016) {
		t.Errorf("by p90 %v: %+v", nodesOf(p), h)
	}
}

// partsOf is what the hops are of a request, in sum.
func partsOf(p *Path) (sum float64) {
	for _, h := range p.Hops {
		sum += h.OfRequest.Seconds()
	}
	return sum
}

// Whatever the graph, the parts of the mean add up to it, and none is negative.
func TestPartsOfThePathAddUp(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		n := 2 + random.IntN(8)
		g := &Graph{Nodes: []*Node{{ID: OutsideID, Name: "outside", Kind: KindOutside}}}
		for i := range n {
			g.Nodes = append(g.Nodes, using(fmt.Sprint(i), 0, 1, answering(1+99*random.Float64(), 0.1*random.Float64())))
		}
		g.Edges = append(g.Edges, call(OutsideID, "0", 10, 0.1))
		for range 2 * n {
			x, y := fmt.Sprint(random.IntN(n)), fmt.Sprint(random.IntN(n))
			e := call(x, y, 1+99*random.Float64(), 0.1*random.Float64())
			if e.ServerSide = answering(*e.ClientSide.TransactionsPerSecond, 0.1*random.Float64()); random.IntN(4) == 0 {
				e.ServerSide = nil
			}
			g.Edges = append(g.Edges, e)
		}
		p := g.CriticalPath(Mean, g.Entries(), nil)
		if !near(partsOf(p), float64(*p.Whole)) {
			t.Fatalf("the parts of %v are %v in sum, want %v", nodesOf(p), partsOf(p), *p.Whole)
		}
		for _, h := range p.Hops {
			if o := h.OfRequest; o.Network < 0 || o.Own < 0 || o.Others < 0 {
				t.Fatalf("%s: %+v", h.Node, o)
			}
		}
	}
}

// timed is a side with n transactions around a mean, the tenth of them ten times as long.
func timed(n, mean float64) *Side {
	h := model.FloatHistogram{Count: n, Sum: n * mean, Offset: model.BucketOf(time.Duration(0.5 * mean * 1e9)),
		Buckets: make([]float64, 200)}
	h.Buckets[0], h.Buckets[model.BucketOf(time.Duration(5*mean*1e9))-h.Offset] = 0.9*n, 0.1*n
	m, p99 := Seconds(mean), Seconds(h.Quantile(0.99))
	return &Side{values: of(Transactions, n), Mean: &m, P99: &p99, latency: h}
}

// Two branches that are as slow as each other but for chance: the former one is kept, until another is clearly ahead.
func TestPathIsKeptUnlessAnotherIsClearlyAhead(t *testing.T) {
	of := func(left, right float64) *Graph {
		g := office()
		g.Nodes = append(g.Nodes, using("left", 0, 1, nil), using("right", 0, 1, nil))
		g.ErrorBound = 0.011
		for _, e := range []*Edge{{ID: "web>left", Server: "left", ServerSide: timed(1000, left)},
			{ID: "web>right", Server: "right", ServerSide: timed(1000, right)}} {
			e.Client, e.ClientSide = "web", e.ServerSide
			g.Edges = append(g.Edges, e)
		}
		return g
	}
	for _, by := range []Statistic{Mean, P99} {
		f := func(left, right float64, former []string, want string, kept bool) {
			t.Helper()
			g := of(left, right)
			p := g.CriticalPath(by, g.Entries(), former)
			if last := p.Hops[len(p.Hops)-1].Node; last != want || p.Former != kept {
				t.Errorf("%s: by %s, of %v and %v after %v: ends at %s (kept %v), want %s (%v)", "path", by, left,
					right, former, last, p.Former, want, kept)
			}
		}
		f(0.100, 0.101, nil, "right", false)
		f(0.100, 0.101, []string{"web", "right"}, "right", false)
		f(0.100, 0.101, []string{"we", "le"}, "left", true) // IDs may be cut
		f(0.100, 0.200, []string{"web", "left"}, "right", false)
		f(0.100, 0.101, []string{"web", "gone"}, "right", false)
		f(0.100, 0.101, []string{"", ""}, "right", false)
		f(0.101, 0.100, []string{"other", "right"}, "left", false)
	}
}

// The host's resolver is slow, and no part of the application.
func TestPathStaysInTheApplication(t *testing.T) {
	g := office()
	g.Edges = append(g.Edges, call("app", "host/vm", 1, 10))
	if p := g.CriticalPath(P90, g.Entries(), nil); p.Hops[len(p.Hops)-1].Node != "db" {
		t.Errorf("it ends at %s", p.Hops[len(p.Hops)-1].Node)
	}
}

// The widest path to each node is as wide as the widest of all paths to it.
func TestWidestPathsOfRandomGraphs(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n := 3 + random.IntN(5)
		g, out := &Graph{}, map[string][]*Edge{}
		for i := range n {
			g.Nodes = append(g.Nodes, using(fmt.Sprint(i), 0, 1, nil))
		}
		for range 2 * n {
			x, y := fmt.Sprint(random.IntN(n)), fmt.Sprint(random.IntN(n))
			if x != y {
				e := call(x, y, 1, float64(1+random.IntN(9)))
				g.Edges, out[x] = append(g.Edges, e), append(out[x], e)
			}
		}
		want := map[string]float64{}
		var walk func(at string, width float64, seen map[string]bool)
		walk = func(at string, width float64, seen map[string]bool) {
			want[at] = max(want[at], width)
			seen[at] = true
			for _, e := range out[at] {
				if !seen[e.Server] {
					walk(e.Server, min(width, float64(*e.ServerSide.P50)), seen)
				}
			}
			delete(seen, at)
		}
		walk("0", math.Inf(1), map[string]bool{})
		r := g.links(P50)
		came, score := r.widest(0)
		for i, sum := range score {
			width, reached := want[fmt.Sprint(i)]
			if reached != (sum >= 0) {
				t.Fatalf("%d is reached: %v, want %v", i, sum >= 0, reached)
			}
			got, way := math.Inf(1), 0.0
			for at := i; came[at] != nil; at = came[at].from {
				got, way = min(got, came[at].weight), way+came[at].weight
			}
			if reached && (got != width || way != sum) {
				t.Fatalf("to %d: width %v, want %v; score %v, want %v", i, got, width, way, sum)
			}
		}
	}
}

// large is a graph of layers in which every node calls ten of the next layer.
func large(nodes int) *Graph {
	random := rand.New(rand.NewPCG(3, 4))
	const layers = 10
	per := nodes / layers
	g := &Graph{Nodes: []*Node{{ID: OutsideID, Name: "outside", Kind: KindOutside}}}
	for i := range nodes {
		g.Nodes = append(g.Nodes, using(fmt.Sprint(i), random.Float64(), 2, answering(10, 0.01)))
		if i < per {
			if i%100 == 0 {
				g.Edges = append(g.Edges, call(OutsideID, fmt.Sprint(i), 10, 0.01))
			}
			continue
		}
		for range 10 {
			g.Edges = append(g.Edges, call(fmt.Sprint((i/per-1)*per+random.IntN(per)), fmt.Sprint(i), 10, random.Float64()))
		}
	}
	return g
}

func BenchmarkAnalyseLarge(b *testing.B) {
	g := large(10_000)
	for b.Loop() {
		a := g.Analyse(map[string]float64{"vm": 4})
		if a.SaturationRate == nil {
			b.Fatal("nothing was found")
		}
		if g.CriticalPath(P99, a.Entries, nil) == nil {
			b.Fatal("no path")
		}
	}
}
