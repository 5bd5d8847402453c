package graph

import (
	"cmp"
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
	// Series in any order; it takes the least time if those that share their labels come one after the other, or those of each field in one order.
	Series []FieldResult
	// By is what a node stands for.
	By Grouping
	// Own is whether the graph may change the histograms of Series and keep them, instead of copies.
	Own bool
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
	for _, th := range t.containers {
		containers = append(containers, t.container(th))
	}
	endpoints := map[string][]endpointChange{}
	for _, th := range t.endpoints {
		key := identityKey(th.labels, edgeIdentity)
		endpoints[key] = append(endpoints[key], t.endpoint(th))
	}
	room, _ := edgeRoom.Get().(*[]edgeChange)
	if room == nil {
		room = new([]edgeChange)
	}
	*room = slices.Grow((*room)[:0], len(t.edges))[:len(t.edges)]
	edges := *room
	halves(len(edges), func(from, to int) {
		for i, th := range t.edges[from:to] {
			e := &edges[from+i]
			t.edge(e, th)
			e.endpoints = endpoints[th.key]
		}
	})
	g := build(in.From, in.To, covered, in.By, containers, edges)
	halves(len(edges), func(from, to int) { clear(edges[from:to]) })
	edgeRoom.Put(room)
	t.release()
	return g
}

// edgeRoom has memory, all zero, for edges, of which a graph keeps none: 900 bytes each are not to be had anew for every graph.
var edgeRoom sync.Pool

// thing is all series of one container or of one side of an edge, whatever names it had.
type thing struct {
	kind   Field
	key    string // the values of the labels that tell it apart
	host   string
	labels map[string]string // the newest
	told   int               // how many of toldLate it has
	series [][]model.Point   // by the place of their Field
	first  time.Time
	last   time.Time
}

// things are in the order in which they were met, so that sums of them are the same each time.
type things struct {
	containers, edges, endpoints []*thing
	hostFirst                    map[string]time.Time
	to                           time.Time
	own                          bool
	// room is what they are in.
	room []*thingRoom
}

// thingRoom has memory for things of one kind, of which a graph keeps none.
type thingRoom struct {
	kind   Field
	used   int
	things []thing
	series [][]model.Point
}

// thingRooms are those that are not used, by kind.
var thingRooms [kinds]sync.Pool

// release lets go of the things.
func (t *things) release() {
	for _, room := range t.room {
		clear(room.things)
		clear(room.series)
		room.used = 0
		thingRooms[room.kind>>kindShift].Put(room)
	}
}

// The labels that tell two things apart.
var (
	containerIdentity = []string{"host", "id"}
	edgeIdentity      = []string{"host", "side", "client_id", "server_id", "client_process", "server_process", "service", "transport"}
	endpointIdentity  = slices.Concat(edgeIdentity, []string{"protocol", "endpoint", "status"})
)

// toldLate are labels that a series may gain.
var toldLate = []string{"pod", "workload", "client_pod", "client_workload", "server_pod", "server_workload", "service_name"}

func identityKey(labels map[string]string, identity []string) string {
	var key strings.Builder
	key.Grow(256)
	for _, name := range identity {
		key.WriteString(labels[name])
		key.WriteByte(0)
	}
	return key.String()
}

func gather(in Input) things {
	var first, second finders
	halves(len(in.Series), func(from, to int) {
		part := findersOf(in.Series[from:to])
		if from == 0 {
			first = part
		} else {
			second = part
		}
	})
	t := things{hostFirst: map[string]time.Time{}, to: in.To, own: in.Own}
	for i, all := range []*[]*thing{&t.containers, &t.edges, &t.endpoints} {
		first[i].take(second[i].all)
		t.room = slices.Concat(t.room, first[i].room, second[i].room)
		*all = first[i].all
		for _, th := range *all {
			if known, ok := t.hostFirst[th.host]; !ok || th.first.Before(known) {
				t.hostFirst[th.host] = th.first
			}
		}
	}
	return t
}

