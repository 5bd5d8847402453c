package recorder

import (
	"time"

	"outsight/internal/model"
)

// sums adds the control groups of each container up.
type sums struct {
	containers Containers
	// wanted says which containers are recorded; nil is all.
	wanted func(*model.Container) bool
	ignore func(model.CgroupID)
	clock  clock
	groups map[model.CgroupID]*group
	// order has the groups of the last tick as they were in it: they are mostly the same in the next one.
	order []*group
	// targets are the containers that are recorded, by ID; list has them in the order in which
	// they were found.
	targets map[string]*target
	list    []*target
	// ticks counts those that were added, to know which groups they had.
	ticks uint64
}

// clock turns the monotonic clock's nanoseconds into the wall clock's, as they were at one moment: a
// step of the wall clock does not move the rows of a recording.
type clock struct {
	wall      time.Time
	monotonic uint64
}

func (c clock) at(ns uint64) time.Time { return c.wall.Add(time.Duration(int64(ns - c.monotonic))) }

// group is a control group as the last tick had it.
type group struct {
	id     model.CgroupID
	target *target
	last   model.TickSample
	tick   uint64
}

// target is a container, once for each time that it was started.
type target struct {
	container *model.Container
	// sum of its groups, those included that have ended. Group is not used.
	sum model.TickSample
	// tick of the last sample, how many samples that tick has of its groups, and how many the tick before that had one
	// had.
	tick         uint64
	samples, had int
	// changed: sum may be another than at the tick before. stale: at the next tick it will be.
	changed, stale bool
	// began is true from its first row on.
	began bool
	// ended is when it ended; zero while it runs.
	ended time.Time
	// row is what Recording keeps of it; index, and before, the last tick's sum, what Flight does.
	row    *row
	index  int
	before model.TickSample
}

func newSums(c Containers, wanted func(*model.Container) bool, ignore func(model.CgroupID), clock clock) *sums {
	s := &sums{containers: c, wanted: wanted, ignore: ignore, clock: clock,
		groups: make(map[model.CgroupID]*group), targets: make(map[string]*target)}
	s.refresh()
	for _, t := range s.list {
		t.began = true // it runs already
	}
	return s
}

// refresh reads who runs. It answers the targets that have ended; they get the rows of ticks up
// to their end, and then have to be dropped.
func (s *sums) refresh() (ended []*target) {
	running := make(map[string]*model.Container)
	for _, c := range s.containers.Containers() {
		running[c.ID] = c
		s.target(c)
	}
	for _, t := range s.list {
		now := running[t.container.ID]
		if now != nil && same(now, t.container) {
			t.stale = t.stale || now != t.container
			t.container = now // it may have a name now
			continue
		}
		t.ended = time.Now()
		if last := s.containers.Lookup(t.container.Cgroup); last.ID == t.container.ID && !last.Ended.IsZero() {
			t.ended = last.Ended
		}
		ended = append(ended, t)
	}
	for id, g := range s.groups {
		switch {
		case g.tick < s.ticks:
			delete(s.groups, id) // the last tick did not have it
		case g.target == nil || g.target.container.ID == model.HostContainerID || !g.target.ended.IsZero():
			g.put(s.owner(id))
		}
	}
	return ended
}

// same reports whether two states of a container are of the same start of it.
func same(a, b *model.Container) bool {
	return a.Cgroup == b.Cgroup || a.Cgroup == 0 || b.Cgroup == 0
}

// drop removes targets.
func (s *sums) drop(targets []*target) {
	for _, t := range targets {
		if s.targets[t.container.ID] == t {
			delete(s.targets, t.container.ID)
		}
		for i := range s.list {
			if s.list[i] == t {
				s.list = append(s.list[:i], s.list[i+1:]...)
				break
			}
		}
	}
}

// target is that of a running container; nil if it is not wanted.
func (s *sums) target(c *model.Container) *target {
	if t := s.targets[c.ID]; t != nil && same(t.container, c) {
		return t
	}
	if s.wanted != nil && !s.wanted(c) {
		return nil
	}
	t := &target{container: c}
	s.targets[c.ID] = t
	s.list = append(s.list, t)
	return t
}

// owner is the target of a control group; nil if it is not recorded.
func (s *sums) owner(id model.CgroupID) *target {
	c := s.containers.Lookup(id)
	if !c.Ended.IsZero() {
		return s.targets[c.ID]
	}
	t := s.target(c)
	// What is the host's now may turn out to be a container's, and one without an image does not
	// have its name yet.
	if t == nil && c.ID != model.HostContainerID && c.Image != "" {
		s.ignore(id)
	}
	return t
}

