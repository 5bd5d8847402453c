package api

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"outsight/internal/access"
	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/predict"
	"outsight/internal/recorder"
	"outsight/internal/store"
)

// The table of services is of the numbers of the map and of the path.
func TestServicesAreOfTheGraph(t *testing.T) {
	h, _, now := filled(t, 60, nil)
	var a servicesAnswer
	get200(t, h, "/api/outsight/services?from=now-60s", &a)
	var p pathAnswer
	get200(t, h, "/api/outsight/path?from=now-60s", &p)
	var g graphAnswer
	get200(t, h, "/api/outsight/graph?from=now-60s", &g)
	if a.ArrivalRate != p.ArrivalRate || *a.SaturationRate != *p.SaturationRate || a.Bottleneck != p.Bottleneck ||
		a.BottleneckName == "" || !a.To.Equal(now) {
		t.Errorf("got λ %v, λ_sat %v of %v, the path has %v, %v of %v", a.ArrivalRate, *a.SaturationRate,
			a.BottleneckName, p.ArrivalRate, *p.SaturationRate, p.Bottleneck)
	}
	byName := map[string]graph.Service{}
	for _, s := range a.Services {
		byName[s.Name] = s
	}
	for _, r := range p.Resources {
		if s, ok := byName[r.Name]; ok && (s.Utilisation != r.Utilisation || *s.Demand != *r.Demand) {
			t.Errorf("%s: U %v and D %v, the path has %v and %v", r.Name, s.Utilisation, *s.Demand, r.Utilisation, *r.Demand)
		}
	}
	gateway, served := byName["gateway"], nodeNamed(t, g.Graph, "gateway").Served
	if *gateway.TCP.P99 != *served.P99 || *gateway.ArrivalRate != *served.TransactionsPerSecond ||
		gateway.HTTP == nil || gateway.HTTP.Requests <= 0 || gateway.Failed <= 0 {
		t.Errorf("gateway: %+v", gateway)
	}
	if redis := byName["redis"]; redis.HTTP != nil || redis.TCP == nil {
		t.Errorf("redis: %+v", redis)
	}
	if len(byName) != len(work)+1 {
		t.Errorf("%d services, want the %d containers and the host's CPUs: %v", len(byName), len(work), byName)
	}
}

// What is computed from the map is computed from all of its edges, however few are shown.
func TestAnswersAreOfAllEdges(t *testing.T) {
	k, _, now := fill(t, 60, nil)
	body := func(edges int, path string) string {
		w := httptest.NewRecorder()
		New(Options{Log: k.log, Now: func() time.Time { return now }, MaxEdges: edges, PromQL: PromQLFull}).ServeHTTP(w,
			httptest.NewRequest("GET", path, nil))
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	for _, path := range []string{"services?from=now-20s", "path?from=now-20s&percentile=p99", "changes?from=now-20s",
		"matrix?from=now-20s"} {
		if few, all := body(1, "/api/outsight/"+path), body(0, "/api/outsight/"+path); few != all {
			t.Errorf("%s is of the edges that are shown:\n%s\nand of all:\n%s", path, few, all)
		}
	}
	var few, all graphAnswer
	for into, edges := range map[*graphAnswer]int{&few: 1, &all: 0} {
		if err := json.Unmarshal([]byte(body(edges, "/api/outsight/graph?from=now-20s")), into); err != nil {
			t.Fatal(err)
		}
	}
	if len(few.Edges) != 1 || few.OmittedEdges != len(all.Edges)-1 || len(few.EdgeMatches) != 1 || all.OmittedEdges != 0 {
		t.Errorf("%d edges and %d left out of %d", len(few.Edges), few.OmittedEdges, len(all.Edges))
	}
	for _, n := range all.Nodes {
		if shown := few.Node(n.ID); shown != nil && n.Served != nil &&
			*shown.Served.TransactionsPerSecond != *n.Served.TransactionsPerSecond {
			t.Errorf("%s serves %v requests per second of %v", n.Name, *shown.Served.TransactionsPerSecond,
				*n.Served.TransactionsPerSecond)
		}
	}
}

// The map has all numbers of the node that is asked for, though its edges are left out.
func TestNodeOfTheMap(t *testing.T) {
	k, _, now := fill(t, 60, nil)
	h := New(Options{Log: k.log, Now: func() time.Time { return now }, MaxEdges: 1})
	ask := func(node string) graphAnswer {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/api/outsight/graph?from=now-20s&node="+url.QueryEscape(node), nil))
		var a graphAnswer
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		return a
	}
	tried := 0
	brief := ask("")
	for _, n := range brief.Nodes {
		if e := brief.Edges[0]; n.Served == nil || n.ID == e.Client || n.ID == e.Server {
			continue
		}
		whole := ask(n.ID).Node(n.ID).Served
		if whole.FirstByteP99 == nil {
			continue // it never answered
		}
		if n.Served.FirstByteP99 != nil || *whole.P99 != *n.Served.P99 {
			t.Errorf("%s: without asking %+v, with %+v", n.Name, n.Served, whole)
		}
		tried++
	}
	if tried == 0 {
		t.Error("no node is without an edge")
	}
}

// Requests use the memory of frames again, and none sees what another reads.
func TestRequestsUseMemoryAgain(t *testing.T) {
	k, _, now := fill(t, 120, nil)
	h := New(Options{Log: k.log, Now: func() time.Time { return now }, Busy: NewSlots()})
	ask := func(path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/api/outsight/"+path, nil))
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	want := map[string]string{}
	for i := range 20 {
		for _, what := range []string{"graph", "path", "services", "containers", "matrix", "hosts"} {
			path := fmt.Sprintf("%s?from=%d&to=%d", what, now.Unix()-100+int64(i), now.Unix()-50+int64(i))
			want[path] = ask(path)
		}
	}
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for path, want := range want {
				if got := ask(path); got != want {
					at := 0
					for at < min(len(got), len(want)) && got[at] == want[at] {
						at++
					}
					t.Errorf("%s: %.80q is %.80q now", path, want[at:], got[at:])
				}
			}
		})
	}
	asking.Wait()
}

