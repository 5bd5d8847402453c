package neo4j

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/model"
)

// shop is two hosts with pods of three containers, whose processes call each other: web calls cart and both call db.
// The second host's web calls the db of the first, at an address.
func shop() *graph.Graph {
	start := time.Unix(1_800_000_000, 0)
	w := &frame.Window{From: start, To: start.Add(10 * time.Second)}
	for h := range 2 {
		host := fmt.Sprint("host-", h)
		pod := map[string]*model.Container{}
		for i, name := range []string{"web", "cart", "db"} {
			pod[name] = &model.Container{ID: fmt.Sprintf("%s-%d", name, h), Name: fmt.Sprintf("%s-%d", name, h),
				Runtime: model.Docker, PodName: fmt.Sprint("shop-", h), PodNamespace: "shop",
				Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(h), byte(i + 1)})},
				Listeners: []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(h), byte(i + 1)}), 80)}}
		}
		call := func(client, server string, bytes uint64) []model.Edge {
			c := model.EdgeCounters{SentBytes: bytes, ReceivedBytes: 2 * bytes, SentPackets: 3, Requests: 5, Replies: 5,
				Latency: &model.Histogram{Count: 5, SumNS: 5e6, Offset: model.BucketOf(time.Millisecond), Buckets: []uint64{5}}}
			e := model.Edge{Client: model.Peer{Container: pod[client], Process: client},
				Server:  model.Peer{Container: pod[server], Process: server},
				Service: pod[server].Listeners[0], Counters: c}
			e.Side = model.RoleClient
			both := []model.Edge{e, e}
			both[1].Side = model.RoleServer
			return both
		}
		var edges []model.Edge
		edges = append(edges, call("web", "cart", uint64(100+h))...)
		edges = append(edges, call("web", "db", uint64(1000+h))...)
		edges = append(edges, call("cart", "db", uint64(10+h))...)
		across := model.Edge{Side: model.RoleClient, Client: model.Peer{Container: pod["web"], Process: "web"},
			Server:  model.Peer{Address: netip.AddrFrom4([4]byte{10, 0, 0, 3})},
			Service: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 3}), 80), Counters: edges[2].Counters}
		if h == 0 { // its other half
			across.Side, across.Server = model.RoleServer, model.Peer{Container: pod["db"], Process: "db"}
			across.Client = model.Peer{Address: netip.AddrFrom4([4]byte{10, 0, 1, 1})}
		}
		across.Counters.SentBytes, across.Counters.ReceivedBytes = 1, 6
		edges = append(edges, across)
		b := frame.NewBuilder(start)
		at := func(second int, edges []model.Edge) *frame.Frame {
			s := &model.Snapshot{Time: start.Add(time.Duration(second) * time.Second), Host: model.Host{Name: host}, Edges: edges}
			for _, name := range []string{"web", "cart", "db"} {
				s.Containers = append(s.Containers, model.ContainerSample{Container: pod[name]})
			}
			return b.Build(s)
		}
		before := at(0, nil)
		w.Hosts = append(w.Hosts, frame.HostSpans{Host: host, Spans: []frame.Span{{Before: before, After: at(10, edges)}}})
	}
	return graph.FromFrames(w, graph.Options{By: graph.ByProcess})
}

// checkPage runs the queries of docs/queries.md on a map by process.
func checkPage(t *testing.T, server string) {
	run(t, server, "MATCH (n) DETACH DELETE n")
	var text strings.Builder
	g := shop()
	if err := graph.WriteCypher(&text, g); err != nil {
		t.Fatal(err)
	}
	load(t, server, text.String())
	page, err := os.ReadFile("../../docs/queries.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## Cypher\n")
	if !ok {
		t.Fatal("docs/queries.md has no section Cypher")
	}
	var answers [][][]any
	for _, part := range strings.Split(section, "```cypher\n")[1:] {
		query, _, _ := strings.Cut(part, "```")
		answers = append(answers, run(t, server, query))
	}
	p99 := *g.Edges[0].Best().P99
	rows := func(all ...[]any) [][]any { return all }
	for i, want := range [][][]any{
		rows([]any{"web-1/web", "db-1/db", 3003., float64(p99)}, []any{"web-0/web", "db-0/db", 3000., float64(p99)},
			[]any{"web-1/web", "cart-1/cart", 303., float64(p99)}, []any{"web-0/web", "cart-0/cart", 300., float64(p99)},
			[]any{"cart-1/cart", "db-1/db", 33., float64(p99)}, []any{"cart-0/cart", "db-0/db", 30., float64(p99)},
			[]any{"web-1/web", "db-0/db", 7., float64(p99)}),
		rows([]any{"web", "db", 6010., 15.}, []any{"web", "cart", 603., 10.}, []any{"cart", "db", 63., 10.}),
		rows([]any{"host-1", "host-1", 3339., 15.}, []any{"host-0", "host-0", 3330., 15.},
			[]any{"host-1", "host-0", 7., 5.}),
		rows([]any{"cart-0", "host-0", []any{"cart"}}, []any{"db-0", "host-0", []any{"db"}},
			[]any{"web-0", "host-0", []any{"web"}}),
		rows([]any{"web-1", "db-0", 7.}),
		rows([]any{[]any{"web-0/web", "db-0/db"}}),
	} {
		if i >= len(answers) {
			t.Fatalf("the page has %d queries", len(answers))
		}
		if !reflect.DeepEqual(answers[i], want) {
			t.Errorf("query %d answers %v, want %v", i+1, answers[i], want)
		}
	}
}

