package graph

import (
	"cmp"
	"math"
	"slices"
	"time"

	"outsight/internal/model"
)

// Input is a window of stored series as queries of plain selectors return them: cumulative
// counters, levels and histograms at two or more times from From to To. The first time is what
// increases are counted from, and what has no value at To has ended; further times in between
// notice counters that restarted. Increases are exact: nothing is extrapolated. One series may
// be several results.
type Input struct {
	From, To time.Time
	// Series in any order; it takes the least time if those that share their labels come one after the other, or those
	// of each field in one order.
	Series []FieldResult
	// By is what a node stands for.
	By Grouping
	// Own is whether the graph may change the histograms of Series and keep them, instead of copies.
	Own bool
	// MaxEdges is how many edges the graph has at most, as after Limit, which takes longer; 0 for all.
	MaxEdges int
}

// FieldResult is one series of a Field.
type FieldResult struct {
	Field Field
	model.QueryResult
}

// FromSeries is the graph of a window of stored series.
func FromSeries(in Input) *Graph {
	t := gather(in)
	covered := 0.0
	for _, first := range t.hostFirst {
		covered = max(covered, in.To.Sub(first).Seconds())
	}
	containers := make([]containerChange, 0, len(t.containers))
	for _, e := range t.containers {
		containers = append(containers, t.container(e))
	}
	for _, e := range t.endpoints {
		if edge := t.edgeOf(e); edge != nil {
			edge.endpoints = append(edge.endpoints, t.endpoint(e))
		}
	}
	room := newEdgePool(len(t.edges))
	parallelFor(len(t.edges), func(from, to int) {
		for i, e := range t.edges[from:to] {
			t.edge(&room.changes[from+i], e)
		}
	})
	g := build(in.From, in.To, covered, in.By, containers, room, in.MaxEdges)
	room.release()
	t.release()
	return g
}

// entity is all series of one container or of one side of an edge, whatever names it had.
type entity struct {
	kind Field
	// identity are some of its labels: all have the same values of those that distinguish it, of which hash is made.
	identity map[string]string
	hash     uint64
	// twin is another entity with this hash.
	twin      *entity
	host      string
	labels    map[string]string // the newest
	late      int               // how many of lateLabels it has
	series    [][]model.Point   // by the index of their Field
	first     time.Time
	last      time.Time
	endpoints []endpointChange // of an edge
}

// entities are in the order in which they were met, so that sums of them are the same each time.
type entities struct {
	containers, edges, endpoints []*entity
	hostFirst                    map[string]time.Time
	to                           time.Time
	own                          bool
	// found are the finders that they are in; the first ones find all of them.
	found [2]*finders
}

// edgeOf is the edge that an endpoint is of, nil where there is none.
func (t *entities) edgeOf(endpoint *entity) *entity {
	edges := &t.found[0][ofEdge>>kindShift]
	return edges.known(endpoint.labels, hashOf(endpoint.labels, edges.identity))
}

// release gives the memory of the entities back.
func (t *entities) release() {
	for _, all := range t.found {
		if all != nil {
			for i := range all {
				all[i].reset()
			}
			findersPool.Put(all)
		}
	}
}

func gather(in Input) entities {
	t := entities{hostFirst: map[string]time.Time{}, to: in.To, own: in.Own}
	parallelFor(len(in.Series), func(from, to int) {
		part := findersOf(in.Series[from:to])
		if from == 0 {
			t.found[0] = part
		} else {
			t.found[1] = part
		}
	})
	for i, all := range []*[]*entity{&t.containers, &t.edges, &t.endpoints} {
		first := &t.found[0][i]
		if second := t.found[1]; second != nil {
			first.take(second[i].all)
		}
		*all = first.all
		for _, e := range *all {
			if known, ok := t.hostFirst[e.host]; !ok || e.first.Before(known) {
				t.hostFirst[e.host] = e.first
			}
		}
	}
	return t
}

func noNumber(p model.Point) bool { return math.IsNaN(p.Value) || math.IsInf(p.Value, 0) }

// change computes what happened. What appeared while its host was watched started from 0;
// otherwise the first point is what the increase is counted from. That holds for each series
// that the kernel programs count, but not for a file's counter that appears late on a container
// that was there before: its first point is what it counts from.
func (t *entities) change(c *change, e *entity) {
	hostFirst := t.hostFirst[e.host]
	c.seconds = t.to.Sub(hostFirst).Seconds()
	for i, points := range e.series {
		if len(points) == 0 {
			continue
		}
		field, late := e.kind|Field(i), points[0].Time.After(hostFirst)
		switch {
		case abouts[field].histogram:
			*c.histogram(field) = histogramIncrease(points, late, t.own)
		case abouts[field].level:
			c.set(field, points[len(points)-1].Value)
		default:
			c.set(field, increase(points, late && (e.kind != ofContainer || points[0].Time.Equal(e.first))))
		}
	}
}

