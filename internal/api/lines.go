package api

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"time"

	"outsight/internal/frame"
	"outsight/internal/graph"
)

// linesAnswer are numbers of many nodes, edges and hosts over time.
type linesAnswer struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Times are the ends of the stretches that values are of, in seconds since 1970; each is StepSeconds long. There
	// are fewer than were asked for where that would be too much work, and none where there are too many hosts or edges.
	Times       []float64 `json:"times"`
	StepSeconds float64   `json:"step_seconds"`
	// Lines are by what was asked for, as "usage.cpu_cores", then by the ID of the node, the edge or the host.
	Lines map[string]map[string]line `json:"lines"`
	// Omitted is how many values are left out of those that were asked for.
	Omitted int `json:"omitted,omitempty"`
}

// Bounds of a request for lines.
const (
	maxLineNumbers = 40
	maxLineQuery   = 16 << 10 // bytes of its query string
)

// lines answers GET /api/outsight/lines: numbers=usage.cpu_cores,served.p99,... at points=N of the window, by as
// everywhere. They are of nodes (usage, served, called, service) with node=ID, of edges (edge: what the client counted,
// or else the server) with edge=ID and of all hosts (host); all nodes and edges where none is named. Of a container's ID
// the first 12 digits are enough. host=NAME says which hosts are enough.
func (s *server) lines(ctx context.Context, r *http.Request) (any, error) {
	from, to, err := s.windowOf(r, windowBounds{defaultFrom, minWindow, maxWindow, maxLineQuery})
	if err != nil {
		return nil, err
	}
	l, err := linesOf(r)
	if err != nil {
		return nil, err
	}
	_, t, leave, err := s.stretches(ctx, r, from, to, l.hosts, 1)
	if err != nil {
		return nil, err
	}
	defer leave()
	l.timeline = t
	l.answer = linesAnswer{From: from, To: to, Times: t.unix(), StepSeconds: t.step.Seconds(),
		Lines: map[string]map[string]line{}}
	for _, path := range l.numbers {
		l.answer.Lines[path] = map[string]line{}
	}
	err = s.eachStretch(ctx, &l.timeline, l.hosts, func(i int, w *frame.Window) {
		l.fill(i, graph.FromFrames(w, graph.Options{By: l.by, Names: s.Names}), &windowData{window: w})
	})
	return l.answer, err
}

// lined is what lines are of.
type lined struct {
	timeline
	by             graph.Grouping
	numbers, hosts []string
	// nodes and edges are short IDs; nil for all.
	nodes, edges map[string]bool
	// short are the short IDs of those that were met.
	short  map[string]string
	values int
	answer linesAnswer
}

func linesOf(r *http.Request) (*lined, error) {
	query := r.URL.Query()
	by, err := graph.ParseGrouping(query.Get("by"))
	if err != nil {
		return nil, badRequest("%w", err)
	}
	l := &lined{by: by, hosts: query["host"], short: map[string]string{}}
	l.numbers, err = numberPaths(query.Get("numbers"), maxLineNumbers)
	set := func(ids []string) (all map[string]bool) {
		for _, id := range ids {
			if all == nil {
				all = map[string]bool{}
			}
			all[shortID(id)] = true
		}
		return all
	}
	l.nodes, l.edges = set(query["node"]), set(query["edge"])
	return l, err
}

var longID = regexp.MustCompile(`(^|>)([0-9a-f]{12})[0-9a-f]{52}\b`)

// shortID has 12 digits of each container's ID, as its runtime's tools show.
func shortID(id string) string { return longID.ReplaceAllString(id, "$1$2") }

// wants reports whether an ID is one of those that are wanted.
func (l *lined) wants(of map[string]bool, id string) bool {
	if of == nil {
		return true
	}
	short, known := l.short[id]
	if !known {
		short = shortID(id)
		l.short[id] = short
	}
	return of[short]
}

