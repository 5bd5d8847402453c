package graph

import (
	"cmp"
	"math"
	"slices"
	"time"

	"outsight/internal/clocks"
	"outsight/internal/frame"
	"outsight/internal/model"
)

// minCrossed is of how many packets in a direction something is told.
const minCrossed = 10

// crossed is a packet of which one host has when it was sent, and another one when it was received.
type crossed struct {
	// client and server are the parts of the ends of its edge; back says that it went to the client.
	client, server int32
	back           bool
	clocks.Point
	// sender and receiver are how much of it was in the stacks of their hosts, in seconds; 0: not known.
	sender, receiver float64
}

// hostClocks are two parts whose clocks are compared, the lesser one first.
type hostClocks [2]int32

// crossings are the packets between hosts of each relation, and what these say of the hosts' clocks.
type crossings struct {
	of     map[int32][]crossed // by relation
	clocks map[hostClocks]clocks.Pair
}

// sentPacket is what identifies a packet of a relation.
type sentPacket struct {
	relation int32
	back     bool
	packet   uint64
}

type sentAt struct {
	part  int32
	time  time.Time
	stack time.Duration
	// used: it was received, or sent twice, so that it is not known which of them arrived.
	used bool
}

// cross joins the samples of packets of all hosts.
func (m *frameMap) cross() (c crossings) {
	relationOf := make([]map[int32]int32, len(m.parts)) // of the rows of edges, by part
	sampled := make([]bool, len(m.parts))
	for i := range m.parts {
		sampled[i] = len(m.parts[i].After.Tables[frame.PacketSamples].IDs) > 0
	}
	for i := range m.rows {
		if r := &m.rows[i]; sampled[r.part] && !r.sum && r.relation >= 0 && m.relations[r.relation].across {
			if relationOf[r.part] == nil {
				relationOf[r.part] = map[int32]int32{}
			}
			relationOf[r.part][r.row] = r.relation
		}
	}
	each := func(wantSent bool, f func(part int32, key sentPacket, s *model.PacketSample)) {
		for i := range m.parts {
			p := &m.parts[i]
			if relationOf[i] == nil {
				continue
			}
			edges := &p.After.Tables[frame.Edges]
			for edge, s := range p.After.PacketSamples() {
				row, ok := edges.Find(edge)
				relation, across := relationOf[i][int32(row)]
				if !ok || !across || s.Sent != wantSent {
					continue
				}
				isServer := model.Role(edges.Attribute(frame.EdgeSide, row)) == model.RoleServer
				f(int32(i), sentPacket{relation, isServer == s.Sent, s.Packet}, &s)
			}
		}
	}
	sent := map[sentPacket]sentAt{}
	each(true, func(part int32, key sentPacket, s *model.PacketSample) {
		_, twice := sent[key]
		sent[key] = sentAt{part, s.Time, s.Stack, twice}
	})
	if len(sent) == 0 {
		return c
	}
	c.of = map[int32][]crossed{}
	each(false, func(part int32, key sentPacket, s *model.PacketSample) {
		at := s.Time
		from, ok := sent[key]
		if !ok || from.used || m.parts[from.part].hostAt == m.parts[part].hostAt {
			return
		}
		from.used = true // of copies the first counts
		sent[key] = from
		one := crossed{client: from.part, server: part, back: key.back, Point: clocks.Point{Took: at.Sub(from.time).Seconds()},
			sender: from.stack.Seconds(), receiver: s.Stack.Seconds()}
		if key.back {
			one.client, one.server = part, from.part
		}
		byFirst := from.time // the clock of the lesser part is that of all times
		if part < from.part {
			byFirst = at
		}
		one.At = byFirst.Sub(m.window.To).Seconds()
		c.of[key.relation] = append(c.of[key.relation], one)
	})
	c.compareClocks(m)
	return c
}

// pair are the parts between which a packet went; reverse says that it went to the first of them.
func (p *crossed) pair() (pair hostClocks, reverse bool) {
	if p.client < p.server {
		return hostClocks{p.client, p.server}, p.back
	}
	return hostClocks{p.server, p.client}, !p.back
}

// compareClocks compares the clocks of all pairs of hosts, by the packets of all edges between them.
func (c *crossings) compareClocks(m *frameMap) {
	points := map[hostClocks]*[2][]clocks.Point{}
	for _, some := range c.of {
		for i := range some {
			pair, reverse := some[i].pair()
			of := points[pair]
			if of == nil {
				of = new([2][]clocks.Point)
				points[pair] = of
			}
			way := 0
			if reverse {
				way = 1
			}
			of[way] = append(of[way], some[i].wirePoint())
		}
	}
	c.clocks = make(map[hostClocks]clocks.Pair, len(points))
	for pair, of := range points {
		kept := 0.0
		first, second := m.parts[pair[0]].After.ClockError, m.parts[pair[1]].After.ClockError
		if first > 0 && second > 0 {
			kept = (first + second).Seconds()
		}
		c.clocks[pair] = clocks.Of(of[0], of[1], kept)
	}
}

// wayDelays are the delays of packets one way, in seconds and in order; bound is by how much each may be wrong. above are
// those above the least that took the same way between the same hosts. variation is the sum of the differences between one
// delay and the next on the same way, of which there are so many; no clock is in it.
type wayDelays struct {
	delays, above []float64
	bound         float64
	variation     float64
	differences   int
	stacks        wayStacks
}