// A request is among those that compute something large until its answer is encoded, however often it computes, and no
// longer.
func TestPlaceOfARequest(t *testing.T) {
	k, _, now := fill(t, 60, nil)
	busy := store.NewScheduler(store.SchedulerOptions{Slots: 1, Waiting: 1})
	h := New(Options{Log: k.log, Now: func() time.Time { return now }, Busy: busy})
	for _, path := range []string{"graph", "changes", "picture", "path", "graph?by=nothing"} {
		w := watched{ResponseRecorder: httptest.NewRecorder(), t: t, busy: busy}
		h.ServeHTTP(w, httptest.NewRequest("GET", "/api/outsight/"+path, nil))
		if w.Body.Len() == 0 {
			t.Errorf("%s: %d without an answer", path, w.Code)
		}
	}
}

// watched sees to it that nothing is written while the request has a place.
type watched struct {
	*httptest.ResponseRecorder
	t    *testing.T
	busy *store.Scheduler
}

func (w watched) Write(b []byte) (int, error) {
	if w.busy.Running() > 0 {
		w.t.Error("the request has its place while it is answered")
	}
	return w.ResponseRecorder.Write(b)
}

func TestQueryOfManyEntries(t *testing.T) {
	if got := withEntries("sum(rate(x{$entries}[$window]))", `a="b"`); got != `sum(rate(x{a="b"}[$window]))` {
		t.Error(got)
	}
	if got := withEntries("sum(rate(x{$entries}[$window]))", strings.Repeat("x", store.MaxQueryBytes)); got != "" {
		t.Errorf("a query of %d bytes, which is not answered", len(got))
	}
	if got := withEntries("up", strings.Repeat("x", store.MaxQueryBytes)); got != "up" {
		t.Error(got)
	}
}

func TestWriteJSON(t *testing.T) {
	request := httptest.NewRequest("GET", "/", nil)
	request.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	(&server{pace: usualPace}).writeJSON(w, request, map[string]any{"a": 1, "b": math.NaN()},
		func() { t.Error("it is encoded") })
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "writing the answer") ||
		w.Header().Get("Content-Encoding") != "" {
		t.Errorf("of no number: %d %v %s", w.Code, w.Header(), w.Body)
	}
	for _, n := range []int{1, 100_000} {
		w := httptest.NewRecorder()
		encoded := 0
		(&server{pace: usualPace}).writeJSON(w, request, strings.Repeat("<", n), func() {
			if encoded++; w.Body.Len() > 0 {
				t.Error("something was written before")
			}
		})
		if encoded != 1 {
			t.Errorf("%d characters were encoded %d times", n, encoded)
		}
		var body io.Reader = w.Body
		if packed := w.Header().Get("Content-Encoding") == "gzip"; packed != (n > 1) {
			t.Errorf("%d characters are packed: %v", n, packed)
		} else if packed {
			var err error
			if body, err = gzip.NewReader(body); err != nil {
				t.Fatal(err)
			}
		}
		var got string
		if err := json.NewDecoder(body).Decode(&got); err != nil || got != strings.Repeat("<", n) ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%d characters: %d of them, %v %v", n, len(got), err, w.Header())
		}
	}
}

