package graph

import "strings"

// Options say which graph is made of a window.
type Options struct {
	// Memory is what the graph is made in, which is good until its Release; nil for memory of its own.
	Memory *Memory
	// By is what a node stands for.
	By Grouping
	// MaxEdges is how many edges the graph has at most, as after Limit, which takes longer; 0 for all.
	MaxEdges int
	// Brief leaves out what takes the most time of large maps: of nodes without an edge that is shown, but for Node, the
	// durations other than response times.
	Brief bool
	// Node is the ID of a node that has all numbers in any case.
	Node string
	// Only is the ID of a node or an edge: the graph has nothing else then, but for the other ends of a node's edges,
	// and counters of others are not read. Empty for all.
	Only string
	// Names know what Kubernetes called ends and containers; nil where there is none.
	Names Names
}

// only is what Options.Only asks for.
type only struct {
	// node or client and server are IDs of nodes.
	node, client, server string
	// edge is the ID of an edge.
	edge string
}

func (o *Options) only() (only, bool) {
	if o.Only == "" {
		return only{}, false
	}
	client, server, ok := strings.Cut(o.Only, ">")
	if !ok {
		return only{node: o.Only}, true
	}
	return only{client: client, server: strings.TrimSuffix(server, "/udp"), edge: o.Only}, true
}

// wants reports whether an edge between two nodes may be asked for.
func (o *only) wants(client, server string) bool {
	if o.edge == "" {
		return client == o.node || server == o.node
	}
	return client == o.client && server == o.server
}
