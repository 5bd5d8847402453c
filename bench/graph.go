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
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"outsight/internal/api"
	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

const (
	// mapGoal is how long each question about a large map may take, in seconds.
	mapGoal = 1
	// mapNodes and mapEdges are of the map that the goals are about.
	mapNodes, mapEdges = 10_000, 100_000
	mapHosts           = 50
	mapLayers          = 10
	// mapMemory is what must be free for the store of such a map, of three million series, and for the answer to a
	// query over all of it, in bytes; mapLimit is what Go may take of it before it collects garbage earlier.
	mapMemory, mapLimit = 20 << 30, 16 << 30
)

// measureGraph times what the page asks of a large map: to build it, what limits the application, the critical path,
// and the request for the map itself, through the API and out of a store that holds its series.
func measureGraph(ctx context.Context, o options) ([]row, error) {
	rows := measureAnalysis()
	sizes := []mapSize{{mapNodes / 10, mapEdges / 10, 2 * time.Second}}
	if free := availableMemory(); free >= mapMemory {
		sizes = append(sizes, mapSize{mapNodes, mapEdges, mapWindow})
	} else {
		fmt.Fprintf(os.Stderr, "bench: %d MiB are free, not %d: the request for the largest map is not measured\n",
			free>>20, mapMemory>>20)
	}
	for _, size := range sizes {
		r, err := measureMapRequests(ctx, size)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r...)
	}
	kept, err := measureKept(ctx, sizes[0])
	return append(rows, kept), err
}

// mapSize is a map, and how often a store has samples of it.
type mapSize struct {
	nodes, edges int
	every        time.Duration
}

// mapWindow is the length of the windows that are asked for. A store has samples of one before and of one after the
// moment in the middle.
const mapWindow = 70 * time.Second

// mapPast is how long before the middle a window begins that ends there: long enough for its ends to have files.
const mapPast = 6 * time.Minute

