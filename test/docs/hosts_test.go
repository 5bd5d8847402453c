package docs

import (
	"net/netip"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// betweenHosts is the edge of framesOfTwoHosts.
const betweenHosts = "dialler>answerer"

// framesOfTwoHosts are the frames of the first and the last second of two hosts, of which one dials the other. Both
// sampled the packets between them, and keep their clocks.
func framesOfTwoHosts() (all []*frame.Frame) {
	service := netip.MustParseAddrPort("192.0.2.2:80")
	for i, id := range []string{"dialler", "answerer"} {
		c := &model.Container{ID: id, Name: id, Runtime: model.Docker}
		e := model.Edge{Instance: 1, Side: model.RoleClient, Client: model.Peer{Container: c},
			Server: model.Peer{Address: service.Addr()}, Service: service, Connections: []uint64{1, 2, 3, 4}}
		if i == 1 {
			e.Side, e.Server, e.Client = model.RoleServer, e.Client, model.Peer{Address: netip.MustParseAddr("192.0.2.1")}
		}
		b := frame.NewBuilder(snapshotAt(0).Time)
		for _, second := range []int{0, seconds} {
			s := &model.Snapshot{Time: snapshotAt(second).Time, Host: model.Host{Name: "other-" + id},
				ClockError: time.Microsecond, Containers: []model.ContainerSample{{Container: c}}}
			e.Counters = model.EdgeCounters{Opens: 1, SentBytes: uint64(second), ReceivedBytes: uint64(second)}
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
