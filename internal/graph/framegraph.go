package graph

import (
	"cmp"
	"slices"
	"strings"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// shownEdges are the edges that are shown, while they are made.
type shownEdges struct {
	// order are their relations. They are made in the order of their hosts, whose frames are in the processor's cache then.
	order []int32
	// at is the index of an edge by that of its relation, plus 1.
	at    []int32
	edges []Edge
	rows  rowLists
	// asked has, by part, the edge of each row of edges whose endpoints are looked for, plus 1; nil where none are. found
	// are these.
	asked [][]int32
	found [][]foundEndpoint
}

// edgesTogether is how many edges are made at a time.
const edgesTogether = 64

func (s *shownEdges) chunks() int { return (len(s.order) + edgesTogether - 1) / edgesTogether }

// chunk are the bounds of some edges.
func (s *shownEdges) chunk(i int) (from, to int) {
	return i * edgesTogether, min((i+1)*edgesTogether, len(s.order))
}

// listShown finds the rows of the edges that are shown.
func (m *frameMap) listShown(shown []int32) *shownEdges {
	s := &shownEdges{order: slices.Clone(shown), at: make([]int32, len(m.relations)), edges: make([]Edge, len(shown)),
		asked: make([][]int32, len(m.parts)), found: make([][]foundEndpoint, len(m.parts))}
	slices.Sort(s.order)
	for i, relation := range s.order {
		s.at[relation] = int32(i) + 1
	}
	s.rows = listsOf(len(shown), func(f func(edge, row int32)) {
		for i := range m.rows {
			if r := m.rows[i].relation; r >= 0 && s.at[r] > 0 {
				f(s.at[r]-1, int32(i))
			}
		}
	})
	s.ask(m)
	return s
}

// make makes a chunk of edges, without what follows from both sides and endpoints.
func (s *shownEdges) make(m *frameMap, chunk int) {
	sum := sumsPool.Get().(*sums)
	defer sumsPool.Put(sum)
	from, to := s.chunk(chunk)
	room := m.edgeRoomFor(s.order[from:to])
	for i := from; i < to; i++ {
		m.makeEdge(&s.edges[i], &m.relations[s.order[i]], s.rows.of(int32(i)), sum, room)
	}
}

// settle fills in what follows from both sides and endpoints, and calls first meanwhile.
func (s *shownEdges) settle(m *frameMap, first func()) {
	found := slices.Concat(s.found...)
	ofEdge := listsOf(len(s.edges), func(f func(edge, at int32)) {
		for i := range found {
			f(found[i].edge, int32(i))
		}
	})
	parallelWith(s.chunks(), func(chunk int) {
		from, to := s.chunk(chunk)
		for i := from; i < to; i++ {
			e := &s.edges[i]
			served, _ := e.ends()
			for _, k := range ofEdge.of(int32(i)) {
				served.endpoints = served.endpoints.add([]endpointChange{found[k].endpointChange})
			}
			e.settleSides(m.covered)
			e.addCrossings(&m.crossings, s.order[i:i+1], e.Paired && e.across)
		}
	}, first)
}

// sortNodes puts the nodes of g in order, and the edges that are shown in that of their clients' and servers' names.
func (m *frameMap) sortNodes(g *Graph, shown []int32) {
	slices.SortFunc(g.Nodes, func(x, y *Node) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.ID, y.ID))
	})
	// Nodes of one name have one rank, and places in the order of their IDs.
	ranks, places := make([]int32, len(m.nodes)), make([]int32, len(m.nodes))
	rank := int32(0)
	for i, n := range g.Nodes {
		if i > 0 && n.Name != g.Nodes[i-1].Name {
			rank = int32(i)
		}
		at := m.nodeAt[n.ID]
		ranks[at], places[at] = rank, int32(i)
	}
	slices.SortFunc(shown, func(x, y int32) int {
		a, b := &m.relations[x], &m.relations[y]
		return cmp.Or(int(ranks[a.client]-ranks[b.client]), int(ranks[a.server]-ranks[b.server]),
			int(places[a.client]-places[b.client]), int(places[a.server]-places[b.server]), cmp.Compare(a.transport, b.transport))
	})
}

