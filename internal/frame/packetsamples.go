package frame

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"outsight/internal/model"
)

const (
	// MaxPacketSamples bounds the rows of PacketSamples.
	MaxPacketSamples = 256
	// packetSampleBase is how long before the frame's time PacketSampleTime begins, packetSampleUnit its unit.
	packetSampleBase = 3 * model.PacketSamplesLast
	packetSampleUnit = 100 * time.Nanosecond
)

// makePacketSamples makes the table of samples of packets, of the edges of which an end was not found on this host.
func (b *Builder) makePacketSamples(f *Frame, s *model.Snapshot, edges *planned) {
	type group struct {
		edge    uint32
		samples []model.PacketSample
	}
	var groups []group // by edge and direction
	for i := range edges.plans {
		of := &edges.plans[i]
		if of.live < 0 {
			continue
		}
		e := &s.Edges[of.live]
		if len(e.PacketSamples) == 0 || e.Client.Container != nil && e.Server.Container != nil {
			continue
		}
		for _, sent := range []bool{false, true} {
			some := slices.DeleteFunc(slices.Clone(e.PacketSamples), func(p model.PacketSample) bool {
				at := p.Time.Sub(s.Time.Add(-packetSampleBase))
				return p.Sent != sent || at < 0 || at/packetSampleUnit > math.MaxUint32
			})
			if len(some) > 0 {
				groups = append(groups, group{of.id, some})
			}
		}
	}
	share := MaxPacketSamples // of each group
	total := func() (n int) {
		for i := range groups {
			n += min(len(groups[i].samples), share)
		}
		return n
	}
	for share > 1 && total() > MaxPacketSamples {
		share--
	}
	var rows [][]uint64
	for _, g := range groups {
		// The roundest: of these the other host has most.
		slices.SortFunc(g.samples, func(x, y model.PacketSample) int {
			return cmp.Or(cmp.Compare(y.Level, x.Level), cmp.Compare(x.Packet, y.Packet))
		})
		some := g.samples[:min(len(g.samples), share, MaxPacketSamples-len(rows))]
		slices.SortStableFunc(some, func(x, y model.PacketSample) int { return x.Time.Compare(y.Time) })
		for _, p := range some {
			sent := uint64(0)
			if p.Sent {
				sent = 1
			}
			at := p.Time.Sub(s.Time.Add(-packetSampleBase)) / packetSampleUnit
			rows = append(rows, []uint64{uint64(g.edge), sent, p.Packet & math.MaxUint32, p.Packet >> 32, uint64(at),
				stackNS(p.Stack)})
		}
	}
	f.Tables[PacketSamples] = b.list(PacketSamples, rows)
}

// stackNS is PacketSampleStack of a time; what does not fit is not told.
func stackNS(stack time.Duration) uint64 {
	if stack < 0 || stack > math.MaxUint32 {
		return 0
	}
	return uint64(stack)
}

// PacketSamples are the samples of packets, but for their levels, by the numbers of the rows of their edges.
func (f *Frame) PacketSamples() iter.Seq2[uint32, model.PacketSample] {
	return func(yield func(uint32, model.PacketSample) bool) {
		t := &f.Tables[PacketSamples]
		for row := range t.IDs {
			at := time.Duration(t.Attribute(PacketSampleTime, row)) * packetSampleUnit
			s := model.PacketSample{Sent: t.Attribute(PacketSampleSent, row) != 0, Time: f.Time.Add(at - packetSampleBase),
				Packet: t.Attribute(PacketSamplePacket, row) | t.Attribute(PacketSamplePacketHigh, row)<<32,
				Stack:  time.Duration(t.Attribute(PacketSampleStack, row))}
			if !yield(uint32(t.Attribute(PacketSampleEdge, row)), s) {
				return
			}
		}
	}
}
