package sched

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
	"outsight/internal/topology"
)

var (
	countersHook = host.NewHook(countersProgCountSwitch, "perf_event/counters",
		"cycles, instructions and cache misses per container", false,
		"a machine, or a virtual machine, with hardware counters; Linux 5.12 or later with BTF")
	countNowHook = host.NewHook(countersProgCountNow, "raw_tp/count_now",
		"counters of threads that run at the moment of reading", false,
		"Linux 5.10 or later")
)

// runOnCPU is BPF_F_TEST_RUN_ON_CPU.
const runOnCPU = 1

// counterReader reads what counters.bpf.c counts, and knows the CPUs for who divides energy. All of it
// but features and drops is for one goroutine.
type counterReader struct {
	machine *topology.Machine
	// Without counters all of the following is unused.
	cpus    int
	events  *EventOpener
	procfs  string
	pmus    []corePMU
	known   uint8
	weights [counterEvents]uint64
	// groups by CPU; refused is why a CPU that is on line has none.
	groups     map[int]*counterGroup
	refused    map[int]error
	maps       countersMaps
	dropped    host.Drops[countersCounterDrop]
	attachment *host.Attachment
	lanes      *host.Table[countersCounterLane]
	states     *host.Table[countersCounterCpu]
	coreOf     *host.Table[uint32]
	// now counts what runs on a CPU up to now.
	now  *ebpf.Program
	sums map[int]*laneSum
	// processes is nil where they are not counted.
	processes *counterProcesses

	// For features and drops, which others may ask for.
	absent  atomic.Pointer[error]
	waiting atomic.Bool
	lost    atomic.Uint64
	opened  atomic.Uint64
	// without is how many CPUs have no group now, failed how many attempts to open one have failed.
	without, failed atomic.Uint64
}

// openCounters makes the reader, and the counters if they are wanted. What is missing is a feature
// that is absent.
func (p *Sched) openCounters(k *host.Kernel) {
	if p.cgroups == nil {
		return
	}
	r := &counterReader{machine: topology.New(p.options.SysFS, k.CPUs), cpus: k.CPUs,
		events: cmp.Or(p.options.Events, &kernelEvents),
		procfs: p.options.ProcFS, groups: map[int]*counterGroup{}, refused: map[int]error{}, sums: map[int]*laneSum{}}
	p.OnClose(r.machine)
	if _, err := r.machine.Refresh(); err != nil {
		p.Logger.Warn("where the CPUs are is not all known", "error", err)
	}
	p.counters = r
	if p.options.Counters == "" || p.options.Counters == CountersOff {
		return
	}
	r.weights = threadWeights(cmp.Or(p.options.HTRatio, DefaultHTRatio))
	if err := p.startCounters(k, r); err != nil {
		r.absent.Store(&err)
		p.Logger.Debug("no hardware counters", "reason", host.Refusal(err))
	}
}

