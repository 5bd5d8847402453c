package graph

import (
	"math"
	"slices"
)

// total is a time in sum, and its standard deviation by chance: of how many there were, and of how long each took.
type total struct{ seconds, deviation float64 }

func (t *total) add(s *Side) {
	if s.Mean == nil || math.IsInf(float64(*s.Mean), 0) {
		return
	}
	mean, variance := float64(*s.Mean), 0.0
	if s.latency.Count > 0 {
		_, variance = spread(&s.latency)
		t.deviation = math.Hypot(t.deviation, math.Sqrt(s.Of(Transactions)*(variance+mean*mean)))
	}
	t.seconds += s.Of(Transactions) * mean
}

// choose is the index of the greatest time, less than 0 for none; the former index where no other is ahead of it by
// more than chance.
func choose(of []total, former int) (greatest int, kept bool) {
	greatest = -1
	for i, t := range of {
		if t.seconds > 0 && (greatest < 0 || t.seconds > of[greatest].seconds) {
			greatest = i
		}
	}
	if former < 0 || former == greatest || of[former].seconds <= 0 {
		return greatest, false
	}
	ahead, by := of[greatest].seconds-of[former].seconds, math.Hypot(of[greatest].deviation, of[former].deviation)
	if ahead <= sureDeviations*by {
		return former, true
	}
	return greatest, false
}

// meanPath is the critical path by Mean.
func (g *Graph) meanPath(entries []Entry, former []string) *Path {
	nodes := g.byID()
	if len(former) == 0 {
		former = []string{""}
	}
	of := make([]total, len(entries))
	for i, e := range entries {
		if n := nodes[e.Node]; n.Served != nil {
			of[i].add(n.Served)
		}
	}
	first, kept := choose(of, slices.IndexFunc(entries, func(e Entry) bool { return begins(e.Node, former[0]) }))
	if first < 0 {
		return nil
	}
	p := &Path{Statistic: Mean, Former: kept}
	calls := map[string][]*Edge{}
	for _, e := range g.Edges {
		calls[e.Client] = append(calls[e.Client], e)
	}
	at, by := nodes[entries[first].Node], (*Edge)(nil)
	for seen := map[string]bool{}; at != nil; {
		seen[at.ID] = true
		hop := hopOf(at, Mean)
		if by != nil {
			hop.Edge, hop.Weight = by.ID, Mean.of(served(by))
		}
		p.Hops = append(p.Hops, hop)
		next := ""
		if i := len(p.Hops); i < len(former) && begins(at.ID, former[i-1]) {
			next = former[i]
		}
		id, kept := g.next(calls[at.ID], nodes, seen, next)
		p.Former = p.Former || kept
		at, by = nodes[id], slowestTo(id, calls[at.ID])
	}
	p.Whole = p.Hops[0].Served
	p.attribute(g)
	p.ofRequest(nodes, calls)
	return p
}

// next is the server that waits are the longest for, "" for none.
func (g *Graph) next(calls []*Edge, nodes map[string]*Node, seen map[string]bool, former string) (id string,
	kept bool) {
	var ids []string
	var of []total
	for _, e := range calls {
		n := nodes[e.Server]
		if seen[e.Server] || n.Kind == KindHost || n.Kind == KindOutside {
			continue
		}
		i := slices.Index(ids, e.Server)
		if i < 0 {
			i, ids, of = len(ids), append(ids, e.Server), append(of, total{})
		}
		of[i].add(e.Best())
	}
	i, kept := choose(of, slices.IndexFunc(ids, func(id string) bool { return begins(id, former) }))
	if i < 0 {
		return "", false
	}
	return ids[i], kept
}

// slowestTo is the edge to a server that is waited for the longest, of several transports.
func slowestTo(server string, calls []*Edge) (found *Edge) {
	most := 0.0
	for _, e := range calls {
		if wait, ok := e.waited(); ok && e.Server == server && (found == nil || wait > most) {
			found, most = e, wait
		}
	}
	return found
}

// ofRequest adds what each hop is of one request to the entry. The parts add up to the entry's mean.
func (p *Path) ofRequest(nodes map[string]*Node, calls map[string][]*Edge) {
	if p.Whole == nil {
		return
	}
	// of the hop with all that it waits for, of the way to it, and its calls
	part, network, count := float64(*p.Whole), 0.0, 1.0
	for i := range p.Hops {
		h := &p.Hops[i]
		h.OfRequest = &OfRequest{Calls: count, Network: network, Own: part}
		all := h.Own + h.Next + h.Others
		if all <= 0 {
			part = 0 // nothing is known of what it did: it is all its own
			continue
		}
		share := part / all
		h.OfRequest.Own, h.OfRequest.Others = h.Own*share, h.Others*share
		if i+1 == len(p.Hops) {
			break
		}
		waited, answered, n := 0.0, 0.0, 0.0
		for _, e := range calls[h.Node] {
			if wait, ok := e.waited(); ok && e.Server == p.Hops[i+1].Node {
				n += e.Best().Of(Transactions)
				waited += wait
				if s := e.ServerSide; e.ClientSide != nil && s != nil && s.Mean != nil &&
					float64(*s.Mean)*e.Best().Of(Transactions) < wait {
					wait = float64(*s.Mean) * e.Best().Of(Transactions)
				}
				answered += wait
			}
		}
		part = h.Next * share * answered / waited
		network = max(h.Next*share-part, 0) // rounded
		count *= n / nodes[h.Node].Served.Of(Transactions)
	}
}
