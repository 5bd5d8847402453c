package graph

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strings"
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
	// Series in any order; it takes the least time if those of each field come in the same order, and share their labels with those of others.
	Series []FieldResult
	// By is what a node stands for.
	By Grouping
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
		containers = append(containers, th.container(t.hostFirst[th.host], in.To))
	}
	endpoints := map[string][]endpointChange{}
	for _, th := range t.endpoints {
		key := identityKey(th.labels, edgeIdentity)
		endpoints[key] = append(endpoints[key], th.endpoint(t.hostFirst[th.host], in.To))
	}
	edges := make([]edgeChange, len(t.edges))
	halves(len(edges), func(from, to int) {
		for i, th := range t.edges[from:to] {
			e := &edges[from+i]
			th.edge(e, t.hostFirst[th.host], in.To)
			e.endpoints = endpoints[th.key]
		}
	})
	return build(in.From, in.To, covered, in.By, containers, edges)
}

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
	for _, name := range identity {
		key.WriteString(labels[name])
		key.WriteByte(0)
	}
	return key.String()
}

func gather(in Input) things {
	finders := [kinds]finder{
		{kind: ofContainer, identity: containerIdentity, fields: Info.place() + 1},
		{kind: ofEdge, identity: edgeIdentity, fields: Confidence.place() + 1},
		{kind: ofEndpoint, identity: endpointIdentity, fields: EndpointLatency.place() + 1},
	}
	for i := range finders {
		finders[i].byKey, finders[i].same, finders[i].before = map[string]*thing{}, map[uintptr]*sameLabels{}, &sameLabels{}
	}
	for _, r := range in.Series {
		if slices.ContainsFunc(r.Points, noNumber) {
			r.Points = slices.DeleteFunc(slices.Clone(r.Points), noNumber)
		}
		if len(r.Points) > 0 {
			finders[r.Field.kind()>>kindShift].add(&r)
		}
	}
	t := things{finders[0].all, finders[1].all, finders[2].all, map[string]time.Time{}}
	for _, f := range finders {
		for _, th := range f.all {
			if known, ok := t.hostFirst[th.host]; !ok || th.first.Before(known) {
				t.hostFirst[th.host] = th.first
			}
		}
	}
	return t
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
	same   map[uintptr]*sameLabels
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
	same := f.before.next
	if same == nil || same.address != address {
		same = f.same[address]
	}
	if same == nil {
		key := identityKey(r.Labels, f.identity)
		th := f.byKey[key]
		if th == nil {
			th = &thing{kind: f.kind, key: key, host: r.Labels["host"], series: make([][]model.Point, f.fields), first: r.Points[0].Time}
			f.byKey[key] = th
			f.all = append(f.all, th)
		}
		same = &sameLabels{address: address, thing: th}
		f.same[address] = same
	}
	f.before.next, f.before = same, same
	return same.thing, address
}

func (f *finder) add(r *FieldResult) {
	th, address := f.find(r)
	last := r.Points[len(r.Points)-1].Time
	if r.Points[0].Time.Before(th.first) {
		th.first = r.Points[0].Time
	}
	if th.labels != nil && addressOf(th.labels) == address {
		if last.After(th.last) {
			th.last = last
		}
	} else if told := toldOf(r.Labels); last.After(th.last) || last.Equal(th.last) && (told > th.told || told == th.told && newer(r.Labels, th.labels)) {
		th.last, th.labels, th.told = last, r.Labels, told
	}
	points := &th.series[r.Field.place()]
	*points = join(*points, r.Points)
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
func (th *thing) change(hostFirst, to time.Time) change {
	c := change{seconds: to.Sub(hostFirst).Seconds()}
	for place, points := range th.series {
		if len(points) == 0 {
			continue
		}
		field, late := th.kind|Field(place), points[0].Time.After(hostFirst)
		switch {
		case field == RunQueue || field == Latency || field == EndpointLatency:
			c.latency = histogramIncrease(points, late)
		case field == FirstByte:
			c.firstByte = histogramIncrease(points, late)
		case field == RTT:
			c.rtt = histogramIncrease(points, late)
		case field == ConnectionDuration:
			c.duration = histogramIncrease(points, late)
		case levels[field]:
			c.set(field, points[len(points)-1].Value)
		default:
			c.set(field, increase(points, late && (th.kind != ofContainer || points[0].Time.Equal(th.first))))
		}
	}
	return c
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

// histogramIncrease shares nothing with points.
func histogramIncrease(points []model.Point, fromZero bool) *model.FloatHistogram {
	sum := &model.FloatHistogram{}
	var before *model.FloatHistogram
	for i, p := range points {
		if p.Histogram == nil {
			continue
		}
		if i > 0 || fromZero {
			take(sum, histogramSince(before, p.Histogram))
		}
		before = p.Histogram
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

// histogramSince is what now gained after before, or all of now where it is not a later state of it. It shares nothing with either.
func histogramSince(before, now *model.FloatHistogram) *model.FloatHistogram {
	d := *now
	d.Buckets = slices.Clone(now.Buckets)
	if before == nil || before.Count == 0 || now.Count < before.Count || now.ZeroCount < before.ZeroCount {
		return &d
	}
	for i, n := range before.Buckets {
		at := int(before.Offset-now.Offset) + i
		if n == 0 {
			continue
		}
		if at < 0 || at >= len(d.Buckets) || d.Buckets[at] < n {
			copy(d.Buckets, now.Buckets)
			return &d
		}
		d.Buckets[at] -= n
	}
	d.Count, d.Sum, d.ZeroCount = now.Count-before.Count, now.Sum-before.Sum, now.ZeroCount-before.ZeroCount
	return &d
}

func (th *thing) container(hostFirst, to time.Time) containerChange {
	l := th.labels
	return containerChange{change: th.change(hostFirst, to), node: Node{
		ID: l["id"], Name: l["name"], Host: l["host"], Image: l["image"], Runtime: l["runtime"],
		PodName: l["pod"], PodNamespace: l["namespace"], Workload: l["workload"], WorkloadKind: l["workload_kind"], Gone: th.last.Before(to),
	}}
}

// edge makes e what happened to the side of an edge whose series these are.
func (th *thing) edge(e *edgeChange, hostFirst, to time.Time) {
	l := th.labels
	*e = edgeChange{change: th.change(hostFirst, to), side: model.RoleClient, service: l["service"],
		transport: cmp.Or(l["transport"], "tcp"), via: l["via"],
		client: end{host: l["host"], id: l["client_id"], name: l["client"], process: l["client_process"], kube: kubeEnd(l, "client_")},
		server: end{host: l["host"], id: l["server_id"], name: l["server"], process: l["server_process"], kube: kubeEnd(l, "server_")}}
	e.server.kube.serviceNamespace, e.server.kube.service = l["service_namespace"], l["service_name"]
	for _, side := range []model.Role{model.RoleServer, model.RoleUnknown} {
		if l["side"] == side.String() {
			e.side = side
		}
	}
	if th.last.Before(to) {
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