// finders are those of each kind of thing.
type finders [kinds]finder

func findersOf(series []FieldResult) finders {
	all := finders{
		{kind: ofContainer, identity: containerIdentity, fields: Info.place() + 1},
		{kind: ofEdge, identity: edgeIdentity, fields: Confidence.place() + 1},
		{kind: ofEndpoint, identity: endpointIdentity, fields: EndpointLatency.place() + 1},
	}
	for i := range all {
		many := len(series) / (2 * all[i].fields)
		all[i].byKey, all[i].same, all[i].before = make(map[string]*thing, many), make(map[uintptr]*sameLabels, many), &sameLabels{}
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

// finder finds the thing that a series is one of.
type finder struct {
	all      []*thing
	byKey    map[string]*thing
	kind     Field
	identity []string
	// fields that a thing may have.
	fields int
	// room is what the things are in.
	room []*thingRoom
	same map[uintptr]*sameLabels
	// before are the labels of the series before.
	before *sameLabels
}

// sameLabels are labels that series share, where a store lets them, and the thing that they are of: to read what is in them takes longer
// than all else.
type sameLabels struct {
	address uintptr
	thing   *thing
	// next are those of the series that came after one with these, which they mostly do again.
	next *sameLabels
}

// addressOf tells labels apart without a look into them.
func addressOf(labels map[string]string) uintptr { return reflect.ValueOf(labels).Pointer() }

// find finds the thing that has the labels of r, and the address of these.
func (f *finder) find(r *FieldResult) (*thing, uintptr) {
	address := addressOf(r.Labels)
	if f.before.thing != nil && f.before.address == address {
		return f.before.thing, address
	}
	same := f.before.next
	if same == nil || same.address != address {
		same = f.same[address]
	}
	if same == nil {
		key := identityKey(r.Labels, f.identity)
		th := f.byKey[key]
		if th == nil {
			th = f.thing()
			*th = thing{kind: f.kind, key: key, host: r.Labels["host"], series: th.series, first: r.Points[0].Time}
			f.byKey[key] = th
			f.all = append(f.all, th)
		}
		same = &sameLabels{address: address, thing: th}
		f.same[address] = same
	}
	f.before.next, f.before = same, same
	return same.thing, address
}

// roomThings is how many things a thingRoom has.
const roomThings = 256

// thing is a new one with room for its series.
func (f *finder) thing() *thing {
	if n := len(f.room); n == 0 || f.room[n-1].used == roomThings {
		room, _ := thingRooms[f.kind>>kindShift].Get().(*thingRoom)
		if room == nil {
			room = &thingRoom{kind: f.kind, things: make([]thing, roomThings), series: make([][]model.Point, roomThings*f.fields)}
		}
		f.room = append(f.room, room)
	}
	room := f.room[len(f.room)-1]
	th, from := &room.things[room.used], room.used*f.fields
	room.used++
	th.series = room.series[from : from+f.fields : from+f.fields]
	return th
}

func (f *finder) add(r *FieldResult) {
	th, address := f.find(r)
	if r.Points[0].Time.Before(th.first) {
		th.first = r.Points[0].Time
	}
	last := r.Points[len(r.Points)-1].Time
	if th.labels != nil && addressOf(th.labels) == address {
		if last.After(th.last) {
			th.last = last
		}
	} else {
		th.name(r.Labels, last)
	}
	points := &th.series[r.Field.place()]
	*points = join(*points, r.Points)
}

// name gives a thing the labels of some of its series, which were seen last at this time, where they tell more than those that it has.
func (th *thing) name(labels map[string]string, last time.Time) {
	told := toldOf(labels)
	if last.After(th.last) || last.Equal(th.last) && (told > th.told || told == th.told && newer(labels, th.labels)) {
		th.last, th.labels, th.told = last, labels, told
	}
}

// take adds things that were found in later series.
func (f *finder) take(later []*thing) {
	for _, th := range later {
		known := f.byKey[th.key]
		if known == nil {
			f.all = append(f.all, th)
			continue
		}
		if th.first.Before(known.first) {
			known.first = th.first
		}
		known.name(th.labels, th.last)
		for place, points := range th.series {
			if len(points) > 0 {
				known.series[place] = join(known.series[place], points)
			}
		}
	}
}

func toldOf(l map[string]string) (n int) {
	for _, name := range toldLate {
		if l[name] != "" {
			n++
		}
	}
	return n
}

// newer decides which of two label sets of one thing to show when both were seen last and tell as
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
		if !ok || p.Value > have.Value || p.Histogram != nil && (have.Histogram == nil || p.Histogram.Count > have.Histogram.Count) {
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
func (t *things) change(c *change, th *thing) {
	hostFirst := t.hostFirst[th.host]
	c.seconds = t.to.Sub(hostFirst).Seconds()
	for place, points := range th.series {
		if len(points) == 0 {
			continue
		}
		field, late := th.kind|Field(place), points[0].Time.After(hostFirst)
		switch {
		case field == RunQueue || field == Latency || field == EndpointLatency:
			c.latency = histogramIncrease(points, late, t.own)
		case field == FirstByte:
			c.firstByte = histogramIncrease(points, late, t.own)
		case field == RTT:
			c.rtt = histogramIncrease(points, late, t.own)
		case field == ConnectionDuration:
			c.duration = histogramIncrease(points, late, t.own)
		case levels[field]:
			c.set(field, points[len(points)-1].Value)
		default:
			c.set(field, increase(points, late && (th.kind != ofContainer || points[0].Time.Equal(th.first))))
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

// histogramSince is what now gained after before, or all of now where it is not a later state of it. It shares nothing with either, unless
// own says that it may be now.
func histogramSince(before, now *model.FloatHistogram, own bool) *model.FloatHistogram {
	d := now
	if !own {
		d = &model.FloatHistogram{Count: now.Count, Sum: now.Sum, ZeroCount: now.ZeroCount, Offset: now.Offset, Buckets: slices.Clone(now.Buckets)}
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

func (t *things) container(th *thing) containerChange {
	l := th.labels
	c := containerChange{node: Node{
		ID: l["id"], Name: l["name"], Host: l["host"], Image: l["image"], Runtime: l["runtime"],
		PodName: l["pod"], PodNamespace: l["namespace"], Workload: l["workload"], WorkloadKind: l["workload_kind"], Gone: th.last.Before(t.to),
	}}
	t.change(&c.change, th)
	return c
}

// edge makes e, which is zero, what happened to the side of an edge whose series these are.
func (t *things) edge(e *edgeChange, th *thing) {
	l := th.labels
	t.change(&e.change, th)
	e.side, e.service, e.transport, e.via = model.RoleClient, l["service"], cmp.Or(l["transport"], "tcp"), l["via"]
	e.client = end{host: l["host"], id: l["client_id"], name: l["client"], process: l["client_process"], kube: kubeEnd(l, "client_")}
	e.server = end{host: l["host"], id: l["server_id"], name: l["server"], process: l["server_process"], kube: kubeEnd(l, "server_")}
	e.server.kube.serviceNamespace, e.server.kube.service = l["service_namespace"], l["service_name"]
	for _, side := range []model.Role{model.RoleServer, model.RoleUnknown} {
		if l["side"] == side.String() {
			e.side = side
		}
	}
	if th.last.Before(t.to) {
		e.remove(InFlight) // it ended, and its requests with it
	} else {
		e.opened, e.closed = lastValue(th.series[ConnectionsOpened.place()]), lastValue(th.series[ConnectionsClosed.place()])
	}
}

func lastValue(points []model.Point) float64 {
	if len(points) == 0 {
		return 0
	}
	return points[len(points)-1].Value
}
