package graph

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"outsight/internal/model"
)

// OutsideID is the node of all addresses outside of the host that are only clients;
// OutsideServersID that of the servers outside past the MaxOutsideServers busiest.
const (
	OutsideID         = "outside"
	OutsideServersID  = "outside-servers"
	MaxOutsideServers = 20
	// MaxAddresses is how many addresses a node of a group lists.
	MaxAddresses = 50
)

// change is what happened to one thing in the window: increases of its counters and the last
// values of its levels, by Field, and how long it was observed.
type change struct {
	values  map[Field]float64
	latency *model.FloatHistogram
	seconds float64
}

func (c *change) rate(f Field) *float64 {
	v, ok := c.values[f]
	if !ok {
		return nil
	}
	return per(v, c.seconds)
}

func (c *change) value(fields ...Field) *float64 {
	sum, found := 0.0, false
	for _, f := range fields {
		if v, ok := c.values[f]; ok {
			sum, found = sum+v, true
		}
	}
	if !found {
		return nil
	}
	return &sum
}

// per is v per second, nil where no time has passed.
func per(v, seconds float64) *float64 {
	if seconds <= 0 {
		return nil
	}
	v /= seconds
	return &v
}

type containerChange struct {
	change
	node Node
}

type end struct{ host, id, name string }

func (e end) outside() bool {
	_, err := netip.ParseAddr(e.id)
	return err == nil || e.id == "others" || e.id == ""
}

func (e end) nodeID() string { return nodeID(e.host, e.id) }

// nodeID tells the rests of several hosts apart.
func nodeID(host, id string) string {
	if id == model.HostContainerID && host != "" {
		return id + "/" + host
	}
	return id
}

func kindOf(id, runtime string) Kind {
	switch {
	case id == model.HostContainerID || runtime == string(model.HostRuntime):
		return KindHost
	case runtime == string(model.Systemd) || strings.HasPrefix(id, "/"):
		return KindService
	}
	return KindContainer
}

type edgeChange struct {
	change
	side           model.Role
	client, server end
	service        string
	transport      string
	opened, closed float64 // in total, not in the window
}

// idle is true where nothing happened in the window and no connection is open.
func (e *edgeChange) idle() bool {
	for f, v := range e.values {
		if v != 0 && f != Paired {
			return false
		}
	}
	return e.opened <= e.closed && (e.latency == nil || e.latency.Count == 0)
}

func build(from, to time.Time, covered float64, containers []containerChange, edges []edgeChange) *Graph {
	b := builder{nodes: map[string]*Node{}, edges: map[string]*Edge{}, outside: outsideIDs(edges),
		served: map[string]*Side{}, called: map[string]*Side{}, seconds: covered}
	for i := range containers {
		b.addContainer(&containers[i])
	}
	for i := range edges {
		if !edges[i].idle() {
			b.addEdge(&edges[i])
		}
	}
	g := &Graph{From: from, To: to, CoveredSeconds: covered, ErrorBound: model.RelativeError,
		Nodes: []*Node{}, Edges: []*Edge{}}
	for _, e := range b.edges {
		g.Edges = append(g.Edges, b.finishEdge(e))
	}
	for _, n := range b.nodes {
		n.Served, n.Called = b.served[n.ID].finish(covered), b.called[n.ID].finish(covered)
		finishAddresses(n)
		g.Nodes = append(g.Nodes, n)
	}
	g.sort()
	return g
}

type builder struct {
	nodes          map[string]*Node
	edges          map[string]*Edge
	outside        map[string]string // an outside end's id -> its node's ID, for servers
	served, called map[string]*Side
	seconds        float64
}

func (b *builder) addContainer(c *containerChange) {
	n := c.node
	n.ID, n.SeriesID = nodeID(n.Host, n.ID), n.ID
	n.Kind = kindOf(n.SeriesID, n.Runtime)
	n.Usage = usage(&c.change)
	n.StartedSeconds = c.value(StartTime)
	b.nodes[n.ID] = &n
}

