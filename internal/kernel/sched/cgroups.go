package sched

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
	"outsight/internal/monotonic"
)

const (
	slotOther = int(cgroupsCgroupSlotCGROUP_SLOT_OTHER)
	slotIdle  = int(cgroupsCgroupSlotCGROUP_SLOT_IDLE)
	slotFirst = int(cgroupsCgroupSlotCGROUP_SLOT_FIRST)
)

var cgroupHooks = []host.Hook{
	host.NewHook(cgroupsProgSchedSwitch, "tp_btf/sched_switch",
		"CPU time, context switches and run-queue latency per container", true,
		"Linux 5.12 or later with BTF"),
	host.NewHook(cgroupsProgSchedProcessExec, "tp_btf/sched_process_exec", "programs executed per container", false,
		"Linux 5.12 or later with BTF"),
	host.NewHook(cgroupsProgSchedProcessExit, "tp_btf/sched_process_exit", "processes ended per container", false,
		"Linux 5.12 or later with BTF"),
	host.NewHook(cgroupsProgCgroupMkdir, "tp_btf/cgroup_mkdir", "containers are known when they start", false,
		"Linux 5.12 or later with BTF; until then containers are found every 2 s"),
	host.NewHook(cgroupsProgCgroupRmdir, "tp_btf/cgroup_rmdir", "containers are known to have ended", false,
		"Linux 5.12 or later with BTF; until then the end is found every 2 s"),
	host.NewHook(cgroupsProgCgroupAttachTask, "tp_btf/cgroup_attach_task", "a container's first process is known", false,
		"Linux 5.12 or later with BTF"),
}

var clocksHook = host.NewHook(cgroupsProgReadClocks, "syscall/read_clocks",
	"time of threads that run at the moment of reading", false, "Linux 5.14 or later with BTF")

var forkHook = host.NewHook(cgroupsProgSchedProcessFork, "tp_btf/sched_process_fork",
	"processes started, and run-queue latency of new threads", false, "Linux 5.12 or later with BTF")

var tasksHook = host.NewHook(cgroupsProgRunningTasks, "iter/task",
	"run-queue latency of threads older than the start", false, "Linux 5.12 or later with BTF")

// cgroupReader reads what cgroups.bpf.c counts.
type cgroupReader struct {
	maps      cgroupsMaps
	variables cgroupsVariables
	cpus      int
	// waitLanes is the number of run-queue histograms of a slot.
	waitLanes int
	// runQueueClock tells which clock times are of; clocks compares it with the monotonic one.
	runQueueClock bool
	clocks        *host.Clocks
	ahead         host.ClockDifference
	states        *host.Table[cgroupsCpuState]
	lanes         *host.Table[cgroupsCgroupLane]
	// snapshots of the CPUs at the reading that is being made.
	snapshots []cpuSnapshot
	slots     *host.Table[uint64]
	processes *host.Table[cgroupsProcessCounts]
	runQueue  *host.MappedHistograms
	dropped   host.Drops[cgroupsCgroupDrop]
	// tasks gives a state to threads without one; stateless is how many waits were not counted
	// for the lack of it when it ran last.
	tasks     *link.Iter
	stateless uint64
	// threadStates are by thread id where tasks have no storage, else nil; round is the number of the
	// last scan of all threads.
	threadStates *ebpf.Map
	round        uint32
	// scansWithoutSweep is for how many scans nothing is removed.
	scansWithoutSweep int
	// used is how many slots had an owner at the last reading.
	used atomic.Uint64
	// cached histograms, by slot, with the number of waits that they hold.
	cached []host.CachedHistogram
	// usage at the last reading, by slot: a reading never goes back.
	usage []uint64
	// order has the slots of the last reading.
	order []int
}

