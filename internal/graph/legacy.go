package graph

import (
	"outsight/internal/frame"
	"outsight/internal/model"
)

// FromSnapshots is the graph of what happened between two snapshots of one agent. Without prev it holds levels and
// counts since the agent's start, but no rates.
func FromSnapshots(prev, cur *model.Snapshot) *Graph { return GroupSnapshots(prev, cur, ByContainer) }

// GroupSnapshots is FromSnapshots with nodes of another kind.
func GroupSnapshots(prev, cur *model.Snapshot, by Grouping) *Graph {
	return FromFrames(snapshotsWindow(prev, cur), Options{By: by})
}

// WaitsFromSnapshots is what containers waited between two snapshots of one agent; without prev, since the agent's
// start.
func WaitsFromSnapshots(prev, cur *model.Snapshot) *Waits {
	return WaitsFromFrames(snapshotsWindow(prev, cur))
}

func snapshotsWindow(prev, cur *model.Snapshot) *frame.Window {
	if cur == nil {
		return &frame.Window{}
	}
	if prev == nil {
		prev = &model.Snapshot{Time: cur.Time, Host: cur.Host}
	}
	b := frame.NewBuilder(prev.Time)
	before, after := b.Build(prev), b.Build(cur)
	return &frame.Window{From: prev.Time, To: cur.Time, Hosts: []frame.HostSpans{{Host: cur.Host.Name,
		Spans: []frame.Span{{Before: before, After: after}}}}}
}

// Release does nothing: a graph's memory is its own.
func (g *Graph) Release() {}
