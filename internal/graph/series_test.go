package graph

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
)

func points(values ...float64) []model.Point {
	var p []model.Point
	for i, v := range values {
		if !math.IsNaN(v) {
			p = append(p, model.Point{Time: start.Add(time.Duration(i) * 10 * time.Second), Value: v})
		}
	}
	return p
}

func histograms(h ...*model.Histogram) []model.Point {
	var p []model.Point
	for i, h := range h {
		if h != nil {
			p = append(p, model.Point{Time: start.Add(time.Duration(i) * 10 * time.Second), Histogram: floats(h)})
		}
	}
	return p
}

func result(points []model.Point, labels ...string) model.QueryResult {
	l := map[string]string{"host": "vm"}
	for i := 0; i < len(labels); i += 2 {
		l[labels[i]] = labels[i+1]
	}
	return model.QueryResult{Labels: l, Points: points}
}

func edgeLabels(side string) []string {
	return []string{"side", side, "client_id", "aaaaaaaaaaaaaa", "client", "web", "server_id", "bb", "server", "db",
		"service", "10.0.0.2:80"}
}

var none = math.NaN()

// listed has fields in any order.
func listed(series map[Field][]model.QueryResult) (all []FieldResult) {
	for field, results := range series {
		for _, r := range results {
			all = append(all, FieldResult{field, r})
		}
	}
	return all
}

func window(series map[Field][]model.QueryResult) *Graph {
	return FromSeries(Input{From: start, To: start.Add(20 * time.Second), Series: listed(series)})
}

// host is a series that was there all the time, so that others can appear while it is watched.
func host() model.QueryResult { return result(points(1, 2, 3), "id", "host", "name", "host") }

func TestSeriesIncreases(t *testing.T) {
	cpu := func(want float64, values ...float64) {
		t.Helper()
		g := window(map[Field][]model.QueryResult{CPUSeconds: {host(), result(points(values...), "id", "x", "name", "x")}})
		if got := *g.Node("x").Usage.CPUCores * 20; math.Abs(got-want) > 1e-9 {
			t.Errorf("%v: increased by %v, want %v", values, got, want)
		}
	}
	cpu(30, 100, 110, 130)
	cpu(15, 100, 110, 5)       // restarted at 0
	cpu(13, none, 10, 13)      // started in the window
	cpu(4, 100, 104, none)     // ended in the window
	cpu(0, 100, 100, 100)      // idle
	cpu(0.25, 1, 1.125, 1.250) // fractions
}

func TestSeriesBeforeTheAgentStarted(t *testing.T) {
	g := window(map[Field][]model.QueryResult{CPUSeconds: {result(points(none, 70, 75), "id", "x", "name", "x")}})
	if got := *g.Node("x").Usage.CPUCores; got != 0.5 || g.CoveredSeconds != 10 {
		t.Errorf("%v cores over %v s, want 0.5 over 10 s", got, g.CoveredSeconds)
	}
}

func TestLateFileCounterIsNotAnIncrease(t *testing.T) {
	x := []string{"id", "x", "name", "x"}
	g := window(map[Field][]model.QueryResult{
		CPUSeconds:    {result(points(1, 2, 3), x...)},
		DiskReadBytes: {result(points(none, 5e9, 5e9), x...)},
	})
	if got := *g.Node("x").Usage.DiskReadBytes; got != 0 {
		t.Errorf("disk reads of %v B/s for a file that appeared late, want 0", got)
	}
}

func TestRenamedContainerIsOne(t *testing.T) {
	g := window(map[Field][]model.QueryResult{CPUSeconds: {host(),
		result(points(10, 12, none), "id", "0123456789abcdef", "name", "0123456789ab"),
		result(points(none, 12, 16), "id", "0123456789abcdef", "name", "web", "image", "nginx")}})
	n := g.Node("0123456789abcdef")
	if len(g.Nodes) != 2 || n.Name != "web" || n.Image != "nginx" || *n.Usage.CPUCores != 0.3 {
		t.Errorf("%d nodes; %+v", len(g.Nodes), n)
	}
}

func TestSeriesEdges(t *testing.T) {
	ms := time.Millisecond
	g := window(map[Field][]model.QueryResult{
		CPUSeconds: {host()},
		RequestBytes: {result(points(100, 200, 300), edgeLabels("client")...),
			result(points(none, 100, 200), edgeLabels("server")...)},
		ConnectionsOpened: {result(points(5, 6, 7), edgeLabels("client")...)},
		ConnectionsClosed: {result(points(4, 4, 4), edgeLabels("client")...)},
		Latency: {
			result(histograms(latency(10, ms), nil, latency(30, ms, 8*ms)), edgeLabels("client")...),
			result(histograms(nil, nil, latency(50, ms)), edgeLabels("server")...),
		},
		Paired: {result(points(0, 1, 1), edgeLabels("client")...), result(points(none, 1, 1), edgeLabels("server")...)},
	})
	if len(g.Edges) != 1 {
		t.Fatalf("%d edges, want 1", len(g.Edges))
	}
	e := g.Edges[0]
	if e.ClientSide.Of(Transactions) != 50 || e.ServerSide.Of(Transactions) != 50 || !e.Paired {
		t.Errorf("client %v, server %v transactions, paired %v", e.ClientSide.Of(Transactions),
			e.ServerSide.Of(Transactions), e.Paired)
	}
	if e.ClientSide.Of(RequestBytes) != 200 || e.ServerSide.Of(RequestBytes) != 200 || e.ClientSide.Open != 3 {
		t.Errorf("client %+v", e.ClientSide)
	}
	if p := float64(*e.ClientSide.P99); math.Abs(p/8e-3-1) > model.RelativeError {
		t.Errorf("p99 %v, want 8 ms", p)
	}
	if g.Node("bb").Served.Of(Transactions) != 50 || g.Node("aaaaaaaaaaaaaa").Name != "web" {
		t.Errorf("server %+v", g.Node("bb"))
	}
}

