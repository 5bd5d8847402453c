package graph

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"outsight/internal/model"
)

type containerChange struct {
	change
	node Node
	// grouped is true where node is already the one to show.
	grouped bool
}

type end struct {
	host, id, name, process string
	kube                    kube
	// group is the node that the end is put to; nil for its container's.
	group *Node
	// settled: an agent knew the end by address, and Kubernetes says which pod that is.
	settled bool
}

func (e *end) outside() bool {
	return e.group == nil && (isAddress(e.id) || e.id == "others" || e.id == "")
}

func (e *end) nodeID() string {
	if e.group != nil {
		return e.group.ID
	}
	return nodeID(e.host, e.id)
}

// nodeID distinguishes the host nodes of several hosts.
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
	transport, via string
	opened, closed float64 // in total, not in the window
	endpoints      []endpointChange
}

// idle is true where nothing happened in the window and no connection is open.
func (e *edgeChange) idle() bool {
	for i, v := range e.numbers {
		if v != 0 && !abouts[ofEdge|Field(i)].lasting() {
			return false
		}
	}
	return e.opened <= e.closed && (e.latency == nil || e.latency.Count == 0)
}

// edgePool has memory, all zero, for what edges are made of, of which a graph keeps none: a kilobyte each is not to be
// had anew for every graph.
type edgePool struct {
	changes []edgeChange
	byEnds  map[edgeEnds]*relation
	// made is what becomes a part of the graph, if all of the edges do.
	made *madePool
}

// madePool has memory, all zero, for edges: the sides of changes, and relations of these.
type madePool struct {
	sides     []Side
	relations []relation
}

// edgePools and madePools are those that are not used.
var edgePools, madePools sync.Pool

func newEdgePool(changes int) *edgePool {
	r, _ := edgePools.Get().(*edgePool)
	if r == nil {
		r = &edgePool{byEnds: make(map[edgeEnds]*relation, changes)}
	}
	if r.made, _ = madePools.Get().(*madePool); r.made == nil {
		r.made = &madePool{}
	}
	r.changes = slices.Grow(r.changes[:0], changes)[:changes]
	r.made.sides = slices.Grow(r.made.sides[:0], changes)[:changes]
	r.made.relations = slices.Grow(r.made.relations[:0], changes)
	return r
}

func (r *edgePool) release() {
	parallelFor(len(r.changes), func(from, to int) { clear(r.changes[from:to]) })
	clear(r.byEnds)
	r.made.release()
	r.made = nil
	edgePools.Put(r)
}

func (r *madePool) release() {
	if r == nil {
		return
	}
	parallelFor(len(r.sides), func(from, to int) {
		clear(r.sides[from:to])
		clear(r.relations[min(from, len(r.relations)):min(to, len(r.relations))])
	})
	madePools.Put(r)
}

// relation is an edge that is being made.
type relation struct {
	Edge
	client, server *Node
}

// build makes a graph with at most so many edges, 0 for all.
func build(from, to time.Time, covered float64, by Grouping, containers []containerChange, room *edgePool,
	most int) *Graph {
	edges := room.changes
	containers = by.regroup(containers, edges)
	b := builder{nodes: make(map[string]*Node, len(containers)), room: room, outside: outsideIDs(edges), seconds: covered}
	for i := range containers {
		b.addContainer(&containers[i])
	}
	g := &Graph{From: from, To: to, CoveredSeconds: covered, ErrorBound: model.RelativeError,
		Nodes: []*Node{}, Edges: []*Edge{}, CountedShare: map[string]float64{}}
	parallelFor(len(edges), func(from, to int) {
		for i := from; i < to; i++ {
			if e := &edges[i]; e.side != model.RoleUnknown && !e.idle() {
				room.made.sides[i].add(e)
			}
		}
	})
	counted, received := map[string]float64{}, map[string]float64{}
	for i := range edges {
		e := &edges[i]
		switch {
		case e.idle():
			continue
		case e.side == model.RoleUnknown:
			g.Unplaced = g.Unplaced.add(e)
		default:
			b.addEdge(e, &room.made.sides[i])
			counted[e.client.host] += e.received()
		}
		received[e.client.host] += e.received() + e.of(UnseenBytes)
	}
	for host, n := range received {
		if n > 0 {
			g.CountedShare[host] = counted[host] / n
		}
	}
	g.Unplaced = g.Unplaced.finish(covered)
	b.addSides()
	unmatched, unmatchedBytes := 0, 0.0
	for i := range room.made.relations {
		e := &room.made.relations[i].Edge
		g.Edges = append(g.Edges, e)
		g.bytes += e.bytes()
		if e.confidence == model.NotFound {
			unmatched++
			unmatchedBytes += e.bytes()
		}
	}
	g.UnmatchedShare = float64(unmatched) / float64(max(len(g.Edges), 1))
	g.UnmatchedBytesShare = unmatchedBytes / max(g.bytes, 1)
	for _, n := range b.nodes {
		g.Nodes = append(g.Nodes, n)
	}
	parallelFor(len(g.Nodes), func(from, to int) {
		for _, n := range g.Nodes[from:to] {
			n.Served, n.Called = n.Served.finish(covered), n.Called.finish(covered)
			finishAddresses(n)
		}
	})
	if most > 0 && len(g.Edges) > most {
		g.leave(most)
		for i, e := range g.Edges {
			g.Edges[i] = e.own()
		}
	} else {
		g.made, room.made = room.made, nil
	}
	parallelFor(len(g.Edges), func(from, to int) {
		for _, e := range g.Edges[from:to] {
			e.finish(covered)
		}
	})
	g.sort()
	return g
}

