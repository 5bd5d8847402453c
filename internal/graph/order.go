package graph

import (
	"cmp"
	"slices"
)

func (g *Graph) sort() {
	slices.SortFunc(g.Nodes, func(x, y *Node) int {
		if c := cmp.Compare(x.Name, y.Name); c != 0 {
			return c
		}
		return cmp.Compare(x.ID, y.ID)
	})
	// Nodes of one name have one rank.
	ranks := make(map[string]int, len(g.Nodes))
	for i, n := range g.Nodes {
		ranks[n.ID] = i
		if i > 0 && n.Name == g.Nodes[i-1].Name {
			ranks[n.ID] = ranks[g.Nodes[i-1].ID]
		}
	}
	type ranked struct {
		client, server int
		*Edge
	}
	edges := make([]ranked, len(g.Edges))
	for i, e := range g.Edges {
		edges[i] = ranked{ranks[e.Client], ranks[e.Server], e}
	}
	slices.SortFunc(edges, func(x, y ranked) int {
		if x.client != y.client {
			return x.client - y.client
		}
		if x.server != y.server {
			return x.server - y.server
		}
		return cmp.Compare(x.ID, y.ID)
	})
	for i, e := range edges {
		g.Edges[i] = e.Edge
	}
}

// Limit leaves the n edges with the most bytes, and counts the others in OmittedEdges. Nodes
// stay, so that no container is hidden, but for outside ones that have no edge left.
func (g *Graph) Limit(n int) {
	if len(g.Edges) <= n {
		return
	}
	g.leave(n)
	g.sort()
}

// leave is Limit, with the most bytes first.
func (g *Graph) leave(n int) {
	before := len(g.Edges)
	g.Edges = mostBytes(g.Edges, n)
	g.OmittedEdges += before - len(g.Edges)
	used := map[string]bool{}
	for _, e := range g.Edges {
		used[e.Client], used[e.Server] = true, true
	}
	g.Nodes = slices.DeleteFunc(g.Nodes, func(n *Node) bool { return n.Kind == KindOutside && !used[n.ID] })
}

// mostBytes are the n edges with the most bytes, these first. Of many edges few are put in order: what has less than
// the last of n others is left out at once.
func mostBytes(edges []*Edge, n int) []*Edge {
	best := make([]*Edge, 0, 2*n)
	var last *Edge
	for _, e := range edges {
		if n == 0 || last != nil && byBytes(last, e) < 0 {
			continue
		}
		if best = append(best, e); len(best) == 2*n {
			slices.SortFunc(best, byBytes)
			best, last = best[:n], best[n-1]
		}
	}
	slices.SortFunc(best, byBytes)
	return slices.Clone(best[:min(n, len(best))])
}

// byBytes puts the edge with the most bytes first.
func byBytes(x, y *Edge) int {
	if c := cmp.Compare(y.bytes(), x.bytes()); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(x.Client, y.Client), cmp.Compare(x.Server, y.Server), cmp.Compare(x.Transport, y.Transport))
}

func (e *Edge) bytes() float64 { return e.Best().Of(RequestBytes) + e.Best().Of(ResponseBytes) }
