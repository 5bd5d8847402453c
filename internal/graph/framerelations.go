package graph

import (
	"cmp"
	"slices"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// mapRelation is an edge that is being made.
type mapRelation struct {
	client, server int32
	transport      model.Transport
	// clients and servers are how many rows the sides have, bytes what they counted.
	clients, servers           int32
	clientBytes, serverBytes   uint64
	confidence                 model.Confidence
	unpaired, settled, certain bool
	// host is that of the first row; across says that there are rows of several.
	host   int32
	across bool
}

// best is what Edge.Best has: requests and responses of the client's side, or else of the server's.
func (r *mapRelation) best() float64 {
	if r.clients > 0 {
		return float64(r.clientBytes)
	}
	return float64(r.serverBytes)
}

// relate finds the edges of all rows.
func (m *frameMap) relate() {
	for i := range m.rows {
		r := &m.rows[i]
		r.relation = -1
		if r.side == model.RoleUnknown {
			continue
		}
		client, server := m.endNode(&r.client, false), m.endNode(&r.server, true)
		if m.limited && !m.only.wants(m.nodes[client].ID, m.nodes[server].ID) {
			continue
		}
		key := uint64(client)<<33 | uint64(server)<<2 | uint64(r.transport)
		index, ok := m.relationAt[key]
		if !ok {
			index = int32(len(m.relations))
			m.relationAt[key] = index
			m.relations = append(m.relations, mapRelation{client: client, server: server, transport: r.transport,
				confidence: model.Exact, host: int32(m.parts[r.part].hostAt)})
		}
		r.relation = index
		m.relations[index].add(m, r)
	}
}

func (of *mapRelation) add(m *frameMap, r *mapRow) {
	of.across = of.across || of.host != int32(m.parts[r.part].hostAt)
	if r.side == model.RoleServer {
		of.servers, of.serverBytes = of.servers+1, of.serverBytes+r.request+r.response
	} else {
		of.clients, of.clientBytes = of.clients+1, of.clientBytes+r.request+r.response
	}
	if r.sum {
		return // it does not say how sure its ends were
	}
	of.certain = true
	settled := r.client.settled || r.server.settled
	of.settled = of.settled || settled
	v := &m.parts[r.part].view
	number := func(f Field) (float64, bool) {
		view := &v.columns[f.index()]
		if len(view.now) == 0 || isMissing(view.nowMissing, int(r.row)) {
			return 0, false
		}
		return level(view.now[r.row], frame.LevelFloat, 1), true
	}
	paired, _ := number(Paired)
	of.unpaired = of.unpaired || paired != 1 && !settled && !r.pairedThere
	confidence, known := number(Confidence)
	if r.found {
		confidence, known = float64(r.confidence), true
	}
	if !known && !r.client.outside() && !r.server.outside() {
		confidence = float64(model.ByAddress)
	}
	of.confidence = min(of.confidence, model.Confidence(confidence))
}

// finish says how sure the ends are where only rows that ended say that there was an edge.
func (of *mapRelation) finish(m *frameMap) {
	if of.certain {
		return
	}
	of.unpaired, of.confidence = true, model.ByAddress
	if m.nodes[of.client].Kind == KindOutside || m.nodes[of.server].Kind == KindOutside {
		of.confidence = model.NotFound
	}
}

// rowLists are the rows of each of several things: of thing i those in rows[from[i]:from[i+1]].
type rowLists struct{ from, rows []int32 }

func (l *rowLists) of(i int32) []int32 { return l.rows[l.from[i]:l.from[i+1]] }

// listsOf sorts rows by what they belong to, of so many things; each calls f for all pairs.
func listsOf(things int, each func(f func(thing, row int32))) rowLists {
	from := make([]int32, things+2)
	each(func(thing, _ int32) { from[thing+2]++ })
	for i := range from[1:] {
		from[i+1] += from[i]
	}
	rows := make([]int32, from[things+1])
	each(func(thing, row int32) {
		rows[from[thing+1]] = row
		from[thing+1]++
	})
	return rowLists{from[:things+1], rows}
}

// histogramsOf says of how many of edgeHistograms each node has numbers, where some relations are shown.
func (m *frameMap) histogramsOf(shown []int32) (wanted []int) {
	wanted = make([]int, len(m.nodes))
	for i := range wanted {
		if wanted[i] = len(edgeHistograms); m.o.Brief && m.nodes[i].ID != m.o.Node {
			wanted[i] = 1
		}
	}
	for _, i := range shown {
		wanted[m.relations[i].client], wanted[m.relations[i].server] = len(edgeHistograms), len(edgeHistograms)
	}
	return wanted
}

// nodeRows are the rows of each node: as the node itself counted them where it did.
type nodeRows struct {
	served, called rowLists
	// many are the nodes with very many rows, few the others.
	many, few []int32
}

// listNodes finds the rows of each node.
func (m *frameMap) listNodes() *nodeRows {
	of := func(server bool) rowLists {
		return listsOf(len(m.nodes), func(f func(node, row int32)) {
			for i := range m.rows {
				r := &m.rows[i]
				if r.relation < 0 {
					continue
				}
				relation := &m.relations[r.relation]
				switch {
				case server && (r.side == model.RoleServer || relation.servers == 0):
					f(relation.server, int32(i))
				case !server && (r.side != model.RoleServer || relation.clients == 0):
					f(relation.client, int32(i))
				}
			}
		})
	}
	all := &nodeRows{served: of(true), called: of(false)}
	for i := range m.nodes {
		if len(all.served.of(int32(i)))+len(all.called.of(int32(i))) > len(m.rows)/64 {
			all.many = append(all.many, int32(i))
		} else {
			all.few = append(all.few, int32(i))
		}
	}
	return all
}

// nodesTogether is how many nodes are finished at a time: those of a host have their rows in the same frames, which are in
// the processor's cache then.
const nodesTogether = 8

func (all *nodeRows) chunks() int { return (len(all.few) + nodesTogether - 1) / nodesTogether }

// finish finishes a chunk of the nodes with few rows.
func (all *nodeRows) finish(m *frameMap, chunk int, wanted []int) {
	room := m.nodeRoom()
	for _, i := range all.few[chunk*nodesTogether : min((chunk+1)*nodesTogether, len(all.few))] {
		m.finishNode(i, all, wanted[i], room)
	}
}

// finishNode fills in what a node served and called, with the first histograms of edgeHistograms.
func (m *frameMap) finishNode(i int32, rows *nodeRows, histograms int, room *edgeRoom) {
	n := m.nodes[i]
	if !m.limited || n.ID == m.only.node {
		n.Served, n.Called = m.sideWith(rows.served.of(i), histograms, room), m.sideWith(rows.called.of(i), histograms, room)
	}
	finishAddresses(n)
}

// sideOf adds rows up; nil for none.
func (m *frameMap) sideOf(rows []int32) *Side { return m.sideWith(rows, len(edgeHistograms), nil) }

// sideWith is sideOf with the first histograms of edgeHistograms, in the room, if there is one.
func (m *frameMap) sideWith(rows []int32, histograms int, room *edgeRoom) *Side {
	if len(rows) == 0 {
		return nil
	}
	s := sumsPool.Get().(*sums)
	defer sumsPool.Put(s)
	s.reset(histograms)
	for _, i := range rows {
		s.add(&m.parts[m.rows[i].part], &m.rows[i])
	}
	return s.side(room.side(), m.covered, room)
}

// choose begins the graph of the edges with the most bytes, and says which these are.
func (m *frameMap) choose() (g *Graph, shown []int32) {
	g = m.emptyGraph()
	unmatched, unmatchedBytes := 0, 0.0
	for i := range m.relations {
		r := &m.relations[i]
		r.finish(m)
		g.bytes += r.best()
		if r.confidence == model.NotFound {
			unmatched++
			unmatchedBytes += r.best()
		}
	}
	g.UnmatchedShare = float64(unmatched) / float64(max(len(m.relations), 1))
	g.UnmatchedBytesShare = unmatchedBytes / max(g.bytes, 1)
	shown = m.busiest()
	g.OmittedEdges = len(m.relations) - len(shown)
	return g, shown
}

// fill fills in the nodes, and the edges that are shown. What one processor alone can do is done while the other ones do
// something else.
func (m *frameMap) fill(g *Graph, shown []int32) {
	wanted := m.histogramsOf(shown)
	var nodes *nodeRows
	var edges *shownEdges
	parallelWith(len(m.parts), func(i int) {
		m.addUp(i, edgeHistograms[1:], func(r *mapRow) bool {
			if r.relation < 0 {
				return false
			}
			relation := &m.relations[r.relation]
			return max(wanted[relation.client], wanted[relation.server]) > 1
		})
	}, func() { nodes, edges = m.listNodes(), m.listShown(shown) })

	// Nodes with very many rows come first, so that no processor has one of them left at the end.
	parallelInTurn(func() { m.count(g) },
		each{len(nodes.many), func(i int) { m.finishNode(nodes.many[i], nodes, wanted[nodes.many[i]], nil) }},
		each{nodes.chunks(), func(i int) { nodes.finish(m, i, wanted) }},
		each{edges.chunks(), func(i int) { edges.make(m, i) }},
		each{len(m.parts), func(i int) { edges.findEndpoints(m, i) }})
	edges.settle(m, func() {
		g.Nodes = m.shownNodes(shown)
		m.sortNodes(g, shown)
	})
	g.Edges = make([]*Edge, len(shown))
	for i, relation := range shown {
		g.Edges[i] = &edges.edges[edges.at[relation]-1]
	}
}

// count fills in what is in no edge, and what share of the bytes of each host is.
func (m *frameMap) count(g *Graph) {
	counted, received := map[string]uint64{}, map[string]uint64{}
	byPart := make([][2]uint64, len(m.parts))
	var unplaced []int32
	for i := range m.rows {
		r := &m.rows[i]
		n := r.response
		if r.side == model.RoleServer {
			n = r.request
		}
		if r.side != model.RoleUnknown {
			byPart[r.part][0] += n
		} else {
			unplaced = append(unplaced, int32(i))
		}
		byPart[r.part][1] += n + r.unseen
	}
	for i := range m.parts {
		counted[m.parts[i].host] += byPart[i][0]
		received[m.parts[i].host] += byPart[i][1]
	}
	if m.limited {
		return // it is of all edges
	}
	for host, n := range received {
		if n > 0 {
			g.CountedShare[host] = float64(counted[host]) / float64(n)
		}
	}
	g.Unplaced = m.sideOf(unplaced)
}

var unseenColumn = frame.Column(frame.Edges, "unseen_bytes")

// busiest are the indexes of the edges that are shown: those with the most bytes.
func (m *frameMap) busiest() []int32 {
	all := make([]int32, len(m.relations))
	for i := range all {
		all[i] = int32(i)
	}
	most := m.o.MaxEdges
	if most <= 0 || len(all) <= most {
		return all
	}
	// What they are compared by is beside their indexes: relations are far apart in memory.
	type candidate struct {
		bytes    float64
		relation int32
	}
	order := func(x, y candidate) int {
		if x.bytes != y.bytes {
			return cmp.Compare(y.bytes, x.bytes)
		}
		a, b := &m.relations[x.relation], &m.relations[y.relation]
		return cmp.Or(cmp.Compare(m.nodes[a.client].ID, m.nodes[b.client].ID),
			cmp.Compare(m.nodes[a.server].ID, m.nodes[b.server].ID),
			cmp.Compare(a.transport.String(), b.transport.String()))
	}
	// Of many edges few are put in order: what has less than the last of so many others is left out at once.
	best, full := make([]candidate, 0, 2*most), false
	for i := range m.relations {
		one := candidate{m.relations[i].best(), int32(i)}
		if full && order(best[most-1], one) < 0 {
			continue
		}
		if best = append(best, one); len(best) == 2*most {
			slices.SortFunc(best, order)
			best, full = best[:most], true
		}
	}
	slices.SortFunc(best, order)
	for i := range all[:most] {
		all[i] = best[i].relation
	}
	return all[:most]
}

// shownNodes are all nodes, but for outside ones without an edge that is shown.
func (m *frameMap) shownNodes(shown []int32) []*Node {
	used := make([]bool, len(m.nodes))
	for _, i := range shown {
		used[m.relations[i].client], used[m.relations[i].server] = true, true
	}
	all := make([]*Node, 0, len(m.nodes))
	for i, n := range m.nodes {
		if used[i] || n.Kind != KindOutside && (!m.limited || n.ID == m.only.node) {
			all = append(all, n)
		}
	}
	return all
}