func TestNodeOfAnEdgeThatEnded(t *testing.T) {
	g := window(map[Field][]model.QueryResult{CPUSeconds: {host(), result(points(1, 2, none), "id", "x", "name", "x")}})
	if !g.Node("x").Gone || g.Node("host/vm").Gone {
		t.Error("only the container that ended is gone")
	}
}

// TestSeriesInAnyOrder: it is all the same in which order series come and whether they share their labels, and they
// stay as they were.
func TestSeriesInAnyOrder(t *testing.T) {
	const half = time.Second / 2 // sums of it are exact, in whatever order
	var shared []FieldResult
	for i := range worthParallel / 4 {
		r := result(points(0, float64(i), 100), append(edgeLabels("client"), "server_id", fmt.Sprint("s", i))...)
		for _, field := range []Field{RequestBytes, Transactions, Latency, RTT} {
			if field == Latency || field == RTT {
				r.Points = histograms(latency(1, time.Second), latency(uint64(i+1), time.Second, half),
					latency(uint64(i+5), time.Second, half))
			}
			shared = append(shared, FieldResult{field, r})
			if i%3 == 0 { // its pod was told late: it goes on as another series
				first, second := r, result(r.Points[2:], append(edgeLabels("client"), "server_id", fmt.Sprint("s", i),
					"server_pod", "shop-0")...)
				first.Points = r.Points[:2]
				shared[len(shared)-1] = FieldResult{field, first}
				shared = append(shared, FieldResult{field, second})
			}
		}
	}
	if len(shared) < worthParallel {
		t.Fatal("one half is all")
	}
	graphOf := func(series []FieldResult, own bool) string {
		if own {
			series = slices.Clone(series)
			for i := range series {
				series[i].Points = slices.Clone(series[i].Points)
				for k, p := range series[i].Points {
					if h := p.Histogram; h != nil {
						mine := *h
						mine.Buckets = slices.Clone(h.Buckets)
						series[i].Points[k].Histogram = &mine
					}
				}
			}
		}
		text, err := json.Marshal(FromSeries(Input{From: start, To: start.Add(20 * time.Second), Series: series, Own: own}))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	own := slices.Clone(shared)
	for i := range own {
		own[i].Labels = maps.Clone(own[i].Labels)
	}
	want := graphOf(own, false)
	if !strings.Contains(want, `"p99":`) {
		t.Fatal(want)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 20 {
		if got := graphOf(shared, i%2 == 1); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		rnd.Shuffle(len(shared), func(i, j int) { shared[i], shared[j] = shared[j], shared[i] })
	}
}

// Of an edge, series that were zero all the time say no more than none.
func TestSparseSeries(t *testing.T) {
	all := map[Field][]model.QueryResult{CPUSeconds: {host()}}
	few := maps.Clone(all)
	empty := &model.Histogram{}
	left := 0
	for _, side := range []string{"client", "server", "unknown"} {
		for f := RequestBytes; f <= Confidence; f++ {
			p, busy := points(0, 0, 0), points(1, 2, 3)
			if f == Latency || f == FirstByte || f == RTT || f == ConnectionDuration {
				p, busy = histograms(empty, empty, empty), histograms(latency(1, time.Second), latency(2, time.Second),
					latency(3, time.Second))
			}
			for id, busyFields := range map[string][]Field{"idle": nil,
				"busy": {RequestBytes, Latency, ConnectionsOpened}, "open": {ConnectionsOpened, Paired}} {
				r := result(p, append(edgeLabels(side), "server_id", id)...)
				zero := !slices.Contains(busyFields, f)
				if !zero {
					r.Points = busy
				}
				all[f] = append(all[f], r)
				if zero && f.IsSparse() {
					left++
				} else {
					few[f] = append(few[f], r)
				}
			}
			// One that goes on as another series, which is zero.
			first := result(busy[:1], append(edgeLabels(side), "server_id", "renamed")...)
			second := result(p[1:], append(edgeLabels(side), "server_id", "renamed", "server_pod", "shop-0")...)
			all[f], few[f] = append(all[f], first, second), append(few[f], first)
			if !f.IsSparse() {
				few[f] = append(few[f], second)
			}
		}
	}
	text := func(series map[Field][]model.QueryResult) string {
		b, err := json.Marshal(window(series))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if want, got := text(all), text(few); got != want || left < 200 || !strings.Contains(want, `"server":"busy"`) {
		t.Errorf("%d left out: got %s, want %s", left, got, want)
	}
	for _, f := range []Field{CPUSeconds, Info, EndpointRequests, Transactions, Confidence} {
		if f.IsSparse() {
			t.Errorf("%d is sparse", f)
		}
	}
}

func TestRestartedHistogram(t *testing.T) {
	ms := time.Millisecond
	before, after := latency(10, ms, 2*ms), latency(30, 3*ms)
	p := histograms(before, after)
	if got := histogramIncrease(p, false, false).Count; got != 30 {
		t.Errorf("a histogram that restarted gained %v, want 30", got)
	}
	if got := histogramIncrease(p, true, false).Count; got != 50 {
		t.Errorf("from zero it gained %v, want 50", got)
	}
}

// The graph with at most so many edges is that of all, limited, and what is made of the memory of earlier graphs is no
// part of them.
func TestMostEdges(t *testing.T) {
	series := func(seed uint64) (all []FieldResult) {
		random := rand.New(rand.NewPCG(seed, 0))
		for i := range 3000 {
			// Some edges have two services, some are seen from both ends, some lead outside, and many carry as much as others.
			client, server := fmt.Sprintf("c%012d", random.IntN(50)), fmt.Sprintf("c%012d", random.IntN(50))
			if random.IntN(10) == 0 {
				server = fmt.Sprint("203.0.113.", random.IntN(200))
			}
			labels := map[string]string{"host": "vm", "side": []string{"client", "server"}[random.IntN(2)],
				"client_id": client, "server_id": server,
				"service": fmt.Sprint("10.0.0.2:", 80+random.IntN(2)), "transport": []string{"tcp", "udp"}[random.IntN(2)]}
			all = append(all, FieldResult{RequestBytes,
				model.QueryResult{Labels: labels, Points: points(0, float64(random.IntN(20)))}},
				FieldResult{Latency, model.QueryResult{Labels: labels, Points: histograms(latency(1, time.Millisecond),
					latency(uint64(2+i%3), time.Duration(1+i%7)*time.Millisecond))}})
		}
		return all
	}
	of := func(seed uint64, most int) *Graph {
		return FromSeries(Input{From: start, To: start.Add(10 * time.Second), Series: series(seed), MaxEdges: most})
	}
	text := func(g *Graph) string {
		b, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for seed := range uint64(5) {
		all := of(seed, 0)
		edges, whole := len(all.Edges), text(all)
		for _, most := range []int{1, 30, edges - 1, edges, edges + 1} {
			limited := of(seed, most)
			if len(limited.Edges) != min(most, edges) || limited.OmittedEdges != edges-len(limited.Edges) {
				t.Fatalf("%d of %d edges, %d left out, want %d", len(limited.Edges), edges, limited.OmittedEdges, most)
			}
			want := of(seed, 0)
			want.Limit(most)
			if text(limited) != text(want) {
				t.Errorf("seed %d: with at most %d edges it is not what is left of %d", seed, most, edges)
			}
			limited.Release()
			want.Release()
		}
		if text(all) != whole {
			t.Errorf("seed %d: a graph is another after others were made", seed)
		}
	}
}

func TestMostBytes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var edges []*Edge
	for i := range 500 {
		edges = append(edges, &Edge{Client: fmt.Sprint(random.IntN(9)), Server: fmt.Sprint(i),
			ClientSide: &Side{values: of(RequestBytes, float64(random.IntN(30)))}})
	}
	sorted := slices.SortedFunc(slices.Values(edges), byBytes)
	for _, order := range []func(){
		func() {},
		func() { slices.SortFunc(edges, byBytes) },
		func() { slices.Reverse(edges) },
	} {
		order()
		for _, n := range []int{0, 1, 2, 7, 249, 250, 251, 499, 500, 501} {
			if best := mostBytes(edges, n); !slices.Equal(best, sorted[:min(n, 500)]) {
				t.Errorf("the %d with the most bytes are others", n)
			}
		}
	}
}

// Two things may have one hash.
func TestTwins(t *testing.T) {
	f := &newFinders()[ofContainer>>kindShift]
	for _, id := range []string{"a", "b", "c"} {
		f.insert(&entity{identity: map[string]string{"host": "vm", "id": id, "name": "of " + id}, hash: 1})
	}
	for _, id := range []string{"a", "b", "c"} {
		if th := f.known(map[string]string{"host": "vm", "id": id}, 1); th == nil || th.identity["id"] != id {
			t.Errorf("%s is %v", id, th)
		}
	}
	if th := f.known(map[string]string{"host": "vm", "id": "d"}, 1); th != nil {
		t.Errorf("d is %v", th)
	}
	f.reset()
	if th := f.known(map[string]string{"host": "vm", "id": "a"}, 1); th != nil {
		t.Errorf("%v is known after all were forgotten", th)
	}
}
