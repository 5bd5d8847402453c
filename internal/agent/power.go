package agent

import (
	"slices"

	"outsight/internal/energy"
	"outsight/internal/model"
)

// Work knows what energy is divided by. It is called by the goroutine that reads the Counters, right
// after them.
type Work interface {
	// ReadWork adds hardware counters and work to groups, as ReadCgroups answered them, and reports how long
	// the CPUs of each package were busy and idle.
	ReadWork(groups []model.CgroupCounters) ([]model.PackageTime, error)
}

// readWork adds to the groups what they did; false where that is not known.
func (a *Agent) readWork(groups []model.CgroupCounters) ([]model.PackageTime, bool) {
	if a.sources.Work == nil || groups == nil {
		return nil, false
	}
	defer a.spent.on(partCounters)()
	packages, err := a.sources.Work.ReadWork(groups)
	a.failures.note("hardware counters", err)
	return packages, packages != nil
}

// readPower adds the containers' counters and energy. The host's container, and groups that no slot was
// left for, are what the host does for itself.
func (a *Agent) readPower(s *model.Snapshot, packages []model.PackageTime) {
	defer a.spent.on(partEnergy)()
	consumers := make([]energy.Consumer, 0, len(s.Containers)+1)
	for i := range s.Containers {
		c := &s.Containers[i]
		t := a.groups.totals[c.Container.ID]
		if t == nil {
			continue
		}
		c.Perf = slices.Clone(t.sum.Perf)
		c.ProcessPerf = a.processes.of(c.Container.ID, c.Perf)
		consumers = append(consumers, energy.Consumer{ID: c.Container.ID, System: c.Container.Runtime == model.HostRuntime,
			Work: slices.Clone(t.sum.Work), WorkNS: slices.Clone(t.sum.WorkNS)})
	}
	if a.sources.Energy == nil {
		return
	}
	others := &a.groups.others
	consumers = append(consumers, energy.Consumer{ID: otherGroups, System: true, Work: others.Work, WorkNS: others.WorkNS})
	a.sources.Energy.Update(s.Time, packages, consumers)
	for i := range s.Containers {
		s.Containers[i].Energy = a.sources.Energy.Of(s.Containers[i].Container.ID)
	}
	// A container that has ended is in this snapshot for the last time.
	a.sources.Energy.Keep(func(id string) bool { return a.groups.totals[id] != nil || id == otherGroups })
	s.Energy = a.sources.Energy.Sample()
}

// otherGroups is no container's ID.
const otherGroups = "other control groups"

// shareNothing gives c slices of its own.
func shareNothing(c *model.CgroupCounters) {
	c.Perf, c.Work, c.WorkNS = slices.Clone(c.Perf), slices.Clone(c.Work), slices.Clone(c.WorkNS)
}

// addWork adds what was counted between two states of a control group to sum, whose slices are its own.
func addWork(sum, to, from *model.CgroupCounters) {
	sum.Work = addEach(sum.Work, to.Work, from.Work)
	sum.WorkNS = addEach(sum.WorkNS, to.WorkNS, from.WorkNS)
	for i, c := range to.Perf {
		var before model.PerfCounters
		if i < len(from.Perf) {
			before = from.Perf[i]
		}
		if i == len(sum.Perf) {
			sum.Perf = append(sum.Perf, model.PerfCounters{PMU: c.PMU})
		}
		s := &sum.Perf[i]
		s.Known |= c.Known
		for i := range s.Counts {
			s.Counts[i] += gained(c.Counts[i], before.Counts[i])
			s.Shared[i] += gained(c.Shared[i], before.Shared[i])
		}
		s.EnabledNS += gained(c.EnabledNS, before.EnabledNS)
		s.RunningNS += gained(c.RunningNS, before.RunningNS)
	}
}

func addEach(sum, to, from []uint64) []uint64 {
	for i, n := range to {
		var before uint64
		if i < len(from) {
			before = from[i]
		}
		if i == len(sum) {
			sum = append(sum, 0)
		}
		sum[i] += gained(n, before)
	}
	return sum
}

// gained is what a counter gained; all that it has where it began anew.
func gained(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// account is what divides energy, as a Reporter.
type account struct{ *energy.Account }

func (a account) Features() []model.Feature { return []model.Feature{a.Feature()} }