// The query beside each number of a service is one that the store answers, with nearly that number.
func TestServicesQueriesTellTheSame(t *testing.T) {
	k, h, now := fillSeries(t, 120, nil)
	var a servicesAnswer
	get200(t, h, "/api/outsight/services?from=now-120s", &a)
	var g graphAnswer
	get200(t, h, "/api/outsight/graph?from=now-120s", &g)
	results, err := k.series.Instant(t.Context(), strings.ReplaceAll(a.ArrivalQuery, "$window", "120s"), now)
	if err != nil || len(results) != 1 || last(results[0]) < 0.9*a.ArrivalRate || last(results[0]) > 1.1*a.ArrivalRate {
		t.Errorf("%v, %v for %s, want %v", results, err, a.ArrivalQuery, a.ArrivalRate)
	}
	var p pathAnswer
	if get200(t, h, "/api/outsight/path?from=now-120s", &p); p.ArrivalQuery != a.ArrivalQuery {
		t.Errorf("the path has %q, the services %q", p.ArrivalQuery, a.ArrivalQuery)
	}
	for _, s := range a.Services {
		if s.Name != "gateway" {
			continue
		}
		want := map[string]float64{"utilisation": s.Utilisation, "arrival_rate": *s.ArrivalRate, "demand": *s.Demand,
			"max_arrival_rate": *s.MaxArrivalRate,
			"threads":          *s.Threads, "http_p50": float64(*s.HTTP.P50), "http_p99": float64(*s.HTTP.P99),
			"tcp_p50": float64(*s.TCP.P50),
			"tcp_p99": float64(*s.TCP.P99), "error_share": *s.ErrorShare}
		for _, c := range a.Columns {
			if c.Query == "" {
				continue
			}
			query := strings.NewReplacer("$usage", g.Matches[s.Node].Usage, "$served", g.Matches[s.Node].Served,
				"$window", "120s", "$parallel", "2").Replace(c.Query)
			results, err := k.series.Instant(t.Context(), query, now)
			if err != nil || len(results) != 1 {
				t.Errorf("%s: %v for %s, with %d results", c.Key, err, query, len(results))
				continue
			}
			if got := last(results[0]); got < 0.9*want[c.Key] || got > 1.1*want[c.Key] {
				t.Errorf("%s: %v by PromQL, %v here, of %s", c.Key, got, want[c.Key], query)
			}
			delete(want, c.Key)
		}
		if len(want) > 0 {
			t.Errorf("no column of %v", want)
		}
	}
}

func TestHostsAddUp(t *testing.T) {
	h, _, now := filled(t, 60, func(_ int, s *model.Snapshot) *model.Snapshot {
		s.Self.IdleNS = uint64(s.Time.Sub(begin).Seconds() * 0.3e9)
		s.Self.StealNS = uint64(s.Time.Sub(begin).Seconds() * 0.2e9)
		return s
	})
	var a hostsAnswer
	get200(t, h, "/api/outsight/hosts?from=now-60s", &a)
	if len(a.Hosts) != 1 {
		t.Fatalf("got %+v", a.Hosts)
	}
	r := a.Hosts[0]
	sum, idle, stolen := 0.0, 0.0, 0.0
	for _, p := range r.Parts {
		sum += p.Share
		switch p.Kind {
		case graph.PartIdle:
			idle = p.CPUCores
		case graph.PartSteal:
			stolen = p.CPUCores
		}
	}
	if stolen < 0.2-1e-9 || stolen > 0.2+1e-9 {
		t.Errorf("%v cores taken by the hypervisor, want 0.2", stolen)
	}
	if r.Name != "shop-1" || r.Cores != 2 || r.Containers != len(work)-1 || sum < 1-1e-9 || sum > 1+1e-9 ||
		idle < 0.3-1e-9 || idle > 0.3+1e-9 {
		t.Errorf("%s: %v cores, %d containers, shares %v, idle %v", r.Name, r.Cores, r.Containers, sum, idle)
	}
	if r.LastHeard == nil || !r.LastHeard.Equal(now) || r.Version == "" || r.CoveredSeconds != 60 ||
		r.AgentCPUCores == nil || *r.AgentCPUCores < 0.0029 || *r.AgentCPUCores > 0.0031 || r.AgentMemoryBytes == nil ||
		*r.AgentMemoryBytes != 31<<20 {
		t.Errorf("the agent: heard %v, version %q, covered %v, CPU %v", r.LastHeard, r.Version, r.CoveredSeconds,
			r.AgentCPUCores)
	}
	if got := r.Numbers["agent_read_seconds"]; got != 0.0009 || len(a.Numbers) == 0 {
		t.Errorf("the reading took %v s, want 0.0009; numbers %+v", got, a.Numbers)
	}
	if r.CountedShare == nil || *r.CountedShare <= 0 || *r.CountedShare > 1 {
		t.Errorf("counted %v", r.CountedShare)
	}
}

