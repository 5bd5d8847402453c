package graph

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"outsight/internal/model"
)

// Grouping says what a node of a graph stands for.
type Grouping string

// The groupings; the empty one is ByContainer.
const (
	ByContainer Grouping = "container"
	// ByPod puts the containers of a Kubernetes pod together; others stay as they are.
	ByPod Grouping = "pod"
	// ByProcess distinguishes the processes of a container, or of a host outside of them, by what they
	// run. Containers without an edge stay as they are.
	ByProcess Grouping = "process"
	// ByWorkload puts the pods of what was deployed together (a deployment, a daemon set).
	ByWorkload Grouping = "workload"
	// ByNamespace puts everything in a Kubernetes namespace together.
	ByNamespace Grouping = "namespace"
	// ByHost puts everything on a host together.
	ByHost Grouping = "host"
)

// ParseGrouping reads the name of a grouping.
func ParseGrouping(name string) (Grouping, error) {
	switch by := Grouping(name); by {
	case "":
		return ByContainer, nil
	case ByContainer, ByPod, ByProcess, ByWorkload, ByNamespace, ByHost:
		return by, nil
	}
	return "", fmt.Errorf("grouping is %q, want %s, %s, %s, %s, %s or %s", name, ByContainer, ByPod, ByProcess,
		ByWorkload, ByNamespace, ByHost)
}

func (by Grouping) containerGroup(n *Node) *Node {
	switch {
	case by == ByHost:
		return hostGroup(n.Host)
	case n.PodName == "":
		return nil
	case by == ByNamespace:
		return namespaceGroup(n.PodNamespace)
	case by == ByWorkload && n.Workload != "":
		return workloadGroup(n.PodNamespace, n.WorkloadKind, n.Workload)
	case by == ByPod || by == ByWorkload:
		group := podGroup(n.PodNamespace, n.PodName)
		group.Host, group.Workload, group.WorkloadKind = n.Host, n.Workload, n.WorkloadKind
		return group
	}
	return nil
}

func hostGroup(host string) *Node {
	return &Node{ID: "all/" + host, Name: host, Kind: KindHost, Host: host}
}

// add adds the numbers of another container of the same group. A limit is one only if all have it.
func (c *containerChange) add(other *containerChange) {
	c.node.Gone = c.node.Gone && other.node.Gone
	c.seconds = max(c.seconds, other.seconds)
	var unlimited []Field
	for _, limit := range []Field{MemoryLimit, CPUQuota} {
		if c.of(limit) == 0 || other.of(limit) == 0 {
			unlimited = append(unlimited, limit)
		}
	}
	started := math.Inf(1)
	for _, v := range []*values{&c.values, &other.values} {
		if v.has(StartTime) {
			started = min(started, v.of(StartTime))
		}
	}
	c.values.add(&other.values)
	c.means.add(&other.means)
	if !math.IsInf(started, 1) {
		c.set(StartTime, started)
	}
	for _, limit := range unlimited {
		c.remove(limit)
	}
	if other.latency != nil {
		if c.latency == nil {
			c.latency = &model.FloatHistogram{}
		}
		c.latency.Merge(other.latency)
	}
}

func (c change) clone() change {
	if c.latency != nil {
		latency := &model.FloatHistogram{}
		latency.Merge(c.latency)
		c.latency = latency
	}
	return c
}

// HideBelow leaves out the edges with less than a share (0 to 1) of all bytes, and counts them in
// HiddenEdges. Nodes stay, but for outside ones that have no edge left.
func (g *Graph) HideBelow(share float64) {
	kept := 0
	for _, e := range g.Edges {
		if e.bytes() >= share*g.bytes {
			kept++
		}
	}
	// The edges with the most bytes are those at or above the share.
	omitted := g.OmittedEdges
	g.Limit(kept)
	g.HiddenEdges += g.OmittedEdges - omitted
	g.OmittedEdges = omitted
}