type builder struct {
	nodes   map[string]*Node
	room    *edgePool
	outside map[string]string // an outside end's id -> its node's ID, for servers
	seconds float64
}

// edgeEnds is what there is one edge of.
type edgeEnds struct {
	client, server *Node
	transport      string
}

func (b *builder) addContainer(c *containerChange) {
	n := c.node
	if !c.grouped {
		n.ID, n.SeriesID = nodeID(n.Host, n.ID), n.ID
		n.Kind = kindOf(n.SeriesID, n.Runtime)
	}
	n.Usage = usage(&c.change)
	n.StartedSeconds = c.value(StartTime)
	b.nodes[n.ID] = &n
}

// addEdge adds a change, whose side it is.
func (b *builder) addEdge(e *edgeChange, counted *Side) {
	client, server := b.node(&e.client, false), b.node(&e.server, true)
	key := edgeEnds{client, server, e.transport}
	edge := b.room.byEnds[key]
	if edge == nil {
		made := b.room.made
		made.relations = append(made.relations, relation{client: client, server: server,
			Edge: Edge{Client: client.ID, Server: server.ID, Transport: e.transport, Paired: true, confidence: model.Exact}})
		edge = &made.relations[len(made.relations)-1]
		b.room.byEnds[key] = edge
	}
	if e.service != "" && !slices.Contains(edge.Services, e.service) {
		edge.Services = append(edge.Services, e.service)
	}
	settled := e.client.settled || e.server.settled
	edge.Paired = edge.Paired && (e.of(Paired) == 1 || settled)
	edge.settled = edge.settled || settled
	// A level that is not stored is of before it was: the end was found if it has a name.
	confidence := e.of(Confidence)
	if !e.has(Confidence) && !e.client.outside() && !e.server.outside() {
		confidence = float64(model.ByAddress)
	}
	edge.confidence = min(edge.confidence, model.Confidence(confidence))
	if e.via != "" {
		edge.Via = e.via
	}
	side := &edge.ClientSide
	if e.side == model.RoleServer {
		side = &edge.ServerSide
	}
	if *side == nil {
		*side = counted
	} else {
		(*side).add(e)
	}
}

// node finds or makes the node of an end. A container that has numbers of its own is there
// already.
func (b *builder) node(e *end, server bool) *Node {
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
		if e.group != nil {
			*n = *e.group
		}
		if e.outside() {
			n.Kind, n.Host = KindOutside, ""
		}
		if id == OutsideID || id == OutsideServersID {
			n.SeriesID = ""
		}
		b.nodes[id] = n
	}
	// A node's series are those of its id, and of addresses that were found to be its own.
	if (n.Kind == KindOutside || isAddress(e.id)) && !slices.Contains(n.Addresses, e.id) {
		n.Addresses = append(n.Addresses, e.id)
	}
	return n
}

// ends are the edge as its server serves it, and as its client calls it; each as the other sees it where one of them
// does not say.
func (e *Edge) ends() (served, called *Side) {
	return cmp.Or(e.ServerSide, e.ClientSide), cmp.Or(e.ClientSide, e.ServerSide)
}

// own is e with memory of its own.
func (e *Edge) own() *Edge {
	edge := *e
	edge.ClientSide, edge.ServerSide = e.ClientSide.own(), e.ServerSide.own()
	return &edge
}

func (e *Edge) finish(seconds float64) {
	e.ID = e.Client + ">" + e.Server
	if e.Transport != model.TCP.String() {
		e.ID += "/" + e.Transport
	}
	e.Confidence = e.confidence.String()
	slices.Sort(e.Services)
	if e.Services == nil {
		e.Services = []string{}
	}
	e.ClientSide, e.ServerSide = e.ClientSide.finish(seconds), e.ServerSide.finish(seconds)
	served, _ := e.ends()
	e.Endpoints, e.OmittedEndpoints, e.OtherEndpoints = served.endpoints.top(MaxEndpoints, seconds)
	e.Paired = e.Paired && e.ClientSide != nil && e.ServerSide != nil && (!e.settled || agree(e.ClientSide, e.ServerSide))
	e.measureNetwork()
}

// measureNetwork is how much longer its client waits than its server takes.
func (e *Edge) measureNetwork() {
	if e.Paired && e.ClientSide.P50 != nil && e.ServerSide.P50 != nil {
		if d := float64(*e.ClientSide.P50 - *e.ServerSide.P50); !math.IsNaN(d) && !math.IsInf(d, 0) {
			e.NetworkSeconds = &d
		}
	}
}

// addSides adds up the edges of each node.
func (b *builder) addSides() {
	relations := b.room.made.relations
	both(func() {
		for i := range relations {
			r := &relations[i]
			served, _ := r.ends()
			r.server.Served = r.server.Served.merge(served)
		}
	}, func() {
		for i := range relations {
			r := &relations[i]
			_, called := r.ends()
			r.client.Called = r.client.Called.merge(called)
		}
	})
}

// OutsideID is the node of all addresses outside of the host that are only clients;
// OutsideServersID that of the servers outside past the MaxOutsideServers busiest.
const (
	OutsideID         = "outside"
	OutsideServersID  = "outside-servers"
	MaxOutsideServers = 20
	// MaxAddresses is how many addresses a node of a group lists.
	MaxAddresses = 50
)

func finishAddresses(n *Node) {
	slices.Sort(n.Addresses)
	n.AddressCount = len(n.Addresses)
	n.Addresses = n.Addresses[:min(len(n.Addresses), MaxAddresses)]
	switch {
	case n.Kind != KindOutside:
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
		if e := &edges[i]; e.side != model.RoleUnknown && e.server.outside() && !e.idle() {
			bytes[e.server.id] += e.of(RequestBytes) + e.of(ResponseBytes)
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