// A host that fell silent is told with the time at which it did.
func TestHostThatFellSilent(t *testing.T) {
	k, sh, now := fill(t, 30, nil)
	for i := range 31 {
		s := sh.at(begin.Add(time.Duration(i) * time.Second))
		s.Host.Name = "silent"
		if i <= 12 {
			if err := errors.Join(k.send(s), k.flush()); err != nil {
				t.Fatal(err)
			}
		}
	}
	h := New(Options{Log: k.log, Now: func() time.Time { return now }})
	var a hostsAnswer
	get200(t, h, "/api/outsight/hosts?from=now-30s", &a)
	for _, r := range a.Hosts {
		if r.Name == "silent" && r.LastHeard != nil && r.LastHeard.Equal(begin.Add(12*time.Second)) {
			return
		}
	}
	t.Errorf("got %+v", a.Hosts)
}

func TestRecordingsListWhatIsKept(t *testing.T) {
	h, _, _ := flying(t, 400, 200)
	var a recordingsAnswer
	get200(t, h, "/api/outsight/recordings", &a)
	if a.Flight == nil || a.Flight.IntervalMS != 50 || a.Flight.From == nil ||
		a.Flight.To.Sub(*a.Flight.From) < 19*time.Second || a.Flight.Bytes == 0 || a.Absent != "" {
		t.Errorf("got %+v of %+v", a, a.Flight)
	}
}

func TestRecordingsHaveAnomaliesAndTheirFiles(t *testing.T) {
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "7.json"), make([]byte, 1234), 0o600); err != nil {
		t.Fatal(err)
	}
	around := &recorder.FlightData{Interval: 50 * time.Millisecond, Wall: begin}
	kept := func(n uint64) recorder.KeptAnomaly {
		return recorder.KeptAnomaly{Number: n, Anomaly: model.Anomaly{Resource: "stall", Container: "<b>cart</b>",
			ID: "c", From: begin, To: begin.Add(80 * time.Millisecond),
			WaitedMS: 120, Text: "stood still", Effects: []string{"gateway waited"}}}
	}
	h := New(Options{
		Now:    func() time.Time { return begin },
		Flight: func(time.Duration) *recorder.FlightData { return &recorder.FlightData{Interval: 50 * time.Millisecond} },
		Anomalies: func() *recorder.Anomalies {
			return &recorder.Anomalies{List: []recorder.KeptAnomaly{kept(7), kept(8)}, Dropped: 3}
		},
		AnomalyFiles: directory,
		Anomaly: func(n uint64) *recorder.FlightData {
			if n == 7 {
				return around
			}
			return nil
		},
	})
	var a recordingsAnswer
	get200(t, h, "/api/outsight/recordings", &a)
	if len(a.Anomalies) != 2 || a.Dropped != 3 || a.Directory != directory || a.Flight.From != nil {
		t.Fatalf("got %+v", a)
	}
	if k := a.Anomalies[0]; k.File != "7.json" || k.Bytes != 1234 || k.Kind != "stall" ||
		k.Container != "<b>cart</b>" || k.To.Sub(k.From) != 80*time.Millisecond || len(k.Effects) != 1 {
		t.Errorf("got %+v", k)
	}
	if k := a.Anomalies[1]; k.File != "" {
		t.Errorf("got %+v, which has no file", k)
	}
	var f flightJSON
	get200(t, h, "/api/outsight/flight?anomaly=7", &f)
	for query, want := range map[string]string{"anomaly=9": "no anomaly 9", "anomaly=x": "want the number"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/api/outsight/flight?"+query, nil))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}

func TestRecordingsOfAServer(t *testing.T) {
	h, _, _ := filled(t, 2, nil)
	var a recordingsAnswer
	get200(t, h, "/api/outsight/recordings", &a)
	if a.Flight != nil || !strings.Contains(a.Absent, "outsight up") || len(a.Anomalies) != 0 {
		t.Errorf("got %+v", a)
	}
}

func TestStatusTellsOfRefusedRequests(t *testing.T) {
	auth, err := access.NewAuthenticator(map[string][]string{"": {"0123456789abcdef"}})
	if err != nil {
		t.Fatal(err)
	}
	k, _, now := fill(t, 2, nil)
	h := New(Options{Log: k.log, Now: func() time.Time { return now }, Auth: auth})
	for range 3 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/api/outsight/status", nil))
	}
	r := httptest.NewRequest("GET", "/api/outsight/status", nil)
	r.Header.Set("Authorization", "Bearer 0123456789abcdef")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var a statusAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &a); w.Code != http.StatusOK || err != nil {
		t.Fatalf("%d %s, %v", w.Code, w.Body, err)
	}
	if len(a.Refusals) != 1 || a.Refusals[0].What != model.RefusedReaders || a.Refusals[0].Count != 3 ||
		a.Refusals[0].From != "192.0.2.1" || a.Refusals[0].Last == nil {
		t.Errorf("got %+v", a.Refusals)
	}
	// A sender that is refused by the same tokens is no reader.
	auth.Check("Bearer of-a-sender")
	if got := auth.RefusedReaders(); got != 3 {
		t.Errorf("%d readers were refused, want 3", got)
	}
}

