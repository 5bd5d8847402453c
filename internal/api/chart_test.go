package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/graph"
	"outsight/internal/model"
)

// Each point of a chart is the number of the map of that stretch.
func TestChartIsOfGraphs(t *testing.T) {
	h, _, now := filled(t, 120, nil)
	var g graphAnswer
	get200(t, h, "/api/outsight/graph?from=now-100s", &g)
	edge, node := edgeBetween(t, g.Graph, "gateway", "catalogue"), nodeNamed(t, g.Graph, "payment")
	numbers := map[string][]string{
		"edge=" + url.QueryEscape(edge.ID): {"client.p99", "server.p50", "client.transactions_per_second"},
		"node=" + node.ID:                  {"usage.cpu_cores", "usage.memory_bytes", "served.p99", "called.request_bytes"},
	}
	for of, paths := range numbers {
		var c chartAnswer
		get200(t, h, "/api/outsight/chart?from=now-100s&points=10&numbers="+strings.Join(paths, ",")+"&"+of, &c)
		if c.StepSeconds != 10 || len(c.Times) != 10 || c.Times[9] != float64(now.Unix()) || len(c.Lines) != len(paths) {
			t.Fatalf("%s: %+v", of, c)
		}
		for i, at := range c.Times {
			var part graphAnswer
			get200(t, h, fmt.Sprintf("/api/outsight/graph?from=%.0f&to=%.0f", at-10, at), &part)
			for _, path := range paths {
				want, ok := (&charted{edge: edge.ID}).number(part.Graph, path)
				if strings.HasPrefix(of, "node") {
					want, ok = nodeNumber(nodeNamed(t, part.Graph, "payment"), path)
				}
				if got := c.Lines[path][i]; !ok || got != want {
					t.Errorf("%s at %v: %v, want %v", path, at, got, want)
				}
			}
		}
	}
}

// An endpoint's numbers are those of the edge's list.
func TestChartOfAnEndpoint(t *testing.T) {
	h, _, _ := filled(t, 60, nil)
	var g graphAnswer
	get200(t, h, "/api/outsight/graph?from=now-60s", &g)
	edge := edgeBetween(t, g.Graph, "gateway", "payment")
	var c chartAnswer
	get200(t, h, "/api/outsight/chart?from=now-60s&points=1&numbers=endpoint.requests_per_second,endpoint.p99&edge="+
		url.QueryEscape(edge.ID)+"&endpoint="+url.QueryEscape("http POST /charge"), &c)
	want := edge.Endpoints[0]
	if len(c.Times) != 1 || c.Lines["endpoint.requests_per_second"][0] != *want.RequestsPerSecond ||
		c.Lines["endpoint.p99"][0] != float64(*want.P99) {
		t.Errorf("got %+v, want %+v", c, want)
	}
}

// The lines of a table are those of the charts of its rows, by one request.
func TestLinesAreOfGraphs(t *testing.T) {
	h, _, _ := filled(t, 60, func(_ int, s *model.Snapshot) *model.Snapshot { return inKubernetes(s) })
	for _, by := range []graph.Grouping{graph.ByContainer, graph.ByWorkload} {
		var l linesAnswer
		get200(t, h, "/api/outsight/lines?from=now-60s&points=6&by="+string(by)+
			"&numbers=usage.cpu_cores,served.p99,edge.mean,host.cpu_cores,host.idle,service.utilisation,service.demand", &l)
		if len(l.Times) != 6 || l.StepSeconds != 10 || l.Omitted != 0 {
			t.Fatalf("%+v", l)
		}
		for i, at := range l.Times {
			window := fmt.Sprintf("from=%.0f&to=%.0f&by=%s", at-10, at, by)
			var g graphAnswer
			get200(t, h, "/api/outsight/graph?"+window, &g)
			f := func(path, id string, want float64, ok bool) {
				t.Helper()
				if got := l.Lines[path][id]; ok != (got != nil) || ok && got[i] != want {
					t.Errorf("%s of %s at %v: %v, want %v", path, id, at, got, want)
				}
			}
			for _, n := range g.Nodes {
				v, ok := n.Usage.Number("cpu_cores")
				f("usage.cpu_cores", n.ID, v, ok)
				v, ok = n.Served.Number("p99")
				f("served.p99", n.ID, v, ok)
			}
			for _, e := range g.Edges {
				v, ok := e.Best().Number("mean")
				f("edge.mean", e.ID, v, ok)
			}
			var services servicesAnswer
			get200(t, h, "/api/outsight/services?"+window, &services)
			for _, s := range services.Services {
				f("service.utilisation", s.Node, s.Utilisation, s.Parallel > 0)
				if s.Demand != nil {
					f("service.demand", s.Node, *s.Demand, true)
				}
			}
			var hosts hostsAnswer
			get200(t, h, "/api/outsight/hosts?"+window, &hosts)
			if by == graph.ByContainer {
				f("host.cpu_cores", "shop-1", hosts.Hosts[0].CPUCores, true)
			}
		}
	}
}

