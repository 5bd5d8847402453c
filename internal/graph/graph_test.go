package graph

import (
	"encoding/json"
	"encoding/xml"
	"flag"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

var update = flag.Bool("update", false, "write the golden files")

var start = time.Unix(1_700_000_000, 0).UTC()

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs\ngot:\n%s\nwant:\n%s", name, got, want)
	}
}

// latency has n transactions of each duration.
func latency(n uint64, durations ...time.Duration) *model.Histogram {
	h := &model.Histogram{}
	for _, d := range durations {
		one := &model.Histogram{Count: n, SumNS: n * uint64(d)}
		switch {
		case d <= model.ZeroThreshold:
			one.ZeroCount = n
		case d >= model.OverflowThreshold:
			one.OverflowCount = n
		default:
			one.Offset, one.Buckets = model.BucketOf(d), []uint64{n}
		}
		h.Merge(one)
	}
	return h
}

func container(id, name string) *model.Container {
	return &model.Container{ID: id, Name: name, Image: name + ":1", Runtime: model.Docker}
}

func inside(c *model.Container) model.Peer { return model.Peer{Container: c} }
func outside(address string) model.Peer    { return model.Peer{Address: netip.MustParseAddr(address)} }

func edge(side model.Role, client, server model.Peer, service string, counters model.EdgeCounters) model.Edge {
	e := model.Edge{Side: side, Client: client, Server: server, Counters: counters}
	if service != "" {
		e.Service = netip.MustParseAddrPort(service)
	}
	return e
}

// shop is a snapshot of a gateway with two services, a database, a cycle, two clients outside
// and a container that talks to nobody; n scales every counter.
func shop(at time.Time, n uint64) *model.Snapshot {
	gateway, catalogue := container("a1", "gateway"), container("b2", "catalogue")
	worker, db, idle := container("c3", "worker"), container("d4", "postgres"), container("e5", "idle")
	counters := func(requests uint64, d ...time.Duration) model.EdgeCounters {
		return model.EdgeCounters{SentBytes: n * requests * 100, ReceivedBytes: n * requests * 2000, Opens: 10, Closes: 2,
			Latency: latency(n*requests/uint64(len(d)), d...)}
	}
	served := func(c model.EdgeCounters) model.EdgeCounters {
		c.SentBytes, c.ReceivedBytes = c.ReceivedBytes, c.SentBytes
		return c
	}
	pair := func(client, server model.Peer, service string, c, s model.EdgeCounters) []model.Edge {
		x, y := edge(model.RoleClient, client, server, service, c), edge(model.RoleServer, client, server, service, served(s))
		x.Paired, y.Paired = true, true
		x.Confidence, y.Confidence = model.Exact, model.Exact
		return []model.Edge{x, y}
	}
	s := &model.Snapshot{Time: at, Host: model.Host{Name: "vm"}}
	for i, c := range []*model.Container{gateway, catalogue, worker, db, idle} {
		s.Containers = append(s.Containers, model.ContainerSample{Container: c,
			CPU: &model.CPUCounters{UsageNS: n * uint64(i+1) * 1e8, RunQueue: latency(n, 10*time.Microsecond,
				3*time.Millisecond)},
			Memory: &model.MemorySample{UsageBytes: uint64(i+1) << 20},
			Disk:   &model.DiskCounters{ReadBytes: 7 * n},
		})
	}
	s.Containers[3].Disk = nil
	s.Edges = append(s.Edges,
		edge(model.RoleServer, outside("192.0.2.7"), inside(gateway), "192.0.2.1:80",
			served(counters(100, 8*time.Millisecond, 90*time.Millisecond))),
		edge(model.RoleServer, outside("192.0.2.8"), inside(gateway), "192.0.2.1:80",
			served(counters(20, 9*time.Millisecond))))
	s.Edges = append(s.Edges, pair(inside(gateway), inside(catalogue), "10.0.0.2:8080",
		counters(200, 3*time.Millisecond), counters(200, 2*time.Millisecond))...)
	s.Edges = append(s.Edges, pair(inside(catalogue), inside(db), "10.0.0.4:5432", counters(400, 700*time.Microsecond),
		counters(400, 500*time.Microsecond))...)
	s.Edges = append(s.Edges, pair(inside(worker), inside(db), "10.0.0.4:5432", counters(50, 80*time.Second),
		counters(50, time.Microsecond))...)
	s.Edges = append(s.Edges, pair(inside(db), inside(worker), "10.0.0.3:9000", counters(2, time.Millisecond),
		counters(2, time.Millisecond))...)
	s.Edges = append(s.Edges, edge(model.RoleClient, inside(worker), outside("203.0.113.9"), "203.0.113.9:443",
		counters(5, 40*time.Millisecond)))
	return s
}

