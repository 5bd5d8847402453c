package pull

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"outsight/internal/disks"
	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/network"
)

// framePeriod is the least time between two frames of a host, as agents have it.
const framePeriod = time.Second

// forgetAfter is for how long it is remembered what a control group or an edge had counted that is gone. A reading that
// another server had begun before may tell of it once more.
const forgetAfter = 10 * time.Minute

// maker makes frames of the readings of one host. It keeps the greatest of what readings say of each counter, so that it
// does not matter which server read, nor whether two did. It is for one goroutine.
type maker struct {
	// began is the epoch of the host's agent (reading.EpochNS); turn counts readings, and last is of the newest.
	began uint64
	turn  uint64
	last  reading
	// framed is the time of the newest frame.
	framed   time.Time
	builder  *frame.Builder
	resolver *network.Resolver
	// key is the key frame that was taken last, nil where the next one has to be one.
	key        *frame.Frame
	containers map[string]*containerState
	groups     map[model.CgroupID]*groupState
	edges      map[edgeID]*edgeState
	// goneGroups, goneEdges, and applications of containers had counted this when they went.
	goneGroups       map[model.CgroupID]gone[counters]
	goneEdges        map[edgeID]gone[edgeSums]
	goneApplications map[runID]gone[applicationCounts]
	// applicationsKnown says that what the first reading of applications has is counted already.
	applicationsKnown bool
	// entries are the entries of the kernel's table of disks, also those that are gone, and disks what containers did there.
	entries map[uint64]gone[model.KernelDisk]
	disks   *disks.Disks
	// instances counts edges.
	instances uint32
}

// gone is what there was, as it was told last, and when that was.
type gone[T any] struct {
	had T
	at  time.Time
}

// containerState is a container with what its control groups counted that are gone; turn is that of the last reading that
// had it.
type containerState struct {
	container *model.Container
	levels    levels
	gone      counters
	turn      uint64
	// applications are its applications' own metrics, of run when they were read last.
	run          runID
	applications map[model.ApplicationKey]*applicationState
}

// groupState and edgeState count last less base.
type groupState struct {
	container  string
	last, base counters
	turn       uint64
}

type edgeState struct {
	key        model.KernelEdgeKey
	instance   uint32
	last, base edgeSums
	// gone are what endpoints have counted whose records are gone for long.
	gone map[model.EndpointKey]model.Endpoint
	turn uint64
}

// edgeSums are what an edge has counted, with its endpoints by the numbers of their records.
type edgeSums struct {
	model.EdgeCounters
	endpoints map[uint64]gone[model.Endpoint]
}

// addEndpoint adds what a record has counted to those that are alike.
func (e *edgeState) addEndpoint(sums map[model.EndpointKey]model.Endpoint, number uint64) {
	gained := e.last.endpoints[number].had
	if was, known := e.base.endpoints[number]; known {
		gained = gained.Since(&was.had)
	}
	if sum, known := sums[gained.EndpointKey]; known {
		gained = sum.Plus(&gained)
	}
	sums[gained.EndpointKey] = gained
}

// forgetEndpoints keeps no more than the sums of records that are gone for long.
func (e *edgeState) forgetEndpoints(now time.Time) {
	for number, one := range e.last.endpoints {
		if now.Sub(one.at) > forgetAfter {
			e.addEndpoint(e.gone, number)
			delete(e.last.endpoints, number)
		}
	}
}

// gainedEndpoints are what endpoints have counted, those that are alike together.
func (e *edgeState) gainedEndpoints() []model.Endpoint {
	sums := maps.Clone(e.gone)
	for number := range e.last.endpoints {
		e.addEndpoint(sums, number)
	}
	all := make([]model.Endpoint, 0, len(sums))
	for _, e := range sums {
		if e.Transactions() > 0 {
			all = append(all, e)
		}
	}
	return all
}

// earlier is what is known of a host from before this process: the newest frame's time.
type earlier struct {
	known bool
	time  time.Time
}