// Lines are of the rows that are asked for, by the beginning of their IDs.
func TestLinesOfSomeRows(t *testing.T) {
	h, sh, _ := filled(t, 30, nil)
	cart, gateway := sh.byName["cart"].ID, sh.byName["gateway"].ID
	var l linesAnswer
	get200(t, h, fmt.Sprintf("/api/outsight/lines?from=now-30s&points=3&numbers=usage.cpu_cores,edge.p99&node=%s&node=host/shop-1&edge=%s",
		cart[:12], url.QueryEscape(gateway[:12]+">"+cart[:12])), &l)
	if len(l.Lines["usage.cpu_cores"]) != 2 || l.Lines["usage.cpu_cores"][cart] == nil ||
		l.Lines["usage.cpu_cores"]["host/shop-1"] == nil || len(l.Lines["edge.p99"]) != 1 ||
		l.Lines["edge.p99"][gateway+">"+cart] == nil {
		t.Errorf("got %+v", l.Lines)
	}
}

// Where frames are further apart than points, the points between two frames have what happened between them.
func TestPointsBetweenFrames(t *testing.T) {
	end := begin.Add(60 * time.Second)
	k := openKept(t, func() time.Time { return end })
	sh := newShop(begin)
	for second := 0; second <= 60; second += 10 {
		if second == 30 { // and one is missing
			continue
		}
		if err := k.send(sh.at(begin.Add(time.Duration(second) * time.Second))); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.flush(); err != nil {
		t.Fatal(err)
	}
	w := &timeline{times: []time.Time{begin, begin.Add(5e9), begin.Add(10e9), begin.Add(15e9), begin.Add(20e9)}}
	var l line
	w.begin = begin
	w.set(&l, 1, 7)
	w.begin = begin.Add(10e9)
	w.set(&l, 3, 8)
	if want := (line{7, 7, 8, 8}); !reflect.DeepEqual(l, want) {
		t.Errorf("got %v, want %v", l, want)
	}
	h := New(Options{Log: k.log, Now: func() time.Time { return end }})
	var c chartAnswer
	get200(t, h, "/api/outsight/chart?from=now-60s&points=60&numbers=served.transactions_per_second&node="+
		sh.byName["gateway"].ID, &c)
	// Frames are 12 s apart in the mean.
	served := c.Lines["served.transactions_per_second"]
	if c.StepSeconds != 15 || len(served) != 4 {
		t.Fatalf("%+v", c)
	}
	total := func(second int) float64 {
		s, sum := sh.at(begin.Add(time.Duration(second)*time.Second)), uint64(0)
		for _, e := range s.Edges {
			if e.Server.Name() == "gateway" && e.Side == model.RoleServer {
				sum += e.Counters.Transactions()
			}
		}
		return float64(sum)
	}
	// The newest frames at 0, 15, 30, 45 and 60 s are those of 0, 10, 20, 40 and 60 s.
	for i, between := range [][2]int{{0, 10}, {10, 20}, {20, 40}, {40, 60}} {
		want := (total(between[1]) - total(between[0])) / float64(between[1]-between[0])
		if math.Abs(served[i]-want) > 1e-9 {
			t.Errorf("stretch %d: %v requests a second, want %v", i, served[i], want)
		}
	}
}

// The work of an answer is bounded: there are fewer points where there are more hosts or edges.
func TestPointsAreBounded(t *testing.T) {
	h, _, now := filled(t, 60, nil)
	var c chartAnswer
	get200(t, h, "/api/outsight/chart?from=now-60s&points=500&numbers=usage.cpu_cores&node=host/shop-1", &c)
	if c.StepSeconds != 1 || len(c.Times) != 60 {
		t.Errorf("of frames that are a second apart: %v s, %d points", c.StepSeconds, len(c.Times))
	}
	k, _, _ := fill(t, 60, nil)
	whole, err := (&server{Options: Options{Log: k.log}}).read(t.Context(), now.Add(-time.Minute), now, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := func(asked, hosts, rows int, ago time.Duration, points int, step time.Duration) {
		t.Helper()
		w := *whole.window
		for len(w.Hosts) < hosts {
			w.Hosts = append(w.Hosts, w.Hosts[0])
		}
		times, got := pointTimes(&w, asked, rows, now.Add(ago))
		if max(len(times)-1, 0) != points || got != step || len(times) > 0 && !times[len(times)-1].Equal(w.To) {
			t.Errorf("%d points of %d hosts and %d rows: %d, %v", asked, hosts, rows, len(times)-1, got)
		}
	}
	f(60, 1, 100, 0, 60, time.Second)
	f(20, 1, 100, 0, 12, 5*time.Second)
	f(60, 500, 100, 0, 6, 10*time.Second)
	f(60, 1, 300_000, 0, 2, 30*time.Second)
	f(60, 5000, 100, 0, 0, 0)
	f(60, 1, 2_000_000, 0, 0, 0)
	f(60, 1, 100, 2*time.Hour, 6, 10*time.Second)
	f(60, 1, 100, 48*time.Hour, 1, time.Minute)
}

func TestChartErrors(t *testing.T) {
	h := New(Options{Log: nothing{}})
	f := func(path, text string) {
		t.Helper()
		if code, body := ask(h, "/api/outsight/"+path); code != http.StatusBadRequest || !strings.Contains(body, text) {
			t.Errorf("%s: %d %s, want %q", path, code, body, text)
		}
	}
	f("chart?numbers=usage.cpu_cores", "node or edge")
	f("chart?numbers=usage.cpu_cores&node=a&edge=b", "node or edge")
	f("chart?numbers=client.p99&edge=b", "want the ID of an edge")
	f("chart?numbers=usage.nothing&node=a", "no number")
	f("chart?numbers=client.p99&node=a", "client")
	f("chart?numbers=usage.cpu_cores&node=a&points=0", "points")
	f("chart?numbers=usage.cpu_cores&node=a&by=port", "port")
	f("lines?numbers=p99", "p99")
	f("lines?numbers="+strings.Repeat("usage.cpu_cores,", 50), "at most 40")
	f("lines?numbers=usage.cpu_cores&node="+strings.Repeat("x", 20_000), "16384")
	f("labelled?metrics=up", "up")
	f("labelled?points=x", "points")
	var l linesAnswer
	get200(t, h, "/api/outsight/lines?numbers=usage.cpu_cores", &l)
	if len(l.Times) == 0 || len(l.Lines["usage.cpu_cores"]) != 0 {
		t.Errorf("of nothing: %+v", l)
	}
}

// Series with labels of their own: what counters gained, levels at the end, and lines of them; of a node of a grouping
// those of its containers.
func TestLabelled(t *testing.T) {
	h, sh, now := filled(t, 60, func(second int, s *model.Snapshot) *model.Snapshot {
		n := uint64(second)
		s = inKubernetes(s)
		for i := range s.Containers {
			if c := &s.Containers[i]; c.Container.Name == "redis" || c.Container.Name == "postgres" {
				c.Energy = []model.EnergyCounter{{Domain: "package", Source: "rapl", MicroJoules: 1000 + 3_000_000*n},
					{Domain: "core", Source: "rapl", MicroJoules: 1_000_000 * n}}
			}
		}
		return s
	})
	ask := func(query string) (a labelledAnswer) {
		t.Helper()
		get200(t, h, "/api/outsight/labelled?"+query, &a)
		return a
	}
	a := ask("from=now-20s&metrics=container_energy_joules_total")
	if len(a.Rows) != 4 || a.CoveredSeconds != 20 || a.Omitted != 0 {
		t.Fatalf("%+v", a)
	}
	for _, r := range a.Rows {
		want := map[string]float64{"package": 60, "core": 20}[r.Labels["domain"]]
		if *r.Value != want || *r.PerSecond != want/20 || r.Node != sh.byName[r.Name].ID || r.Host != "shop-1" ||
			r.Labels["source"] != "rapl" {
			t.Errorf("%+v gained %v, want %v", r, *r.Value, want)
		}
	}
	a = ask("from=now-20s&by=workload&metrics=container_energy_joules_total&node=workload/data/Deployment/stores&points=4")
	if len(a.Rows) != 4 || len(a.Times) != 4 || a.Times[3] != float64(now.Unix()) {
		t.Fatalf("%+v", a)
	}
	for _, r := range a.Rows {
		want := map[string]float64{"package": 3, "core": 1}[r.Labels["domain"]]
		if !reflect.DeepEqual(r.Values, line{want, want, want, want}) || r.Node != "workload/data/Deployment/stores" {
			t.Errorf("%+v, want %v W", r, want)
		}
	}
	a = ask("from=now-20s&node=" + sh.byName["cart"].ID)
	if len(a.Rows) != 1 || a.Rows[0].Metric != "container_info" {
		t.Errorf("of cart: %+v", a.Rows)
	}
	// Numbers of hosts are among them, and levels are those at the end.
	a = ask("from=now-20s&metrics=outsight_agent_cpu_seconds_total,outsight_agent_resident_memory_bytes,outsight_entries")
	found := map[string]float64{}
	for _, r := range a.Rows {
		v := r.PerSecond
		if v == nil {
			v = r.Value
		}
		found[strings.TrimSuffix(r.Metric+" "+r.Labels["name"], " ")] = *v
	}
	if want := map[string]float64{"outsight_agent_cpu_seconds_total": 0.003, "outsight_entries edges": 18,
		"outsight_agent_resident_memory_bytes": 31 << 20, "outsight_entries cgroups": 11}; !reflect.DeepEqual(found, want) {
		t.Errorf("got %v, want %v", found, want)
	}
}

// Where there is no PromQL, answers have no queries: nothing is told that could not be asked.
func TestNoQueriesWithoutPromQL(t *testing.T) {
	k, _, now := fill(t, 30, nil)
	for mode, want := range map[PromQL][3]bool{PromQLOff: {}, PromQLContainers: {true, false, true},
		PromQLFull: {true, true, true}} {
		h := New(Options{Log: k.log, Now: func() time.Time { return now }, PromQL: mode})
		var g graphAnswer
		get200(t, h, "/api/outsight/graph?from=now-30s", &g)
		m := g.Matches[nodeNamed(t, g.Graph, "gateway").ID]
		if got := [3]bool{m.Usage != "", m.Served != "" && len(g.EdgeMatches) > 0, g.Numbers.Usage[0].Query != ""}; got != want {
			t.Errorf("%s: %v, want %v", mode, got, want)
		}
		var s servicesAnswer
		get200(t, h, "/api/outsight/services?from=now-30s", &s)
		if got := [2]bool{s.Columns[0].Query != "", s.ArrivalQuery != ""}; got != [2]bool{want[0], want[1]} {
			t.Errorf("%s: services %v", mode, got)
		}
		var a statusAnswer
		if get200(t, h, "/api/outsight/status", &a); a.PromQL != mode {
			t.Errorf("the status says %q, want %q", a.PromQL, mode)
		}
	}
}

// A host of which there is no new frame is told as silent.
func TestStatusTellsOfSilentHosts(t *testing.T) {
	k, sh, now := fill(t, 10, nil)
	s := sh.at(begin)
	s.Host.Name = "gone"
	if err := k.send(s); err != nil {
		t.Fatal(err)
	}
	if err := k.flush(); err != nil {
		t.Fatal(err)
	}
	for later, want := range map[time.Duration][]string{0: {}, 25 * time.Second: {"gone"}, time.Minute: {"shop-1", "gone"}} {
		var a statusAnswer
		get200(t, New(Options{Log: k.log, Now: func() time.Time { return now.Add(later) }}), "/api/outsight/status", &a)
		got := []string{}
		for _, h := range a.Silent {
			got = append(got, h.Name)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s later: %v, want %v", later, got, want)
		}
	}
}

// The map's own JSON is that of encoding/json.
func TestGraphAnswerIsJSON(t *testing.T) {
	k, _, now := fill(t, 30, nil)
	s := &server{Options: Options{Log: k.log, Now: func() time.Time { return now }, MaxEdges: 1000, Busy: NewSlots(),
		PromQL: PromQLFull}}
	answer, err := s.graph(t.Context(), httptest.NewRequest("GET", "/api/outsight/graph", nil))
	if err != nil {
		t.Fatal(err)
	}
	parts, release, err := answer.(encoder).encode()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	// Another answer does not take the memory of one that is still written.
	s.MaxEdges = 1
	other, err := s.graph(t.Context(), httptest.NewRequest("GET", "/api/outsight/graph", nil))
	if err != nil {
		t.Fatal(err)
	}
	_, releaseOther, err := other.(encoder).encode()
	if err != nil {
		t.Fatal(err)
	}
	releaseOther()
	own := slices.Concat(parts...)
	usual, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	var got, want map[string]any
	if err := errors.Join(json.Unmarshal(own, &got), json.Unmarshal(usual, &want)); err != nil ||
		!reflect.DeepEqual(got, want) || len(got["edges"].([]any)) == 0 {
		t.Errorf("%v: got\n%s\nwant\n%s", err, own, usual)
	}
}