// edgeRoom is memory for some edges or nodes, so that each of their parts need not be allocated by itself.
type edgeRoom struct {
	memory   *Memory
	sides    []Side
	services []string
	ids      strings.Builder
	buckets  []float64
}

// edgeRoomFor is the room for the edges of relations.
func (m *frameMap) edgeRoomFor(relations []int32) *edgeRoom {
	sides, ids := 0, 0
	for _, relation := range relations {
		r := &m.relations[relation]
		sides += int(min(r.clients, 1) + min(r.servers, 1))
		ids += m.edgeIDLength(r)
	}
	room := &edgeRoom{memory: m.o.Memory, services: make([]string, len(relations))}
	if room.memory == nil {
		room.sides = make([]Side, sides)
	}
	room.ids.Grow(ids)
	return room
}

// edgeIDLength is how long the ID of a relation's edge is at most.
func (m *frameMap) edgeIDLength(r *mapRelation) int {
	return len(m.nodes[r.client].ID) + len(m.nodes[r.server].ID) + len(">/") + len(r.transport.String())
}

// id is that of the edge of a relation.
func (room *edgeRoom) id(m *frameMap, r *mapRelation) string {
	begin := room.ids.Len()
	room.ids.Grow(m.edgeIDLength(r))
	room.ids.WriteString(m.nodes[r.client].ID)
	room.ids.WriteByte('>')
	room.ids.WriteString(m.nodes[r.server].ID)
	if r.transport != model.TCP {
		room.ids.WriteByte('/')
		room.ids.WriteString(r.transport.String())
	}
	return room.ids.String()[begin:]
}

// takeServices is no service, with room for one: most edges have no more.
func (room *edgeRoom) takeServices() []string {
	none := room.services[:0:1]
	room.services = room.services[1:]
	return none
}

// nodeRoom is the room for nodes, nil where each has memory of its own.
func (m *frameMap) nodeRoom() *edgeRoom {
	if m.o.Memory == nil {
		return nil
	}
	return &edgeRoom{memory: m.o.Memory}
}

// side is one that is empty.
func (room *edgeRoom) side() *Side {
	if room == nil {
		return &Side{}
	}
	if len(room.sides) == 0 {
		room.sides = room.memory.takeSides()
	}
	one := &room.sides[0]
	room.sides = room.sides[1:]
	return one
}

// durations are those of a histogram, in the room's memory where there is a room.
func (room *edgeRoom) durations(h *frame.Durations) model.FloatHistogram {
	if room == nil {
		return floatDurations(h, nil)
	}
	if len(room.buckets) < int(h.Last-h.First)+1 {
		room.buckets = room.memory.takeBuckets()
	}
	f := floatDurations(h, room.buckets)
	room.buckets = room.buckets[min(len(f.Buckets), len(room.buckets)):]
	return f
}

func (m *frameMap) edgeID(r *mapRelation) string { return new(edgeRoom).id(m, r) }

// makeEdge makes the edge of rows, in its room.
func (m *frameMap) makeEdge(e *Edge, r *mapRelation, rows []int32, s *sums, room *edgeRoom) {
	*e = Edge{ID: room.id(m, r), Client: m.nodes[r.client].ID, Server: m.nodes[r.server].ID,
		Transport: r.transport.String(), Paired: !r.unpaired, Services: room.takeServices(), confidence: r.confidence,
		settled: r.settled, across: r.across, Confidence: r.confidence.String()}
	for _, server := range []bool{false, true} {
		s.reset(len(edgeHistograms))
		some := false
		for _, i := range rows {
			row := &m.rows[i]
			if (row.side == model.RoleServer) != server {
				continue
			}
			some = true
			p := &m.parts[row.part]
			s.add(p, row)
			if service := p.After.Text(frame.Edges, frame.EdgeService, int(row.row)); service != "" &&
				!slices.Contains(e.Services, service) {
				e.Services = append(e.Services, service)
			}
			if via := p.After.Text(frame.Edges, frame.EdgeVia, int(row.row)); via != "" {
				e.Via = via
			}
		}
		if !some {
			continue
		}
		side := s.side(room.side(), m.covered, room)
		if server {
			e.ServerSide = side
		} else {
			e.ClientSide = side
		}
	}
	slices.Sort(e.Services)
}

