package frame

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"outsight/internal/model"
)

// sampledEdges are edges, each with so many packets sampled in each direction, of levels 0, 1, 2 ...; the server of all but
// the first is outside of the host.
func sampledEdges(at time.Time, edges, packets int) *model.Snapshot {
	r := rand.New(rand.NewPCG(1, 2))
	c := &model.Container{ID: "a", Name: "a"}
	s := &model.Snapshot{Time: at, Host: model.Host{Name: "host"}, Containers: []model.ContainerSample{{Container: c}}}
	for i := range edges {
		e := model.Edge{Instance: uint64(i + 1), Side: model.RoleClient, Client: model.Peer{Container: c},
			Server:  model.Peer{Address: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})},
			Service: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 80)}
		if i == 0 {
			e.Server.Container = c
		}
		for k := range packets {
			for _, sent := range []bool{false, true} {
				e.PacketSamples = append(e.PacketSamples, model.PacketSample{Packet: r.Uint64()>>24<<8 | uint64(k),
					Sent: sent, Level: uint8(k), Time: at.Add(time.Duration(k) * 100_000_100), Stack: stackOf(k)})
			}
		}
		s.Edges = append(s.Edges, e)
	}
	return s
}

// stackOf is not known of one of three packets, and too long to be told of one of eleven.
func stackOf(k int) time.Duration {
	if k%11 == 10 {
		return math.MaxUint32 + 1
	}
	return time.Duration(k % 3 * (1 + k*10_000_000))
}

// TestPacketSamples: the samples of edges to other hosts come back to 100 ns, of each edge the roundest where there are
// more than a frame has.
func TestPacketSamples(t *testing.T) {
	at := time.Unix(1_800_000_000, 123)
	f := func(edges, packets, wantEach, wantAll int) {
		t.Helper()
		s := sampledEdges(at, edges, packets)
		s.Edges[edges-1].PacketSamples = append(s.Edges[edges-1].PacketSamples, // out of what can be told
			model.PacketSample{Packet: 1, Sent: true, Time: at.Add(-packetSampleBase - 1)},
			model.PacketSample{Packet: 1, Sent: true, Time: at.Add(time.Hour)})
		built := NewBuilder(at).Build(s)
		data := Encode(nil, built, nil)
		got, err := Decode(data, nil)
		if err != nil {
			t.Fatal(err)
		}
		each, all := map[uint32]int{}, 0
		for edge, p := range got.PacketSamples() {
			row, ok := got.Tables[Edges].Find(edge)
			if !ok {
				t.Fatalf("the edge %d is not there", edge)
			}
			if got.Tables[Edges].Attribute(EdgeServer, row) != 0 {
				t.Error("packets of an edge within the host are told")
			}
			all++
			each[edge]++
			k := int(p.Packet & 255)
			if want := stackOf(k) % (math.MaxUint32 + 1); p.Stack != want {
				t.Errorf("the packet %d was in the stack for %v, want %v", k, p.Stack, want)
			}
			if want := at.Add(time.Duration(k) * 100_000_100); !p.Time.Equal(want) || k < packets-wantEach {
				t.Errorf("the packet %x of level %d was at %v, want %v", p.Packet, k, p.Time, want)
			}
		}
		if all != wantAll {
			t.Errorf("%d samples of %d edges, want %d", all, edges, wantAll)
		}
		for edge, n := range each {
			if n != 2*wantEach {
				t.Errorf("%d samples of the edge %d, want %d", n, edge, 2*wantEach)
			}
		}
		none := sampledEdges(at, edges, 0)
		t.Logf("%d samples take %d bytes", all, len(data)-len(Encode(nil, NewBuilder(at).Build(none), nil)))
	}
	f(2, 7, 7, 14)
	f(2, 128, 128, 256)
	f(2, 200, 128, 256)
	f(5, 200, 32, 256)
	f(12, 50, 11, 242)
	f(129, 3, 1, 256)
	f(301, 3, 1, 256)
}