func measureAnalysis() []row {
	before, after := layered(mapNodes, mapEdges, 1), layered(mapNodes, mapEdges, 2)
	after.Time = before.Time.Add(time.Second)
	runtime.GC() // of what was before
	var build, analyse, path []float64
	for range 5 {
		began := time.Now()
		g := graph.FromSnapshots(before, after)
		built := time.Now()
		a := g.Analyse(map[string]float64{after.Host.Name: float64(after.Host.Cores)})
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
			budget: mapGoal, low: quartile(seconds, 1), high: quartile(seconds, 3),
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

// filledStore has the samples of two windows, of which the second begins in the middle, and those of mapPast before.
type filledStore struct {
	*store.Store
	size   mapSize
	middle time.Time
	dir    string
}

func fillStore(ctx context.Context, size mapSize, o store.Options) (*filledStore, error) {
	dir, err := os.MkdirTemp("/var/tmp", "outsight-bench-")
	if err != nil {
		return nil, err
	}
	o.MaxSeries, o.MaxSamples, o.MaxBytes, o.QueryTimeout = 8_000_000, 200_000_000, 32<<30, 10*time.Minute
	st, err := store.Open(dir, o)
	if err != nil {
		return nil, err
	}
	f := &filledStore{st, size, time.Now().Add(-time.Hour).Truncate(time.Minute), dir}
	times := []time.Duration{-mapPast - mapWindow, -mapPast} // the first is before values are kept
	for i := -mapWindow; i <= mapWindow; i += size.every {
		times = append(times, i)
	}
	for _, t := range times {
		if err := f.add(ctx, t); err != nil {
			f.remove()
			return nil, err
		}
	}
	runtime.GC() // of what the filling left
	return f, nil
}

// add stores what all agents see at a time after the middle.
func (f *filledStore) add(ctx context.Context, after time.Duration) error {
	whole := layered(f.size.nodes, f.size.edges, int((after+mapPast+mapWindow)/time.Second)+1)
	whole.Time = f.middle.Add(after)
	for _, s := range parted(whole, mapHosts) {
		if err := f.Append(ctx, otlp.FromFrame(frame.Of(s), otlp.SeriesOptions{})); err != nil {
			return fmt.Errorf("filling the store: %w", err)
		}
	}
	return nil
}

func (f *filledStore) remove() {
	f.Close()
	os.RemoveAll(f.dir)
}

// age makes what was stored so old that it is not kept in memory, and waits until files have what they are to have.
func (f *filledStore) age(ctx context.Context) error {
	for end := time.Now().Add(2 * time.Minute); f.Stats().MomentFiles <= int(mapPast/time.Minute); time.Sleep(time.Second) {
		if time.Now().After(end) {
			return fmt.Errorf("asking for the map: %d moments have files", f.Stats().MomentFiles)
		}
	}
	if err := f.add(ctx, 20*time.Minute); err != nil {
		return err
	}
	runtime.GC()
	return nil
}

// measureMapRequests times the request that the page makes for its map: of a window that the store keeps, as often as
// the page asks, of one that is read out of files, and of one that is read out of chunks.
func measureMapRequests(ctx context.Context, size mapSize) ([]row, error) {
	defer runtime.GC()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(mapLimit))
	st, err := fillStore(ctx, size, store.Options{})
	if err != nil {
		return nil, err
	}
	defer st.remove()
	middle, to := st.middle, st.middle.Add(mapWindow)
	h := api.New(st, api.Options{Now: func() time.Time { return to }, Timeout: 10 * time.Minute})
	ask := func(what string, from, to time.Time, requests int, pause time.Duration) (seconds []float64, err error) {
		for range requests {
			var w unread
			at := time.Now()
			h.ServeHTTP(&w, httptest.NewRequestWithContext(ctx, http.MethodGet,
				fmt.Sprintf("/api/outsight/%s?from=%d&to=%d", what, from.Unix(), to.Unix()), nil))
			seconds = append(seconds, time.Since(at).Seconds())
			if w.status > http.StatusOK || !strings.Contains(w.begin, found[what]) {
				return nil, fmt.Errorf("asking for the %s: %d %.200s", what, w.status, w.begin)
			}
			time.Sleep(pause - time.Since(at))
		}
		return seconds, nil
	}
	if _, ok := st.Kept(middle, 0); !ok {
		return nil, errors.New("asking for the map: the middle is not kept")
	}
	kept, err := ask("graph", middle, to, 15, pagePause)
	if err != nil {
		return nil, err
	}
	path, err := ask("path", middle, to, 15, pagePause)
	if err != nil {
		return nil, err
	}
	if err := st.age(ctx); err != nil {
		return nil, err
	}
	to = middle.Add(20 * time.Minute)
	past := middle.Add(-mapPast)
	for _, t := range []time.Time{past, middle} {
		if _, ok := st.Kept(t, 0); !ok {
			return nil, fmt.Errorf("asking for the map: %v has no file", t)
		}
	}
	filed, err := ask("graph", past, middle, 15, pagePause)
	if err != nil {
		return nil, err
	}
	first := middle.Add(-mapWindow)
	if moment, ok := st.Kept(first, mapWindow/5); ok {
		return nil, fmt.Errorf("asking for the map: %v is kept, near %v", moment, first)
	}
	read, err := ask("graph", first, middle, 3, 0)
	if err != nil {
		return nil, err
	}
	of := func(what, detail string, seconds []float64) row {
		return row{what: fmt.Sprintf("map of %s containers and %s edges: the page's request, %s", grouped(size.nodes),
			grouped(size.edges), what),
			value: median(seconds), unit: "s", budget: mapGoal, low: quartile(seconds, 1), high: quartile(seconds, 3),
			detail: fmt.Sprintf("%s series, %s; median of %d, %d cores; the slowest, while memory is collected, %.2f s; before the server's measurements",
				grouped(st.Stats().Live), detail, len(seconds), runtime.GOMAXPROCS(0), slices.Max(seconds))}
	}
	return []row{of("of the last minute", "out of what is kept, once in 2 s", kept),
		of("for what limits it and its critical path", "of all edges, out of what is kept, once in 2 s", path),
		of("of six minutes long ago", "out of files, once in 2 s", filed),
		of("of one minute long ago", "out of the store's chunks, one after the other", read)}, nil
}

// found is in the beginning of an answer that has something.
var found = map[string]string{"graph": `"nodes":[{`, "path": `"entries":[{"node":`}

// pagePause is how often the live page asks.
const pagePause = 2 * time.Second

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

// measureKept finds what kept moments take in memory, by a store that keeps none.
func measureKept(ctx context.Context, size mapSize) (row, error) {
	defer runtime.GC()
	var taken [2]uint64
	var stats store.Stats
	for i, from := range []int{1 << 40, 0} {
		st, err := fillStore(ctx, size, store.Options{KeepFrom: from})
		if err != nil {
			return row{}, err
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		taken[i], stats = m.HeapAlloc, st.Stats()
		st.remove()
		runtime.GC()
	}
	of := float64(taken[1]-min(taken[0], taken[1])) / float64(stats.Live)
	return row{what: "map: memory that kept moments take, per series", value: of, unit: "B",
		detail: fmt.Sprintf("%s series at %d moments; %d MiB in use, %d without", grouped(stats.Live), stats.Moments,
			taken[1]>>20, taken[0]>>20)}, nil
}

// grouped is n with commas.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// availableMemory is what can be used without taking it from anybody, in bytes.
func availableMemory() int64 {
	text, _ := os.ReadFile("/proc/meminfo")
	_, after, _ := strings.Cut(string(text), "MemAvailable:")
	line, _, _ := strings.Cut(after, "\n")
	kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(line), " kB"), 10, 64)
	return kib << 10
}
