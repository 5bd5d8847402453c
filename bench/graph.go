package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"outsight/internal/api"
	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/graph"
	"outsight/internal/model"
)

const (
	// mapNodes and mapEdges are of the map that the goals are about.
	mapNodes, mapEdges = 10_000, 100_000
	mapHosts           = 50
	mapLayers          = 10
	// requestGoal is how long each question about that map may take, in seconds: a tenth of it for a tenth of the map.
	requestGoal = 0.3
)

// measureGraph times what the page asks of a large map: to build it, what limits the application, the critical path,
// and the request for the map itself, through the API and out of a log of frames.
func measureGraph(ctx context.Context) ([]row, error) {
	rows := measureAnalysis()
	for _, size := range []mapSize{{mapNodes / 10, mapEdges / 10, requestGoal / 10}, {mapNodes, mapEdges, requestGoal}} {
		r, err := measureMapRequests(ctx, size)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r...)
	}
	return rows, nil
}

// mapSize is a map, and how long a request for it may take, in seconds.
type mapSize struct {
	nodes, edges int
	goal         float64
}

// mapWindow is the length of the windows that are asked for.
const mapWindow = 5 * time.Minute

func measureAnalysis() []row {
	before, after := layered(mapNodes, mapEdges, 1), layered(mapNodes, mapEdges, 2)
	after.Time = before.Time.Add(time.Second)
	w := &frame.Window{From: before.Time, To: after.Time}
	cores := map[string]float64{}
	then := parted(after, mapHosts)
	for i, s := range parted(before, mapHosts) {
		b := frame.NewBuilder(before.Time)
		cores[s.Host.Name] = float64(s.Host.Cores)
		w.Hosts = append(w.Hosts, frame.HostSpans{Host: s.Host.Name,
			Spans: []frame.Span{{Before: b.Build(s), After: b.Build(then[i])}}})
	}
	runtime.GC() // of what was before
	var build, analyse, path []float64
	for range 5 {
		began := time.Now()
		g := graph.FromFrames(w, graph.Options{})
		built := time.Now()
		a := g.Analyse(cores)
		analysed := time.Now()
		p := g.CriticalPath(graph.P99, a.Entries, nil)
		path = append(path, time.Since(analysed).Seconds())
		build, analyse = append(build, built.Sub(began).Seconds()), append(analyse, analysed.Sub(built).Seconds())
		if a.SaturationRate == nil || p == nil || len(p.Hops) < 2 {
			panic(fmt.Sprintf("BUG: nothing was found in %d nodes and %d edges", len(g.Nodes), len(g.Edges)))
		}
	}
	of := func(what string, seconds []float64) row {
		return row{what: "map of 10,000 containers and 100,000 edges: " + what, value: median(seconds), unit: "s",
			budget: requestGoal, low: quartile(seconds, 1), high: quartile(seconds, 3),
			detail: fmt.Sprintf("median of %d, in memory, %d cores; before the server's measurements", len(seconds),
				runtime.GOMAXPROCS(0))}
	}
	return []row{of("to build it", build), of("what limits it", analyse), of("its critical path", path)}
}