// fill takes the values of a stretch.
func (l *lined) fill(stretch int, g *graph.Graph, data *windowData) {
	var services []graph.Service
	var hosts []hostRow
	for _, path := range l.numbers {
		scope, key, _ := strings.Cut(path, ".")
		switch scope {
		case "edge":
			for _, e := range g.Edges {
				if l.wants(l.edges, e.ID) {
					v, ok := e.Best().Number(key)
					l.add(path, e.ID, stretch, v, ok)
				}
			}
		case "service":
			if services == nil {
				_, services = g.Services(data.cores())
			}
			for i := range services {
				if l.wants(l.nodes, services[i].Node) {
					v, ok := serviceNumber(&services[i], key)
					l.add(path, services[i].Node, stretch, v, ok)
				}
			}
		case "host":
			if hosts == nil {
				hosts = data.hostRows(g)
			}
			for i := range hosts {
				v, ok := hosts[i].number(key)
				l.add(path, hosts[i].Name, stretch, v, ok)
			}
		default:
			for _, n := range g.Nodes {
				if l.wants(l.nodes, n.ID) {
					v, ok := nodeNumber(n, path)
					l.add(path, n.ID, stretch, v, ok)
				}
			}
		}
	}
}

func (l *lined) add(path, id string, stretch int, v float64, ok bool) {
	if !ok {
		return
	}
	all := l.answer.Lines[path]
	values, known := all[id]
	if !known {
		if l.values += len(l.times) - 1; l.values > maxPointValues {
			l.values -= len(l.times) - 1
			l.answer.Omitted++
			return
		}
	}
	l.set(&values, stretch, v)
	all[id] = values
}

// serviceNumber is a number of the table of operational analysis.
func serviceNumber(s *graph.Service, key string) (float64, bool) {
	number := func(v *float64) (float64, bool) {
		if v == nil {
			return 0, false
		}
		return *v, true
	}
	timing := func(t *graph.Timing, of func(*graph.Timing) *graph.Seconds) (float64, bool) {
		if t == nil || of(t) == nil {
			return 0, false
		}
		return float64(*of(t)), true
	}
	p50, p99 := func(t *graph.Timing) *graph.Seconds { return t.P50 }, func(t *graph.Timing) *graph.Seconds { return t.P99 }
	switch key {
	case "utilisation":
		return s.Utilisation, s.Parallel > 0
	case "arrival_rate":
		return number(s.ArrivalRate)
	case "demand":
		return number(s.Demand)
	case "max_arrival_rate":
		return number(s.MaxArrivalRate)
	case "threads":
		return number(s.Threads)
	case "error_share":
		return number(s.ErrorShare)
	case "latency":
		return number((*float64)(s.Latency))
	case "http_p50":
		return timing(s.HTTP, p50)
	case "http_p99":
		return timing(s.HTTP, p99)
	case "tcp_p50":
		return timing(s.TCP, p50)
	case "tcp_p99":
		return timing(s.TCP, p99)
	}
	return 0, false
}

// number is a number of a host by its key in the JSON, or of the registry.
func (r *hostRow) number(key string) (float64, bool) {
	number := func(v *float64) (float64, bool) {
		if v == nil {
			return 0, false
		}
		return *v, true
	}
	switch key {
	case "cpu_cores":
		return r.CPUCores, true
	case "containers":
		return float64(r.Containers), true
	case "containers_memory_bytes":
		return number(r.ContainersMemoryBytes)
	case "network_receive_bytes":
		return number(r.NetworkReceiveBytes)
	case "network_transmit_bytes":
		return number(r.NetworkTransmitBytes)
	case "disk_read_bytes":
		return number(r.DiskReadBytes)
	case "disk_write_bytes":
		return number(r.DiskWriteBytes)
	case "agent_cpu_cores":
		return number(r.AgentCPUCores)
	case "agent_memory_bytes":
		return number(r.AgentMemoryBytes)
	case "counted_share":
		return number(r.CountedShare)
	case "idle":
		for _, p := range r.Parts {
			if p.Kind == graph.PartIdle {
				return p.CPUCores, true
			}
		}
		return 0, false
	}
	v, ok := r.Numbers[key]
	return v, ok
}