func (p *Sched) startCounters(k *host.Kernel, r *counterReader) (err error) {
	if r.pmus, err = findPMUs(cmp.Or(p.options.SysFS, "/sys"), p.options.Counters); err != nil {
		return err
	}
	var object countersSpecs
	spec, err := host.ReadSpec(loadCounters, &object)
	if err != nil {
		return err
	}
	groups := p.cgroups.share(spec)
	cpus := uint32(k.CPUs)
	for _, byCPU := range []*ebpf.MapSpec{object.CounterEvent0, object.CounterEvent1, object.CounterEvent2,
		object.CounterEvent3, object.CounterCpus, object.CoreOfCpu} {
		byCPU.MaxEntries = cpus
	}
	object.CounterLanes.MaxEntries = uint32(len(p.cgroups.slots.Entries)) * cpus
	object.Cores.MaxEntries = 2 * cpus // a CPU that has not been on line is a core of its own, behind the others
	object.CounterProcesses.MaxEntries = uint32(max(p.options.CounterProcesses, 1))
	if err := r.chooseEvents(); err != nil {
		return explain(err, r.procfs)
	}
	err = errors.Join(object.Cpus.Set(cpus), object.KnownCounters.Set(uint32(r.known)),
		object.SharedCores.Set(r.machine.SharedCores()),
		object.ByProcess.Set(p.options.CounterProcesses > 0))
	if err != nil {
		return fmt.Errorf("BUG: setting the object's constants: %w", err)
	}
	maps, err := host.NewMaps(spec, groups, &r.maps)
	if err != nil {
		return fmt.Errorf("making the counters' maps: %w", err)
	}
	p.OnClose(host.CloserFunc(maps.Close))
	r.dropped = host.Drops[countersCounterDrop]{Counts: r.maps.CounterDrops, Names: counterDropNames}
	if p.options.CounterProcesses > 0 {
		r.processes = &counterProcesses{table: r.maps.CounterProcesses,
			sums: map[countersCounterProcessKey]*processSum{}}
	}
	if err := p.mapCounters(r); err != nil {
		return err
	}
	p.OnClose(r)
	if err := r.follow(); err != nil && len(r.groups) == 0 {
		return explain(err, r.procfs)
	}
	r.now, err = p.Load(k, spec, maps, countNowHook)
	p.AddFeature(countNowHook, err)
	// After the one that makes cpu_states: programs at one hook run in the order in which they were attached.
	if err := p.TryAttach(k, spec, maps, countersHook); err != nil {
		return err
	}
	// What was counted while it was detached is unattributed.
	r.attachment = p.LastAttachment()
	r.attachment.Before = func() error {
		for cpu := range r.states.Entries {
			atomic.StoreUint32(&r.states.Entries[cpu].State, 0)
		}
		return nil
	}
	host.SwitchCPUs(k.CPUs)
	return nil
}

func (p *Sched) mapCounters(r *counterReader) (err error) {
	if r.lanes, err = host.MapTable[countersCounterLane](r.maps.CounterLanes); err != nil {
		return err
	}
	p.OnClose(r.lanes)
	if r.states, err = host.MapTable[countersCounterCpu](r.maps.CounterCpus); err != nil {
		return err
	}
	p.OnClose(r.states)
	if r.coreOf, err = host.MapTable[uint32](r.maps.CoreOfCpu); err != nil {
		return err
	}
	p.OnClose(r.coreOf)
	for cpu := range r.coreOf.Entries {
		r.coreOf.Entries[cpu] = uint32(r.cpus + cpu)
	}
	return nil
}

// chooseEvents finds which events there are by opening, on the first CPU that is on line, all of them.
// Every other CPU must then have the same.
func (r *counterReader) chooseEvents() error {
	for cpu, c := range r.machine.CPUs {
		pmu := pmuOf(r.pmus, cpu)
		if !c.Online || pmu < 0 {
			continue
		}
		g, err := openGroup(r.events, &r.pmus[pmu], cpu, 1<<counterEvents-1, true)
		if err != nil {
			return err
		}
		r.known = g.known
		return g.Close()
	}
	return errors.New("no CPU on line has counters")
}

// follow opens the groups of CPUs that have come on line, and closes those of the ones that went.
func (r *counterReader) follow() error {
	changed, err := r.machine.Refresh()
	if !changed && len(r.groups)+len(r.refused) > 0 {
		return err
	}
	errs := []error{err}
	clear(r.refused)
	for cpu, c := range r.machine.CPUs {
		g, pmu := r.groups[cpu], pmuOf(r.pmus, cpu)
		if c.Core >= 0 {
			atomic.StoreUint32(&r.coreOf.Entries[cpu], uint32(c.Core))
		}
		switch {
		case g != nil && !c.Online:
			// The kernel has ended its events: they are never counted again.
			delete(r.groups, cpu)
			errs = append(errs, r.install(cpu, nil), g.Close())
		case g == nil && c.Online && pmu >= 0:
			g, err := openGroup(r.events, &r.pmus[pmu], cpu, r.known, false)
			if err == nil {
				if err = r.install(cpu, g); err != nil {
					err = errors.Join(err, g.Close())
				}
			}
			if err != nil {
				r.refused[cpu] = err
				errs = append(errs, err)
				continue
			}
			r.groups[cpu] = g
		}
	}
	r.opened.Store(uint64(len(r.groups)))
	r.without.Store(uint64(len(r.refused)))
	r.failed.Add(uint64(len(r.refused)))
	return errors.Join(errs...)
}