// loadEdges is how many edges checkLoad loads.
const loadEdges = 100_000

// checkLoad loads a map of 100,000 edges between 10,000 processes. It logs time and memory.
func checkLoad(t *testing.T, server string, pid int) {
	run(t, server, "MATCH (n) DETACH DELETE n")
	g := wide()
	var before, after runtime.MemStats
	for range 3 { // what is in pools is let go by the second
		runtime.GC()
	}
	runtime.ReadMemStats(&before)
	peak := uint64(0)
	count := &counter{each: func() {
		runtime.GC()
		runtime.ReadMemStats(&after)
		peak = max(peak, after.HeapAlloc)
	}}
	begin := time.Now()
	if err := graph.WriteCypher(count, g); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes of Cypher written in %v, with %d KiB of memory beside the map at most", count.n,
		time.Since(begin).Round(time.Millisecond), (int64(peak)-int64(before.HeapAlloc))/1024)
	begin = time.Now()
	r, w := io.Pipe()
	go func() { w.CloseWithError(graph.WriteCypher(w, g)) }()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	load(t, server, string(text))
	t.Logf("loaded in %v; at most, %s of Neo4j's", time.Since(begin).Round(time.Millisecond), peakMemory(t, pid))
	rows := run(t, server, "MATCH (:Process)-[r:CALLS]->(:Process) RETURN count(r), sum(r.bytes)")
	if len(rows) != 1 || rows[0][0] != float64(loadEdges) || rows[0][1] != float64(loadEdges)*3 {
		t.Errorf("edges and bytes: %v", rows)
	}
	begin = time.Now()
	rows = run(t, server, "MATCH (a:Process)-[r:CALLS]->(b:Process) RETURN a.name, b.name, sum(r.bytes) AS bytes "+
		"ORDER BY bytes DESC LIMIT 10")
	t.Logf("the processes that exchange most in %v", time.Since(begin).Round(time.Millisecond))
	if len(rows) != 10 {
		t.Errorf("%d processes that exchange most", len(rows))
	}
}

// peakMemory is the most memory that a process has had, as the kernel says it.
func peakMemory(t *testing.T, pid int) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(status), "VmHWM:")
	if !ok {
		t.Fatalf("no VmHWM in %s", status)
	}
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

type counter struct {
	n, calls int
	each     func()
}

func (c *counter) Write(b []byte) (int, error) {
	c.n += len(b)
	if c.calls++; c.calls%100 == 0 {
		c.each()
	}
	return len(b), nil
}

// wide is a map of loadEdges edges between the processes of 5,000 containers.
func wide() *graph.Graph {
	start := time.Unix(1_800_000_000, 0)
	b := frame.NewBuilder(start)
	before := &model.Snapshot{Time: start, Host: model.Host{Name: "host-0"}}
	after := &model.Snapshot{Time: start.Add(10 * time.Second), Host: model.Host{Name: "host-0"}}
	containers := make([]*model.Container, 5000)
	for i := range containers {
		containers[i] = &model.Container{ID: fmt.Sprintf("%064x", i), Name: fmt.Sprint("job-", i), Runtime: model.Docker}
		after.Containers = append(after.Containers, model.ContainerSample{Container: containers[i]})
	}
	before.Containers = after.Containers
	for i := range loadEdges {
		n, m := i%5000, (i/5000*37+i%5000+1)%5000
		after.Edges = append(after.Edges, model.Edge{Side: model.RoleClient, Instance: uint64(i + 1),
			Client:   model.Peer{Container: containers[n], Process: fmt.Sprint("client-", i%2)},
			Server:   model.Peer{Container: containers[m], Process: "server"},
			Service:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(m >> 8), byte(m)}), 80),
			Counters: model.EdgeCounters{SentBytes: 1, ReceivedBytes: 2, Requests: 1, Replies: 1}})
	}
	first := b.Build(before)
	w := &frame.Window{From: before.Time, To: after.Time, Hosts: []frame.HostSpans{{Host: "host-0",
		Spans: []frame.Span{{Before: first, After: b.Build(after)}}}}}
	return graph.FromFrames(w, graph.Options{By: graph.ByProcess})
}
