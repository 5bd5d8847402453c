// Package sched reads what the scheduler's programs count for each control group: CPU time, who disturbs whom,
// stalls for memory, hardware counters. It owns the slots that control groups have in tables.
package sched

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// DefaultMaxCgroups is Options.MaxCgroups where that is 0.
const DefaultMaxCgroups = 1024

// Options of New. The zero value works.
type Options struct {
	MaxCgroups        int
	WithoutContention bool
	Counters          CounterMode
	CounterProcesses  int
	HTRatio           float64
	SysFS, ProcFS     string
	// ThreadStates is for how many threads' states there is room in a hash, as on kernels where tasks have no
	// storage; 0 is what the kernel has.
	ThreadStates uint32
	// Events opens perf events; nil is the kernel's.
	Events *EventOpener
}

// Sched is the module. Its Read methods are for one goroutine at a time.
type Sched struct {
	host.Loader
	options    Options
	cgroups    *cgroupReader
	contention *contentionReader // nil where it is not counted
	counters   *counterReader
	// reclaim is nil where it is not counted; victims are the drops of events of killed processes.
	reclaim *reclaimReader
	victims *host.Drops[reclaimReclaimDrop]
	// metricsFiles are the drops of events of files with metrics; nil where there are no such events.
	metricsFiles *host.Drops[appmetricsAppmetricsDrop]
	events       chan model.CgroupEvent
	// done is closed by Close; reading tells whether the reader of the ring then closes events.
	done      chan struct{}
	reading   bool
	closeOnce sync.Once
	// slotUsers keep something of their own for each slot.
	slotUsers []SlotUser
}

// SlotUser keeps something of its own for each slot of a control group.
type SlotUser interface {
	// Refresh is called before a reading, and Fill for each slot that is read.
	Refresh() error
	Fill(slot int, c *model.CgroupCounters)
	// ClearSlot empties a slot that has no group any more, before it gets another.
	ClearSlot(slot uint32)
}

// New makes the module.
func New(o Options) *Sched {
	o.MaxCgroups = max(host.DefaultTo(o.MaxCgroups, DefaultMaxCgroups), 16)
	if o.Counters == CountersProcesses {
		o.Counters, o.CounterProcesses = CountersAuto, host.DefaultTo(o.CounterProcesses, 1024)
	}
	o.ProcFS = cmp.Or(o.ProcFS, "/proc")
	return &Sched{Loader: host.NewLoader(), options: o, events: make(chan model.CgroupEvent, 1024),
		done: make(chan struct{})}
}

// UseSlots adds a user that keeps something for each slot.
func (p *Sched) UseSlots(by SlotUser) { p.slotUsers = append(p.slotUsers, by) }

// Hooks are what may be attached to, but for counters, which are an option.
func (p *Sched) Hooks() []host.Hook {
	return slices.Concat(cgroupHooks, []host.Hook{forkHook, tasksHook, contentionHook, reclaimHook, victimHook,
		metricsFileHook})
}

// Open loads and attaches the programs. Those at one hook run in the order in which they come here.
func (p *Sched) Open(k *host.Kernel) error {
	p.Loading = "groups"
	errs := []error{p.openCgroups(k)}
	if !p.options.WithoutContention {
		p.Loading = "contention"
		errs = append(errs, p.openContention(k))
	}
	p.Loading = "memory"
	errs = append(errs, p.openReclaim(k))
	p.Loading = "applications"
	errs = append(errs, p.openMetricsFiles(k))
	p.Loading = "counters"
	p.openCounters(k)
	return errors.Join(errs...)
}

// Parts of the module.
func (p *Sched) Parts() []host.Part {
	return []host.Part{
		{Rank: 1, Part: model.Part{Name: "contention", Purpose: "which container ran while another waited for a CPU",
			Under: "switches"},
			Functions: []string{contentionProgContentionSwitch}},
		{Rank: 2, Part: model.Part{Name: "counters",
			Purpose: "cycles, instructions and cache misses; energy is then divided by CPU time", Under: "switches"},
			Functions: []string{countersProgCountSwitch}},
		{Rank: 6, Part: model.Part{Name: "switches",
			Purpose: "run-queue latency and context switches; CPU time then comes from files"},
			Functions: []string{cgroupsProgSchedSwitch}, Detached: p.endSwitches, Attaching: p.resetWaits,
			Attached: p.beginSwitches},
		{Rank: 10, Part: model.Part{Name: "groups",
			Purpose: "containers that begin and end, processes, and the reading of all of it", Fixed: true}},
		{Rank: 15, Part: model.Part{Name: "memory", Purpose: "stalls for memory, and who was killed for lack of it",
			Fixed: true}},
		{Rank: 16, Part: model.Part{Name: "applications", Purpose: "processes that announce metrics of their own",
			Fixed: true}},
	}
}

// Features tells of each program whether it works here.
func (p *Sched) Features() []model.Feature {
	return append(p.Loader.Features(), p.counters.features(p.options.Counters)...)
}

// Events delivers the lifecycle of control groups. The channel is closed by Close. A reader that
// lags by more than 1024 events makes the kernel's ring fill, which Drops counts.
func (p *Sched) Events() <-chan model.CgroupEvent { return p.events }

// Drops lists every bounded table with what found no room in it.
func (p *Sched) Drops() (drops []model.Drop) {
	if p.cgroups != nil {
		drops = append(drops, p.cgroups.drops()...)
	}
	if p.contention != nil {
		drops = append(drops, p.contention.drops()...)
	}
	return slices.Concat(drops, p.reclaimDrops(), p.metricsFileDrops(), p.counters.drops())
}

// Close detaches and unloads everything.
func (p *Sched) Close() error {
	err := p.Loader.Close()
	p.closeOnce.Do(func() {
		close(p.done)
		if !p.reading {
			close(p.events)
		}
	})
	return err
}

// Counts tells whether control groups are counted at all.
func (p *Sched) Counts() bool { return p.cgroups != nil }

// Slots are the ids of the control groups by slot, 0 for those that are free; the first FirstSlot are no group's.
func (p *Sched) Slots() []uint64 { return p.cgroups.slots.Entries }

// FirstSlot is the first of a control group.
const FirstSlot = slotFirst

// SlotOf is the slot of a control group; false where it has none.
func (p *Sched) SlotOf(id model.CgroupID) (slot uint32, found bool) {
	return slot, p.cgroups.maps.SlotOfCgroup.Lookup(uint64(id), &slot) == nil
}

// Share are the maps of cgroup_maps.h that another object declares alike: it has them in the same size.
func (p *Sched) Share(other *ebpf.CollectionSpec) map[string]*ebpf.Map {
	return p.cgroups.share(other)
}
