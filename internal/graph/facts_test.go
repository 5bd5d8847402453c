package graph

import (
	"encoding/json"
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
	return FromSnapshots(at(0, before), at(20, after))
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

// What is stored of an edge tells the same as its snapshots.
func TestFactsOfStoredSeries(t *testing.T) {
	before, after := facts()
	l := edgeLabels("client")
	two := func(x, y float64) []model.QueryResult { return []model.QueryResult{result(points(x, none, y), l...)} }
	grown := func(x, y *model.Histogram) []model.QueryResult {
		return []model.QueryResult{result(histograms(x, nil, y), l...)}
	}
	series := map[Field][]model.QueryResult{
		RequestBytes: two(10, 30), ResponseBytes: two(1000, 1300), Transactions: two(15, 109), InFlight: two(1, 3),
		Transfers: two(2, 5), Held: two(3, 4), Pushes: two(4, 14), Resets: two(5, 25), TimedOut: two(6, 36),
		UnseenBytes: two(7, 107), LostTransactions: two(1, 9), RTTDeviation: two(1, 3), RTTMin: two(0.004, 0.002),
		Confidence: two(3, 2), Aborted: two(1, 3),
		Latency: grown(before.Latency, after.Latency), FirstByte: grown(before.TimeToFirstByte, after.TimeToFirstByte),
		RTT: grown(before.RTT, after.RTT), ConnectionDuration: grown(before.Duration, after.Duration),
		WindowLimited: two(1, 3.5),
	}
	got, err := json.Marshal(window(series).Edges)
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := json.Marshal(fromFacts(before, after).Edges); string(got) != string(want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
	delete(series, Transactions) // as agents stored it that did not count them yet
	if n := window(series).Edges[0].ClientSide.Of(Transactions); n != 90 {
		t.Errorf("without the counter: %v transactions, want the histogram's 90", n)
	}
}

// An edge that was given up has nothing in flight, and a least round-trip time alone is no
// traffic.
func TestFactsOfAnEdgeThatEnded(t *testing.T) {
	l := edgeLabels("client")
	g := window(map[Field][]model.QueryResult{CPUSeconds: {host()},
		RequestBytes: {result(points(1, 2, none), l...)}, InFlight: {result(points(1, 1, none), l...)}})
	if n := g.Edges[0].ClientSide.Of(InFlight); n != 0 {
		t.Errorf("%v requests in flight on an edge that ended", n)
	}
	g = window(map[Field][]model.QueryResult{CPUSeconds: {host()}, RTTMin: {result(points(1, 1, 1), l...)},
		Confidence: {result(points(3, 3, 3), l...)}})
	if len(g.Edges) != 0 {
		t.Errorf("%d edges of no traffic", len(g.Edges))
	}
}