// foundEndpoint is what was asked for on an edge, by its index in shownEdges.
type foundEndpoint struct {
	edge int32
	endpointChange
}

// ask finds the rows whose endpoints are those of edges that are shown: an edge has them as its server counted them where
// it did.
func (s *shownEdges) ask(m *frameMap) {
	for i := range m.rows {
		r := &m.rows[i]
		if r.relation < 0 || s.at[r.relation] == 0 ||
			(r.side != model.RoleServer) != (m.relations[r.relation].servers == 0) {
			continue
		}
		if s.asked[r.part] == nil {
			s.asked[r.part] = make([]int32, len(m.parts[r.part].edges.After.IDs))
		}
		s.asked[r.part][r.row] = s.at[r.relation]
	}
}

// findEndpoints finds what was asked for on the edges of a part.
func (s *shownEdges) findEndpoints(m *frameMap, part int) {
	if s.asked[part] != nil {
		m.parts[part].endpoints(s.asked[part], func(edge int32, c endpointChange) {
			s.found[part] = append(s.found[part], foundEndpoint{edge - 1, c})
		})
	}
}

var (
	requestsColumn    = frame.Column(frame.Endpoints, "requests")
	endpointHistogram = frame.Histogram(frame.Endpoints, "latency")
)

// endpoints calls f for what the endpoints of edges gained that asked has a number of, by the row of the edge.
func (p *part) endpoints(asked []int32, f func(edge int32, c endpointChange)) {
	if len(p.After.Tables[frame.Endpoints].IDs) == 0 {
		return
	}
	d := frame.Since(frame.Endpoints, p.Before, p.After)
	var scratch frame.Durations
	edge, number := -1, uint32(0)
	for row, of := range d.After.Attributes[frame.EndpointEdge] {
		if n := uint32(of); row == 0 || n != number {
			edge, number = p.edgeBehind(edge, n), n
		}
		if edge < 0 || asked[edge] == 0 {
			continue
		}
		requests, _ := d.Gain(requestsColumn, row)
		if requests == 0 {
			continue
		}
		text := func(a frame.Attribute) string { return p.After.Text(frame.Endpoints, a, row) }
		scratch.Reset()
		d.AddHistogram(&scratch, endpointHistogram, row)
		latency := floatDurations(&scratch, nil)
		f(asked[edge], endpointChange{model.EndpointKey{Protocol: model.Protocol(text(frame.EndpointProtocol)),
			Name: text(frame.EndpointName), Status: text(frame.EndpointStatus)}, float64(requests), &latency})
	}
}

// edgeBehind is edgeWith of an edge that is mostly the next one behind a row.
func (p *part) edgeBehind(row int, number uint32) int {
	if ids := p.edges.After.IDs; row+1 < len(ids) && ids[row+1] == number {
		return row + 1
	}
	return p.edgeWith(number)
}

// edgeWith is the row of an edge by its number. That of a sum that is not there yet stands for the edges of its kind.
// It is -1 where there is none.
func (p *part) edgeWith(number uint32) int {
	if row, ok := p.edges.After.Find(number); ok {
		return row
	}
	return slices.Index(p.edges.After.Attributes[frame.Sum], uint64(number))
}

// settleSides fills in what follows from both sides and the endpoints.
func (e *Edge) settleSides(seconds float64) {
	served, _ := e.ends()
	e.Endpoints, e.OmittedEndpoints, e.OtherEndpoints = served.endpoints.top(MaxEndpoints, seconds)
	e.Paired = e.Paired && e.ClientSide != nil && e.ServerSide != nil && (!e.settled || agree(e.ClientSide, e.ServerSide))
	e.measureNetwork()
}
