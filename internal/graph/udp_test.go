package graph

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
)

// A pair of containers that talks over both transports, and one that only sends.
func TestUDPEdgesAreMarked(t *testing.T) {
	container := func(name string) *model.Container {
		return &model.Container{ID: "id-" + name, Name: name, Runtime: model.Docker}
	}
	web, dns, stats := container("web"), container("dns"), container("stats")
	edge := func(side model.Role, server *model.Container, transport model.Transport, c model.EdgeCounters) model.Edge {
		return model.Edge{Side: side, Client: model.Peer{Container: web}, Server: model.Peer{Container: server}, Paired: true,
			Service: netip.MustParseAddrPort("172.17.0.3:53"), Transport: transport, Counters: c}
	}
	answered := &model.Histogram{Count: 10, SumNS: 10e6, Offset: model.BucketOf(time.Millisecond), Buckets: []uint64{10}}
	now := &model.Snapshot{Time: time.Unix(10, 0), Edges: []model.Edge{
		edge(model.RoleClient, dns, model.TCP, model.EdgeCounters{SentBytes: 1000, ReceivedBytes: 2000, Latency: answered}),
		edge(model.RoleClient, dns, model.UDP, model.EdgeCounters{SentBytes: 300, ReceivedBytes: 400, SentPackets: 10,
			ReceivedPackets: 11, Latency: answered}),
		edge(model.RoleServer, dns, model.UDP, model.EdgeCounters{SentBytes: 400, ReceivedBytes: 300, SentPackets: 11,
			ReceivedPackets: 10, Latency: answered}),
		edge(model.RoleClient, stats, model.UDP, model.EdgeCounters{SentBytes: 5000, SentPackets: 100, OneWay: 100}),
	}}
	g := graphOf(&model.Snapshot{Time: time.Unix(0, 0)}, now)
	find := func(id string) *Edge {
		for _, e := range g.Edges {
			if e.ID == id {
				return e
			}
		}
		t.Fatalf("no edge %q", id)
		return nil
	}
	if e := find("id-web>id-dns"); e.Transport != "tcp" || e.ClientSide.Of(RequestBytes) != 1000 || e.ServerSide != nil {
		t.Errorf("over TCP: %+v", e)
	}
	e := find("id-web>id-dns/udp")
	if e.Transport != "udp" || e.ClientSide.Of(RequestBytes) != 300 || e.ClientSide.Of(Transactions) != 10 {
		t.Errorf("over UDP: %+v", e)
	}
	for _, side := range []*Side{e.ClientSide, e.ServerSide} {
		if side.Of(RequestPackets) != 10 || side.Of(ResponsePackets) != 11 {
			t.Errorf("packets: %+v", side)
		}
	}
	text := Text(g, 0)
	for _, want := range []string{"─▶ dns ", "─▶ dns (udp)", "─▶ stats (udp, one way)"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if dot := DOT(g); strings.Count(dot, "style=dashed") != 2 {
		t.Errorf("want two dashed lines in\n%s", dot)
	}
}