// HeatMap is how many bytes each node sent to each other one in the window, requests and
// replies alike.
type HeatMap struct {
	// Nodes are IDs, Names what to show, in order of the bytes sent and received, most first.
	Nodes []string `json:"nodes"`
	Names []string `json:"names"`
	// Bytes[i][j] went from Nodes[i] to Nodes[j]; Max is the greatest of them.
	Bytes [][]float64 `json:"bytes"`
	Max   float64     `json:"max"`
	// OmittedNodes is how many of the least busy nodes are left out.
	OmittedNodes int `json:"omitted_nodes"`
	// Cells are those with traffic, in order of source and destination.
	Cells []*HeatCell `json:"cells"`
}

// HeatCell is what one node had to do with another.
type HeatCell struct {
	// Source and Destination are indices of nodes.
	Source      int `json:"source"`
	Destination int `json:"destination"`
	// Edge is the ID of the busiest edge that the cell is about: one on which the source asks the
	// destination, or else one on which it answers.
	Edge string `json:"edge"`
	// BytesPerSecond go from the source to the destination, as requests or as replies.
	BytesPerSecond *float64 `json:"bytes_per_second,omitempty"`
	// TransactionsPerSecond and P99 are those that the source asks for; nil where it does not.
	TransactionsPerSecond *float64 `json:"transactions_per_second,omitempty"`
	P99                   *Seconds `json:"p99,omitempty"`

	asked *Edge // the edge that Edge names, if the source asks on it
	side  *Side
}

// HeatMap is the matrix of the bytes between the at most limit busiest nodes of the graph. Nodes
// without traffic are left out.
func (g *Graph) HeatMap(limit int) *HeatMap {
	busy := map[string]float64{}
	for _, e := range g.Edges {
		busy[e.Client] += e.bytes()
		if e.Server != e.Client {
			busy[e.Server] += e.bytes()
		}
	}
	rows := slices.DeleteFunc(slices.Clone(g.Nodes), func(n *Node) bool { return busy[n.ID] == 0 })
	slices.SortFunc(rows, func(x, y *Node) int {
		return cmp.Or(cmp.Compare(busy[y.ID], busy[x.ID]), cmp.Compare(x.Name, y.Name), cmp.Compare(x.ID, y.ID))
	})
	m := &HeatMap{Nodes: []string{}, Names: []string{}, Bytes: [][]float64{}, Cells: []*HeatCell{},
		OmittedNodes: max(0, len(rows)-limit)}
	at := map[string]int{}
	for i, n := range rows[:len(rows)-m.OmittedNodes] {
		at[n.ID] = i
		m.Nodes, m.Names = append(m.Nodes, n.ID), append(m.Names, n.Name)
	}
	for range m.Nodes {
		m.Bytes = append(m.Bytes, make([]float64, len(m.Nodes)))
	}
	cells := map[[2]int]*HeatCell{}
	cell := func(source, destination int, e *Edge) *HeatCell {
		key := [2]int{source, destination}
		if cells[key] == nil {
			cells[key] = &HeatCell{Source: source, Destination: destination, Edge: e.ID}
			m.Cells = append(m.Cells, cells[key])
		}
		return cells[key]
	}
	for _, e := range g.Edges {
		client, ok := at[e.Client]
		server, ok2 := at[e.Server]
		if !ok || !ok2 {
			continue
		}
		best := e.Best()
		m.Bytes[client][server] += best.Of(RequestBytes)
		m.Bytes[server][client] += best.Of(ResponseBytes)
		m.Max = max(m.Max, m.Bytes[client][server], m.Bytes[server][client])
		there := cell(client, server, e)
		there.side = there.side.merge(best)
		if there.asked == nil || there.asked.bytes() < e.bytes() {
			there.asked, there.Edge = e, e.ID
		}
		if best.Of(ResponseBytes) > 0 {
			cell(server, client, e)
		}
	}
	for _, c := range m.Cells {
		c.BytesPerSecond = per(m.Bytes[c.Source][c.Destination], g.CoveredSeconds)
		if c.side.finish(g.CoveredSeconds) != nil {
			c.TransactionsPerSecond, c.P99 = c.side.TransactionsPerSecond, c.side.P99
		}
	}
	slices.SortFunc(m.Cells, func(x, y *HeatCell) int {
		return cmp.Or(cmp.Compare(x.Source, y.Source), cmp.Compare(x.Destination, y.Destination))
	})
	return m
}
