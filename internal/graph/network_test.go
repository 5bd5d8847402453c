package graph

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// packetsOf are what an end counted.
func packetsOf(sent, received, copies uint64, delay time.Duration) model.PacketCounters {
	p := model.PacketCounters{SentPackets: sent, ReceivedPackets: received, Duplicated: copies}
	if delay > 0 {
		p.Delay, p.DelayVariationNS = latency(10, delay), 10*uint64(delay/4)
	}
	return p
}

// localPair are both ends of an edge on one host: of 100 packets to the server 90 arrive, and 5 copies of them, after
// 1 ms; of 50 to the client all, after 4 ms.
func localPair(client, server *model.Container, transport model.Transport) []model.Edge {
	ends := []model.Edge{
		edge(model.RoleClient, inside(client), inside(server), "10.0.0.2:80", model.EdgeCounters{SentBytes: 1000, ReceivedBytes: 10,
			Latency: latency(3, 40*time.Millisecond), TimeToFirstByte: latency(3, 20*time.Millisecond),
			Packets: packetsOf(100, 50, 0, 4*time.Millisecond)}),
		edge(model.RoleServer, inside(client), inside(server), "10.0.0.2:80", model.EdgeCounters{SentBytes: 10, ReceivedBytes: 1000,
			Latency: latency(3, 30*time.Millisecond), TimeToFirstByte: latency(3, 10*time.Millisecond),
			Packets: packetsOf(50, 95, 5, time.Millisecond)}),
	}
	if transport == model.TCP { // which sends again what was lost
		ends[0].Counters.Packets.Retransmitted = 10
	}
	for i := range ends {
		ends[i].Transport, ends[i].Paired = transport, true
	}
	return ends
}

func within(got, want float64) bool { return math.Abs(got-want) <= model.RelativeError*want }

// TestNetworkOfLocalEnds: what packets tell is known in both directions where both ends are on one host; without packets
// nothing is, rather than 0.
func TestNetworkOfLocalEnds(t *testing.T) {
	a, b, c := container("a1", "a"), container("b1", "b"), container("c1", "c")
	s := &model.Snapshot{Time: start.Add(10 * time.Second), Host: model.Host{Name: "vm"}, Edges: localPair(a, b, model.TCP)}
	s.Edges[0].Counters.Packets.Observed, s.Edges[1].Counters.Packets.Observed = 10, 95
	quiet := localPair(a, c, model.TCP)
	for i := range quiet {
		quiet[i].Counters.Packets = model.PacketCounters{}
	}
	s.Edges = append(s.Edges, quiet...)
	w := windowOfPair(&model.Snapshot{Time: start, Host: s.Host}, s)
	edges := map[string]*Edge{}
	for _, e := range FromFrames(w, Options{}).Edges {
		edges[e.Server] = e
	}
	for key, want := range map[string]float64{"delay_there_p50": 1e-3, "delay_there_p99": 1e-3, "delay_back_p50": 4e-3,
		"delay_back_p99": 4e-3, "jitter_there": 0.25e-3, "jitter_back": 1e-3, "lost_there": 10, "lost_back": 0,
		"observed_there": 1, "observed_back": 0.2, "loss_ratio": 10. / 150, "network_seconds": 10e-3, "client_seconds": 5e-3, "network_there_seconds": 1e-3,
		"server_seconds": 10e-3, "network_back_seconds": 4e-3} {
		got, ok := edges["b1"].EndsNumber(key)
		if !ok || math.Abs(got-want) > 4*model.RelativeError*want {
			t.Errorf("%s is %v (%v), want %v", key, got, ok, want)
		}
		if got, ok := edges["c1"].EndsNumber(key); ok && key != "network_seconds" {
			t.Errorf("without packets %s is %v", key, got)
		}
	}
	if edges["c1"].Network != nil {
		t.Errorf("without packets the network is %+v", edges["c1"].Network)
	}
	if _, ok := edges["b1"].EndsNumber("p99"); ok {
		t.Error("a number of one end is one of both")
	}
}