func (p *Sched) openCgroups(k *host.Kernel) error {
	var object cgroupsSpecs
	spec, err := host.ReadSpec(loadCgroups, &object)
	if err != nil {
		return err
	}
	slots := uint32(p.options.MaxCgroups + slotFirst)
	object.CpuStates.MaxEntries = uint32(k.CPUs)
	object.CgroupLanes.MaxEntries = slots * uint32(k.CPUs)
	object.RunQueue.MaxEntries = slots * runQueueLanes(k.CPUs)
	for _, bySlot := range []*ebpf.MapSpec{object.CgroupSlots, object.Processes, object.SlotOfCgroup, object.FreeSlots} {
		bySlot.MaxEntries = slots
	}
	err = errors.Join(
		object.Cpus.Set(uint32(k.CPUs)),
		object.RunQueueLanes.Set(runQueueLanes(k.CPUs)),
		object.CgroupHierarchy.Set(k.Hierarchy),
		object.CgroupSubsysIndex.Set(k.Subsys),
		object.UseRunQueueClock.Set(k.RunQueueClock),
		object.SwitchHasState.Set(k.SwitchHasState),
		object.Architecture.Set(uint32(registersOf(k))),
		storeTasksIn(&object, p.options.ThreadStates))
	if err != nil {
		return fmt.Errorf("BUG: setting the object's constants: %w", err)
	}
	r := &cgroupReader{cpus: k.CPUs, waitLanes: int(runQueueLanes(k.CPUs)), runQueueClock: k.RunQueueClock}
	maps, err := host.NewMaps(spec, nil, &r.maps, &r.variables)
	if err != nil {
		err = fmt.Errorf("making the control groups' maps: %w", err)
		for _, h := range append([]host.Hook{forkHook, tasksHook}, cgroupHooks...) {
			p.AddFeature(h, err)
		}
		return err
	}
	p.OnClose(host.CloserFunc(maps.Close))
	if err := p.mapCgroups(r); err != nil {
		return err
	}
	if err := p.readEventsFrom(r.maps.CgroupEvents); err != nil {
		return err
	}
	if k.RunQueueClock {
		program, err := p.Load(k, spec, maps, clocksHook)
		if err == nil {
			p.cgroups.clocks = &host.Clocks{Program: program, Read: r.variables.ClocksRead}
		}
		p.AddFeature(clocksHook, err)
	}
	// Every thread's state is there before switches look it up: those of new threads first, so
	// that none is missed in between.
	errs := []error{p.Attach(k, spec, maps, forkHook)}
	p.cgroups.tasks, err = p.OpenIterator(k, spec, maps, tasksHook, nil)
	if err == nil {
		err = host.Run(p.cgroups.tasks)
	}
	p.AddFeature(tasksHook, err)
	errs = append(errs, err)
	for _, h := range cgroupHooks {
		errs = append(errs, p.Attach(k, spec, maps, h))
	}
	host.SwitchCPUs(k.CPUs)
	return errors.Join(errs...)
}

// registersOf is whose saved registers the programs read.
func registersOf(k *host.Kernel) cgroupsCpuArchitecture {
	if k.SavedRegisters {
		switch runtime.GOARCH {
		case "amd64":
			return cgroupsCpuArchitectureARCHITECTURE_AMD64
		case "arm64":
			return cgroupsCpuArchitectureARCHITECTURE_ARM64
		}
	}
	return cgroupsCpuArchitectureARCHITECTURE_OTHER
}

// share are the maps of cgroup_maps.h that another object declares alike: it has them in the same size.
func (r *cgroupReader) share(other *ebpf.CollectionSpec) map[string]*ebpf.Map {
	shared := make(map[string]*ebpf.Map)
	for name, m := range map[string]*ebpf.Map{
		cgroupsMapCpuStates: r.maps.CpuStates, cgroupsMapCgroupLanes: r.maps.CgroupLanes,
		cgroupsMapCgroupSlots: r.maps.CgroupSlots, cgroupsMapSlotOfCgroup: r.maps.SlotOfCgroup,
	} {
		if declared := other.Maps[name]; declared != nil {
			shared[name] = m
			declared.MaxEntries = m.MaxEntries()
		}
	}
	return shared
}