func increase(points []model.Point, fromZero bool) float64 {
	sum, before := 0.0, points[0].Value
	if fromZero {
		before = 0
	}
	for _, p := range points {
		if p.Value < before {
			before = 0 // it restarted
		}
		sum += p.Value - before
		before = p.Value
	}
	return sum
}

// histogramIncrease shares nothing with points, unless own says that it may use them up.
func histogramIncrease(points []model.Point, fromZero, own bool) *model.FloatHistogram {
	var sum *model.FloatHistogram
	// The newest first: a later one is not what it was when it was used.
	for i := len(points) - 1; i >= 0; i-- {
		if points[i].Histogram == nil || i == 0 && !fromZero {
			continue
		}
		var before *model.FloatHistogram
		for k := i - 1; k >= 0 && before == nil; k-- {
			before = points[k].Histogram
		}
		if more := histogramSince(before, points[i].Histogram, own); sum == nil {
			sum = more
		} else {
			take(sum, more)
		}
	}
	if sum == nil {
		return &model.FloatHistogram{}
	}
	return sum
}

// take adds other to h; other is h's from now on.
func take(h, other *model.FloatHistogram) {
	if other != nil && h.Count == 0 && len(h.Buckets) == 0 {
		sum := h.Sum
		*h = *other
		h.Sum += sum
		return
	}
	h.Merge(other)
}

// histogramSince is what now gained after before, or all of now where it is not a later state of it. It shares nothing
// with either, unless own says that it may be now.
func histogramSince(before, now *model.FloatHistogram, own bool) *model.FloatHistogram {
	d := now
	if !own {
		d = &model.FloatHistogram{Count: now.Count, Sum: now.Sum, ZeroCount: now.ZeroCount, Offset: now.Offset,
			Buckets: slices.Clone(now.Buckets)}
	}
	if before == nil || before.Count == 0 || now.Count < before.Count || now.ZeroCount < before.ZeroCount {
		return d
	}
	shift := int(before.Offset - now.Offset)
	for i, n := range before.Buckets {
		if at := shift + i; n != 0 && (at < 0 || at >= len(now.Buckets) || now.Buckets[at] < n) {
			return d
		}
	}
	for i, n := range before.Buckets {
		if n != 0 {
			d.Buckets[shift+i] -= n
		}
	}
	d.Count, d.Sum, d.ZeroCount = now.Count-before.Count, now.Sum-before.Sum, now.ZeroCount-before.ZeroCount
	return d
}

func (t *entities) container(e *entity) containerChange {
	l := e.labels
	c := containerChange{node: Node{
		ID: l["id"], Name: l["name"], Host: l["host"], Image: l["image"], Runtime: l["runtime"],
		PodName: l["pod"], PodNamespace: l["namespace"], Workload: l["workload"], WorkloadKind: l["workload_kind"],
		Gone: e.last.Before(t.to),
	}}
	t.change(&c.change, e)
	return c
}

// edge makes c, which is zero, what happened to the side of an edge whose series these are.
func (t *entities) edge(c *edgeChange, e *entity) {
	l := e.labels
	t.change(&c.change, e)
	c.endpoints = e.endpoints
	c.side, c.service, c.transport, c.via = model.RoleClient, l["service"], cmp.Or(l["transport"], "tcp"), l["via"]
	c.client = end{host: l["host"], id: l["client_id"], name: l["client"], process: l["client_process"],
		kube: kubeEnd(l, "client_")}
	c.server = end{host: l["host"], id: l["server_id"], name: l["server"], process: l["server_process"],
		kube: kubeEnd(l, "server_")}
	c.server.kube.serviceNamespace, c.server.kube.service = l["service_namespace"], l["service_name"]
	for _, side := range []model.Role{model.RoleServer, model.RoleUnknown} {
		if l["side"] == side.String() {
			c.side = side
		}
	}
	if e.last.Before(t.to) {
		c.remove(InFlight) // it ended, and its requests with it
	} else {
		c.opened = lastValue(e.series[ConnectionsOpened.index()])
		c.closed = lastValue(e.series[ConnectionsClosed.index()])
	}
}

func lastValue(points []model.Point) float64 {
	if len(points) == 0 {
		return 0
	}
	return points[len(points)-1].Value
}
