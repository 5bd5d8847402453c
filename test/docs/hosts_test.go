package docs

import (
	"net/netip"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// betweenHosts are the edges between two hosts whose clocks are kept, and between two whose clocks are not.
var betweenHosts = []string{"dialler>answerer", "caller>callee"}

func framesBetweenHosts() []*frame.Frame {
	return append(framesOfTwoHosts("dialler", "answerer", "192.0.2.2:80", time.Microsecond),
		framesOfTwoHosts("caller", "callee", "192.0.2.4:80", 0)...)
}

// framesOfTwoHosts are the frames of the first and the last second of two hosts, of which one dials the other. Both
// sampled the packets between them, and know their clocks so well, 0 for not at all.
func framesOfTwoHosts(client, server, address string, clockError time.Duration) (all []*frame.Frame) {
	service := netip.MustParseAddrPort(address)
	var connections []uint64 // of this pair alone
	for i := range uint64(4) {
		connections = append(connections, uint64(service.Addr().As4()[3])<<8|i)
	}
	for i, id := range []string{client, server} {
		c := &model.Container{ID: id, Name: id, Runtime: model.Docker}
		e := model.Edge{Instance: 1, Side: model.RoleClient, Client: model.Peer{Container: c},
			Server: model.Peer{Address: service.Addr()}, Service: service, Connections: connections}
		if i == 1 {
			e.Side, e.Server, e.Client = model.RoleServer, e.Client, model.Peer{Address: service.Addr().Prev()}
		}
		b := frame.NewBuilder(snapshotAt(0).Time)
		for _, second := range []int{0, seconds} {
			s := &model.Snapshot{Time: snapshotAt(second).Time, Host: model.Host{Name: "other-" + id},
				ClockError: clockError, Containers: []model.ContainerSample{{Container: c}}}
			took := time.Duration(10-i) * time.Millisecond
			e.Counters = model.EdgeCounters{Opens: 1, SentBytes: uint64(second), ReceivedBytes: uint64(second)}
			if n := uint64(second); n > 0 {
				e.Counters.TimeToFirstByte = &model.Histogram{Count: n, SumNS: n * uint64(took), Offset: model.BucketOf(took),
					Buckets: []uint64{n}}
			}
			e.PacketSamples = nil
			for packet := range uint64(40) {
				sent := packet%2 == uint64(i) // there and back in turns
				at := s.Time.Add(-time.Duration(packet) * 100 * time.Millisecond)
				if !sent {
					at = at.Add(time.Millisecond + time.Duration(packet)*time.Microsecond)
				}
				e.PacketSamples = append(e.PacketSamples, model.PacketSample{Packet: packet, Sent: sent, Time: at,
					Stack: 10 * time.Microsecond})
			}
			s.Edges = []model.Edge{e}
			all = append(all, b.Build(s))
		}
	}
	return all
}