// TestMatrixOfPackets: a cell of TCP and UDP has the losses of both, and a sum those of the ends that can be compared,
// whatever else is in it.
func TestMatrixOfPackets(t *testing.T) {
	a, b := container("a1", "a"), container("b1", "b")
	s := &model.Snapshot{Time: start.Add(10 * time.Second), Host: model.Host{Name: "vm"},
		Edges: append(localPair(a, b, model.TCP), localPair(a, b, model.UDP)...)}
	away := edge(model.RoleClient, inside(a), outside("203.0.113.7"), "203.0.113.7:443",
		model.EdgeCounters{SentBytes: 5, Packets: packetsOf(1000, 900, 0, 0)})
	s.Edges = append(s.Edges, away)
	x := matrixOf(t, windowOfPair(&model.Snapshot{Time: start, Host: s.Host}, s), MatrixOptions{})
	number := func(v MatrixValues, key string) float64 {
		if n, ok := v.Number(key); ok {
			return n
		}
		return math.NaN()
	}
	// UDP sends nothing again: without TCP there are no retransmissions, which is not 0.
	udp := matrixOf(t, windowOfPair(&model.Snapshot{Time: start, Host: s.Host},
		&model.Snapshot{Time: s.Time, Host: s.Host, Edges: localPair(a, b, model.UDP)}), MatrixOptions{})
	if got := number(udp.Cells[0].Numbers, "retransmits"); !math.IsNaN(got) {
		t.Errorf("of UDP there are %v retransmissions", got)
	}
	if got := number(x.Cells[0].Numbers, "retransmits"); got != 0 {
		t.Errorf("of TCP and UDP there are %v retransmissions", got)
	}
	for _, c := range x.Cells {
		local := x.Columns[c.Column].ID == "b1"
		if local && (c.EdgeCount != 2 || len(c.Edges) != 2 || number(c.Numbers, "lost_there") != 20 ||
			number(c.Numbers, "lost_back") != 0 || !within(number(c.Numbers, "loss_ratio"), 20./300) ||
			!within(number(c.Numbers, "delay_back_p99"), 4e-3)) {
			t.Errorf("the cell of TCP and UDP is %+v", c)
		}
		if !local && (!math.IsNaN(number(c.Numbers, "lost_there")) || !math.IsNaN(number(c.Numbers, "loss_ratio")) ||
			number(c.Numbers, "network_request_packets") != 1000) {
			t.Errorf("the cell of an end outside is %+v", c)
		}
	}
	if got := number(x.Total, "lost_there"); got != 20 {
		t.Errorf("%v packets are lost in all", got)
	}
	// What TCP did not send again was not lost, also beside datagrams, which nobody sends again.
	few := localPair(a, b, model.TCP)
	few[0].Counters.Packets.Retransmitted = 3
	for _, of := range []struct {
		edges []model.Edge
		lost  float64
	}{{few, 3}, {append(few, localPair(a, b, model.UDP)...), 13}} {
		x := matrixOf(t, windowOfPair(&model.Snapshot{Time: start, Host: s.Host},
			&model.Snapshot{Time: s.Time, Host: s.Host, Edges: of.edges}), MatrixOptions{})
		if got := number(x.Cells[0].Numbers, "lost_there"); got != of.lost {
			t.Errorf("of %d ends %v packets are lost, want %v", len(of.edges), got, of.lost)
		}
	}
	if got := number(x.Rows[0].Sum, "network_back_seconds"); !within(got, 4e-3) {
		t.Errorf("of the client the network back takes %v", got)
	}
}

// TestNetworkAcrossHosts: what one host sent less what another received is no loss, because their windows differ.
func TestNetworkAcrossHosts(t *testing.T) {
	at := netip.MustParseAddrPort("10.0.0.2:5432")
	w := &frame.Window{From: start, To: start.Add(10 * time.Second)}
	for i, side := range []model.Role{model.RoleClient, model.RoleServer} {
		c := container([]string{"c1", "s1"}[i], side.String())
		e := model.Edge{Instance: 1, Side: side, Client: inside(c), Server: model.Peer{Address: at.Addr()}, Service: at,
			Counters: model.EdgeCounters{SentBytes: 500, ReceivedBytes: 20, Packets: packetsOf(100, 50, 0, 0)}}
		c.Addresses = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		if side == model.RoleServer {
			c.Addresses, c.Listeners = []netip.Addr{at.Addr()}, []netip.AddrPort{at}
			e.Client, e.Server = outside("10.0.0.1"), inside(c)
			e.Counters.Packets = packetsOf(50, 90, 0, 0)
		}
		host := model.Host{Name: []string{"a", "b"}[i]}
		f := framesOf(&model.Snapshot{Time: w.From, Host: host}, &model.Snapshot{Time: w.To, Host: host,
			Containers: []model.ContainerSample{{Container: c}}, Edges: []model.Edge{e}})
		w.Hosts = append(w.Hosts, frame.HostSpans{Host: host.Name, Spans: []frame.Span{{Before: f[0], After: f[1]}}})
	}
	between := func(from, to, key string) (float64, bool) {
		return 0.25, from == "a" && to == "b" && key == "probe_loss_ratio"
	}
	for _, by := range []Grouping{ByContainer, ByHost} {
		g := FromFrames(w, Options{By: by})
		if e := g.Edges[0]; len(g.Edges) != 1 || !e.Paired || e.Network != nil || e.Split != nil {
			t.Errorf("by %s the edge is %+v", by, e)
		}
		x := matrixOf(t, w, MatrixOptions{By: by, Between: between,
			Containers: func(clientHost, client, serverHost, server, key string) (float64, bool) {
				return 0.5, clientHost == "a" && client == "c1" && serverHost == "b" && server == "s1" && key == "probe_loss_ratio"
			}})
		numbers := x.Cells[0].Numbers
		if v, ok := numbers.Number("loss_ratio"); ok {
			t.Errorf("by %s a share of %v is lost", by, v)
		}
		want := 0.5
		if by == ByHost {
			want = 0.25
		}
		if v, ok := numbers.Number("probe_loss_ratio"); !ok || v != want {
			t.Errorf("by %s the measured loss is %v (%v)", by, v, ok)
		}
		if v, ok := numbers.Number("probe_jitter"); ok {
			t.Errorf("by %s the jitter of the hosts is %v", by, v)
		}
	}
}

// TestPairedRelations: cells of one edge have the numbers of both ends that the edge has, of any edges.
func TestPairedRelations(t *testing.T) {
	known := 0
	for seed := range uint64(30) {
		w := windowOfPair(randomPair(rand.New(rand.NewPCG(seed, 2))))
		byID := map[string]*Edge{}
		for _, e := range FromFrames(w, Options{}).Edges {
			byID[e.ID] = e
		}
		for _, c := range matrixOf(t, w, MatrixOptions{}).Cells {
			if c.EdgeCount != 1 {
				continue
			}
			for i := range EndsNumbers {
				n := &EndsNumbers[i]
				got, ok := c.Numbers.Number(n.Key)
				want, there := n.of(byID[c.Edges[0]])
				if ok != there || got != want {
					t.Errorf("seed %d: %s of %s is %v, of the edge %v", seed, n.Key, c.Edges[0], got, want)
				}
				if ok {
					known++
				}
			}
		}
	}
	if known == 0 {
		t.Error("no cell has a number of both ends")
	}
}
