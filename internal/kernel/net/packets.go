package net

import (
	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// packetReader reads what is counted of packets: by the kernel itself (packet_counts.h), by calls (datagrams_path.h),
// and of their order and delay by packets_path.h.
type packetReader struct {
	edges  *host.Table[edgesEdgePackets]
	delays []host.CachedHistogram
	// counts is false where packets are not counted.
	counts  bool
	samples *sampleReader
}

func (p *Net) openEdgePackets(objects *edgeObjects) (*packetReader, error) {
	edges, err := host.MapTable[edgesEdgePackets](objects.PacketsOfEdge)
	if err != nil {
		return nil, err
	}
	p.OnClose(edges)
	samples, err := p.openPacketSamples(objects, len(edges.Entries))
	if err != nil {
		return nil, err
	}
	return &packetReader{edges: edges, delays: make([]host.CachedHistogram, len(edges.Entries)),
		counts: p.options.Packets != PacketsOff, samples: samples}, nil
}

// complete adds to c what was counted of the edge's packets.
func (r *packetReader) complete(index int, datagrams *edgesDatagramEdge, transport model.Transport,
	c *model.EdgeCounters, pool *host.Histograms) {
	if !r.counts {
		return
	}
	e := &r.edges.Entries[index]
	c.Packets = model.PacketCounters{
		SentPackets: host.Load(&e.Counts.SentPackets), SentBytes: host.Load(&e.Counts.SentBytes),
		ReceivedPackets: host.Load(&e.Counts.ReceivedPackets), ReceivedBytes: host.Load(&e.Counts.ReceivedBytes),
		Reordered: host.Load(&e.Counts.ReorderedPackets), Duplicated: host.Load(&e.Counts.DuplicatedPackets),
		Repeated: host.Load(&e.Counts.RepeatedPackets), DelayVariationNS: host.Load(&e.DelayVariationNs),
		UnreadNS: host.Load(&e.UnreadSumNs), UnreadRequests: host.Load(&e.UnreadRequests),
		Observed: host.Load(&e.Counts.ObservedPackets), Retransmitted: host.Load(&e.Counts.RetransmittedPackets),
		OutOfOrder: host.Load(&e.Counts.OutOfOrderPackets), Sampled: r.samples.sampled(index),
	}
	if transport == model.UDP {
		c.Packets.SentPackets = c.SentPackets + host.Load(&datagrams.SentExtra)
		c.Packets.ReceivedPackets = c.ReceivedPackets + host.Load(&datagrams.ReceivedExtra)
		c.Packets.SentBytes, c.Packets.ReceivedBytes = c.SentBytes, c.ReceivedBytes
	}
	if h := e.DelayHistogram; h != 0 && h < pool.Cells.MaxEntries() {
		sum := host.Load(&e.DelaySumNs)
		c.Packets.Delay = r.delays[index].Read(pool, int(h), 1, sum, sum)
	}
}

// free empties an entry.
func (r *packetReader) free(index int) {
	r.edges.Entries[index] = edgesEdgePackets{}
	r.delays[index] = host.CachedHistogram{}
	r.samples.free(index)
}
