package net

import (
	"errors"
	"math/bits"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

var (
	packetHooks = []host.Hook{
		host.NewHook("packet_sent", "cgroup_skb/egress",
			"packets on the way: those that were sent, for what was lost and how long they took", false,
			"Linux 5.12 or later with BTF and cgroup v2"),
		host.NewHook("packet_received", "cgroup_skb/ingress",
			"packets on the way: those that were received, and their order and delay", false,
			"Linux 5.12 or later with BTF and cgroup v2"),
	}
	packetTypes = []ebpf.AttachType{ebpf.AttachCGroupInetEgress, ebpf.AttachCGroupInetIngress}
)

// timedPerSecond is of how many packets of an edge in each direction the delay is measured in a second, at most about;
// of those that are sent at first, all are.
const timedPerSecond = 1000

// packetReader reads what packets_path.h counts.
type packetReader struct {
	edges  *host.Table[edgesEdgePackets]
	states []packetState
	early  *lruTable
	// at is the time of the reading, and elapsed since the one before.
	at      time.Time
	elapsed time.Duration
}

// packetState is what the reader remembers of one edge.
type packetState struct {
	delay          host.CachedHistogram
	sent, received packetPace
}

// packetPace is what a direction of an edge had at the last reading.
type packetPace struct{ packets, bytes uint64 }

func (p *Net) openEdgePackets(objects *edgeObjects) (*packetReader, error) {
	edges, err := host.MapTable[edgesEdgePackets](objects.PacketsOfEdge)
	if err != nil {
		return nil, err
	}
	p.OnClose(edges)
	return &packetReader{edges: edges, states: make([]packetState, len(edges.Entries)),
		early: newLRUTable(objects, edgesLruTableLRU_EARLY, objects.EarlyPackets)}, nil
}

// openPackets attaches to the packets of all sockets: to both directions or to none, since one is compared with the
// other.
func (p *Net) openPackets(k *host.Kernel, spec *ebpf.CollectionSpec, objects *edgeObjects) error {
	if !p.options.Packets {
		for _, h := range packetHooks {
			p.TellUnasked(model.Feature{Name: h.Name, Purpose: h.Purpose}, "--packets")
		}
		return nil
	}
	root, err := openCgroupRoot(p.options.ProcFS)
	if err != nil {
		for _, h := range packetHooks {
			p.AddFeature(h, err)
		}
		return err
	}
	p.OnClose(root)
	var errs []error
	for i, h := range packetHooks {
		if err == nil {
			err = p.TryAttachBy(k, spec, objects.collection, h, attachTo(root, packetTypes[i]))
		}
		p.AddFeature(h, err)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func attachTo(group *os.File, t ebpf.AttachType) func(*ebpf.Program) (link.Link, error) {
	return func(program *ebpf.Program) (link.Link, error) {
		return link.AttachRawLink(link.RawLinkOptions{Target: int(group.Fd()), Program: program, Attach: t})
	}
}

// begin begins a reading.
func (r *packetReader) begin(now time.Time) {
	r.elapsed = now.Sub(r.at)
	r.at = now
	r.early.lookAtFull()
}

// complete adds to c what was counted of the edge's packets, and says how many of them are timed from now on.
func (r *packetReader) complete(index int, transport model.Transport, c *model.EdgeCounters, pool *host.Histograms) {
	e, state := &r.edges.Entries[index], &r.states[index]
	c.Packets = model.PacketCounters{
		SentPackets: host.Load(&e.Counts.SentPackets), SentBytes: host.Load(&e.Counts.SentBytes),
		ReceivedPackets: host.Load(&e.Counts.ReceivedPackets), ReceivedBytes: host.Load(&e.Counts.ReceivedBytes),
		Reordered: host.Load(&e.Counts.ReorderedPackets), Duplicated: host.Load(&e.Counts.DuplicatedPackets),
		Repeated: host.Load(&e.Counts.RepeatedPackets), DelayVariationNS: host.Load(&e.DelayVariationNs),
		UnreadNS: host.Load(&e.UnreadSumNs), UnreadRequests: host.Load(&e.UnreadRequests),
	}
	n := &c.Packets
	if h := e.DelayHistogram; h != 0 && h < pool.Cells.MaxEntries() {
		sum := host.Load(&e.DelaySumNs)
		n.Delay = state.delay.Read(pool, int(h), 1, sum, sum)
	}
	e.SentLevel = state.sent.level(n.SentPackets, n.SentBytes, transport, r.elapsed)
	e.ReceivedLevel = state.received.level(n.ReceivedPackets, n.ReceivedBytes, transport, r.elapsed)
}

// level is that at which about timedPerSecond packets are timed, at the pace since the last reading. Of TCP one of
// 2^level bytes is, of UDP one of 2^level packets.
func (p *packetPace) level(packets, bytes uint64, transport model.Transport, elapsed time.Duration) uint32 {
	before := *p
	*p = packetPace{packets, bytes}
	perSecond := func(now, was uint64) uint64 {
		return uint64(float64(now-min(was, now)) / elapsed.Seconds() / timedPerSecond)
	}
	times := perSecond(packets, before.packets)
	if times == 0 {
		return 0
	}
	if transport == model.TCP {
		times = perSecond(bytes, before.bytes)
	}
	return uint32(min(bits.Len64(times), 31))
}

// free empties an entry.
func (r *packetReader) free(index int) {
	r.edges.Entries[index] = edgesEdgePackets{}
	r.states[index] = packetState{}
}
