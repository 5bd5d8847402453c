package net

import (
	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// edgeDropNames are the drops of edges.h, as users see them.
var edgeDropNames = [edgesEdgeDropEDGE_DROPS]string{
	edgesEdgeDropDROP_EDGE:          "edges",
	edgesEdgeDropDROP_EDGE_CLIENT:   "edge_clients",
	edgesEdgeDropDROP_CONNECTION:    "connections",
	edgesEdgeDropDROP_PAIR:          "connection_pairs",
	edgesEdgeDropDROP_LISTENER:      "listeners",
	edgesEdgeDropDROP_MULTIPATH:     "multipath_transfers",
	edgesEdgeDropDROP_HISTOGRAM:     "edge_histograms",
	edgesEdgeDropDROP_PROXIED:       "forwarded_clients",
	edgesEdgeDropDROP_DATAGRAM_PEER: "datagram_peers",
	edgesEdgeDropDROP_DATAGRAM_FLOW: "datagram_flows",
	edgesEdgeDropDROP_STREAM:        "http2_streams",
	edgesEdgeDropDROP_HTTP2:         "http2_connections",
	edgesEdgeDropDROP_PACKET_DROP:   "packet_drops",
	edgesEdgeDropDROP_HTTP2PATH:     "http2_paths",
}

// endpointDropNames are the drops of endpoints.h, as users see them.
var endpointDropNames = [edgesEndpointDropENDPOINT_DROPS]string{
	edgesEndpointDropDROP_ENDPOINT:     "endpoints",
	edgesEndpointDropDROP_ENDPOINT_ALL: "other_endpoints",
}

// readDrops reads a map of drops.
func readDrops(m *ebpf.Map, names []string) []model.Drop {
	drops := make([]model.Drop, len(names))
	for which, name := range names {
		drops[which] = model.Drop{Name: name, Count: host.SumDrops(m, uint32(which))}
	}
	return drops
}

func (r *edgeReader) drops() []model.Drop {
	drops := readDrops(r.objects.EdgeDrops, edgeDropNames[:])
	room := func(which edgesEdgeDrop, of *ebpf.Map, used uint64) {
		drops[which].Capacity, drops[which].Used = uint64(of.MaxEntries()), used
	}
	room(edgesEdgeDropDROP_PAIR, r.objects.Pairs, r.pairs.used.Load())
	room(edgesEdgeDropDROP_LISTENER, r.objects.Listeners, r.listeners.Load())
	room(edgesEdgeDropDROP_PACKET_DROP, r.objects.PacketDrops, r.dropped.used.Load())
	room(edgesEdgeDropDROP_STREAM, r.objects.Http2Streams, 0)
	room(edgesEdgeDropDROP_HTTP2PATH, r.objects.Http2Paths, 0)
	edges, histograms := &drops[edgesEdgeDropDROP_EDGE], &drops[edgesEdgeDropDROP_HISTOGRAM]
	edges.Capacity, edges.Used = uint64(r.capacity), r.used.Load()
	histograms.Capacity = uint64(r.pool.Cells.MaxEntries() - 1)
	// Flows may also be evicted.
	flows := &drops[edgesEdgeDropDROP_DATAGRAM_FLOW]
	*flows = r.datagrams.flows.drop(flows.Name, flows.Count)
	drops = append(drops, r.datagrams.queries.drop("dns_queries", 0),
		model.Drop{Name: "untold_closes", Count: r.missedCloses.Load()}, r.packets.samples.drop(), r.proxies.drop())
	return append(drops, r.endpoints.drops()...)
}

func (r *endpointReader) drops() []model.Drop {
	drops := readDrops(r.objects.EndpointDrops, endpointDropNames[:])
	endpoints := &drops[edgesEndpointDropDROP_ENDPOINT]
	endpoints.Capacity, endpoints.Used = uint64(len(r.states)-1), r.used.Load()
	return drops
}