// put gives a group to another target.
func (g *group) put(to *target) {
	if g.target == to {
		return
	}
	for _, t := range []*target{g.target, to} {
		if t != nil {
			t.stale = true
		}
	}
	g.target = to
}

// at is the group of a sample, by its place in the tick.
func (s *sums) at(place int, id model.CgroupID) *group {
	if place < len(s.order) && s.order[place].id == id {
		return s.order[place]
	}
	g := s.groups[id]
	if g == nil {
		g = &group{id: id, target: s.owner(id)}
		s.groups[id] = g
	}
	s.order = append(s.order[:place], g)
	return g
}

// add takes a tick in. Most groups do nothing between two ticks: only the sums are made of which a group has changed,
// has come or has gone.
func (s *sums) add(tick *model.Tick) {
	s.ticks++
	for i := range tick.Samples {
		sample := &tick.Samples[i]
		g := s.at(i, sample.Group)
		was := g.tick
		g.tick = s.ticks
		if t := g.target; t != nil {
			if t.tick != s.ticks {
				t.tick, t.began, t.had, t.samples = s.ticks, true, t.samples, 0
			}
			t.samples++
			t.stale = t.stale || was != s.ticks-1 || *sample != g.last
		}
	}
	s.order = s.order[:len(tick.Samples)]
	for _, t := range s.list {
		if t.tick != s.ticks {
			t.had, t.samples = t.samples, 0
		}
		t.changed, t.stale = t.stale || t.samples != t.had, false
		if t.changed {
			t.levels()
		}
	}
	for i, g := range s.order {
		if t := g.target; t == nil || t.changed {
			if t != nil {
				t.add(&tick.Samples[i], &g.last)
			}
			g.last = tick.Samples[i]
		}
	}
}

// levels begins the sums anew that are of one tick.
func (t *target) levels() {
	t.sum.Running, t.sum.Asking, t.sum.Serving = 0, 0, 0
	t.sum.HasMemory, t.sum.HasThrottled, t.sum.MemoryBytes = false, false, 0
}

// add adds what a group gained since its last sample. A group that the kernel counts anew begins
// at zero again.
func (t *target) add(now, last *model.TickSample) {
	if now.CPUNS < last.CPUNS || now.Waits < last.Waits {
		last = &model.TickSample{}
	}
	t.sum.CPUNS += now.CPUNS - last.CPUNS
	t.sum.RunQueueNS += now.RunQueueNS - last.RunQueueNS
	t.sum.Waits += now.Waits - last.Waits
	t.sum.Voluntary += now.Voluntary - last.Voluntary
	t.sum.Involuntary += now.Involuntary - last.Involuntary
	t.sum.MinorFaults += now.MinorFaults - last.MinorFaults
	t.sum.MajorFaults += now.MajorFaults - last.MajorFaults
	t.sum.HasDisk = now.HasDisk
	t.sum.DiskReadBytes += now.DiskReadBytes - last.DiskReadBytes
	t.sum.DiskWriteBytes += now.DiskWriteBytes - last.DiskWriteBytes
	t.sum.DiskReads += now.DiskReads - last.DiskReads
	t.sum.DiskWrites += now.DiskWrites - last.DiskWrites
	t.sum.DiskNS += now.DiskNS - last.DiskNS
	t.sum.SentBytes += now.SentBytes - last.SentBytes
	t.sum.ReceivedBytes += now.ReceivedBytes - last.ReceivedBytes
	t.sum.Running += now.Running
	t.sum.Asking += now.Asking
	t.sum.Serving += now.Serving
	// These are of all that is in a group: of the container's own they are the sum already.
	if now.Group == t.container.Cgroup && t.container.ID != model.HostContainerID {
		t.sum.HasMemory, t.sum.MemoryBytes = now.HasMemory, now.MemoryBytes
		if t.sum.HasThrottled = now.HasThrottled; now.HasThrottled {
			t.sum.ThrottledNS, t.sum.ThrottledPeriods = now.ThrottledNS, now.ThrottledPeriods
		}
	}
}

// has reports whether a target has a row at a tick that began then.
func (t *target) has(at time.Time) bool {
	return t.began && (t.ended.IsZero() || !at.After(t.ended))
}
