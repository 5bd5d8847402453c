package graph

import (
	"cmp"
	"slices"
)

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
