package graph

import (
	"math"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"outsight/internal/model"
)

// facts are the counters of an edge's client end, before and after what happened in a window.
func facts() (before, after model.EdgeCounters) {
	ms := time.Millisecond
	before = model.EdgeCounters{SentBytes: 10, ReceivedBytes: 1000, Requests: 20, Replies: 18, Aborts: 1, Transfers: 2,
		Held:   3,
		Pushes: 4, Resets: 5, TimedOut: 6, UnseenBytes: 7, Lost: 1, JitterSumNS: 1e9, RTTMinNS: 4e6,
		Latency: latency(10, ms), TimeToFirstByte: latency(10, ms), RTT: latency(10, ms),
		Duration: latency(10, ms), WindowLimitedNS: 1e9}
	after = model.EdgeCounters{SentBytes: 30, ReceivedBytes: 1300, Requests: 130, Replies: 124, Aborts: 3, Transfers: 5,
		Held:   4,
		Pushes: 14, Resets: 25, TimedOut: 36, UnseenBytes: 107, Lost: 9, JitterSumNS: 3e9, RTTMinNS: 2e6,
		Latency: latency(10, ms), TimeToFirstByte: latency(10, ms), RTT: latency(10, ms),
		Duration: latency(10, ms), WindowLimitedNS: 3_500_000_000}
	after.Duration.Merge(latency(70, 16*ms))
	after.Latency.Merge(latency(90, 8*ms))
	after.TimeToFirstByte.Merge(latency(90, 4*ms))
	after.RTT.Merge(latency(40, 2*ms))
	return before, after
}

func fromFacts(before, after model.EdgeCounters) *Graph {
	at := func(seconds int64, c model.EdgeCounters) *model.Snapshot {
		return &model.Snapshot{Time: start.Add(time.Duration(seconds) * time.Second), Host: model.Host{Name: "vm"},
			Edges: []model.Edge{{
				Side: model.RoleClient, Client: inside(container("aaaaaaaaaaaaaa", "web")), Server: inside(container("bb", "db")),
				Service: netip.MustParseAddrPort("10.0.0.2:80"), Confidence: model.ByListener, Counters: c}}}
	}
	return graphOf(at(0, before), at(20, after))
}

func TestFactsOfAnEdge(t *testing.T) {
	g := fromFacts(facts())
	s := g.Edges[0].ClientSide
	near := func(name string, got *Seconds, want float64) {
		t.Helper()
		if got == nil || math.Abs(float64(*got)/want-1) > model.RelativeError {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	near("first byte p50", s.FirstByteP50, 4e-3)
	near("first byte p99", s.FirstByteP99, 4e-3)
	near("RTT p50", s.RTTP50, 2e-3)
	near("RTT p99", s.RTTP99, 2e-3)
	near("duration p50", s.DurationP50, 16e-3)
	near("duration p99", s.DurationP99, 16e-3)
	got := []float64{s.Of(Transactions), s.Of(InFlight), s.Of(Transfers), s.Of(Held), s.Of(Pushes), s.Of(Resets),
		s.Of(TimedOut), s.Of(UnseenBytes),
		s.Of(LostTransactions), s.Of(WindowLimited),
		float64(*s.RTTMin), float64(*s.Jitter), *s.Completeness}
	want := []float64{90 + 3 + 1, 130 - 124 - 3, 3, 1, 10, 20, 30, 100, 8, 2.5, 0.002, 2.0 / 40, 0.75}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for host, share := range g.CountedShare {
		if len(g.CountedShare) != 1 || share != 0.75 {
			t.Errorf("of %v, host %q has %v", g.CountedShare, host, share)
		}
	}
	if g.Edges[0].Confidence != "listener" {
		t.Errorf("confidence %q", g.Edges[0].Confidence)
	}
	if served := g.Node("bb").Served; served.Of(Transactions) != 94 || *served.RTTMin != 0.002 ||
		*served.Completeness != 0.75 {
		t.Errorf("the node that serves: %+v", served)
	}
}

// An edge that was given up has nothing in flight and no connection open, and a least round-trip time alone is no
// traffic.
func TestFactsOfAnEdgeThatEnded(t *testing.T) {
	at := func(seconds int, edges ...model.EdgeCounters) *model.Snapshot {
		s := &model.Snapshot{Time: start.Add(time.Duration(seconds) * time.Second), Host: model.Host{Name: "vm"}}
		for _, c := range edges {
			s.Edges = append(s.Edges, edge(model.RoleClient, inside(container("a", "a")), inside(container("b", "b")), "", c))
		}
		return s
	}
	f := framesOf(at(0, model.EdgeCounters{SentBytes: 1, Requests: 1, Opens: 1}),
		at(10, model.EdgeCounters{SentBytes: 2, Requests: 1, Opens: 1}), at(20))
	s := FromFrames(windowBetween(f[0], f[2]), Options{}).Edges[0].ClientSide
	if s.Of(InFlight) != 0 || s.Open != 0 || s.Of(RequestBytes) != 1 {
		t.Errorf("an edge that ended has %v requests in flight, %v connections and %v bytes", s.Of(InFlight), s.Open,
			s.Of(RequestBytes))
	}
	if s = FromFrames(windowBetween(f[0], f[1]), Options{}).Edges[0].ClientSide; s.Of(InFlight) != 1 || s.Open != 1 {
		t.Errorf("before it had %v in flight and %v connections", s.Of(InFlight), s.Open)
	}
	g := graphOf(at(0, model.EdgeCounters{RTTMinNS: 1}), at(10, model.EdgeCounters{RTTMinNS: 1}))
	if len(g.Edges) != 0 {
		t.Errorf("%d edges of no traffic", len(g.Edges))
	}
}

// A counter of a file that appears late on a container that was there gained nothing that is known.
func TestLateFileCounterIsNotAnIncrease(t *testing.T) {
	at := func(seconds int, disk *model.DiskCounters) *model.Snapshot {
		return &model.Snapshot{Time: start.Add(time.Duration(seconds) * time.Second),
			Containers: []model.ContainerSample{{Container: container("x", "x"), CPU: &model.CPUCounters{}, Disk: disk}}}
	}
	g := graphOf(at(0, nil), at(10, &model.DiskCounters{ReadBytes: 5e9}))
	if got := g.Node("x").Usage.DiskReadBytes; got != nil {
		t.Errorf("disk reads of %v B/s for a file that appeared late, want that it is not known", *got)
	}
}

// A container whose name becomes known late is one.
func TestRenamedContainerIsOne(t *testing.T) {
	at := func(seconds int, name string, cpu uint64) *model.Snapshot {
		return &model.Snapshot{Time: start.Add(time.Duration(seconds) * time.Second),
			Containers: []model.ContainerSample{{Container: container("0123456789abcdef", name),
				CPU: &model.CPUCounters{UsageNS: cpu * 1e9}}}}
	}
	g := graphOf(at(0, "0123456789ab", 10), at(20, "web", 16))
	n := g.Node("0123456789abcdef")
	if len(g.Nodes) != 1 || n.Name != "web" || n.Image != "web:1" || *n.Usage.CPUCores != 0.3 {
		t.Errorf("%d nodes; %+v", len(g.Nodes), n)
	}
}