// newMaker makes a maker for the life of an agent, of which first is the first reading. What it counted since it began is
// in the first frame. But where frames of that life are stored already, others than this maker's, counting begins with the
// first reading: those have what was before, and a row's number would be another one's.
func newMaker(first *reading, before earlier) *maker {
	began := time.Unix(0, int64(first.EpochNS))
	m := &maker{began: first.EpochNS, resolver: network.New(network.Options{}), containers: map[string]*containerState{},
		groups: map[model.CgroupID]*groupState{}, edges: map[edgeID]*edgeState{},
		goneGroups: map[model.CgroupID]gone[counters]{}, goneEdges: map[edgeID]gone[edgeSums]{},
		goneApplications: map[runID]gone[applicationCounts]{},
		entries:          map[uint64]gone[model.KernelDisk]{}, disks: disks.New()}
	if before.known && !before.time.Before(began) {
		began = first.At
		for i := range first.Groups {
			m.goneGroups[first.Groups[i].ID] = gone[counters]{first.Groups[i].Counters, first.At}
		}
		for i := range first.Edges {
			had := edgeSums{first.Edges[i].Counters, map[uint64]gone[model.Endpoint]{}}
			had.Requests -= had.InFlight() // these are yet to be answered
			m.goneEdges[first.Edges[i].ID] = gone[edgeSums]{had, first.At}
		}
		for i := range first.Endpoints {
			e := &first.Endpoints[i]
			if had, known := m.goneEdges[e.Edge]; known {
				had.had.endpoints[e.Number] = gone[model.Endpoint]{e.Endpoint, first.At}
			}
		}
		m.disks.Base(first.Disks)
		m.applicationsKnown = true
	}
	// An epoch of its own: another maker of the same life, before this process, has had other rows.
	m.builder = frame.NewBuilder(began.Add(time.Duration(first.At.UnixNano() % int64(time.Millisecond))))
	m.builder.Limit(columns)
	return m
}

// isOlder reports whether a reading is older than the newest one that was taken.
func (m *maker) isOlder(r *reading) bool {
	if r.EpochNS != m.began {
		return r.EpochNS < m.began
	}
	if r.Reader == m.last.Reader {
		return r.Number <= m.last.Number
	}
	return r.Term < m.last.Term
}

// take adds a reading, which must not be older.
func (m *maker) take(r *reading) {
	m.turn++
	for i := range r.Containers {
		from := &r.Containers[i]
		id := from.Container.ID
		c := m.containers[id]
		if c == nil {
			c = &containerState{}
			m.containers[id] = c
		}
		if c.turn > 0 && r.Reader != m.last.Reader {
			from.Levels.raise(&c.levels) // the two servers may have read in the other order
		}
		if c.turn > 0 && runOf(&from.Container) == runOf(c.container) {
			from.Levels.raisePressure(&c.levels) // an agent that begins may know of a lesser sum
		}
		c.container, c.levels, c.turn = &from.Container, from.Levels, m.turn
	}
	for i := range r.Groups {
		from := &r.Groups[i]
		g := m.groups[from.ID]
		if g == nil {
			g = &groupState{container: r.Containers[from.Container].Container.ID}
			if was, before := m.goneGroups[from.ID]; before {
				g.base, g.last = was.had, was.had
				delete(m.goneGroups, from.ID)
			}
			m.groups[from.ID] = g
		}
		g.last.raise(&from.Counters)
		g.turn = m.turn
	}
	for i := range r.Edges {
		from := &r.Edges[i]
		e := m.edges[from.ID]
		if e == nil {
			m.instances++
			e = &edgeState{key: from.Key, instance: m.instances, gone: map[model.EndpointKey]model.Endpoint{}}
			e.last.endpoints = map[uint64]gone[model.Endpoint]{}
			if was, before := m.goneEdges[from.ID]; before {
				e.base, e.last = was.had, edgeSums{was.had.EdgeCounters, maps.Clone(was.had.endpoints)}
				delete(m.goneEdges, from.ID)
			}
			m.edges[from.ID] = e
		}
		raiseEdge(&e.last.EdgeCounters, &from.Counters)
		e.turn = m.turn
	}
	for i := range r.Endpoints {
		from := &r.Endpoints[i]
		if e := m.edges[from.Edge]; e != nil {
			now := from.Endpoint
			was := e.last.endpoints[from.Number].had
			now.Aside, now.Latency = max(now.Aside, was.Aside), greater(was.Latency, now.Latency)
			e.last.endpoints[from.Number] = gone[model.Endpoint]{now, r.At}
		}
	}
	if r.HasDisks {
		m.takeDisks(r)
	}
	if r.HasApplications {
		m.takeApplications(r)
	}
	m.last = *r
	m.last.Containers, m.last.Groups, m.last.Edges, m.last.Disks, m.last.Applications = nil, nil, nil, nil, nil
}

