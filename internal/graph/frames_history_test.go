package graph

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// counted is what a simulated host counted so far.
type counted struct{ cpu, bytes, transactions, requests uint64 }

// churn is a host whose containers come and go, each with an edge to a database and one to an address outside.
type churn struct {
	random *rand.Rand
	db     *model.ContainerSample
	jobs   []*job
	born   int
	counted
}

type job struct {
	c        *model.Container
	cpu      uint64
	counters [2]model.EdgeCounters
	endpoint model.Endpoint
	instance uint64
}

func newChurn(seed uint64) *churn {
	return &churn{random: rand.New(rand.NewPCG(seed, 7)), db: &model.ContainerSample{
		Container: container("db", "postgres"), CPU: &model.CPUCounters{}}}
}

// next lets some time go by, and tells what there is then.
func (c *churn) next(now time.Time) *model.Snapshot {
	for range c.random.IntN(3) {
		c.born++
		c.jobs = append(c.jobs, &job{c: container(fmt.Sprint("id-", c.born), fmt.Sprint("job-", c.random.IntN(4))),
			instance: uint64(c.born*2 + 1), endpoint: model.Endpoint{EndpointKey: model.EndpointKey{Protocol: model.PostgreSQL,
				Name: "SELECT", Status: "ok"}}})
	}
	s := &model.Snapshot{Time: now, Host: model.Host{Name: "vm", BootTime: start.Add(-time.Hour)}}
	db := *c.db
	s.Containers = append(s.Containers, db)
	var left []*job
	for _, j := range c.jobs {
		gained := uint64(c.random.IntN(1000))
		j.cpu, c.cpu = j.cpu+gained*exact, c.cpu+gained*exact
		ended := c.random.IntN(10) == 0
		copied := *j.c
		if ended {
			copied.Ended = now
		} else {
			left = append(left, j)
		}
		s.Containers = append(s.Containers, model.ContainerSample{Container: &copied,
			CPU: &model.CPUCounters{UsageNS: j.cpu}})
		for i := range j.counters {
			d := latency(1, time.Duration(1+c.random.IntN(50))*time.Millisecond)
			j.counters[i].Add(&model.EdgeCounters{SentBytes: gained, Latency: d, Requests: 1, Replies: 1})
			c.bytes, c.transactions = c.bytes+gained, c.transactions+1
			e := model.Edge{Instance: j.instance + uint64(i), Side: model.RoleClient, Client: inside(&copied),
				Server: inside(db.Container), Counters: j.counters[i], Confidence: model.Exact}
			if i == 1 {
				e.Server, e.Confidence = outside(fmt.Sprint("203.0.113.", 1+c.random.IntN(2))), model.NotFound
			} else {
				j.endpoint.Latency = j.endpoint.Latency.Clone()
				if j.endpoint.Latency == nil {
					j.endpoint.Latency = &model.Histogram{}
				}
				j.endpoint.Latency.Merge(d)
				c.requests++
				e.Endpoints = []model.Endpoint{j.endpoint}
			}
			s.Edges = append(s.Edges, e)
		}
	}
	c.jobs = left
	return s
}

// totals are what all nodes and edges of a graph have.
func totals(g *Graph) (sum counted) {
	for _, n := range g.Nodes {
		if n.Usage != nil && n.Usage.CPUCores != nil {
			sum.cpu += uint64(math.Round(*n.Usage.CPUCores * g.CoveredSeconds * 1e9))
		}
	}
	for _, e := range g.Edges {
		sum.bytes += uint64(e.Best().Of(RequestBytes))
		sum.transactions += uint64(e.Best().latency.Count)
		for _, one := range e.Endpoints {
			sum.requests += uint64(one.Requests)
		}
	}
	return sum
}

func (c counted) since(before counted) counted {
	return counted{c.cpu - before.cpu, c.bytes - before.bytes, c.transactions - before.transactions,
		c.requests - before.requests}
}

