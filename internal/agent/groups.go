package agent

import "outsight/internal/model"

// groups sums the counters of control groups to those of containers. A container's sum is what
// its groups count now, and what those had counted that were removed.
type groups struct {
	lines  map[model.CgroupID]*line
	totals map[string]*total
	// others are the control groups for which the kernel had no room.
	others model.CgroupCounters
	// unsure has for how many readings it is not known whether a control group is a container's.
	unsure map[model.CgroupID]int
}

// unsureReadings is for how many readings a control group of which nothing is known yet waits for its owner: on a busy host
// its beginning is told after its counters are read. What is counted to the host would stay there.
const unsureReadings = 3

// line is one control group.
type line struct {
	owner string
	// last is its latest state, whose histogram the reading after the next one changes; base the state in which it was put
	// to its owner.
	last, base model.CgroupCounters
}

// total is one container.
type total struct {
	gone, sum model.CgroupCounters
	// owned: the histogram of sum is not shared.
	owned bool
	lines int
}

func newGroups() *groups {
	return &groups{lines: make(map[model.CgroupID]*line), totals: make(map[string]*total)}
}

// update adds a reading.
func (g *groups) update(read []model.CgroupCounters, find func(model.CgroupID) (*model.Container, bool),
	self *model.SelfSample) {
	unsure := make(map[model.CgroupID]int)
	for i := range read {
		switch c := &read[i]; {
		case c.Slot == model.IdleTime:
			self.IdleNS = c.CPU.UsageNS
		case c.Slot == model.OtherCgroups:
			self.OtherNS = c.CPU.UsageNS
			g.others = *c
		case c.ID != 0:
			owner, known := find(c.ID)
			if !known && g.lines[c.ID] == nil && g.unsure[c.ID] < unsureReadings {
				unsure[c.ID] = g.unsure[c.ID] + 1
				continue
			}
			g.enter(c, owner)
		}
	}
	g.unsure = unsure
	for _, t := range g.totals {
		t.sum, t.owned = t.gone, false
		shareNothing(&t.sum)
	}
	for _, l := range g.lines {
		g.total(l.owner).count(&l.last, &l.base)
	}
}

func (g *groups) enter(c *model.CgroupCounters, owner *model.Container) {
	id := model.HostContainerID
	if owner != nil {
		id = owner.ID
	}
	l := g.lines[c.ID]
	switch {
	case l == nil:
		l = &line{owner: id}
		g.lines[c.ID] = l
		g.total(id).lines++
	case c.CPU.UsageNS < l.last.CPU.UsageNS:
		// The kernel had no room for it for a while and counts it anew.
		g.total(l.owner).retire(l)
		l.base = model.CgroupCounters{}
	}
	// What became known late was counted as the host's until now, and stays there: no sum goes
	// down. What was known is not unlearnt.
	if l.owner != id && l.owner == model.HostContainerID {
		before := g.total(l.owner)
		before.retire(l)
		before.lines--
		l.owner, l.base = id, l.last
		l.base.CPU.RunQueue = l.last.CPU.RunQueue.Clone()
		g.total(id).lines++
	}
	l.last = *c
}

// retire ends a control group whose counters are final.
func (g *groups) retire(id model.CgroupID) {
	if l := g.lines[id]; l != nil {
		t := g.total(l.owner)
		t.retire(l)
		t.lines--
		delete(g.lines, id)
	}
}

// of is the sum of a container, a copy.
func (g *groups) of(id string) (*model.CPUCounters, *model.ProcessCounters) {
	t := g.totals[id]
	if t == nil {
		return &model.CPUCounters{}, &model.ProcessCounters{}
	}
	cpu := t.sum.CPU
	return &cpu, &model.ProcessCounters{TaskCounters: t.sum.TaskCounters}
}

// files are what the threads of a container read and wrote; nil where that is not known.
func (g *groups) files(id string) *model.FileCounters {
	if t := g.totals[id]; t != nil {
		return t.sum.Files
	}
	return nil
}

// reclaim is the sum of a container, a copy.
func (g *groups) reclaim(id string) *model.ReclaimCounters {
	sum := model.ReclaimCounters{}
	if t := g.totals[id]; t != nil {
		sum = t.sum.Reclaim
	}
	return &sum
}

// owner is the ID of the container that a control group counts for.
func (g *groups) owner(id model.CgroupID, lookup func(model.CgroupID) *model.Container) string {
	if l := g.lines[id]; l != nil {
		return l.owner
	}
	if c := lookup(id); c != nil {
		return c.ID
	}
	return model.HostContainerID
}

// keep forgets containers that are gone and have no group left.
func (g *groups) keep(containers []*model.Container) {
	present := make(map[string]bool, len(containers))
	for _, c := range containers {
		present[c.ID] = true
	}
	for id, t := range g.totals {
		if t.lines == 0 && !present[id] {
			delete(g.totals, id)
		}
	}
}

func (g *groups) total(id string) *total {
	t := g.totals[id]
	if t == nil {
		t = &total{}
		g.totals[id] = t
	}
	return t
}

// retire keeps what a line counted, in a histogram of its own.
func (t *total) retire(l *line) {
	var sum model.Histogram
	sum.Merge(t.gone.CPU.RunQueue)
	sum.Merge(waitsBetween(&l.last, &l.base))
	add(&t.gone, &l.last, &l.base)
	if sum.Count > 0 {
		t.gone.CPU.RunQueue = &sum
	}
}

// count adds a line to the sum. A histogram is shared with the line where sum has none, and copied before the first
// change to it.
func (t *total) count(last, base *model.CgroupCounters) {
	add(&t.sum, last, base)
	switch more := waitsBetween(last, base); {
	case more == nil:
	case t.sum.CPU.RunQueue == nil:
		t.sum.CPU.RunQueue = more
	default:
		if !t.owned {
			t.sum.CPU.RunQueue, t.owned = t.sum.CPU.RunQueue.Clone(), true
		}
		t.sum.CPU.RunQueue.Merge(more)
	}
}

// waitsBetween is the histogram of what was counted between two states of a control group.
func waitsBetween(to, from *model.CgroupCounters) *model.Histogram {
	if from.CPU.RunQueue == nil {
		return to.CPU.RunQueue
	}
	return to.CPU.RunQueue.Since(from.CPU.RunQueue)
}

// add adds what was counted between two states of a control group to sum, without histograms.
func add(sum, to, from *model.CgroupCounters) {
	sum.CPU.UsageNS += to.CPU.UsageNS - from.CPU.UsageNS
	sum.CPU.Voluntary += to.CPU.Voluntary - from.CPU.Voluntary
	sum.CPU.Involuntary += to.CPU.Involuntary - from.CPU.Involuntary
	sum.CPU.PollingNS += to.CPU.PollingNS - from.CPU.PollingNS
	sum.TaskCounters.Add(&to.TaskCounters, &from.TaskCounters)
	sum.Files = addFiles(sum.Files, to.Files, from.Files)
	sum.Reclaim.Add(&to.Reclaim, &from.Reclaim)
	addWork(sum, to, from)
}

// addFiles is sum and what was counted between two states of a control group. It changes none of them: they may be
// in snapshots.
func addFiles(sum, to, from *model.FileCounters) *model.FileCounters {
	if to == nil {
		return sum
	}
	all := model.FileCounters{}
	if sum != nil {
		all = *sum
	}
	if from == nil {
		from = &model.FileCounters{}
	}
	later, earlier := to.Plain(), from.Plain()
	for i, n := range all.Plain() {
		*n += *later[i] - *earlier[i]
	}
	return &all
}