// takeDisks adds what a reading says of disks. Entries that it does not have may be in one that is still to come: they
// stay for a while.
func (m *maker) takeDisks(r *reading) {
	for i := range r.Disks {
		e, before := m.entries[r.Disks[i].Entry]
		if !before {
			e.had = r.Disks[i]
		}
		raiseDisk(&e.had, &r.Disks[i])
		e.at = r.At
		m.entries[e.had.Entry] = e
	}
	prune(m.entries, r.At)
	all := make([]model.KernelDisk, 0, len(m.entries))
	for _, e := range m.entries {
		all = append(all, e.had)
	}
	m.disks.Update(all, m.containerOf)
}

// containerOf is the container of a control group, nil where that is not known.
func (m *maker) containerOf(id model.CgroupID) *model.Container {
	if g := m.groups[id]; g != nil && m.containers[g.container] != nil {
		return m.containers[g.container].container
	}
	return nil
}

// raise makes the counters among levels no less than they were.
func (l *levels) raise(was *levels) {
	l.Kills.raise(was.Kills)
	l.Periods.raise(was.Periods)
	l.ThrottledPeriods.raise(was.ThrottledPeriods)
	l.ThrottledNS.raise(was.ThrottledNS)
}

func (l *levels) raisePressure(was *levels) {
	for i := range l.Pressures {
		for how := range l.Pressures[i] {
			l.Pressures[i][how].raise(was.Pressures[i][how])
		}
	}
}

// isDue reports whether the newest reading becomes a frame: one of each second.
func (m *maker) isDue(interval time.Duration) bool {
	at := m.last.At
	if interval >= framePeriod {
		return at.After(m.framed)
	}
	return at.Truncate(framePeriod).After(m.framed.Truncate(framePeriod))
}

// frame makes a frame of all that was taken. What the newest reading has no more is in it for the last time.
func (m *maker) frame() *frame.Frame {
	at := m.last.At
	if m.key == nil {
		m.builder.ForceKey()
	}
	s := &model.Snapshot{Time: at, Host: model.Host{Name: m.last.Host, Cores: m.last.CPUs, BootID: m.last.BootID},
		Self: model.SelfSample{Features: []model.Feature{{Name: "pull", Purpose: "figures that the kernel keeps as regions: no " +
			"network interfaces and energy", State: model.FeatureWorks,
			Reason: "this host is read from outside, by " + m.last.By}}}}
	if m.last.ApplicationsWhy != "" {
		s.Self.Features = append(s.Self.Features, model.Feature{Name: "pull/applications", State: model.FeatureAbsent,
			Purpose: "metrics that applications define themselves", Reason: m.last.ApplicationsWhy,
			Remedy: "they stand still until the host's agent answers"})
	}
	if !m.framed.IsZero() {
		s.Window = at.Sub(m.framed)
	}
	m.framed = at
	sums := m.sums()
	containers := make([]*model.Container, 0, len(m.containers))
	for id, c := range m.containers {
		if c.turn != m.turn {
			ended := *c.container
			ended.Ended = at
			c.container = &ended
		}
		containers = append(containers, c.container)
		sample := sampleOf(c, sums[id])
		sample.Devices, sample.Syncs = m.disks.Of(id)
		sample.Applications = c.applicationMetrics()
		s.Containers = append(s.Containers, sample)
	}
	slices.SortFunc(s.Containers, func(a, b model.ContainerSample) int { return cmp.Compare(a.Container.ID, b.Container.ID) })
	s.Edges = m.resolver.Resolve(m.view(at, containers))
	f := m.builder.Build(s)
	m.disks.Keep(containers)
	m.forget(at)
	return f
}