// TestWindowsOfAHistory: whatever came and went in a window, its graph has all that was counted.
func TestWindowsOfAHistory(t *testing.T) {
	c := newChurn(1)
	b := frame.NewBuilder(start)
	var frames []*frame.Frame
	var truth []counted
	for i := range 250 {
		frames = append(frames, b.Build(c.next(start.Add(time.Duration(i)*20*time.Second))))
		truth = append(truth, c.counted)
	}
	ended := false
	for range 150 {
		from := c.random.IntN(len(frames) - 1)
		to := from + 1 + c.random.IntN(len(frames)-1-from)
		want := truth[to].since(truth[from])
		for _, by := range []Grouping{ByContainer, ByProcess, ByHost} {
			g := FromFrames(windowBetween(frames[from], frames[to]), Options{By: by})
			if got := totals(g); got != want {
				t.Fatalf("by %s from %d to %d: got %+v, want %+v", by, from, to, got, want)
			}
			ended = ended || slices.ContainsFunc(g.Nodes, func(n *Node) bool { return n.ID == "ended/vm/job-1" && n.Gone })
		}
	}
	if !ended {
		t.Error("no window had what ended and was summed")
	}
}

// TestWhatEndedIsShown: with the container that goes on under the name if that is the only one, else on its own.
func TestWhatEndedIsShown(t *testing.T) {
	old, db := container("a", "web"), container("db", "db")
	at := func(second int, c *model.Container, others ...*model.Container) *model.Snapshot {
		s := &model.Snapshot{Time: start.Add(time.Duration(second) * time.Second), Host: model.Host{Name: "vm"}}
		for _, one := range append([]*model.Container{c, db}, others...) {
			s.Containers = append(s.Containers, model.ContainerSample{Container: one,
				CPU: &model.CPUCounters{UsageNS: uint64(second) * 1e9}})
		}
		s.Edges = []model.Edge{{Side: model.RoleClient, Client: inside(c), Server: inside(db), Confidence: model.Exact,
			Instance: uint64(c.ID[0]), Counters: model.EdgeCounters{SentBytes: uint64(second)}}}
		return s
	}
	next, third := container("b", "web"), container("c", "web")
	// The first one ends after 100 s, and has no row any more after 1,000 s.
	f := framesOf(at(50, old), at(100, old), at(150, next), at(1000, next), at(1001, next, third))
	g := FromFrames(windowBetween(f[0], f[3]), Options{})
	if n := g.Node("b"); len(g.Nodes) != 2 || n == nil || n.Gone || *n.Usage.CPUCores*950 != 50+1000 {
		t.Errorf("%d nodes, %+v", len(g.Nodes), n)
	}
	if len(g.Edges) != 1 || g.Edges[0].ClientSide.Of(RequestBytes) != 50+1000 || g.Edges[0].Confidence != "exact" {
		t.Errorf("%d edges, %+v", len(g.Edges), g.Edges[0].ClientSide)
	}
	g = FromFrames(windowBetween(f[0], f[4]), Options{})
	n := g.Node("ended/vm/web")
	if len(g.Nodes) != 4 || n == nil || !n.Gone || n.Name != "web" || *n.Usage.CPUCores*951 != 50 || n.Called == nil ||
		n.Called.Of(RequestBytes) != 50 {
		t.Errorf("%d nodes, %+v", len(g.Nodes), n)
	}
	// It is in no window that begins when nothing was left of it.
	if g = FromFrames(windowBetween(f[3], f[4]), Options{}); g.Node("ended/vm/web") != nil || len(g.Edges) != 1 {
		t.Errorf("%d edges, %+v", len(g.Edges), g.Node("ended/vm/web"))
	}
}

