// Package net reads what the programs at sockets count: edges, endpoints, listeners, datagrams, TLS.
package net

import (
	"cmp"
	"iter"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// DefaultMaxEdges is Options.MaxEdges where that is 0.
const DefaultMaxEdges = 2048

// Options of New. The zero value works.
type Options struct {
	// MaxCgroups bounds the control groups that have quotas.
	MaxCgroups, MaxEdges, MaxGroupEdges  int
	MaxConnections, MaxFlows, MaxStreams int
	MaxEndpoints, MaxEdgeEndpoints       int
	MaxListeners, MaxPacketDrops         int
	MaxProxies                           int
	WithoutEndpoints, TLS                bool
	Packets                              PacketMode
	// LogTransactions makes Transactions work, with room for so many.
	LogTransactions int
	ProcFS          string
	// DataWay is the only one of the ways to count transfers to be tried, counted from one.
	DataWay int
	// SingleUprobes attaches them one by one, as on kernels before Linux 6.6.
	SingleUprobes bool
	// Prepare changes the object that counts edges before it is loaded.
	Prepare func(*ebpf.CollectionSpec)
}

// Net is the module. Its Read methods are for one goroutine at a time.
type Net struct {
	host.Loader
	options Options
	edges   *edgeReader
	tls     *tlsWatcher
	log     *transactionLog
	slices  *packetSlices // nil where packets are not observed
	uplinks *uplinks      // nil where they are not followed
}

// New makes the module.
func New(o Options) *Net {
	o.MaxCgroups = max(host.DefaultTo(o.MaxCgroups, 1024), 16)
	o.MaxEdges = max(host.DefaultTo(o.MaxEdges, DefaultMaxEdges), 16)
	o.MaxGroupEdges = host.DefaultTo(o.MaxGroupEdges, max(o.MaxEdges/8, 64))
	o.MaxConnections = host.DefaultTo(o.MaxConnections, 65536)
	o.MaxFlows = host.DefaultTo(o.MaxFlows, 16384)
	o.MaxStreams = host.DefaultTo(o.MaxStreams, 65536)
	o.MaxEndpoints = max(host.DefaultTo(o.MaxEndpoints, 1024), 16)
	o.MaxEdgeEndpoints = host.DefaultTo(o.MaxEdgeEndpoints, 64)
	o.MaxListeners = host.DefaultTo(o.MaxListeners, 16384)
	o.MaxPacketDrops = host.DefaultTo(o.MaxPacketDrops, 2048)
	o.MaxProxies = host.DefaultTo(o.MaxProxies, 64)
	o.ProcFS = cmp.Or(o.ProcFS, "/proc")
	return &Net{Loader: host.NewLoader(), options: o}
}

// Hooks are what may be attached to, but for datagrams and TLS.
func (p *Net) Hooks() []host.Hook { return edgeHooks }

// Open loads and attaches the programs.
func (p *Net) Open(k *host.Kernel) error {
	p.Loading = "connections"
	return p.openEdges(k)
}

// Parts of the module.
func (p *Net) Parts() []host.Part {
	parts := []host.Part{
		{Rank: 4, Part: model.Part{Name: "names", Purpose: "what requests ask for: methods, routes, commands and statuses; how long proxies take"},
			Always:    p.edges != nil && !p.options.WithoutEndpoints && !p.options.TLS,
			Detaching: func() error { return p.edges.setNamesShed(1) },
			Attached:  func() error { return p.edges.setNamesShed(0) }},
		{Rank: 5, Part: model.Part{Name: "transfers", Purpose: "bytes and transactions of connections"},
			Functions: []string{"sock_send_length", "sock_recv_length", "after_inet_sendmsg", "after_inet_recvmsg",
				"after_inet6_sendmsg", "after_inet6_recvmsg", "after_inet_sendpage"},
			Detaching: func() error { return p.watch(false) },
			Attached:  func() error { return p.watch(true) },
			// Connections go on as what they were, so that a turn of a benchmark costs what the hooks cost at any
			// time, and not what it takes to judge all connections anew.
			Pausing:  func() error { return p.goOnWatching(false) },
			Resuming: func() error { return p.goOnWatching(true) }},
		{Rank: 11, Part: model.Part{Name: "connections",
			Purpose: "connections that open, close and fail, who listens, and the reading of all edges", Fixed: true}},
		{Rank: 12, Part: model.Part{Name: "tls", Purpose: "requests of encrypted connections", Fixed: true}},
	}
	if p.slices != nil {
		parts = append(parts, p.packetsParts()...)
	}
	return append(parts, host.Part{Rank: 3, Part: model.Part{Name: "drops",
		Purpose: "packets that the kernel dropped, and why"}, Functions: []string{dropHook.Program}})
}

// Drops lists every bounded table with what found no room in it.
func (p *Net) Drops() (drops []model.Drop) {
	if p.edges != nil {
		drops = append(drops, p.edges.drops()...)
	}
	if p.tls != nil {
		drops = append(drops, p.tls.drops()...)
	}
	if p.log != nil {
		drops = append(drops, p.log.drop())
	}
	return drops
}

// Forget gives up what a control group that was removed has dropped, and its edges as soon as they have no connections.
func (p *Net) Forget(id model.CgroupID) {
	if p.edges != nil {
		p.edges.forget(id)
		p.edges.dropped.forget(id)
	}
}

// EdgesMap is the table of edges; nil where they are not counted.
func (p *Net) EdgesMap() *ebpf.Map {
	if p.edges == nil {
		return nil
	}
	return p.edges.objects.Edges
}

// EdgeOwners are the edges that there are, but for the overflow's, by their index, with the control groups that own
// them.
func (p *Net) EdgeOwners() iter.Seq2[uint32, uint64] {
	return func(yield func(uint32, uint64) bool) {
		if p.edges == nil {
			return
		}
		for index, edge := range p.edges.inUse() {
			if index != edgeOverflow && !yield(uint32(index), host.Load(&edge.Key.Owner)) {
				return
			}
		}
	}
}
