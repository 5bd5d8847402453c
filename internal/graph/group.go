package graph

import (
	"fmt"
	"math"
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
	c.durations.add(other.durations)
}

func (c change) clone() change {
	shared := c.durations
	c.durations = nil
	c.durations.add(shared)
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