// runQueueLanes is how many run-queue histograms a group has: the greatest power of two up to the
// number of CPUs, and at most four, since each takes 6.6 KiB.
func runQueueLanes(cpus int) uint32 {
	lanes := uint32(1)
	for lanes < 4 && int(lanes)*2 <= cpus {
		lanes *= 2
	}
	return lanes
}

func (p *Sched) mapCgroups(r *cgroupReader) error {
	r.runQueue = host.MapHistograms(r.maps.RunQueue)
	p.OnClose(r.runQueue)
	r.dropped = host.Drops[cgroupsCgroupDrop]{Counts: r.maps.CgroupDrops, Names: cgroupDropNames}
	if states := r.maps.TaskStates; states.Type() == ebpf.Hash && seesAllThreads(p.options.ProcFS) {
		r.threadStates = states
	}
	var err error
	if r.states, err = host.MapTable[cgroupsCpuState](r.maps.CpuStates); err != nil {
		return err
	}
	p.OnClose(r.states)
	if r.lanes, err = host.MapTable[cgroupsCgroupLane](r.maps.CgroupLanes); err != nil {
		return err
	}
	p.OnClose(r.lanes)
	if r.slots, err = host.MapTable[uint64](r.maps.CgroupSlots); err != nil {
		return err
	}
	p.OnClose(r.slots)
	if r.processes, err = host.MapTable[cgroupsProcessCounts](r.maps.Processes); err != nil {
		return err
	}
	p.OnClose(r.processes)
	r.cached = make([]host.CachedHistogram, len(r.slots.Entries))
	r.usage = make([]uint64, len(r.slots.Entries))
	r.snapshots = make([]cpuSnapshot, r.cpus)
	for slot := slotFirst; slot < len(r.slots.Entries); slot++ {
		if err := r.maps.FreeSlots.Update(nil, uint32(slot), ebpf.UpdateAny); err != nil {
			return fmt.Errorf("filling the list of free slots: %w", err)
		}
	}
	p.cgroups = r
	return nil
}

// ReadCgroups reads the counters of every control group that ran since the start, of those that
// found no slot together (OtherCgroups), and of the idle time. Threads that run now are included
// up to now. The reading after the next one changes the histograms of this one.
func (p *Sched) ReadCgroups() ([]model.CgroupCounters, error) {
	r := p.cgroups
	if r == nil {
		return nil, errors.New("reading control groups: no kernel program counts them")
	}
	now, err := r.now()
	for _, user := range p.slotUsers {
		err = errors.Join(err, user.Refresh())
	}
	for cpu := range r.cpus {
		r.snapshots[cpu] = r.snapshotCPU(cpu, now)
	}
	all := make([]model.CgroupCounters, 0, len(r.order)+8)
	used := uint64(0)
	r.runQueue.Begin()
	r.order = r.order[:0]
	for slot := range r.slots.Entries {
		id := host.Load(&r.slots.Entries[slot])
		if slot >= slotFirst && id == 0 {
			continue
		}
		if slot >= slotFirst {
			used++
		}
		c := r.read(slot)
		c.ID = model.CgroupID(id)
		for _, user := range p.slotUsers {
			user.Fill(slot, &c)
		}
		if p.reclaim != nil {
			c.Reclaim = p.reclaim.read(slot)
		}
		all, r.order = append(all, c), append(r.order, slot)
	}
	r.used.Store(used)
	return all, errors.Join(err, r.mendStates())
}

// mendStates gives states to threads that were found without one since the last reading.
func (r *cgroupReader) mendStates() error {
	stateless := r.dropped.Count(cgroupsCgroupDropDROP_TASK_STATE)
	if stateless == r.stateless || r.tasks == nil {
		return nil
	}
	r.stateless = stateless
	if err := r.scanThreads(); err != nil {
		return fmt.Errorf("looking for threads without a state: %w", err)
	}
	return nil
}