// install hands a CPU's events to the kernel program, or takes them away.
func (r *counterReader) install(cpu int, g *counterGroup) error {
	all := [counterEvents]*ebpf.Map{r.maps.CounterEvent0, r.maps.CounterEvent1, r.maps.CounterEvent2,
		r.maps.CounterEvent3}
	for i, events := range all {
		if g == nil {
			if err := events.Delete(uint32(cpu)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("taking event %d of CPU %d away: %w", i, cpu, err)
			}
		} else if g.fds[i] >= 0 {
			if err := events.Put(uint32(cpu), uint32(g.fds[i])); err != nil {
				return fmt.Errorf("handing over event %d of CPU %d: %w", i, cpu, err)
			}
		}
	}
	return nil
}

// Close gives the events up.
func (r *counterReader) Close() error {
	var errs []error
	for _, g := range r.groups {
		errs = append(errs, g.Close())
	}
	clear(r.groups)
	return errors.Join(errs...)
}

// ReadWork adds hardware counters, and what energy is divided by, to what the last ReadCgroups
// answered. It tells how long the CPUs of each package were busy and idle.
func (p *Sched) ReadWork(groups []model.CgroupCounters) ([]model.PackageTime, error) {
	r := p.counters
	if r == nil || len(groups) != len(p.cgroups.order) {
		return nil, errors.New("reading the work of control groups: no kernel program counts them")
	}
	var err error
	if r.counts() {
		if err = r.follow(); err != nil {
			err = fmt.Errorf("following the CPUs: %w", err)
		}
		err = errors.Join(err, r.countNow(p.cgroups))
		r.waiting.Store(r.unscheduled())
	} else if _, err = r.machine.Refresh(); err != nil {
		err = fmt.Errorf("following the CPUs: %w", err)
	}
	times := make([]model.PackageTime, len(r.machine.Packages))
	for i, id := range r.machine.Packages {
		times[i] = model.PackageTime{ID: id, Counted: r.counts()}
	}
	for cpu, c := range r.machine.CPUs {
		if c.Online && c.Package >= 0 && r.groups[cpu] == nil {
			times[c.Package].Counted = false
		}
	}
	for i := range groups {
		slot, g := p.cgroups.order[i], &groups[i]
		g.Work, g.WorkNS = make([]uint64, len(times)), make([]uint64, len(times))
		p.cgroups.perPackage(slot, r.machine, g.WorkNS)
		if slot != slotIdle && r.counts() {
			r.readSlot(slot, g)
		}
		for at, ns := range g.WorkNS {
			if slot == slotIdle {
				times[at].IdleNS += ns
			} else {
				times[at].BusyNS += ns
			}
		}
	}
	return times, err
}

// perPackage adds up a slot's CPU time for each package, as of the last ReadCgroups or a little later.
func (r *cgroupReader) perPackage(slot int, m *topology.Machine, to []uint64) {
	for cpu, c := range m.CPUs {
		if c.Package < 0 || c.Package >= len(to) || cpu >= r.cpus {
			continue
		}
		if r.snapshots[cpu].slot == slot {
			to[c.Package] += r.snapshots[cpu].usageNS
		} else {
			to[c.Package] += host.Load(&r.lanes.Entries[slot*r.cpus+cpu].UsageNs)
		}
	}
}