// restarted are windows across the restart of an agent: the kernel's counters begin anew, those of files go on.
func restarted(boot time.Time, after ...uint64) *frame.Window {
	c := container("a", "web")
	at := func(second int, cpu, disk, bytes uint64, boot time.Time) *model.Snapshot {
		return &model.Snapshot{Time: start.Add(time.Duration(second) * time.Second),
			Host: model.Host{Name: "vm", BootTime: boot}, Containers: []model.ContainerSample{{Container: c,
				CPU: &model.CPUCounters{UsageNS: cpu * 1e9}, Disk: &model.DiskCounters{ReadBytes: disk}}},
			Edges: []model.Edge{{Side: model.RoleClient, Client: inside(c), Server: outside("203.0.113.9"),
				Counters: model.EdgeCounters{SentBytes: bytes, Opens: 3, Closes: 1}}}}
	}
	first := framesOf(at(0, 100, 1000, 10, start), at(10, 103, 1300, 30, start))
	second := framesOf(at(20, after[0], after[1], after[2], boot))
	return &frame.Window{From: start, To: start.Add(20 * time.Second), Hosts: []frame.HostSpans{{Host: "vm",
		Spans: []frame.Span{{Before: first[0], After: first[1]}, {After: second[0]}}}}}
}

func TestWindowAcrossARestart(t *testing.T) {
	check := func(name string, w *frame.Window, cpu, disk, bytes float64) {
		t.Helper()
		g := FromFrames(w, Options{})
		n := g.Node("a")
		if g.CoveredSeconds != 20 || n.Gone || *n.Usage.CPUCores*20 != cpu || *n.Usage.DiskReadBytes*20 != disk {
			t.Errorf("%s: %v s, %v s of CPU time and %v bytes read, want %v and %v", name, g.CoveredSeconds,
				*n.Usage.CPUCores*20, *n.Usage.DiskReadBytes*20, cpu, disk)
		}
		if s := g.Edges[0].ClientSide; s.Of(RequestBytes) != bytes || s.Open != 2 {
			t.Errorf("%s: %v bytes, want %v; %v connections, want 2", name, s.Of(RequestBytes), bytes, s.Open)
		}
	}
	check("an agent's restart", restarted(start, 2, 1700, 5), 3+2, 300+400, 20+5)
	check("a reboot", restarted(start.Add(15*time.Second), 2, 1700, 5), 3+2, 300+1700, 20+5)
	check("a container's restart", restarted(start, 2, 40, 5), 3+2, 300+40, 20+5)
}

// TestCountersOfFilesThatComeLate: a file that is first read in a later frame has counted since its container began. What it
// gained is told of windows from that frame on, of those in which the container began, and of no other one, as nobody
// knows what it had.
func TestCountersOfFilesThatComeLate(t *testing.T) {
	at := func(second int, read ...uint64) *model.Snapshot {
		s := &model.Snapshot{Time: start.Add(time.Duration(second) * time.Second), Host: model.Host{Name: "vm"},
			Containers: []model.ContainerSample{{Container: container("old", "old"), CPU: &model.CPUCounters{UsageNS: uint64(second) * 1e9}}}}
		if second >= 10 {
			s.Containers = append(s.Containers, model.ContainerSample{Container: container("new", "new")})
		}
		for i, bytes := range read {
			s.Containers[i].Disk = &model.DiskCounters{ReadBytes: bytes}
		}
		return s
	}
	check := func(name string, spans []frame.Span, old, fresh any) {
		t.Helper()
		last := spans[len(spans)-1].After
		g := FromFrames(&frame.Window{From: start, To: last.Time, Hosts: []frame.HostSpans{{Host: "vm", Spans: spans}}}, Options{})
		for id, want := range map[string]any{"old": old, "new": fresh} {
			var got any
			if n := g.Node(id); n == nil {
				t.Errorf("%s: no container %q", name, id)
			} else if rate := n.Usage.DiskReadBytes; rate != nil {
				got = math.Round(*rate * g.CoveredSeconds)
			}
			if got != want {
				t.Errorf("%s: %q read %v bytes, want %v", name, id, got, want)
			}
		}
	}
	f := framesOf(at(0), at(10), at(20, 700, 30), at(30, 750, 70))
	check("before the first reading", []frame.Span{{Before: f[0], After: f[1]}}, nil, nil)
	check("from before it", []frame.Span{{Before: f[0], After: f[3]}}, nil, 70.0)
	check("from a frame of both without it", []frame.Span{{Before: f[1], After: f[3]}}, nil, nil)
	check("from it on", []frame.Span{{Before: f[2], After: f[3]}}, 50.0, 40.0)
	// The agent begins anew in the window: what the file had when the agent before ended is known or not.
	next := framesOf(at(40, 800, 90))[0]
	check("an agent later, known", []frame.Span{{Before: f[2], After: f[3]}, {After: next}}, 100.0, 60.0)
	check("an agent later, unknown", []frame.Span{{Before: f[0], After: f[1]}, {After: next}}, nil, nil)
}