// scanThreads gives states to threads that have none, and removes those of threads that are gone. While switches are
// not counted, the end of a thread is not seen, and their states would fill the table.
func (r *cgroupReader) scanThreads() error {
	if r.threadStates == nil {
		return host.Run(r.tasks)
	}
	if r.scansWithoutSweep > 0 {
		r.scansWithoutSweep--
		return host.Run(r.tasks)
	}
	r.round++
	if err := r.variables.StatesRound.Set(r.round); err != nil {
		return err
	}
	if err := host.Run(r.tasks); err != nil {
		return err
	}
	removed, err := r.removeGoneThreads()
	if removed == 0 {
		r.scansWithoutSweep = sweepPause // the table is full of threads that live
	}
	if err != nil || removed == 0 {
		return err
	}
	return host.Run(r.tasks) // there may have been no room for some
}

// sweepPause is for how many scans a table is left alone in which all states were of threads that live.
const sweepPause = 60

// seesAllThreads tells whether this process is in the first namespace of process ids. An iterator lists the threads of
// its reader's.
func seesAllThreads(procfs string) bool {
	const first = "pid:[4026531836]" // PROC_PID_INIT_INO of include/linux/proc_ns.h
	own, err := os.Readlink(filepath.Join(procfs, "self/ns/pid"))
	return err == nil && own == first
}

// removeGoneThreads removes the states that the last scan did not see.
func (r *cgroupReader) removeGoneThreads() (removed int, err error) {
	var gone []uint32
	var id uint32
	var state cgroupsTaskState
	all := r.threadStates.Iterate()
	for all.Next(&id, &state) {
		if uint32(state.Seen) != r.round {
			gone = append(gone, id)
		}
	}
	// The kernel may remove the very state that the listing is at: it then ends, and the next one goes on.
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return 0, fmt.Errorf("listing the states of threads: %w", err)
	}
	for _, id := range gone {
		// A thread that has begun meanwhile, with the same id, has another state.
		if err := r.threadStates.Lookup(id, &state); err != nil || uint32(state.Seen) == r.round {
			continue
		}
		if err := r.threadStates.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return removed, fmt.Errorf("removing the state of thread %d: %w", id, err)
		}
		removed++
	}
	return removed, nil
}

// now is the present time on the clock of cpu_state.since_ns; 0 where it cannot be had, so that
// running threads count up to their last switch only.
func (r *cgroupReader) now() (uint64, error) {
	if !r.runQueueClock {
		return monotonic.Now(), nil
	}
	if r.clocks == nil {
		return 0, nil
	}
	ahead, err := r.ahead.Read(r.clocks)
	if err != nil {
		return 0, err
	}
	return monotonic.Now() + uint64(ahead), nil
}

// cpuSnapshot is what runs on a CPU, and what its group's lane there counts up to now, of one moment.
type cpuSnapshot struct {
	slot    int // -1 if there was no such moment
	usageNS uint64
}

// snapshotCPU reads a CPU. A switch meanwhile changes the sequence, and the CPU is read
// again. (A lane that is read afterwards may count the same time once more: the thread that ran
// then may have been switched out since.)
func (r *cgroupReader) snapshotCPU(cpu int, now uint64) cpuSnapshot {
	state := &r.states.Entries[cpu]
	for range 100 {
		before := host.Load(&state.Sequence)
		slot, since := int(atomic.LoadUint32(&state.Slot)), host.Load(&state.SinceNs)
		if before%2 == 1 || since == 0 || slot*r.cpus+cpu >= len(r.lanes.Entries) {
			continue
		}
		usage := host.Load(&r.lanes.Entries[slot*r.cpus+cpu].UsageNs)
		if host.Load(&state.Sequence) != before {
			continue
		}
		if now > since {
			usage += now - since
		}
		return cpuSnapshot{slot, usage}
	}
	return cpuSnapshot{slot: -1}
}

