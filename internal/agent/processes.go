package agent

import (
	"cmp"
	"maps"
	"slices"

	"outsight/internal/model"
)

// ProcessWork reports what processes count. It is called by the goroutine that reads the Counters, after the Work.
type ProcessWork interface {
	// ReadProcesses reports what each process gained since the call before.
	ReadProcesses() ([]model.ProcessGain, error)
}

const (
	// maxProcessNames bounds the names of processes with counters of their own in one container; what further ones count
	// is under otherProcesses.
	maxProcessNames = 32
	otherProcesses  = "other"
)

// processWork sums what processes count by their names, so that it is bounded however many there are.
type processWork struct {
	containers map[string]*namedWork
	// unnamed is how often a process had a name for which there was no room.
	unnamed uint64
}

// namedWork are the sums of a container by process name, and of all others by kind of core.
type namedWork struct {
	names map[string][]model.PerfCounters
	other []model.PerfCounters
}

func newProcessWork() *processWork { return &processWork{containers: make(map[string]*namedWork)} }

// readProcesses adds what processes gained.
func (a *Agent) readProcesses() {
	if a.sources.ProcessWork == nil {
		return
	}
	defer a.spent.on(partCounters)()
	gains, err := a.sources.ProcessWork.ReadProcesses()
	a.failures.note("hardware counters of processes", err)
	for i := range gains {
		g := &gains[i]
		name := g.Process
		if a.sources.Processes != nil {
			name = a.sources.Processes.Name(g.Group, g.Process, g.PID)
		}
		a.processes.add(a.groups.owner(g.Group, a.sources.Registry.Lookup), name, g.Perf)
	}
}

func (p *processWork) add(container, name string, gained []model.PerfCounters) {
	c := p.containers[container]
	if c == nil {
		c = &namedWork{names: make(map[string][]model.PerfCounters)}
		p.containers[container] = c
	}
	if _, known := c.names[name]; !known && (len(c.names) >= maxProcessNames || name == otherProcesses || name == "") {
		p.unnamed++ // what is not under a name is under other
		return
	}
	c.names[name] = addPerf(slices.Clone(c.names[name]), gained) // snapshots have the one before
}

// addPerf adds what was gained to sums of the same kinds of core.
func addPerf(sums, gained []model.PerfCounters) []model.PerfCounters {
	for i := range gained {
		at := slices.IndexFunc(sums, func(s model.PerfCounters) bool { return s.PMU == gained[i].PMU })
		if at < 0 {
			at = len(sums)
			sums = append(sums, model.PerfCounters{PMU: gained[i].PMU})
		}
		s := &sums[at]
		s.Known |= gained[i].Known
		for event, n := range gained[i].Counts {
			s.Counts[event] += n
		}
		s.EnabledNS += gained[i].EnabledNS
		s.RunningNS += gained[i].RunningNS
	}
	return sums
}

// of divides what a container counted among its processes. What is under no name is other, which does not go
// down where the processes, which are read a little later, are ahead of the container.
func (p *processWork) of(container string, whole []model.PerfCounters) []model.ProcessPerf {
	c := p.containers[container]
	if c == nil {
		return nil
	}
	all := make([]model.ProcessPerf, 0, len(c.names)+1)
	for _, name := range slices.Sorted(maps.Keys(c.names)) {
		all = append(all, model.ProcessPerf{Process: name, Perf: c.names[name]})
	}
	other := make([]model.PerfCounters, len(whole))
	for i := range whole {
		other[i] = without(whole[i], all)
		if at := slices.IndexFunc(c.other, func(o model.PerfCounters) bool { return o.PMU == whole[i].PMU }); at >= 0 {
			for event, n := range c.other[at].Counts {
				other[i].Counts[event] = max(other[i].Counts[event], n)
			}
			other[i].EnabledNS = max(other[i].EnabledNS, c.other[at].EnabledNS)
			other[i].RunningNS = max(other[i].RunningNS, c.other[at].RunningNS)
		}
	}
	c.other = other
	all = append(all, model.ProcessPerf{Process: otherProcesses, Perf: other})
	slices.SortFunc(all, func(a, b model.ProcessPerf) int { return cmp.Compare(a.Process, b.Process) })
	return all
}

// without is what a container counted on one kind of core less what its named processes did.
func without(whole model.PerfCounters, named []model.ProcessPerf) model.PerfCounters {
	left := model.PerfCounters{PMU: whole.PMU, Known: whole.Known, Counts: whole.Counts, EnabledNS: whole.EnabledNS,
		RunningNS: whole.RunningNS}
	for _, process := range named {
		for _, perf := range process.Perf {
			if perf.PMU != whole.PMU {
				continue
			}
			for event, n := range perf.Counts {
				left.Counts[event] -= min(n, left.Counts[event])
			}
			left.EnabledNS -= min(perf.EnabledNS, left.EnabledNS)
			left.RunningNS -= min(perf.RunningNS, left.RunningNS)
		}
	}
	return left
}

// keep forgets containers that are gone.
func (p *processWork) keep(containers []*model.Container) {
	if len(p.containers) == 0 {
		return
	}
	present := make(map[string]bool, len(containers))
	for _, c := range containers {
		present[c.ID] = true
	}
	maps.DeleteFunc(p.containers, func(id string, _ *namedWork) bool { return !present[id] })
}

func (p *processWork) drop() model.Drop {
	return model.Drop{Name: "process_names", Count: p.unnamed}
}