func usage(c *change) *Usage {
	u := &Usage{
		CPUCores:            c.rate(CPUSeconds),
		VoluntarySwitches:   c.rate(VoluntarySwitches),
		InvoluntarySwitches: c.rate(InvoluntarySwitches),
		Threads:             c.value(Threads),
		Forks:               c.rate(Forks), Execs: c.rate(Execs), Exits: c.rate(Exits),
		ThrottledSeconds: c.rate(ThrottledSeconds),
		MemoryBytes:      c.value(MemoryUsage), WorkingSetBytes: c.value(MemoryWorkingSet),
		RSSBytes: c.value(MemoryRSS), CacheBytes: c.value(MemoryCache),
		MinorPageFaults: c.rate(MinorFaults), MajorPageFaults: c.rate(MajorFaults),
		OOMKills:      c.value(OOMKills),
		DiskReadBytes: c.rate(DiskReadBytes), DiskWriteBytes: c.rate(DiskWriteBytes),
		DiskReads: c.rate(DiskReads), DiskWrites: c.rate(DiskWrites),
		NetworkReceiveBytes: c.rate(ReceiveBytes), NetworkTransmitBytes: c.rate(TransmitBytes),
		ReceivePackets: c.rate(ReceivePackets), TransmitPackets: c.rate(TransmitPackets),
		NetworkErrors:  c.value(ReceiveErrors, TransmitErrors),
		NetworkDropped: c.value(ReceiveDropped, TransmitDropped),
		RunQueueP50:    quantile(c.latency, 0.5), RunQueueP99: quantile(c.latency, 0.99),
	}
	if limit := c.value(MemoryLimit); limit != nil && *limit > 0 {
		u.MemoryLimitBytes = limit
	}
	if periods := c.value(ThrottlePeriods); periods != nil && *periods > 0 {
		u.ThrottledShare = per(c.values[ThrottledPeriods], *periods)
	}
	return u
}

func (b *builder) addEdge(e *edgeChange) {
	client, server := b.node(e.client, false), b.node(e.server, true)
	id := client.ID + ">" + server.ID
	if e.transport != model.TCP.String() {
		id += "/" + e.transport
	}
	edge := b.edges[id]
	if edge == nil {
		edge = &Edge{ID: id, Client: client.ID, Server: server.ID, Transport: e.transport, Paired: true}
		b.edges[id] = edge
	}
	if e.service != "" && !slices.Contains(edge.Services, e.service) {
		edge.Services = append(edge.Services, e.service)
	}
	edge.Paired = edge.Paired && e.values[Paired] == 1
	if e.side == model.RoleServer {
		edge.ServerSide = edge.ServerSide.add(e)
	} else {
		edge.ClientSide = edge.ClientSide.add(e)
	}
}

// node finds or makes the node of an end. A container that has numbers of its own is there
// already.
func (b *builder) node(e end, server bool) *Node {
	id := e.nodeID()
	if e.outside() {
		id = OutsideID
		if group, ok := b.outside[e.id]; ok {
			id = group
		} else if server {
			id = OutsideServersID
		}
	}
	n := b.nodes[id]
	if n == nil {
		n = &Node{ID: id, Name: e.name, SeriesID: e.id, Host: e.host, Kind: kindOf(e.id, "")}
		if e.outside() {
			n.Kind, n.Host = KindOutside, ""
		}
		if id == OutsideID || id == OutsideServersID {
			n.SeriesID = ""
		}
		b.nodes[id] = n
	}
	if n.Kind == KindOutside && !slices.Contains(n.Addresses, e.id) {
		n.Addresses = append(n.Addresses, e.id)
	}
	return n
}

func finishAddresses(n *Node) {
	if n.Kind != KindOutside {
		return
	}
	slices.Sort(n.Addresses)
	n.AddressCount = len(n.Addresses)
	n.Addresses = n.Addresses[:min(len(n.Addresses), MaxAddresses)]
	switch {
	case n.AddressCount == 1:
		n.Name = cmp.Or(n.Addresses[0], "outside")
	case n.ID == OutsideID:
		n.Name = "outside"
	case n.ID == OutsideServersID:
		n.Name = "other servers outside"
	}
}

// outsideIDs gives the busiest servers outside a node each. An address that serves is that node
// as a client, too.
func outsideIDs(edges []edgeChange) map[string]string {
	bytes := map[string]float64{}
	for i := range edges {
		if e := &edges[i]; e.server.outside() && !e.idle() {
			bytes[e.server.id] += e.values[RequestBytes] + e.values[ResponseBytes]
		}
	}
	ids := make([]string, 0, len(bytes))
	for id := range bytes {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(x, y string) int {
		return cmp.Or(cmp.Compare(bytes[y], bytes[x]), cmp.Compare(x, y))
	})
	nodes := map[string]string{}
	for i, id := range ids {
		if nodes[id] = id; i >= MaxOutsideServers || id == "others" || id == "" {
			nodes[id] = OutsideServersID
		}
	}
	return nodes
}