// layered is an application of layers, each container of which calls some of the next layer; requests come in at the
// first.
func layered(nodes, edges, number int) *model.Snapshot {
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	n := uint64(number)
	h := &model.Histogram{Count: 400 * n, SumNS: n * 1e9, Offset: -300, Buckets: make([]uint64, 40)}
	for i := range h.Buckets {
		h.Buckets[i] = 10 * n
	}
	s := &model.Snapshot{Time: at, Window: time.Second, Host: model.Host{Name: "host", Cores: 64}}
	var containers []*model.Container
	for i := range nodes {
		c := &model.Container{ID: fmt.Sprintf("%064x", i+1), Name: fmt.Sprint("service-", i),
			Image: "registry.example/shop/service:1.2.3", Runtime: model.Docker, Started: at.Add(-time.Hour)}
		containers = append(containers, c)
		s.Containers = append(s.Containers, model.ContainerSample{Container: c,
			CPU:       &model.CPUCounters{UsageNS: n * uint64(1e6+i%1000*1e5), RunQueue: h},
			Processes: &model.ProcessCounters{Threads: 4, BusyThreads: 1}, Throttle: &model.ThrottleCounters{},
			Memory: &model.MemorySample{UsageBytes: 11e6},
			Disk:   &model.DiskCounters{ReadBytes: 21 * n}, Network: &model.NetworkCounters{ReceiveBytes: 31 * n},
			TCP: &model.TCPCounters{}})
	}
	counters := model.EdgeCounters{SentBytes: 100 * n, ReceivedBytes: 2000 * n, Opens: 3, Requests: 20 * n,
		Replies: 20 * n, Latency: h, TimeToFirstByte: h, RTT: h, Duration: h}
	edge := func(side model.Role, client, server model.Peer, to, i int) {
		s.Edges = append(s.Edges, model.Edge{Side: side, Client: client, Server: server, Confidence: model.Exact,
			Counters: counters,
			Service:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(to >> 16), byte(to >> 8), byte(to)}), uint16(8000+i))})
	}
	per := nodes / mapLayers
	for i := 0; i < per; i += 10 {
		edge(model.RoleServer, model.Peer{Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})},
			model.Peer{Container: containers[i]}, i, 0)
	}
	calls := max(1, (edges-len(s.Edges))/(nodes-per))
	for i := range nodes - per {
		for k := range calls {
			to := (i/per+1)*per + (i*calls+k*7)%per
			edge(model.RoleClient, model.Peer{Container: containers[i]}, model.Peer{Container: containers[to]}, to, k)
		}
	}
	for i := 0; len(s.Edges) < edges; i++ { // the rest of the division
		to := per + (i*11+5)%per
		edge(model.RoleClient, model.Peer{Container: containers[i%per]}, model.Peer{Container: containers[to]}, to,
			1000+i/per)
	}
	return s
}

// parted are the snapshots of the agents of so many hosts that together see what s has.
func parted(s *model.Snapshot, hosts int) (all []*model.Snapshot) {
	per := (len(s.Containers) + hosts - 1) / hosts
	on := map[*model.Container]int{}
	for i := range hosts {
		part := *s
		part.Host.Name = fmt.Sprintf("host-%02d.example", i)
		part.Containers = s.Containers[min(i*per, len(s.Containers)):min((i+1)*per, len(s.Containers))]
		part.Edges = nil
		part.Self.CPUNS = uint64(s.Time.Unix()) * 1e6
		for _, c := range part.Containers {
			on[c.Container] = i
		}
		all = append(all, &part)
	}
	for _, e := range s.Edges {
		watched := e.Client.Container
		if e.Side == model.RoleServer {
			watched = e.Server.Container
		}
		to := all[on[watched]]
		to.Edges = append(to.Edges, e)
	}
	return all
}

// filledLog has the frames of all hosts at the ends of windows, up to a time, and the key frames before them.
type filledLog struct {
	*framelog.Files
	end time.Time
	dir string
}