// sums are what the control groups of each container counted.
func (m *maker) sums() map[string]*counters {
	sums := make(map[string]*counters, len(m.containers))
	for id, c := range m.containers {
		sum := c.gone
		sums[id] = &sum
	}
	for _, g := range m.groups {
		if sum := sums[g.container]; sum != nil {
			sum.add(&g.last, &g.base)
		}
	}
	return sums
}

func sampleOf(c *containerState, sum *counters) model.ContainerSample {
	s := model.ContainerSample{Container: c.container, CPU: &sum.CPU, Files: &sum.Files, Reclaim: &sum.Reclaim,
		Processes: &model.ProcessCounters{TaskCounters: sum.Tasks, Threads: c.levels.Threads.N,
			ThreadsLimit: c.levels.ThreadsLimit.N}}
	if l := &c.levels; l.Memory.Known || l.Kills.Known {
		s.Memory = &model.MemorySample{UsageBytes: l.Memory.N, OOMKills: l.Kills.N, LimitBytes: l.MemoryLimit.N}
	}
	if l := &c.levels; l.Periods.Known {
		s.Throttle = &model.ThrottleCounters{Periods: l.Periods.N, ThrottledPeriods: l.ThrottledPeriods.N,
			ThrottledNS: l.ThrottledNS.N, QuotaCores: float64(l.Quota.N) / model.Microcores}
	}
	pressure := func(of [2]level) model.Pressure {
		return model.Pressure{WaitingNS: of[0].N, StalledNS: of[1].N, Known: of[0].Known}
	}
	if l := &c.levels; l.Pressures[0][0].Known {
		s.Pressure = &model.PressureCounters{CPU: pressure(l.Pressures[0]), Memory: pressure(l.Pressures[1]),
			IO: pressure(l.Pressures[2])}
	}
	return s
}

func (m *maker) view(at time.Time, containers []*model.Container) network.View {
	v := network.View{Time: at, Containers: containers, Edges: make([]model.KernelEdge, 0, len(m.edges)),
		Container: m.containerOf}
	for _, e := range m.edges {
		v.Edges = append(v.Edges, model.KernelEdge{Key: e.key, Instance: e.instance,
			Counters: e.last.Since(&e.base.EdgeCounters), Endpoints: e.gainedEndpoints()})
	}
	slices.SortFunc(v.Edges, func(a, b model.KernelEdge) int { return cmp.Compare(a.Instance, b.Instance) })
	return v
}

// forget drops what the newest reading has no more, after its last frame.
func (m *maker) forget(at time.Time) {
	for id, g := range m.groups {
		if g.turn == m.turn {
			continue
		}
		if c := m.containers[g.container]; c != nil {
			c.gone.add(&g.last, &g.base)
		}
		m.goneGroups[id] = gone[counters]{g.last, at}
		delete(m.groups, id)
	}
	for id, e := range m.edges {
		if e.turn != m.turn {
			m.goneEdges[id] = gone[edgeSums]{e.last, at}
			delete(m.edges, id)
			continue
		}
		e.forgetEndpoints(at)
	}
	for id, c := range m.containers {
		if c.turn != m.turn {
			m.forgetApplications(c, at)
			delete(m.containers, id)
		}
	}
	prune(m.goneApplications, at)
	prune(m.goneGroups, at)
	prune(m.goneEdges, at)
}

func prune[K comparable, T any](all map[K]gone[T], now time.Time) {
	for k, g := range all {
		if now.Sub(g.at) > forgetAfter {
			delete(all, k)
		}
	}
}