func (s *Side) add(e *edgeChange) *Side {
	if s == nil {
		s = &Side{}
	}
	s.RequestBytes += e.values[RequestBytes]
	s.ResponseBytes += e.values[ResponseBytes]
	s.ConnectionsOpened += e.values[ConnectionsOpened]
	s.ConnectionsClosed += e.values[ConnectionsClosed]
	s.ConnectionsOpen += max(0, e.opened-e.closed)
	s.Failures += e.values[Failures]
	s.Retransmits += e.values[Retransmits]
	s.Aborted += e.values[Aborted]
	s.Continued += e.values[Continued]
	s.RequestPackets += e.values[RequestPackets]
	s.ResponsePackets += e.values[ResponsePackets]
	s.OneWay += e.values[OneWay]
	s.latency.Merge(e.latency)
	return s
}

func (s *Side) merge(o *Side) *Side {
	if s == nil {
		s = &Side{}
	}
	s.RequestBytes += o.RequestBytes
	s.ResponseBytes += o.ResponseBytes
	s.ConnectionsOpened += o.ConnectionsOpened
	s.ConnectionsClosed += o.ConnectionsClosed
	s.ConnectionsOpen += o.ConnectionsOpen
	s.Failures += o.Failures
	s.Retransmits += o.Retransmits
	s.Aborted += o.Aborted
	s.Continued += o.Continued
	s.RequestPackets += o.RequestPackets
	s.ResponsePackets += o.ResponsePackets
	s.OneWay += o.OneWay
	s.latency.Merge(&o.latency)
	return s
}

// finish computes the rates and quantiles from the counts.
func (s *Side) finish(seconds float64) *Side {
	if s == nil {
		return nil
	}
	s.Transactions = s.latency.Count
	s.TransactionsPerSecond = per(s.Transactions, seconds)
	s.RequestBytesPerSecond = per(s.RequestBytes, seconds)
	s.ResponseBytesPerSecond = per(s.ResponseBytes, seconds)
	s.P50, s.P75 = quantile(&s.latency, 0.5), quantile(&s.latency, 0.75)
	s.P90, s.P99 = quantile(&s.latency, 0.9), quantile(&s.latency, 0.99)
	if s.latency.Count > 0 {
		mean := Seconds(s.latency.Sum / s.latency.Count)
		s.Mean = &mean
	}
	return s
}

func quantile(h *model.FloatHistogram, q float64) *Seconds {
	v := Seconds(h.Quantile(q))
	if math.IsNaN(float64(v)) {
		return nil
	}
	return &v
}

func (b *builder) finishEdge(e *Edge) *Edge {
	slices.Sort(e.Services)
	if e.Services == nil {
		e.Services = []string{}
	}
	e.ClientSide, e.ServerSide = e.ClientSide.finish(b.seconds), e.ServerSide.finish(b.seconds)
	served, called := e.ServerSide, e.ClientSide
	if served == nil {
		served = e.ClientSide
	}
	if called == nil {
		called = e.ServerSide
	}
	b.served[e.Server] = b.served[e.Server].merge(served)
	b.called[e.Client] = b.called[e.Client].merge(called)
	e.Paired = e.Paired && e.ClientSide != nil && e.ServerSide != nil
	if e.Paired && e.ClientSide.P50 != nil && e.ServerSide.P50 != nil {
		if d := float64(*e.ClientSide.P50 - *e.ServerSide.P50); !math.IsNaN(d) && !math.IsInf(d, 0) {
			e.NetworkSeconds = &d
		}
	}
	return e
}

func (g *Graph) sort() {
	slices.SortFunc(g.Nodes, func(x, y *Node) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.ID, y.ID))
	})
	names := map[string]string{}
	for _, n := range g.Nodes {
		names[n.ID] = n.Name
	}
	slices.SortFunc(g.Edges, func(x, y *Edge) int {
		return cmp.Or(cmp.Compare(names[x.Client], names[y.Client]),
			cmp.Compare(names[x.Server], names[y.Server]), cmp.Compare(x.ID, y.ID))
	})
}

// Limit leaves the n edges with the most bytes, and counts the others in OmittedEdges. Nodes
// stay, so that no container is hidden, but for outside ones that have no edge left.
func (g *Graph) Limit(n int) {
	if len(g.Edges) <= n {
		return
	}
	slices.SortFunc(g.Edges, func(x, y *Edge) int {
		return cmp.Or(cmp.Compare(y.bytes(), x.bytes()), cmp.Compare(x.ID, y.ID))
	})
	g.OmittedEdges += len(g.Edges) - n
	g.Edges = g.Edges[:n]
	used := map[string]bool{}
	for _, e := range g.Edges {
		used[e.Client], used[e.Server] = true, true
	}
	g.Nodes = slices.DeleteFunc(g.Nodes, func(n *Node) bool { return n.Kind == KindOutside && !used[n.ID] })
	g.sort()
}

func (e *Edge) bytes() float64 { return e.Best().RequestBytes + e.Best().ResponseBytes }