func fillLog(ctx context.Context, size mapSize, windows int) (*filledLog, error) {
	dir, err := os.MkdirTemp("/var/tmp", "outsight-bench-")
	if err != nil {
		return nil, err
	}
	log, err := framelog.Open(dir, framelog.Options{MaxBytes: 32 << 30, TidyEvery: -1})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	const behindKey = 20 * time.Second // as of a window that anybody asks for
	f := &filledLog{log, time.Now().Add(-time.Hour).Truncate(time.Minute).Add(behindKey), dir}
	builders, keys := map[string]*frame.Builder{}, map[string]*frame.Frame{}
	for i := range 2 * (windows + 1) {
		whole := layered(size.nodes, size.edges, i+1)
		whole.Time = f.end.Add(mapWindow * time.Duration(i/2-windows))
		if i%2 == 0 {
			whole.Time = whole.Time.Add(-behindKey)
		}
		var batch []framelog.Encoded
		for _, s := range parted(whole, mapHosts) {
			b := builders[s.Host.Name]
			if b == nil {
				b = frame.NewBuilder(s.Time)
				builders[s.Host.Name] = b
			}
			made := b.Build(s)
			if made.IsKey() {
				keys[s.Host.Name] = made
			}
			batch = append(batch, framelog.Encoded{Header: made.Header, Data: frame.Encode(nil, made, keys[s.Host.Name])})
		}
		if err := f.Append(ctx, batch); err != nil {
			f.remove()
			return nil, fmt.Errorf("filling the log: %w", err)
		}
	}
	runtime.GC() // of what the filling left
	return f, nil
}

func (f *filledLog) remove() {
	f.Close()
	os.RemoveAll(f.dir)
}

// measureMapRequests times the request that the page makes for its map: of the newest window, again and again as a page
// does, and of windows that nobody asked for before.
func measureMapRequests(ctx context.Context, size mapSize) ([]row, error) {
	defer runtime.GC()
	const requests = 15
	log, err := fillLog(ctx, size, requests)
	if err != nil {
		return nil, err
	}
	defer log.remove()
	h := api.New(api.Options{Log: log, Now: func() time.Time { return log.end }, Timeout: 10 * time.Minute})
	ask := func(what string, to time.Time) (float64, error) {
		var w unread
		at := time.Now()
		h.ServeHTTP(&w, httptest.NewRequestWithContext(ctx, http.MethodGet,
			fmt.Sprintf("/api/outsight/%s?from=%d&to=%d", what, to.Add(-mapWindow).Unix(), to.Unix()), nil))
		if w.status > http.StatusOK || !strings.Contains(w.begin, found[what]) {
			return 0, fmt.Errorf("asking for the %s: %d %.200s", what, w.status, w.begin)
		}
		return time.Since(at).Seconds(), nil
	}
	var rows []row
	for _, one := range []struct {
		what, path, detail string
		step               time.Duration
		goal               float64
	}{{"of five minutes long ago", "graph", "other windows each time", mapWindow, size.goal},
		{"of the last five minutes", "graph", "the same window", 0, size.goal},
		{"for what limits it and its critical path", "path", "of all edges", 0, size.goal}} {
		var seconds []float64
		for i := range requests {
			took, err := ask(one.path, log.end.Add(-one.step*time.Duration(i)))
			if err != nil {
				return nil, err
			}
			seconds = append(seconds, took)
		}
		rows = append(rows, row{what: fmt.Sprintf("map of %s containers and %s edges: the page's request, %s",
			grouped(size.nodes), grouped(size.edges), one.what), value: median(seconds), unit: "s", budget: one.goal,
			low: quartile(seconds, 1), high: quartile(seconds, 3),
			detail: fmt.Sprintf("%s; median of %d, %d cores; the slowest %.3f s", one.detail, len(seconds),
				runtime.GOMAXPROCS(0), slices.Max(seconds))})
	}
	return rows, nil
}

// found is in the beginning of an answer that has something.
var found = map[string]string{"graph": `"nodes":[{`, "path": `"entries":[{"node":`}

// unread is what a request is answered with, of which the beginning is kept.
type unread struct {
	header http.Header
	status int
	begin  string
}

// Header implements http.ResponseWriter.
func (u *unread) Header() http.Header {
	if u.header == nil {
		u.header = http.Header{}
	}
	return u.header
}

// WriteHeader implements http.ResponseWriter.
func (u *unread) WriteHeader(status int) { u.status = status }

// Write implements http.ResponseWriter.
func (u *unread) Write(b []byte) (int, error) {
	u.begin += string(b[:min(len(b), max(0, 1<<12-len(u.begin)))])
	return len(b), nil
}

// grouped is n with commas.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