// counts is true where there are counters.
func (r *counterReader) counts() bool {
	shed := r != nil && r.attachment != nil && !r.attachment.Attached()
	return r != nil && r.lanes != nil && r.absent.Load() == nil && !shed
}

// countNow counts what runs on each CPU up to now. Idle CPUs are let sleep.
func (r *counterReader) countNow(groups *cgroupReader) error {
	if r.now == nil {
		return nil
	}
	ahead := uint64(0)
	if groups.runQueueClock {
		ahead = uint64(groups.ahead.NS())
	}
	var errs []error
	for _, cpu := range slices.Sorted(maps.Keys(r.groups)) {
		if atomic.LoadUint32(&groups.states.Entries[cpu].Slot) == uint32(slotIdle) {
			continue
		}
		_, err := r.now.Run(&ebpf.RunOptions{Context: ahead, Flags: runOnCPU, CPU: uint32(cpu)})
		if err != nil && !errors.Is(err, unix.ENXIO) { // it has gone off line
			errs = append(errs, fmt.Errorf("counting CPU %d up to now: %w", cpu, err))
		}
	}
	return errors.Join(errs...)
}

// unscheduled tells whether the events have been waiting for hardware all the time.
func (r *counterReader) unscheduled() bool {
	var enabled, running uint64
	for cpu := range r.states.Entries {
		enabled += host.Load(&r.states.Entries[cpu].EnabledNs)
		running += host.Load(&r.states.Entries[cpu].RunningNs)
	}
	return enabled > 1e9 && running == 0
}

func (r *counterReader) features(mode CounterMode) []model.Feature {
	f := model.Feature{Name: countersHook.Name, Purpose: countersHook.Purpose, State: model.FeatureWorks}
	switch {
	case mode == "" || mode == CountersOff:
		f.State, f.Remedy = model.FeatureOff, "--counters auto"
		return []model.Feature{f}
	case r == nil:
		f.State, f.Reason = model.FeatureAbsent, "no kernel program counts control groups"
	case r.absent.Load() != nil:
		f.State, f.Reason = model.FeatureAbsent, host.Refusal(*r.absent.Load())
	case r.waiting.Load():
		f.State, f.Reason = model.FeatureAbsent,
			"other programs use all of the hardware's counters: the group was never counted"
		f.Remedy = "end the other programs that count (perf, a profiler, another agent), or the kernel's own: kernel.nmi_watchdog=0"
		return []model.Feature{f}
	case r.without.Load() > 0:
		f.Reason = fmt.Sprintf("not on %d of %d CPUs", r.without.Load(), r.without.Load()+r.opened.Load())
	}
	if f.State == model.FeatureAbsent {
		f.Remedy = countersHook.Remedy
	} else if missing := r.missing(); missing != "" {
		f.Reason = strings.TrimPrefix(f.Reason+"; the hardware has no "+missing, "; ")
	}
	return []model.Feature{f}
}

// missing names the events that the hardware does not have.
func (r *counterReader) missing() string {
	var names []string
	for i, name := range model.HardwareEvents {
		if r.known>>i&1 == 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

func (r *counterReader) drops() []model.Drop {
	if !r.counts() {
		return nil
	}
	drops := []model.Drop{
		{Name: "counter_groups", Count: r.failed.Load(), Used: r.opened.Load(), Capacity: uint64(r.cpus)},
		r.dropped.Drop(countersCounterDropDROP_COUNTER_READ),
		r.dropped.Drop(countersCounterDropDROP_COUNTER_RESET),
		r.dropped.Drop(countersCounterDropDROP_COUNTER_CORE),
		{Name: "counter_extrapolations", Count: r.lost.Load()},
	}
	if r.processes != nil {
		drops = append(drops, r.dropped.Of(countersCounterDropDROP_COUNTER_PROCESS,
			uint64(r.processes.table.MaxEntries()), r.processes.used.Load()))
	}
	return drops
}