// TestWhatifPower: what meters tell of a host reaches the prediction, which says that it cannot learn from a steady load.
func TestWhatifPower(t *testing.T) {
	h, _, _ := filled(t, 60, func(second int, s *model.Snapshot) *model.Snapshot {
		s.Energy = &model.EnergySample{Parts: []model.EnergyPart{{Domain: "package", Source: "powercap",
			Idle: 40e6 * uint64(second), System: 10e6 * uint64(second)}}}
		return s
	})
	var a whatifAnswer
	get200(t, h, "/api/outsight/whatif?from=now-60s&load=2x", &a)
	if len(a.Power) != 1 || a.Watts != nil || !strings.Contains(a.Power[0].Unknown, "its CPU time hardly changed") {
		t.Errorf("power is %+v, all %+v", a.Power, a.Watts)
	}
}

// What would be at the load that there was is what was, and what is asked for wrongly is refused.
func TestWhatif(t *testing.T) {
	h, _, _ := filled(t, 60, nil)
	var a whatifAnswer
	get200(t, h, "/api/outsight/whatif?from=now-60s&load=2x", &a)
	var p pathAnswer
	get200(t, h, "/api/outsight/path?from=now-60s", &p)
	if a.Rate != 2*a.MeanRate || math.Abs(a.MeanRate/p.ArrivalRate-1) > 0.02 || len(a.Resources) != len(p.Resources) {
		t.Fatalf("the mean rate is %v, of the path %v; that of the scenario %v; %d resources, of the path %d", a.MeanRate,
			p.ArrivalRate, a.Rate, len(a.Resources), len(p.Resources))
	}
	for _, was := range p.Resources {
		i := slices.IndexFunc(a.Resources, func(r predict.Resource) bool { return r.Node == was.Node })
		if i < 0 || a.Resources[i].Before == nil || math.Abs(a.Resources[i].Before.Value-was.Utilisation) > 0.02 {
			t.Errorf("%s: it was used at %v, told is %+v", was.Name, was.Utilisation, a.Resources)
		}
	}
	var services servicesAnswer
	get200(t, h, "/api/outsight/services?from=now-60s", &services)
	if len(a.Entries) != len(services.Entries) || len(a.Entries) == 0 {
		t.Fatalf("entries %+v, want %+v", a.Entries, services.Entries)
	}
	for i, was := range services.Entries {
		e := a.Entries[i]
		if e.Node != was.Node || e.Before == nil || math.Abs(e.Before.P99.Value/float64(*was.P99)-1) > 0.1 ||
			!e.Saturated && e.Then.P99.Value < e.Before.P99.Value {
			t.Errorf("%s: p99 was %v, told is %+v", was.Name, *was.P99, e)
		}
	}
	for _, p := range a.Power {
		if p.Watts != nil || p.Unknown != "no meter tells its power" {
			t.Errorf("power without a meter: %+v", p)
		}
	}
	get200(t, h, "/api/outsight/whatif?from=now-60s&load=400/s&replicas=gateway:3&quota=redis:0.5", &a)
	if a.Rate != 400 {
		t.Errorf("the rate is %v", a.Rate)
	}
	for _, query := range []string{"load=2", "load=-1x", "load=x", "load=NaNx", "load=1e999x", "load=2x/s", "replicas=3",
		"replicas=gateway:0", "replicas=gateway:1.5", "replicas=nobody:2", "move=gateway",
		"move=gateway:", "move=gateway:nowhere", "move=nobody:shop-1", "down=nowhere", "down=shop-1", "quota=:2", "quota=gateway:0", "quota=gateway:Inf"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/outsight/whatif?from=now-60s&"+query, nil))
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: status %d, %s", query, w.Code, w.Body)
		}
	}
}