// TestHostsOfPartOfAWindow: one host is seen for half of the window, one in one frame alone, and one is not heard of
// any more.
func TestHostsOfPartOfAWindow(t *testing.T) {
	host := func(name string, seconds ...int) frame.HostSpans {
		c := container("on-"+name, name)
		var all []*model.Snapshot
		for _, second := range seconds {
			all = append(all, &model.Snapshot{Time: start.Add(time.Duration(second) * time.Second),
				Host: model.Host{Name: name}, Containers: []model.ContainerSample{{Container: c,
					CPU:    &model.CPUCounters{UsageNS: uint64(second) * 1e9},
					Memory: &model.MemorySample{UsageBytes: 7}}}})
		}
		f := framesOf(all...)
		return frame.HostSpans{Host: name, Spans: []frame.Span{{Before: f[0], After: f[len(f)-1]}}}
	}
	w := &frame.Window{From: start, To: start.Add(1000 * time.Second), Hosts: []frame.HostSpans{host("all", 0, 1000),
		host("half", 500, 1000), host("lost", 0, 400), host("once", 1000)}}
	once := w.Hosts[3].Spans[0].After
	w.Hosts = append(w.Hosts, frame.HostSpans{Host: "single", Spans: []frame.Span{{After: once}}})
	g := FromFrames(w, Options{})
	if g.CoveredSeconds != 1000 {
		t.Errorf("%v s are covered, want 1000", g.CoveredSeconds)
	}
	for name, gone := range map[string]bool{"all": false, "half": false, "lost": true} {
		if n := g.Node("on-" + name); n == nil || n.Gone != gone || *n.Usage.CPUCores != 1 || *n.Usage.MemoryBytes != 7 {
			t.Errorf("%s: %+v", name, n)
		}
	}
	if n := g.Node("on-once"); n == nil || n.Usage.CPUCores != nil || *n.Usage.MemoryBytes != 7 {
		t.Errorf("a host with one frame: %+v", n)
	}
}

// TestOnly: a graph of one node or edge has the numbers that it has in the graph of all.
func TestOnly(t *testing.T) {
	for seed := range uint64(30) {
		prev, cur := randomPair(rand.New(rand.NewPCG(seed, 2)))
		frames := framesOf(prev, cur)
		for _, by := range groupings {
			w := windowBetween(frames[0], frames[1])
			all := FromFrames(w, Options{By: by})
			for _, n := range all.Nodes {
				one := FromFrames(w, Options{By: by, Only: n.ID})
				same := one.Node(n.ID)
				if same == nil {
					t.Fatalf("by %s: no node %s in its own graph", by, n.ID)
				}
				for _, of := range []Of{OfUsage, OfServed, OfCalled} {
					for _, key := range []string{"cpu_cores", "memory_bytes_mean", "p99", "request_bytes", "retransmits"} {
						want, known := all.Number(n.ID, of, key)
						if got, ok := one.Number(n.ID, of, key); got != want || ok != known {
							t.Errorf("by %s: %s %s of %s is %v, want %v", by, of, key, n.ID, got, want)
						}
					}
				}
			}
			for _, e := range all.Edges {
				one := FromFrames(w, Options{By: by, Only: e.ID})
				if len(one.Edges) == 0 {
					t.Fatalf("by %s: no edge %s in its own graph", by, e.ID)
				}
				want, _ := all.Number(e.ID, OfBest, "p99")
				bytes, _ := all.Number(e.ID, OfBest, "response_bytes")
				got, _ := one.Number(e.ID, OfBest, "p99")
				if n, _ := one.Number(e.ID, OfBest, "response_bytes"); got != want || n != bytes {
					t.Errorf("by %s: %s has p99 %v and %v bytes, want %v and %v", by, e.ID, got, n, want, bytes)
				}
			}
		}
	}
}

