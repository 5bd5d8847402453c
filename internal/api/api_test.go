package api

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/access"
	"outsight/internal/fleet"
	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/store"
)

var begin = time.Unix(1_790_000_000, 0).UTC()

// filled is a handler over a real log with seconds of the shop; change may alter a snapshot.
func filled(t testing.TB, seconds int, change func(second int, s *model.Snapshot) *model.Snapshot) (http.Handler, *shop,
	time.Time) {
	t.Helper()
	k, sh, now := fill(t, seconds, change)
	return New(Options{Log: k.log, Now: func() time.Time { return now }, Version: "1.2.3"}), sh, now
}

func fill(t testing.TB, seconds int, change func(second int, s *model.Snapshot) *model.Snapshot) (*kept, *shop,
	time.Time) {
	t.Helper()
	end := begin.Add(time.Duration(seconds) * time.Second)
	k := openKept(t, func() time.Time { return end })
	return k, k.fill(t, seconds, change), end
}

// fillSeries is the same with series.
func fillSeries(t testing.TB, seconds int, change func(second int, s *model.Snapshot) *model.Snapshot) (*kept,
	http.Handler, time.Time) {
	t.Helper()
	end := begin.Add(time.Duration(seconds) * time.Second)
	k := openKept(t, func() time.Time { return end }).withSeries(t)
	k.fill(t, seconds, change)
	return k, New(Options{Log: k.log, Prometheus: Prometheus(k.series), Now: func() time.Time { return end }}), end
}

func (k *kept) fill(t testing.TB, seconds int, change func(second int, s *model.Snapshot) *model.Snapshot) *shop {
	t.Helper()
	sh := newShop(begin)
	for i := range seconds + 1 {
		s := sh.at(begin.Add(time.Duration(i) * time.Second))
		if change != nil {
			s = change(i, s)
		}
		if err := k.send(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.flush(); err != nil {
		t.Fatal(err)
	}
	return sh
}

func ask(h http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, w.Body.String()
}

func get200(t testing.TB, h http.Handler, path string, into any) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		t.Fatalf("%s: %v in %s", path, err, w.Body)
	}
}

func nodeNamed(t testing.TB, g *graph.Graph, name string) *graph.Node {
	t.Helper()
	for _, n := range g.Nodes {
		if n.Name == name {
			return n
		}
	}
	t.Fatalf("no node %q", name)
	return nil
}

func edgeBetween(t testing.TB, g *graph.Graph, client, server string) *graph.Edge {
	t.Helper()
	id := nodeNamed(t, g, client).ID + ">" + nodeNamed(t, g, server).ID
	for _, e := range g.Edges {
		if e.ID == id {
			return e
		}
	}
	t.Fatalf("no edge %s", id)
	return nil
}