func (r *cgroupReader) read(slot int) model.CgroupCounters {
	c := model.CgroupCounters{}
	switch slot {
	case slotOther:
		c.Slot = model.OtherCgroups
	case slotIdle:
		c.Slot = model.IdleTime
	}
	var waitNS, waits uint64
	for cpu := range r.cpus {
		lane := &r.lanes.Entries[slot*r.cpus+cpu]
		if r.snapshots[cpu].slot == slot {
			c.CPU.UsageNS += r.snapshots[cpu].usageNS
		} else {
			c.CPU.UsageNS += host.Load(&lane.UsageNs)
		}
		c.CPU.Voluntary += host.Load(&lane.Voluntary)
		c.CPU.Involuntary += host.Load(&lane.Involuntary)
		c.CPU.PollingNS += host.Load(&lane.PollingNs)
		waitNS += host.Load(&lane.WaitNs)
		waits += host.Load(&lane.Waits)
	}
	processes := &r.processes.Entries[slot]
	c.Forks, c.Execs, c.Exits = host.Load(&processes.Forks), host.Load(&processes.Execs), host.Load(&processes.Exits)
	c.ThreadStarts = host.Load(&processes.ThreadStarts)
	c.CPU.UsageNS = max(c.CPU.UsageNS, r.usage[slot])
	r.usage[slot] = c.CPU.UsageNS
	c.CPU.RunQueue = r.cached[slot].ReadMapped(r.runQueue, slot*r.waitLanes, r.waitLanes, waits, waitNS)
	return c
}

// Forget releases the slot of a control group that was removed, after its last reading.
func (p *Sched) Forget(id model.CgroupID) {
	r := p.cgroups
	if r == nil {
		return
	}
	var slot uint32
	if err := r.maps.SlotOfCgroup.LookupAndDelete(uint64(id), &slot); err != nil {
		return
	}
	r.invalidate(uint64(id), slot)
	for cpu := range r.cpus {
		r.lanes.Entries[int(slot)*r.cpus+cpu] = cgroupsCgroupLane{}
	}
	r.processes.Entries[slot] = cgroupsProcessCounts{}
	if p.contention != nil {
		p.contention.release(slot)
	}
	if p.reclaim != nil {
		p.reclaim.release(slot)
	}
	if err := r.runQueue.Clear(int(slot)*r.waitLanes, r.waitLanes); err != nil {
		p.Logger.Error("a control group's slot is lost", "slot", slot, "error", err)
		return
	}
	r.cached[slot] = host.CachedHistogram{}
	r.usage[slot] = 0
	p.counters.release(int(slot))
	atomic.StoreUint64(&r.slots.Entries[slot], 0)
	for _, user := range p.slotUsers {
		user.ClearSlot(slot)
	}
	if err := r.maps.FreeSlots.Update(nil, slot, ebpf.UpdateAny); err != nil {
		p.Logger.Error("a control group's slot is lost", "slot", slot, "error", err)
	}
}

// invalidate makes every CPU look the group's slot up again. The last thread of a removed group may run on, for long on a
// busy host, and would add to a slot that is another group's by then.
func (r *cgroupReader) invalidate(id uint64, slot uint32) {
	for cpu := range r.states.Entries {
		state := &r.states.Entries[cpu]
		for i := range state.CachedId {
			atomic.CompareAndSwapUint64(&state.CachedId[i], id, 0)
		}
		atomic.CompareAndSwapUint32(&state.Slot, slot, uint32(slotOther))
	}
}

func (r *cgroupReader) drops() []model.Drop {
	return []model.Drop{
		r.dropped.Of(cgroupsCgroupDropDROP_CGROUP_SLOT, uint64(len(r.slots.Entries)-slotFirst), r.used.Load()),
		r.dropped.Drop(cgroupsCgroupDropDROP_CGROUP_EVENT),
		r.dropped.Drop(cgroupsCgroupDropDROP_TASK_STATE),
	}
}

// The readers of histograms know struct histogram by one name.
var _ [host.HistogramCells]uint64 = cgroupsHistogram{}.Cells