func shopGraph() *Graph { return graphOf(shop(start, 1), shop(start.Add(2*time.Second), 3)) }

func cypherOf(t *testing.T, g *Graph) string {
	t.Helper()
	var b strings.Builder
	if err := WriteCypher(&b, g); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRenderers(t *testing.T) {
	g := shopGraph()
	golden(t, "shop.txt", Text(g, 100))
	golden(t, "shop-narrow.txt", Text(g, 60))
	golden(t, "shop.dot", DOT(g))
	golden(t, "shop.svg", SVG(g))
	golden(t, "shop.mmd", Mermaid(g))
	golden(t, "shop.cypher", cypherOf(t, g))
	graphML, err := GraphML(g)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "shop.graphml", graphML)
	b, err := JSON(g)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "shop.json", string(b))
	var back Graph
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if p := back.Edges[len(back.Edges)-1].ClientSide.P99; p == nil || !math.IsInf(float64(*p), 1) {
		t.Errorf("a p99 past the histogram's range came back as %v", p)
	}
}

func TestTwoSidesAreOneEdge(t *testing.T) {
	g := shopGraph()
	var found int
	for _, e := range g.Edges {
		if e.Client != "a1" || e.Server != "b2" {
			continue
		}
		found++
		if !e.Paired || e.ClientSide.Of(Transactions) != 400 || e.ServerSide.Of(Transactions) != 400 {
			t.Errorf("got %+v", e)
		}
		if e.ClientSide.Of(RequestBytes) != 40_000 || e.ServerSide.Of(RequestBytes) != 40_000 ||
			e.ServerSide.Of(ResponseBytes) != 800_000 {
			t.Errorf("bytes: client %v, server %v", e.ClientSide.Of(RequestBytes), e.ServerSide.Of(RequestBytes))
		}
		if got := *e.ClientSide.TransactionsPerSecond; got != 200 {
			t.Errorf("got %v req/s, want 200", got)
		}
		if e.ClientSide.Open != 8 || e.ClientSide.Of(ConnectionsOpened) != 0 {
			t.Errorf("connections: %v open, %v opened", e.ClientSide.Open, e.ClientSide.Of(ConnectionsOpened))
		}
		if e.NetworkSeconds == nil || math.Abs(*e.NetworkSeconds-1e-3) > 5e-5 {
			t.Errorf("network time %v, want 1 ms", e.NetworkSeconds)
		}
	}
	if found != 1 {
		t.Errorf("gateway to catalogue: %d edges, want 1", found)
	}
}

func TestUnpairedHasNoNetworkTime(t *testing.T) {
	s := shop(start, 1)
	for i := range s.Edges {
		s.Edges[i].Paired = false
	}
	for _, e := range graphOf(nil, s).Edges {
		if e.Paired || e.NetworkSeconds != nil {
			t.Errorf("%s: paired %v, network time %v", e.ID, e.Paired, e.NetworkSeconds)
		}
	}
}

func TestOutsideEnds(t *testing.T) {
	g := shopGraph()
	clients, server := g.Node(OutsideID), g.Node("203.0.113.9")
	if clients == nil || clients.AddressCount != 2 || clients.Usage != nil || clients.Called.Of(Transactions) != 240 {
		t.Errorf("clients outside: %+v", clients)
	}
	if server == nil || server.Kind != KindOutside || server.Served.Of(Transactions) != 10 {
		t.Errorf("server outside: %+v", server)
	}
}