// delays are those of the packets of some relations, there and back.
func (c *crossings) delays(relations []int32) (ways [2]wayDelays) {
	type path struct {
		pair hostClocks
		way  int
	}
	byPath, byWire := map[path][]clocks.Point{}, map[path][]clocks.Point{} // without the drift of clocks
	for _, relation := range relations {
		for i := range c.of[relation] {
			p := &c.of[relation][i]
			pair, reverse := p.pair()
			pairClocks, sign, way := c.clocks[pair], 1.0, 0
			if reverse {
				sign = -1
			}
			if p.back {
				way = 1
			}
			w := &ways[way]
			w.bound = max(w.bound, pairClocks.Bound)
			took := p.Took - sign*pairClocks.Ahead(p.At)
			w.delays = append(w.delays, took)
			at, drifted := path{pair, way}, sign*pairClocks.Drift*(p.At-pairClocks.Middle)
			byPath[at] = append(byPath[at], clocks.Point{At: p.At, Took: p.Took - drifted})
			if p.seenAtCards() {
				w.stacks.add(p, took)
				byWire[at] = append(byWire[at], clocks.Point{At: p.At, Took: p.onWire(p.Took) - drifted})
			}
		}
	}
	for at, all := range byPath {
		ways[at.way].compare(all)
	}
	for at, all := range byWire {
		ways[at.way].stacks.wireAbove = append(ways[at.way].stacks.wireAbove, aboveLeast(all)...)
	}
	for i := range ways {
		slices.Sort(ways[i].delays)
		slices.Sort(ways[i].above)
		ways[i].stacks.sort()
	}
	return ways
}

// compare compares the delays of packets that took the same way with the least of them, and with one another.
func (w *wayDelays) compare(all []clocks.Point) {
	slices.SortFunc(all, func(a, b clocks.Point) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Took, b.Took)) })
	for i := range all[1:] {
		w.variation += math.Abs(all[i+1].Took - all[i].Took)
		w.differences++
	}
	w.above = append(w.above, aboveLeast(all)...)
}

// aboveLeast is by how much each took longer than the fastest.
func aboveLeast(all []clocks.Point) []float64 {
	least := slices.MinFunc(all, func(a, b clocks.Point) int { return cmp.Compare(a.Took, b.Took) }).Took
	above := make([]float64, len(all))
	for i := range all {
		above[i] = all[i].Took - least
	}
	return above
}

// known says whether the delay is told: there are enough packets, and it is more than is not known of the clocks.
func (w *wayDelays) known() bool {
	return len(w.delays) >= minCrossed && float64(*quantileOf(w.delays, 0.5)) > w.bound
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}

// addCrossings adds what packets of its relations between hosts tell; across says that all of these are between hosts, and
// that their ends counted the same connections.
func (e *Edge) addCrossings(c *crossings, relations []int32, across bool) {
	if len(c.of) == 0 {
		return
	}
	ways := c.delays(relations)
	e.Network = withDelays(e.Network, &ways)
	if across {
		e.Split = splitAcross(e.ClientSide, e.ServerSide, &ways)
	}
}

// withDelays adds to a network, which may be nil, what packets between hosts tell of it.
func withDelays(n *Network, ways *[2]wayDelays) *Network {
	if max(len(ways[0].delays), len(ways[1].delays)) < minCrossed {
		return n
	}
	if n == nil {
		n = &Network{}
	}
	for i, to := range [2]struct {
		p50, p99, above50, above99, bound, jitter **Seconds
		matched                                   **float64
	}{{&n.DelayThereP50, &n.DelayThereP99, &n.AboveThereP50, &n.AboveThereP99, &n.DelayThereError, &n.JitterThere,
		&n.MatchedThere},
		{&n.DelayBackP50, &n.DelayBackP99, &n.AboveBackP50, &n.AboveBackP99, &n.DelayBackError, &n.JitterBack,
			&n.MatchedBack}} {
		w := &ways[i]
		if len(w.delays) < minCrossed {
			continue
		}
		*to.matched = ptrTo(float64(len(w.delays)))
		*to.above50, *to.above99 = quantileOf(w.above, 0.5), quantileOf(w.above, 0.99)
		if *to.jitter == nil && w.differences > 0 {
			jitter := Seconds(w.variation / float64(w.differences))
			*to.jitter = &jitter
		}
		// What is within one host has no error of clocks, and is not mixed with what has.
		if w.known() && *to.p50 == nil {
			bound := Seconds(w.bound)
			*to.p50, *to.p99, *to.bound = quantileOf(w.delays, 0.5), quantileOf(w.delays, 0.99), &bound
		}
	}
	n.StacksThere = ways[0].stacks.there(ways[0].bound)
	n.StacksBack = (*StacksBack)(ways[1].stacks.there(ways[1].bound))
	return n
}

// quantileOf is the least of sorted values that so large a share is not above.
func quantileOf(sorted []float64, share float64) *Seconds {
	s := Seconds(sorted[max(int(math.Ceil(share*float64(len(sorted))))-1, 0)])
	return &s
}
