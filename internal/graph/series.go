package graph

import (
	"cmp"
	"hash/maphash"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
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
	room := newEdgeRoom(len(t.edges))
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
	// identity are some of its labels: all have the same values of those that tell it apart, of which hash is made.
	identity map[string]string
	hash     uint64
	// twin is another entity with this hash.
	twin      *entity
	host      string
	labels    map[string]string // the newest
	late      int               // how many of lateLabels it has
	series    [][]model.Point   // by the place of their Field
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

// release lets go of the entities.
func (t *entities) release() {
	for _, all := range t.found {
		if all != nil {
			for i := range all {
				all[i].reset()
			}
			findersRoom.Put(all)
		}
	}
}

// findersRoom has finders that are not used, with their memory.
var findersRoom sync.Pool

// entityRoom has memory for entities of one kind, of which a graph keeps none.
type entityRoom struct {
	entities []entity
	series   [][]model.Point
}

// The labels that tell two entities apart.
var (
	containerIdentity = []string{"host", "id"}
	edgeIdentity      = []string{"host", "side", "client_id", "server_id", "client_process", "server_process",
		"service", "transport"}
	endpointIdentity = slices.Concat(edgeIdentity, []string{"protocol", "endpoint", "status"})
)

var identitySeed = maphash.MakeSeed()

// hashOf is that of the values of labels.
func hashOf(labels map[string]string, identity []string) uint64 {
	var h maphash.Hash
	h.SetSeed(identitySeed)
	for _, name := range identity {
		h.WriteString(labels[name])
		h.WriteByte(0)
	}
	return h.Sum64()
}

// lateLabels are labels that a series may gain.
var lateLabels = []string{"pod", "workload", "client_pod", "client_workload", "server_pod", "server_workload",
	"service_name"}

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

// finders are those of each kind of entity.
type finders [kinds]finder

func newFinders() *finders {
	all := &finders{
		{identity: containerIdentity, fields: len(containerTable.columns)},
		{identity: edgeIdentity, fields: len(edgeTable.columns)},
		{identity: endpointIdentity, fields: len(endpointTable.columns)},
	}
	for i := range all {
		all[i].kind = Field(i) << kindShift
		all[i].byHash, all[i].same = map[uint64]*entity{}, map[uintptr]int32{}
		all[i].reset()
	}
	return all
}

func findersOf(series []FieldResult) *finders {
	all, _ := findersRoom.Get().(*finders)
	if all == nil {
		all = newFinders()
	}
	for _, r := range series {
		if slices.ContainsFunc(r.Points, noNumber) {
			r.Points = slices.DeleteFunc(slices.Clone(r.Points), noNumber)
		}
		if len(r.Points) > 0 {
			all[r.Field.kind()>>kindShift].add(&r)
		}
	}
	return all
}

func noNumber(p model.Point) bool { return math.IsNaN(p.Value) || math.IsInf(p.Value, 0) }

// finder finds the entity that a series is one of.
type finder struct {
	kind     Field
	identity []string
	// fields that a entity may have.
	fields int
	all    []*entity
	byHash map[uint64]*entity
	// rooms are what the entities are in, of which used have been given away.
	rooms []*entityRoom
	used  int
	// same are places in labels, by the address of a series' labels.
	same   map[uintptr]int32
	labels []sameLabels
	// before is the place of the labels of the series before.
	before int32
}

// sameLabels are labels that series share, where a store lets them, and the entity that they are of: to read what is in
// them takes longer than all else.
type sameLabels struct {
	address uintptr
	entity  *entity
	// next is the place of those of the series that came after one with these, which they mostly do again.
	next int32
}

// addressOf tells labels apart without a look into them.
func addressOf(labels map[string]string) uintptr { return reflect.ValueOf(labels).Pointer() }

// find finds the entity that has the labels of r, and the address of these.
func (f *finder) find(r *FieldResult) (*entity, uintptr) {
	address := addressOf(r.Labels)
	before := &f.labels[f.before]
	if before.entity != nil && before.address == address {
		return before.entity, address
	}
	at := before.next
	if f.labels[at].address != address || at == 0 {
		var known bool
		if at, known = f.same[address]; !known {
			at = int32(len(f.labels))
			f.same[address] = at
			f.labels = append(f.labels, sameLabels{address: address, entity: f.of(r)})
		}
	}
	f.labels[f.before].next, f.before = at, at
	return f.labels[at].entity, address
}

// of is the entity with the identity of r, which may be new.
func (f *finder) of(r *FieldResult) *entity {
	hash := hashOf(r.Labels, f.identity)
	e := f.known(r.Labels, hash)
	if e == nil {
		e = f.entity()
		*e = entity{kind: f.kind, identity: r.Labels, hash: hash, host: r.Labels["host"], series: e.series,
			first: r.Points[0].Time}
		f.insert(e)
	}
	return e
}

func (f *finder) insert(e *entity) {
	e.twin, f.byHash[e.hash] = f.byHash[e.hash], e
	f.all = append(f.all, e)
}

// known is the entity with the identity of labels, whose hash it is; nil where there is none.
func (f *finder) known(labels map[string]string, hash uint64) *entity {
	e := f.byHash[hash]
	for ; e != nil; e = e.twin {
		if !slices.ContainsFunc(f.identity, func(name string) bool { return labels[name] != e.identity[name] }) {
			break
		}
	}
	return e
}

// roomEntities is how many entities a entityRoom has.
const roomEntities = 256

// entity is a new one with room for its series.
func (f *finder) entity() *entity {
	if f.used == len(f.rooms)*roomEntities {
		f.rooms = append(f.rooms, &entityRoom{make([]entity, roomEntities), make([][]model.Point, roomEntities*f.fields)})
	}
	room, i := f.rooms[f.used/roomEntities], f.used%roomEntities
	f.used++
	e := &room.entities[i]
	e.series = room.series[i*f.fields : (i+1)*f.fields : (i+1)*f.fields]
	return e
}

// reset makes f as it was when it had found nothing.
func (f *finder) reset() {
	for i := 0; i < f.used; i += roomEntities {
		clear(f.rooms[i/roomEntities].entities)
		clear(f.rooms[i/roomEntities].series)
	}
	clear(f.all)
	clear(f.labels)
	clear(f.byHash)
	clear(f.same)
	f.all, f.used, f.before = f.all[:0], 0, 0
	f.labels = append(f.labels[:0], sameLabels{}) // those before the first
}

func (f *finder) add(r *FieldResult) {
	e, address := f.find(r)
	if r.Points[0].Time.Before(e.first) {
		e.first = r.Points[0].Time
	}
	last := r.Points[len(r.Points)-1].Time
	if e.labels != nil && addressOf(e.labels) == address {
		if last.After(e.last) {
			e.last = last
		}
	} else {
		e.name(r.Labels, last)
	}
	points := &e.series[r.Field.index()]
	*points = join(*points, r.Points)
}

// name gives a entity the labels of some of its series, which were seen last at this time, where they tell more than
// those that it has.
func (e *entity) name(labels map[string]string, last time.Time) {
	late := lateLabelsOf(labels)
	if last.After(e.last) || last.Equal(e.last) && (late > e.late || late == e.late && newer(labels, e.labels)) {
		e.last, e.labels, e.late = last, labels, late
	}
}

// take adds entities that were found in later series.
func (f *finder) take(later []*entity) {
	for _, e := range later {
		known := f.known(e.identity, e.hash)
		if known == nil {
			f.insert(e)
			continue
		}
		if e.first.Before(known.first) {
			known.first = e.first
		}
		known.name(e.labels, e.last)
		for i, points := range e.series {
			if len(points) > 0 {
				known.series[i] = join(known.series[i], points)
			}
		}
	}
}

func lateLabelsOf(l map[string]string) (n int) {
	for _, name := range lateLabels {
		if l[name] != "" {
			n++
		}
	}
	return n
}

// newer decides which of two label sets of one entity to show when both were seen last and tell as
// much. A name that was told replaces the short id.
func newer(a, b map[string]string) bool {
	placeholder := func(l map[string]string) int {
		n := 0
		for _, end := range [][2]string{{"name", "id"}, {"client", "client_id"}, {"server", "server_id"}} {
			if l[end[0]] != "" && strings.HasPrefix(l[end[1]], l[end[0]]) && l[end[0]] != l[end[1]] {
				n++
			}
		}
		return n
	}
	return cmp.Or(cmp.Compare(placeholder(b), placeholder(a)), cmp.Compare(a["name"], b["name"]),
		cmp.Compare(a["client"]+a["server"], b["client"]+b["server"])) > 0
}

// join merges the points of one counter that was renamed; where both have one at a time, the
// greater is the one that went on.
func join(a, b []model.Point) []model.Point {
	if len(a) == 0 {
		return b
	}
	if a[len(a)-1].Time.Before(b[0].Time) {
		return slices.Concat(a, b)
	}
	byTime := map[int64]model.Point{}
	for _, p := range slices.Concat(a, b) {
		have, ok := byTime[p.Time.UnixNano()]
		if !ok || p.Value > have.Value || p.Histogram != nil &&
			(have.Histogram == nil || p.Histogram.Count > have.Histogram.Count) {
			byTime[p.Time.UnixNano()] = p
		}
	}
	joined := make([]model.Point, 0, len(byTime))
	for _, p := range byTime {
		joined = append(joined, p)
	}
	slices.SortFunc(joined, func(x, y model.Point) int { return x.Time.Compare(y.Time) })
	return joined
}

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