// withoutMeans is edges as JSON without the means, whose last digit depends on the order of sums.
func withoutMeans(t *testing.T, edges []*graph.Edge) string {
	t.Helper()
	for _, e := range edges {
		for _, s := range []*graph.Side{e.ClientSide, e.ServerSide} {
			if s != nil {
				s.Mean, s.Jitter = nil, nil
			}
		}
		for _, endpoint := range e.Endpoints {
			endpoint.Mean = nil
		}
	}
	b, err := json.Marshal(edges)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// graphBetween is the graph of what happened between two snapshots.
func graphBetween(before, after *model.Snapshot) *graph.Graph {
	b := frame.NewBuilder(before.Time)
	span := frame.Span{Before: b.Build(before), After: b.Build(after)}
	return graph.FromFrames(&frame.Window{From: before.Time, To: after.Time,
		Hosts: []frame.HostSpans{{Host: after.Host.Name, Spans: []frame.Span{span}}}}, graph.Options{})
}

// The graph of a window of the log is that of the two snapshots at its ends, to the digit.
func TestGraphIsExact(t *testing.T) {
	h, sh, now := filled(t, 200, nil)
	for _, window := range []string{"from=now-60s", "from=now-200s", "from=now-37s&to=now-5s"} {
		var a graphAnswer
		get200(t, h, "/api/outsight/graph?"+window, &a)
		want := graphBetween(sh.at(a.From), sh.at(a.To))
		if len(a.Edges) != len(want.Edges) || len(a.Nodes) != len(want.Nodes) || len(a.Edges) == 0 {
			t.Fatalf("%s: %d nodes and %d edges, want %d and %d", window, len(a.Nodes), len(a.Edges), len(want.Nodes),
				len(want.Edges))
		}
		got, expected := withoutMeans(t, a.Edges), withoutMeans(t, want.Edges)
		if got != expected {
			t.Errorf("%s: edges\ngot  %s\nwant %s", window, got, expected)
		}
		for _, n := range want.Nodes {
			if n.Usage == nil {
				continue
			}
			if got := *nodeNamed(t, a.Graph, n.Name).Usage.CPUCores; math.Abs(got-*n.Usage.CPUCores) > 1e-9 {
				t.Errorf("%s: %s uses %v cores, want %v", window, n.Name, got, *n.Usage.CPUCores)
			}
		}
		if a.To.After(now) || a.CoveredSeconds != a.To.Sub(a.From).Seconds() || a.Completeness.State != "complete" {
			t.Errorf("%s: covered %v s, %+v", window, a.CoveredSeconds, a.Completeness)
		}
	}
}

func TestGraphOfAWindowThatBeganEarlier(t *testing.T) {
	h, _, _ := filled(t, 40, nil)
	var a graphAnswer
	get200(t, h, "/api/outsight/graph?from=now-5m", &a)
	if math.Abs(a.CoveredSeconds-40) > 1 || a.Completeness.WindowSeconds != 300 {
		t.Errorf("covered %v s of %v, want 40 of 300", a.CoveredSeconds, a.Completeness.WindowSeconds)
	}
	if rate := *edgeBetween(t, a.Graph, "gateway", "catalogue").ClientSide.TransactionsPerSecond; rate < 150 ||
		rate > 280 {
		t.Errorf("%v req/s, want about 215", rate)
	}
}

func TestPathIsOfTheGraph(t *testing.T) {
	h, _, _ := filled(t, 40, nil)
	var a graphAnswer
	get200(t, h, "/api/outsight/graph?from=now-5m", &a)
	var p pathAnswer
	get200(t, h, "/api/outsight/path?from=now-5m&percentile=p50", &p)
	if p.SaturationRate == nil || p.CriticalPath == nil || len(p.Entries) == 0 || p.Completeness.State != "complete" {
		t.Fatalf("got %+v", p)
	}
	cores := map[string]float64{}
	for _, host := range a.Hosts {
		cores[host.Name] = host.Cores
	}
	if want := a.Analyse(cores); *p.SaturationRate != *want.SaturationRate || p.Bottleneck != want.Bottleneck {
		t.Errorf("%s at %v, want %s at %v", p.Bottleneck, *p.SaturationRate, want.Bottleneck, *want.SaturationRate)
	}
	for _, name := range []string{"arrival_rate", "parallel", "utilisation", "demand", "max_arrival_rate",
		"saturation_rate", "latency", "threads", "own", "next", "others", "network", "calls", "whole", "served", "weight"} {
		if p.Formulas[name] == "" {
			t.Errorf("no formula of %s", name)
		}
	}
}

func TestChangesAreOfTwoGraphs(t *testing.T) {
	h, _, _ := filled(t, 40, nil)
	var c changesAnswer
	get200(t, h, "/api/outsight/changes?from=now-20s", &c)
	if !c.BeforeTo.Equal(c.From) || c.To.Sub(c.From) != c.BeforeTo.Sub(c.BeforeFrom) {
		t.Errorf("%v to %v is compared with %v to %v", c.From, c.To, c.BeforeFrom, c.BeforeTo)
	}
	var before, after graphAnswer
	window := func(from, to time.Time) string {
		return fmt.Sprintf("/api/outsight/graph?from=%s&to=%s", from.Format(time.RFC3339Nano), to.Format(time.RFC3339Nano))
	}
	get200(t, h, window(c.From, c.To), &after)
	get200(t, h, window(c.BeforeFrom, c.BeforeTo), &before)
	for _, change := range c.Changes {
		if change.What != "cpu" {
			continue
		}
		if *before.Node(change.Node).Usage.CPUCores != *change.Before ||
			*after.Node(change.Node).Usage.CPUCores != *change.After {
			t.Errorf("%+v is not of the graphs", change)
		}
	}
	var fresh changesAnswer
	get200(t, h, "/api/outsight/changes?from=now-5m&ago=1d", &fresh)
	for _, change := range fresh.Changes {
		if change.What != "presence" || change.Before != nil {
			t.Errorf("against a day without data: %+v", change)
		}
	}
	if len(fresh.Changes) == 0 {
		t.Error("all is new, and nothing changed")
	}
}

func TestPictureIsOfTheGraph(t *testing.T) {
	h, _, _ := filled(t, 40, nil)
	var a graphAnswer
	get200(t, h, "/api/outsight/graph?from=now-5m", &a)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/api/outsight/picture?from=now-5m", nil))
	if policy := w.Header().Get("Content-Security-Policy"); w.Code != 200 ||
		w.Header().Get("Content-Type") != "image/svg+xml" || !strings.Contains(policy, "default-src 'none'") {
		t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if nodes, edges := strings.Count(w.Body.String(), "<rect "),
		strings.Count(w.Body.String(), "<path "); nodes != len(a.Nodes) || edges != len(a.Edges) {
		t.Errorf("%d nodes and %d edges, the graph has %d and %d", nodes, edges, len(a.Nodes), len(a.Edges))
	}
}

func TestCypherIsOfTheGraph(t *testing.T) {
	h, _, _ := filled(t, 40, nil)
	var a graphAnswer
	get200(t, h, "/api/outsight/graph?from=now-5m", &a)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/api/outsight/cypher?from=now-5m", nil))
	text := w.Body.String()
	nodes, edges := 0, 0
	for _, statement := range strings.SplitAfter(text, ";\n") {
		switch rows := strings.Count(statement, "\t\n") + 1; {
		case strings.Contains(statement, " MERGE (n:Node {"):
			nodes += rows
		case strings.Contains(statement, "[r:CALLS {"):
			edges += rows
		}
	}
	if w.Code != 200 || nodes != len(a.Nodes) || edges != len(a.Edges) || edges == 0 {
		t.Errorf("%d: %d nodes and %d edges, the graph has %d and %d", w.Code, nodes, edges, len(a.Nodes), len(a.Edges))
	}
}

func TestShareHidesEdges(t *testing.T) {
	h, _, _ := filled(t, 40, nil)
	var a graphAnswer
	get200(t, h, "/api/outsight/graph?from=now-5m&by=host", &a)
	for _, n := range a.Nodes {
		if n.Kind != graph.KindHost && n.Kind != graph.KindOutside {
			t.Errorf("by host: %s %q", n.Kind, n.Name)
		}
	}
	get200(t, h, "/api/outsight/graph?from=now-5m&share=1", &a)
	if len(a.Edges) != 0 || a.HiddenEdges == 0 || a.Completeness.State != "complete" {
		t.Errorf("%d edges have all bytes, %d are hidden, which is %s", len(a.Edges), a.HiddenEdges, a.Completeness.State)
	}
}

// A counter that the agent reads from a file some seconds after its start did not grow from 0. How much it grew is known
// of windows that begin when it was there.
func TestLateCounter(t *testing.T) {
	h, sh, _ := filled(t, 60, func(second int, s *model.Snapshot) *model.Snapshot {
		for i := range s.Containers {
			if network := s.Containers[i].Network; network != nil && second < 4 {
				s.Containers[i].Network = nil
			} else if network != nil {
				network.ReceiveBytes += 9e12
			}
		}
		return s
	})
	received := func(second int) float64 {
		return float64(sh.at(begin.Add(time.Duration(second) * time.Second)).Containers[0].Network.ReceiveBytes)
	}
	f := func(window string, want float64) {
		t.Helper()
		var a graphAnswer
		get200(t, h, "/api/outsight/graph?"+window, &a)
		got := nodeNamed(t, a.Graph, work[0].name).Usage.NetworkReceiveBytes
		switch {
		case want < 0 && got != nil:
			t.Errorf("%s: received %v B/s, want that it is not known", window, *got)
		case want >= 0 && (got == nil || math.Abs(*got*a.CoveredSeconds-want) > 1):
			t.Errorf("%s: received %v B/s, want %v bytes", window, got, want)
		}
	}
	f("from=now-55s", received(60)-received(5))
	f("from=now-5m", -1)
}

// A container that lives between two of the times at which the window is read is counted whole.
func TestContainerThatEnded(t *testing.T) {
	const first, last = 101, 104
	h, sh, _ := filled(t, 300, func(second int, s *model.Snapshot) *model.Snapshot {
		if second < first || second > last {
			return without(s, "cart")
		}
		for i := range s.Containers {
			if s.Containers[i].Container.Name == "cart" {
				c := *s.Containers[i].Container
				c.Started = begin.Add((first-1)*time.Second + 500*time.Millisecond)
				s.Containers[i].Container = &c
			}
		}
		return s
	})
	var a graphAnswer
	get200(t, h, "/api/outsight/graph?from=now-290s", &a)
	n := nodeNamed(t, a.Graph, "cart")
	if !n.Gone || n.Usage.CPUCores == nil {
		t.Fatalf("cart: %+v", n)
	}
	whole := sh.at(begin.Add(last * time.Second))
	for _, e := range whole.Edges {
		if e.Client.Name() == "gateway" && e.Server.Name() == "cart" && e.Side == model.RoleClient {
			if got := edgeBetween(t, a.Graph, "gateway",
				"cart").ClientSide.Of(graph.Transactions); got != float64(e.Counters.Transactions()) {
				t.Errorf("%v transactions, want %d", got, e.Counters.Transactions())
			}
		}
	}
	if nodeNamed(t, a.Graph, "redis").Gone {
		t.Error("redis is said to have ended")
	}
}

// Every number's query gives about the number itself: PromQL extrapolates to the ends of its
// window and interpolates in a bucket, so that it is not the same.
func TestContainersHaveTheirQueries(t *testing.T) {
	k, h, now := fillSeries(t, 90, nil)
	var a containersAnswer
	get200(t, h, "/api/outsight/containers?from=now-60s", &a)
	if len(a.Containers) != len(work) {
		t.Fatalf("%d containers, want %d", len(a.Containers), len(work))
	}
	asked := 0
	for _, row := range a.Containers {
		for scope, cells := range map[string]map[string]cell{"usage": row.Usage, "served": row.Served, "called": row.Called} {
			for key, c := range cells {
				var value float64
				if err := json.Unmarshal(c.Value, &value); err != nil {
					t.Fatal(err)
				}
				results, err := k.series.Instant(context.Background(), c.Query, now)
				if err != nil {
					t.Fatalf("%s: %v", c.Query, err)
				}
				asked++
				if len(results) == 0 && value == 0 {
					continue // a rate of a counter that was always 0
				}
				if got := last(results[0]); math.Abs(got-value) > 0.08*math.Abs(value)+2 {
					t.Errorf("%s %s.%s is %v, but %s gives %v", row.Name, scope, key, value, c.Query, got)
				}
			}
		}
	}
	if asked < 300 {
		t.Errorf("only %d numbers", asked)
	}
}

// The matchers of the graph select the series of its nodes, edges and endpoints, however they are
// grouped.
func TestMatchesSelectWhatIsShown(t *testing.T) {
	k, h, now := fillSeries(t, 90, func(_ int, s *model.Snapshot) *model.Snapshot { return inKubernetes(s) })
	for _, by := range []graph.Grouping{graph.ByContainer, graph.ByPod, graph.ByProcess, graph.ByWorkload,
		graph.ByNamespace, graph.ByHost} {
		var a graphAnswer
		get200(t, h, "/api/outsight/graph?from=now-60s&by="+string(by), &a)
		if kind := map[graph.Grouping]graph.Kind{graph.ByWorkload: graph.KindWorkload,
			graph.ByNamespace: graph.KindNamespace}[by]; kind != "" &&
			!slices.ContainsFunc(a.Nodes, func(n *graph.Node) bool {
				return n.Kind == kind && n.Usage != nil &&
					n.Served != nil
			}) {
			t.Errorf("by %s: there is no %s with numbers", by, kind)
		}
		ask := func(what string, numbers []number, name, match string, want float64) {
			t.Helper()
			i := slices.IndexFunc(numbers, func(n number) bool { return n.Key == name })
			query := expand(numbers[i].Query, match, a.CoveredSeconds)
			results, err := k.series.Instant(context.Background(), query, now)
			if err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			got := 0.0
			if len(results) > 0 {
				got = last(results[0])
			}
			if math.Abs(got-want) > 0.08*want {
				t.Errorf("by %s: %s is %v, but %s gives %v", by, what, want, query, got)
			}
		}
		edges, endpoints := 0, 0
		for _, e := range a.Edges {
			for side, s := range map[string]*graph.Side{"client": e.ClientSide, "server": e.ServerSide} {
				if s != nil {
					ask(e.ID, sideNumbers, "request_bytes_per_second", a.EdgeMatches[e.ID]+`,side="`+side+`"`,
						*s.RequestBytesPerSecond)
					edges++
				}
			}
			side := "server"
			if e.ServerSide == nil {
				side = "client"
			}
			for _, p := range e.Endpoints {
				match := fmt.Sprintf(`%s,side=%q,protocol=%q,endpoint=%q`, a.EdgeMatches[e.ID], side, p.Protocol, p.Name)
				ask(e.ID+" "+p.Name, endpointNumbers, "requests_per_second", match, *p.RequestsPerSecond)
				ask(e.ID+" "+p.Name, endpointNumbers, "errors_per_second", match, *p.ErrorsPerSecond)
				endpoints++
			}
		}
		for _, n := range a.Nodes {
			if n.Usage != nil {
				ask(n.ID, usageNumbers, "memory_bytes", a.Matches[n.ID].Usage, *n.Usage.MemoryBytes)
			}
			// Where both ends are the same node, each request has two sides, one of them served.
			if n.Served != nil && by != graph.ByHost && by != graph.ByNamespace {
				ask(n.ID, sideNumbers, "request_bytes_per_second", a.Matches[n.ID].Served, *n.Served.RequestBytesPerSecond)
			}
		}
		if edges == 0 || endpoints == 0 {
			t.Errorf("by %s: %d sides of edges and %d endpoints", by, edges, endpoints)
		}
	}
}

// inKubernetes makes each container a pod of its own, of a workload that some of them share.
func inKubernetes(s *model.Snapshot) *model.Snapshot {
	pods := map[*model.Container]*model.Container{}
	pod := func(c *model.Container) *model.Container {
		if c == nil || c.Runtime == model.HostRuntime {
			return c
		}
		if pods[c] == nil {
			p := *c
			p.PodName, p.PodNamespace, p.Workload, p.WorkloadKind = c.Name+"-0", "shop", c.Name, "Deployment"
			if c.Name == "redis" || c.Name == "postgres" {
				p.PodNamespace, p.Workload = "data", "stores"
			}
			pods[c] = &p
		}
		return pods[c]
	}
	changed := *s
	changed.Containers, changed.Edges = slices.Clone(s.Containers), slices.Clone(s.Edges)
	for i := range changed.Containers {
		changed.Containers[i].Container = pod(changed.Containers[i].Container)
	}
	for i := range changed.Edges {
		e := &changed.Edges[i]
		e.Client.Container, e.Server.Container = pod(e.Client.Container), pod(e.Server.Container)
	}
	return &changed
}

// An agent that restarts begins to count again; what it counted before is not lost.
func TestAgentThatRestarted(t *testing.T) {
	sh := newShop(begin)
	const restart = 50
	var before uint64
	end := begin.Add(120 * time.Second)
	k := openKept(t, func() time.Time { return end })
	k.fill(t, 120, func(second int, s *model.Snapshot) *model.Snapshot {
		if second < restart {
			before = transactions(s, "catalogue", "postgres")
			return s
		}
		if second == restart {
			k.restart(s.Host.Name)
		}
		again := sh.at(begin.Add(time.Duration(second-restart) * time.Second))
		again.Time = s.Time
		return again
	})
	h := New(Options{Log: k.log, Now: func() time.Time { return end }})
	var a graphAnswer
	get200(t, h, "/api/outsight/graph?from=now-110s", &a)
	want := before - transactions(sh.at(begin.Add(10*time.Second)), "catalogue", "postgres") +
		transactions(sh.at(begin.Add((120-restart)*time.Second)), "catalogue", "postgres")
	if got := edgeBetween(t, a.Graph, "catalogue", "postgres").ClientSide.Of(graph.Transactions); got != float64(want) {
		t.Errorf("%v transactions, want %d", got, want)
	}
}

func transactions(s *model.Snapshot, client, server string) uint64 {
	for _, e := range s.Edges {
		if e.Client.Name() == client && e.Server.Name() == server && e.Side == model.RoleClient {
			return e.Counters.Transactions()
		}
	}
	return 0
}

func TestStatus(t *testing.T) {
	h, _, _ := filled(t, 60, func(second int, s *model.Snapshot) *model.Snapshot {
		late := uint64(second / 50)
		s.Self.Drops = []model.Drop{{Name: "edges", Count: 5 + late*6180, Capacity: 100, Used: 100},
			{Name: "cgroups", Count: 7, Capacity: 4096, Used: 11},
			{Name: "container/open-files", Count: late * 9}, {Name: "agent/sink-store", Count: late * 2, Capacity: 2}}
		return s
	})
	var a statusAnswer
	get200(t, h, "/api/outsight/status", &a)
	if len(a.Hosts) != 1 || a.Hosts[0].Name != "shop-1" || a.Hosts[0].Cores != 2 || len(a.Features) != 3 ||
		a.Version != "1.2.3" {
		t.Errorf("%+v", a)
	}
	if len(a.Drops) != 4 || a.Drops[3] != (drop{"shop-1", "edges", 6185, 100, 100}) {
		t.Errorf("drops %+v", a.Drops)
	}
	want := fleet.Completeness{WindowSeconds: 300, CoveredSeconds: 60, State: fleet.Incomplete,
		Tables: []fleet.Loss{{Host: "shop-1", Name: "edges", Dropped: 6180, Used: 100, Capacity: 100, Full: true,
			Affects: fleet.AffectsEdges}},
		Sinks: []fleet.Loss{{Host: "shop-1", Name: "agent/sink-store", Dropped: 2, Capacity: 2}}}
	if !reflect.DeepEqual(a.Completeness, want) {
		t.Errorf("completeness %+v, want %+v", a.Completeness, want)
	}
	if a.Features[2].Reason == "" || a.Hosts[0].Kernel == "" || len(a.Programs) != 2 || a.Programs[0].Runs == 0 ||
		a.PromQL != PromQLOff || len(a.Silent) != 0 {
		t.Errorf("%+v", a)
	}
}

// Drops of a table that is not full, and that no number on the map is about, leave the map complete.
func TestDropsAreOfTheNumbersThatLackThem(t *testing.T) {
	f := func(name string, used, capacity uint64, state string, full bool, want fleet.Affected) {
		t.Helper()
		h, _, _ := filled(t, 60, func(second int, s *model.Snapshot) *model.Snapshot {
			s.Self.Drops = []model.Drop{{Name: name, Count: uint64(second), Used: used, Capacity: capacity}}
			return s
		})
		var a graphAnswer
		get200(t, h, "/api/outsight/graph?from=now-40s", &a)
		if c := a.Completeness; c.State != state || len(c.Tables) != 1 || c.Tables[0].Full != full ||
			c.Tables[0].Affects != want {
			t.Errorf("drops of %s, %d of %d used: %+v", name, used, capacity, c)
		}
	}
	f("contention_pairs", 1200, 4096, "complete", false, fleet.AffectsContention)
	f("recorder/ticks", 0, 0, "complete", false, fleet.AffectsFlight)
	f("process_names", 0, 0, "complete", false, fleet.AffectsNames)
	f("connection_pairs", 4096, 4096, "complete", true, fleet.AffectsNames)
	f("connections", 0, 0, "incomplete", false, fleet.AffectsEdges)
	f("cgroups", 4096, 4096, "incomplete", true, fleet.AffectsUsage)
	f("http2_streams", 0, 0, "incomplete", false, fleet.AffectsEdges)
	f("container-edges/flood", 256, 256, "complete", true, fleet.AffectsNames)
	f("container-new-endpoints/flood", 0, 0, "complete", false, fleet.AffectsNames)
	f("missed_events", 0, 0, "incomplete", false, "")
	f("of tomorrow", 0, 0, "incomplete", false, "")
}

// What is in no edge is told with its bytes, however long ago the table was full.
func TestUnplacedConnections(t *testing.T) {
	h, _, _ := filled(t, 60, func(second int, s *model.Snapshot) *model.Snapshot {
		n := uint64(second)
		s.Edges = append(s.Edges, model.Edge{Side: model.RoleUnknown, Counters: model.EdgeCounters{SentBytes: 1000 +
			70*n, ReceivedBytes: 1000 + 5*n, Opens: 3}})
		return s
	})
	var a graphAnswer
	get200(t, h, "/api/outsight/graph?from=now-40s", &a)
	if u := a.Unplaced; u == nil || u.Of(graph.RequestBytes) != 40*70 || u.Of(graph.ResponseBytes) != 40*5 || u.Open != 3 {
		t.Errorf("unplaced %+v", u)
	}
	var received, unseen float64
	for _, e := range a.Edges {
		if e.ClientSide != nil {
			received, unseen = received+e.ClientSide.Of(graph.ResponseBytes), unseen+e.ClientSide.Of(graph.UnseenBytes)
		}
		if e.ServerSide != nil {
			received, unseen = received+e.ServerSide.Of(graph.RequestBytes), unseen+e.ServerSide.Of(graph.UnseenBytes)
		}
	}
	if want := received / (received + unseen + 40*5); len(a.CountedShare) != 1 ||
		math.Abs(a.CountedShare["shop-1"]/want-1) > 1e-9 {
		t.Errorf("counted %v, want %v on the one host", a.CountedShare, want)
	}
	if c := a.Completeness; c.State != "incomplete" || len(c.Tables) != 0 {
		t.Errorf("completeness %+v", c)
	}
	for _, n := range a.Nodes {
		if slices.Contains(n.Addresses, "others") {
			t.Errorf("node %q is not known to be an end of anything", n.ID)
		}
	}
}

func TestEmptyLog(t *testing.T) {
	h := New(Options{Log: nothing{}})
	var a graphAnswer
	get200(t, h, "/api/outsight/graph", &a)
	if a.Nodes == nil || a.Edges == nil || a.CoveredSeconds != 0 {
		t.Errorf("%+v", a.Graph)
	}
}

func TestErrors(t *testing.T) {
	f := func(err error, path string, code int, text string) {
		t.Helper()
		w := httptest.NewRecorder()
		New(Options{Log: nothing{err}}).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		var body struct{ Error string }
		if e := json.Unmarshal(w.Body.Bytes(), &body); e != nil || w.Code != code || !strings.Contains(body.Error, text) {
			t.Errorf("%s: %d %s, want %d %q", path, w.Code, w.Body, code, text)
		}
	}
	f(nil, "/api/outsight/graph?from=yesterday", 400, `from="yesterday"`)
	f(nil, "/api/outsight/graph?from=now-0.5s", 400, "at least 1s")
	f(nil, "/api/outsight/graph?from=now-60d", 400, "at most 744h")
	f(nil, "/api/outsight/graph?to=2190-01-01T00:00:00Z", 400, "future")
	f(nil, "/api/outsight/graph?from=now&to=now-5m", 400, "at least 1s")
	f(nil, "/api/outsight/graph?by=port", 400, `"port"`)
	f(nil, "/api/outsight/path?percentile=p95", 400, `"p95"`)
	f(nil, "/api/outsight/changes?ago=1s", 400, "overlap")
	f(nil, "/api/outsight/changes?ago=x", 400, `ago="x"`)
	f(nil, "/api/outsight/graph?share=2", 400, `share="2"`)
	f(nil, "/api/outsight/graph?share=NaN", 400, "0 to 1")
	f(nil, "/api/outsight/matrix?by=port", 400, `"port"`)
	f(nil, "/api/outsight/matrix?side=both", 400, `"both"`)
	f(nil, "/api/outsight/matrix?numbers=bytes,nothing", 400, `"nothing"`)
	f(nil, "/api/outsight/matrix?top=0", 400, "1 to 100")
	f(nil, "/api/outsight/matrix?top=101", 400, "1 to 100")
	f(nil, "/api/outsight/matrix?format=xml", 400, `"xml"`)
	f(errors.New("disk gone"), "/api/outsight/matrix?format=csv", 500, "disk gone")
	f(nil, "/api/outsight/events?points=0", 400, `points="0"`)
	f(errors.New("disk gone"), "/api/outsight/events", 500, "disk gone")
	f(nil, "/api/outsight/chart?edge=a%3Eb&numbers=ends.p99", 400, `"ends.p99"`)
	f(nil, "/api/outsight/chart?node=a&numbers=ends.loss_ratio", 400, `"ends"`)
	f(nil, "/api/outsight/graph?x="+strings.Repeat("y", 3000), 400, "2048")
	f(errors.New("disk gone"), "/api/outsight/graph", 500, "disk gone")
	f(store.ErrBusy, "/api/outsight/graph", 503, "try again")
	f(context.DeadlineExceeded, "/api/outsight/containers", 503, "shorter window")
	f(nil, "/api/outsight/nothing", 404, "/api/outsight/nothing")
	f(nil, "/etc/passwd", 404, "etc/passwd")
}

func TestHealth(t *testing.T) {
	var notReady error
	h := New(Options{Log: nothing{}, Ready: func() error { return notReady }})
	f := func(path string, code int) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != code {
			t.Errorf("%s: %d, want %d", path, w.Code, code)
		}
	}
	f("/healthz", 200)
	f("/readyz", 200)
	notReady = errors.New("opening the store")
	f("/readyz", 503)
}

func TestPage(t *testing.T) {
	h := New(Options{Log: nothing{}})
	ask := func(path string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	index := ask("/")
	body := index.Body.String()
	if index.Code != 200 || !strings.Contains(index.Header().Get("Content-Type"), "text/html") ||
		!strings.Contains(body, "<title>Outsight") {
		t.Fatalf("%d %v %s", index.Code, index.Header(), body)
	}
	policy := index.Header().Get("Content-Security-Policy")
	if strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'") ||
		index.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers %v", index.Header())
	}
	// What the policy forbids must not be in the page: inline content, other hosts.
	if strings.Contains(body, "<style") || strings.Contains(body, " style=") || strings.Contains(body, "://") ||
		strings.Contains(body, " on") && strings.Contains(body, "onload=") {
		t.Errorf("inline content or another host in %s", body)
	}
	_, script, _ := strings.Cut(body, `src="`)
	script, _, _ = strings.Cut(script, `"`)
	plain, packed := ask(script), ask(script, "Accept-Encoding", "br, gzip")
	if plain.Code != 200 || packed.Header().Get("Content-Encoding") != "gzip" || packed.Body.Len() >= plain.Body.Len() {
		t.Fatalf("%s: %d, %d and %d bytes", script, plain.Code, plain.Body.Len(), packed.Body.Len())
	}
	z, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	if unpacked, err := io.ReadAll(z); err != nil || string(unpacked) != plain.Body.String() {
		t.Errorf("the packed script is another one: %v", err)
	}
	if !strings.Contains(plain.Header().Get("Cache-Control"), "immutable") ||
		ask("/").Header().Get("Cache-Control") != "no-cache" {
		t.Error("cache control of the script or the page")
	}
	if again := ask("/", "If-None-Match", index.Header().Get("ETag")); again.Code != 304 || again.Body.Len() != 0 {
		t.Errorf("unchanged page: %d", again.Code)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/", nil))
	if w.Code != 405 {
		t.Errorf("POST /: %d", w.Code)
	}
}

func TestForeignNameOnLoopback(t *testing.T) {
	h := New(Options{Log: nothing{}, Hosts: &access.HostPolicy{Names: []string{"outsight.example"}}})
	f := func(local, host string, code int) {
		t.Helper()
		address, err := net.ResolveTCPAddr("tcp", local)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "/healthz", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(address))))
		if w.Code != code {
			t.Errorf("%s as %q: %d, want %d", local, host, w.Code, code)
		}
	}
	f("127.0.0.1:8470", "localhost:8470", 200)
	f("127.0.0.1:8470", "127.0.0.1:8470", 200)
	f("[::1]:8470", "[::1]:8470", 200)
	f("127.0.0.1:8470", "outsight.example", 200)
	f("127.0.0.1:8470", "evil.example:8470", 403)
	f("192.0.2.1:8470", "monitor.example", 200)
}

func FuzzParseTime(f *testing.F) {
	for _, seed := range []string{"now", "now-5m", "now-2d", "now-", "1790000000.5", "2026-09-21T10:00:00Z", "NaN",
		"-1e300", "now-99999999h", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseTime(text, begin)
		if err == nil && (got.Year() < 1970 || got.Year() > 2200) {
			t.Errorf("%q is %v", text, got)
		}
	})
}

func BenchmarkGraph(b *testing.B) {
	h, _, _ := filled(b, 300, nil)
	for b.Loop() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/api/outsight/graph", nil))
		if w.Code != 200 {
			b.Fatal(w.Code)
		}
	}
}
