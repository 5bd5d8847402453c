package graph

import (
	"sync"
	"time"

	"outsight/internal/model"
)

// FromSnapshots is the graph of what happened between two snapshots of one agent. Without prev
// it holds levels and counts since the agent's start, but no rates.
func FromSnapshots(prev, cur *model.Snapshot) *Graph { return GroupSnapshots(prev, cur, ByContainer) }

// GroupSnapshots is FromSnapshots with nodes of another kind.
func GroupSnapshots(prev, cur *model.Snapshot, by Grouping) *Graph {
	if cur == nil {
		return build(time.Time{}, time.Time{}, 0, by, nil, newEdgePool(0), 0)
	}
	from, seconds := cur.Time, 0.0
	before := map[string]*model.ContainerSample{}
	var edgesBefore []model.Edge
	if prev != nil {
		from, seconds = prev.Time, cur.Time.Sub(prev.Time).Seconds()
		for i := range prev.Containers {
			before[prev.Containers[i].Container.ID] = &prev.Containers[i]
		}
		edgesBefore = prev.Edges
	}
	byKey := sync.OnceValue(func() map[snapshotEdgeKey]*model.Edge {
		all := make(map[snapshotEdgeKey]*model.Edge, len(edgesBefore))
		for i := range edgesBefore {
			all[edgeKey(&edgesBefore[i])] = &edgesBefore[i]
		}
		return all
	})
	// Most edges are where they were a second ago.
	edgeBefore := func(i int) *model.Edge {
		key := edgeKey(&cur.Edges[i])
		if i < len(edgesBefore) && edgeKey(&edgesBefore[i]) == key {
			return &edgesBefore[i]
		}
		return byKey()[key]
	}
	containers := make([]containerChange, 0, len(cur.Containers))
	var scratch model.Histogram
	for i := range cur.Containers {
		c := &cur.Containers[i]
		containers = append(containers, containerSince(cur.Host.Name, before[c.Container.ID], c, seconds, &scratch))
	}
	room := newEdgePool(len(cur.Edges))
	defer room.release()
	parallelFor(len(cur.Edges), func(from, to int) {
		var scratch model.Histogram
		for i := from; i < to; i++ {
			room.changes[i].since(cur.Host.Name, edgeBefore(i), &cur.Edges[i], seconds, &scratch)
		}
	})
	return build(from, cur.Time, seconds, by, containers, room, 0)
}

type snapshotEdgeKey struct {
	side           model.Role
	client, server string
	processes      [2]string
	service        string
	transport      model.Transport
}

func edgeKey(e *model.Edge) snapshotEdgeKey {
	return snapshotEdgeKey{e.Side, e.Client.ID(), e.Server.ID(), [2]string{e.Client.Process, e.Server.Process},
		e.Service.String(), e.Transport}
}

// since is what a counter gained; a counter that fell has restarted from 0.
func since(before, now uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// gainedSince makes out what the counters of an entity gained, and what its levels are. Where fromZero, a counter that
// was absent before was 0; otherwise its start is not known, and it gained nothing. What is in room is lost.
func gainedSince[T any](c *change, t *table[T], before, now *T, fromZero bool, room *model.Histogram) {
	for i, column := range t.columns {
		if column == nil {
			continue
		}
		f := Field(i) | t.kind
		switch {
		case column.Value != nil:
			if v, ok := column.Value(now); ok {
				c.set(f, v)
			}
		case column.Count != nil:
			n, ok := column.Count(now)
			if !ok {
				continue
			}
			b, known := column.Count(before)
			switch {
			case abouts[f].level:
			case known || fromZero:
				n = since(b, n)
			default:
				n = 0
			}
			c.set(f, column.In(n))
		default:
			h, ok := column.Histogram(now)
			if !ok || h == nil {
				continue
			}
			b, known := column.Histogram(before)
			if !known && !fromZero {
				b = h
			}
			room.SetSince(h, b)
			*c.histogram(f) = floats(room)
		}
	}
}

func containerSince(host string, before, now *model.ContainerSample, seconds float64,
	room *model.Histogram) containerChange {
	c := now.Container
	out := containerChange{
		node: Node{ID: c.ID, Name: c.Name, Host: host, Image: c.Image, Runtime: string(c.Runtime), PodName: c.PodName,
			PodNamespace: c.PodNamespace, Workload: c.Workload, WorkloadKind: c.WorkloadKind, Gone: !c.Ended.IsZero()},
		change: change{seconds: seconds},
	}
	fresh := before == nil
	if fresh {
		before = &model.ContainerSample{}
	}
	gainedSince(&out.change, containerTable, before, now, fresh, room)
	return out
}

// since makes out what happened to e after before. What is in room is lost.
func (out *edgeChange) since(host string, before, e *model.Edge, seconds float64, room *model.Histogram) {
	if before == nil {
		before = &model.Edge{}
	}
	*out = edgeChange{side: e.Side, transport: e.Transport.String(), via: e.Via,
		client: peerEnd(host, e.Client), server: peerEnd(host, e.Server),
		opened: float64(e.Counters.Opens), closed: float64(e.Counters.Closes), change: change{seconds: seconds}}
	gainedSince(&out.change, edgeTable, before, e, true, room)
	out.endpoints = endpointsSince(before.Endpoints, e.Endpoints)
	if e.Service.IsValid() {
		out.service = e.Service.String()
	}
}

func peerEnd(host string, p model.Peer) end {
	return end{host: host, id: p.ID(), name: p.Name(), process: p.Process}
}

// floats is h with counts as floating-point numbers, as a query would return it. What
// overflowed goes to a bucket past the last one, so that its quantile is +Inf.
func floats(h *model.Histogram) *model.FloatHistogram {
	if h == nil {
		return nil
	}
	f := &model.FloatHistogram{Count: float64(h.Count), Sum: float64(h.SumNS) / 1e9, ZeroCount: float64(h.ZeroCount),
		Offset: h.Offset, Buckets: make([]float64, len(h.Buckets))}
	for i, n := range h.Buckets {
		f.Buckets[i] = float64(n)
	}
	if h.OverflowCount > 0 {
		f.Merge(&model.FloatHistogram{Offset: model.MaxBucket + 1, Buckets: []float64{float64(h.OverflowCount)}})
	}
	return f
}