// TestMeansOfLevels: of a window, and of a container that was there for a part of it.
func TestMeansOfLevels(t *testing.T) {
	c, late := container("a", "a"), container("b", "b")
	var all []*model.Snapshot
	for i := range 101 {
		s := &model.Snapshot{Time: start.Truncate(time.Minute).Add(time.Duration(i) * time.Second)}
		bytes := uint64(100)
		if i == 70 {
			bytes = 1100
		}
		s.Containers = []model.ContainerSample{{Container: c, Memory: &model.MemorySample{UsageBytes: bytes},
			Processes: &model.ProcessCounters{Threads: 4}}}
		if i > 50 {
			s.Containers = append(s.Containers, model.ContainerSample{Container: late,
				Memory: &model.MemorySample{UsageBytes: 1000}})
		}
		all = append(all, s)
	}
	f := framesOf(all...)
	g := FromFrames(windowBetween(f[0], f[100]), Options{})
	for _, want := range []struct {
		id, key string
		v       float64
	}{{"a", "memory_bytes", 100}, {"a", "memory_bytes_mean", 110}, {"a", "memory_bytes_highest", 1100},
		{"a", "threads_mean", 4}, {"b", "memory_bytes_mean", 500}, {"b", "memory_bytes_highest", 1000}} {
		if got, ok := g.Number(want.id, OfUsage, want.key); !ok || math.Abs(got-want.v) > 1e-9 {
			t.Errorf("%s of %s is %v, want %v", want.key, want.id, got, want.v)
		}
	}
}

// TestBothHostsOfAnEdge: what two hosts counted of the same connections is one edge.
func TestBothHostsOfAnEdge(t *testing.T) {
	at := netip.MustParseAddrPort("10.0.0.2:5432")
	w := &frame.Window{From: start, To: start.Add(10 * time.Second)}
	for _, side := range []model.Role{model.RoleClient, model.RoleServer} {
		c := container(side.String(), side.String())
		e := model.Edge{Instance: 1, Side: side, Client: inside(c), Server: model.Peer{Address: at.Addr()}, Service: at}
		c.Addresses = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		if side == model.RoleServer {
			c.Addresses, c.Listeners = []netip.Addr{at.Addr()}, []netip.AddrPort{at}
			e.Client, e.Server = outside("10.0.0.1"), inside(c)
		}
		e.Counters = model.EdgeCounters{SentBytes: 5, ReceivedBytes: 5, Latency: latency(3, time.Millisecond)}
		f := framesOf(&model.Snapshot{Time: w.From, Host: model.Host{Name: side.String()}}, &model.Snapshot{Time: w.To,
			Host: model.Host{Name: side.String()}, Containers: []model.ContainerSample{{Container: c}},
			Edges: []model.Edge{e}})
		w.Hosts = append(w.Hosts, frame.HostSpans{Host: side.String(), Spans: []frame.Span{{Before: f[0], After: f[1]}}})
	}
	g := FromFrames(w, Options{})
	if len(g.Edges) != 1 {
		t.Fatalf("%d edges, want 1", len(g.Edges))
	}
	e := g.Edges[0]
	if e.ID != "client>server" || !e.Paired || e.ClientSide.Of(Transactions) != 3 || e.ServerSide.Of(Transactions) != 3 ||
		e.NetworkSeconds == nil || e.Confidence == "none" {
		t.Errorf("%+v", e)
	}
}