// What found no room in the kernel's table is told, and makes no node out of what is not known.
func TestUnplacedConnections(t *testing.T) {
	full := func(s *model.Snapshot, sent, received uint64) *model.Snapshot {
		s.Edges = append(s.Edges, edge(model.RoleUnknown, model.Peer{}, model.Peer{}, "",
			model.EdgeCounters{SentBytes: sent, ReceivedBytes: received, Opens: 2}))
		return s
	}
	without := shopGraph()
	g := graphOf(full(shop(start, 1), 1000, 50), full(shop(start.Add(2*time.Second), 3), 1800, 70))
	if u := g.Unplaced; u == nil || u.Of(RequestBytes) != 800 || u.Of(ResponseBytes) != 20 || u.Open != 2 {
		t.Errorf("unplaced %+v", u)
	}
	if len(g.Nodes) != len(without.Nodes) || len(g.Edges) != len(without.Edges) || without.Unplaced != nil {
		t.Errorf("%d nodes and %d edges, want %d and %d", len(g.Nodes), len(g.Edges), len(without.Nodes), len(without.Edges))
	}
	if got, want := Text(g, 0), Text(without,
		0)+"\n820 B are in no edge: the kernel's table of edges was full.\n"; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestEdgesThatMoved: an edge is compared with itself, wherever it was in the snapshot before.
func TestEdgesThatMoved(t *testing.T) {
	want, err := json.Marshal(shopGraph())
	if err != nil {
		t.Fatal(err)
	}
	before, after := shop(start, 1), shop(start.Add(2*time.Second), 3)
	for range before.Edges {
		before.Edges = append(before.Edges[1:], before.Edges[0])
		if got, err := json.Marshal(graphOf(before, after)); err != nil || string(got) != string(want) {
			t.Fatalf("%v: got %s, want %s", err, got, want)
		}
	}
}

func TestUsage(t *testing.T) {
	g := shopGraph()
	n := g.Node("b2")
	if *n.Usage.CPUCores != 0.2 || *n.Usage.MemoryBytes != 2<<20 || *n.Usage.DiskReadBytes != 7 {
		t.Errorf("cpu %v memory %v disk %v", *n.Usage.CPUCores, *n.Usage.MemoryBytes, *n.Usage.DiskReadBytes)
	}
	if p := float64(*n.Usage.RunQueueP99); math.Abs(p/3e-3-1) > model.RelativeError {
		t.Errorf("run-queue p99 %v, want 3 ms", p)
	}
	if g.Node("d4").Usage.DiskReadBytes != nil {
		t.Error("absent disk numbers are shown as a number")
	}
	if g.Node("e5").Served != nil {
		t.Error("a container without edges serves")
	}
}

func TestFirstSnapshotHasNoRates(t *testing.T) {
	g := graphOf(nil, shop(start, 1))
	for _, e := range g.Edges {
		if e.Best().TransactionsPerSecond != nil || e.Best().Of(Transactions) == 0 {
			t.Errorf("%s: %+v", e.ID, e.Best())
		}
	}
	if FromFrames(&frame.Window{}, Options{}).Nodes == nil {
		t.Error("no snapshot gives no node list")
	}
}

func TestRestartedCounter(t *testing.T) {
	g := graphOf(shop(start, 5), shop(start.Add(time.Second), 2))
	if got := g.Node("a1").Called.Of(Transactions); got != 400 {
		t.Errorf("after a restart: %v transactions, want the new counter's 400", got)
	}
}

func TestIdleEdgesAreLeftOut(t *testing.T) {
	s, later := shop(start, 1), shop(start.Add(time.Second), 1)
	for i := range later.Edges {
		later.Edges[i].Counters.Closes = later.Edges[i].Counters.Opens
		s.Edges[i].Counters.Closes = later.Edges[i].Counters.Opens
	}
	if g := graphOf(s, later); len(g.Edges) != 0 || g.Node(OutsideID) != nil {
		t.Errorf("%d edges without traffic or connections, want none", len(g.Edges))
	}
}

func TestLimit(t *testing.T) {
	g := shopGraph()
	all := len(g.Edges)
	g.Limit(2)
	if len(g.Edges) != 2 || g.OmittedEdges != all-2 || g.Node("e5") == nil || g.Node("203.0.113.9") != nil {
		t.Errorf("%d edges, %d left out", len(g.Edges), g.OmittedEdges)
	}
	for _, e := range g.Edges {
		if e.Client != "b2" && e.Server != "b2" {
			t.Errorf("%s is not one of the busiest two", e.ID)
		}
	}
}

func TestHostileNames(t *testing.T) {
	evil := container("f6", "\x1b[31m\"];}\nx\\\u202e<script>")
	s := &model.Snapshot{Time: start, Host: model.Host{Name: "vm"},
		Containers: []model.ContainerSample{{Container: evil}},
		Edges: []model.Edge{edge(model.RoleClient, inside(evil), inside(container("g7", "b`](x)")), "10.0.0.1:80",
			model.EdgeCounters{SentBytes: 1, Latency: latency(1, time.Millisecond)})}}
	g := graphOf(nil, s)
	golden(t, "hostile.txt", Text(g, 100))
	golden(t, "hostile.dot", DOT(g))
	golden(t, "hostile.svg", SVG(g))
	golden(t, "hostile.mmd", Mermaid(g))
	golden(t, "hostile.cypher", cypherOf(t, g))
	if err := xml.Unmarshal([]byte(SVG(g)), &struct{}{}); err != nil {
		t.Errorf("%v: %s", err, SVG(g))
	}
	graphML, err := GraphML(g)
	if err != nil || xml.Unmarshal([]byte(graphML), &struct{}{}) != nil {
		t.Errorf("%v: %s", err, graphML)
	}
	for _, text := range []string{Text(g, 80), DOT(g), Mermaid(g), SVG(g)} {
		if strings.ContainsAny(text, "\x1b\u202e") {
			t.Errorf("control characters in %q", text)
		}
	}
}

func TestCycleAlone(t *testing.T) {
	a, b := container("a1", "ping"), container("b2", "pong")
	c := model.EdgeCounters{SentBytes: 10, Latency: latency(4, time.Millisecond)}
	s := &model.Snapshot{Time: start, Edges: []model.Edge{
		edge(model.RoleClient, inside(a), inside(b), "", c), edge(model.RoleClient, inside(b), inside(a), "", c),
		edge(model.RoleClient, inside(a), inside(a), "", c)}}
	golden(t, "cycle.txt", Text(graphOf(nil, s), 90))
}

func TestUnits(t *testing.T) {
	f := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	d := func(v float64) string { s := Seconds(v); return Duration(&s) }
	f(d(0), "< 1.02 µs")
	f(d(0.0009996), "1.00 ms")
	f(d(0.00312), "3.12 ms")
	f(d(0.0999), "99.9 ms")
	f(d(12), "12.0 s")
	f(d(math.Inf(1)), "> 68.7 s")
	f(Duration(nil), "–")
	n := func(v float64) *float64 { return &v }
	f(PerSecond(n(0)), "0/s")
	f(PerSecond(n(999.6)), "1.00k/s")
	f(PerSecond(n(0.0005)), "0.0005/s")
	f(BytesPerSecond(n(1_240_000)), "1.24 MB/s")
	f(BytesPerSecond(n(12)), "12.0 B/s")
	f(BytesPerSecond(nil), "–")
	f(Bytes(n(13107200)), "12.5 MiB")
	f(Bytes(n(1000)), "0.98 KiB")
}

func TestSecondsInJSON(t *testing.T) {
	for _, want := range []float64{0, 1, 0.25, 1e-6, 9.99e-7, 5e-9, 1.0 / 3, 123456.789, 1e20, 1e21, 3e300, -2.5} {
		b, err := json.Marshal(Seconds(want))
		var got Seconds
		if err == nil {
			err = json.Unmarshal(b, &got)
		}
		if err != nil || float64(got) != want {
			t.Errorf("%v is %s, which is %v: %v", want, b, got, err)
		}
	}
	if b, err := json.Marshal(Seconds(math.Inf(1))); err != nil || string(b) != `"+Inf"` {
		t.Errorf("infinity is %s: %v", b, err)
	}
	for _, none := range []float64{math.NaN(), math.Inf(-1)} {
		if b, err := json.Marshal(Seconds(none)); err == nil {
			t.Errorf("%v is %s", none, b)
		}
	}
}
