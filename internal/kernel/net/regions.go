package net

import "outsight/internal/kernel/host"

// Regions are the maps that can be read from outside as they are.
func (p *Net) Regions() []host.Region {
	if p.edges == nil {
		return nil
	}
	o := p.edges.objects
	return []host.Region{
		host.NewRegion[edgesEdge](edgesMapEdges, o.Edges, 1),
		host.NewRegion[edgesHistogram](edgesMapEdgeLatency, o.EdgeLatency, 1),
		host.NewRegion[edgesHistogram](edgesMapHistogramPool, o.HistogramPool, 1),
		host.NewRegion[edgesDatagramEdge](edgesMapDatagramEdges, o.DatagramEdges, 1),
		host.NewRegion[edgesEdgePackets](edgesMapPacketsOfEdge, o.PacketsOfEdge, 1),
		host.NewRegion[edgesEndpoint](edgesMapEndpoints, o.Endpoints, 1),
		host.NewRegion[edgesHistogram](edgesMapEndpointLatency, o.EndpointLatency, 1),
		host.NewRegion[edgesBegun](edgesMapEdgesBegun, o.EdgesBegun, 1),
		host.NewRegion[edgesBegun](edgesMapEndpointsBegun, o.EndpointsBegun, 1),
	}
}
