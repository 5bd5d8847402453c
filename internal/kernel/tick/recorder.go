package tick

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
	"outsight/internal/monotonic"
)

// The least and the greatest time between two ticks of a recording.
const (
	MinRecorderInterval = time.Millisecond
	MaxRecorderInterval = 10 * time.Second
)

const (
	sampleBytes = 160
	tickBytes   = 64
	// What a sample knows.
	sampleMemory    = uint32(recorderSampleKnownSAMPLE_MEMORY)
	sampleThrottled = uint32(recorderSampleKnownSAMPLE_THROTTLED)
	sampleDisk      = uint32(recorderSampleKnownSAMPLE_DISK)
	// listEdgesEvery is how long a new edge may be left out. To scan the whole table is
	// most of what a recorder costs in user space.
	listEdgesEvery = time.Second
	// statesNewScans is how many times in a row, once a second, all tasks are scanned after groups came or
	// went; statesEvery is how many seconds apart they are otherwise, for what changed within a group.
	statesNewScans, statesEvery = 5, 10
	// ringTime is how long the ring lasts by itself, where its bounds allow it.
	ringTime                   = 2 * time.Second
	minRingBytes, maxRingBytes = 1 << 20, 16 << 20
)

var recorderHook = host.NewHook(recorderProgStartRecorder, "timer", "samples of containers every 1 ms to 10 s", false,
	"Linux 5.17 or later (bpf_timer, bpf_loop); 6.4 for absolute times")

// canRecord is why the kernel has no recorder; nil where it has one.
func canRecord() error {
	return errors.Join(features.HaveProgramHelper(ebpf.Syscall, asm.FnTimerStart),
		features.HaveProgramHelper(ebpf.Syscall, asm.FnLoop))
}

// RecorderOptions of Record. The zero value works.
type RecorderOptions struct {
	// Interval between two ticks, from 1 ms to 10 s (default 50 ms).
	Interval time.Duration
	// RingBytes bounds the kernel memory for samples that were not read yet. By default it
	// lasts for two seconds with all control groups that can be counted, within 1 and 16 MiB.
	RingBytes int
}

// Recorder are timers in the kernel, on two CPUs, the first of which samples every control group at each tick,
// and the ring that they fill. It is for one goroutine. Any number of recorders may run; they share only what
// they read.
type Recorder struct {
	module   *Tick
	interval time.Duration
	maps     recorderMaps
	// collection owns the maps: programs are loaded onto it.
	collection *ebpf.Collection
	programs   []*ebpf.Program
	control    *host.Table[recorderRecorderControl]
	ticks      *host.Table[recorderRecorderTick]
	samples    *host.Table[recorderRecorderSample]
	unwanted   *host.Table[uint64]
	edges      *host.Table[recorderRecordedEdge]
	// clocks compares the clock of cpu_state.since_ns with the monotonic one; nil if they are one.
	clocks *host.Clocks
	ahead  host.ClockDifference
	tick   model.Tick
	slots  map[model.CgroupID]uint32
	// listed is when the edges were.
	listed time.Time
	// starter arms a timer on the CPU that runs it, one of timerCPUs.
	starter   *ebpf.Program
	timerCPUs []int
	// states finds where the controllers count for new groups; nil where the kernel lacks a hook.
	states func() error
	// groups is the sum of the ids of the groups in slots; stateScans is how many updates it has been the same.
	groups        uint64
	groupsChanged bool
	stateScans    int
	links         []link.Link
}

// Record starts a recorder. Its first tick is due at the next whole interval of the monotonic
// clock. It must be closed before the Probes are.
func (p *Tick) Record(o RecorderOptions) (*Recorder, error) {
	o.Interval = defaultInterval(o.Interval)
	if o.Interval < MinRecorderInterval || o.Interval > MaxRecorderInterval {
		return nil, fmt.Errorf("recording every %v: want %v to %v", o.Interval, MinRecorderInterval, MaxRecorderInterval)
	}
	if p.kernel == nil || !p.groups.Counts() {
		return nil, errors.New("recording: no kernel program counts control groups")
	}
	if err := canRecord(); err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	r := &Recorder{module: p, interval: o.Interval, slots: make(map[model.CgroupID]uint32)}
	if err := r.open(o); err != nil {
		return nil, errors.Join(fmt.Errorf("recording: %w", err), r.Close())
	}
	return r, nil
}

func defaultInterval(d time.Duration) time.Duration {
	if d == 0 {
		return 50 * time.Millisecond
	}
	return d
}

func (r *Recorder) open(o RecorderOptions) error {
	p := r.module
	var object recorderSpecs
	spec, err := host.ReadSpec(loadRecorder, &object)
	if err != nil {
		return err
	}
	slots := len(p.groups.Slots())
	samples, ticks := ringSizes(o, slots)
	shared := p.groups.Share(spec)
	edges := uint32(1)
	if m := p.edges.EdgesMap(); m != nil {
		shared[recorderMapEdges] = m
		edges = m.MaxEntries()
	}
	disks := p.disks.SlotSums()
	if disks != nil {
		shared[recorderMapDiskOfSlot] = disks
	}
	for name, m := range shared {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	object.Ticks.MaxEntries, object.Samples.MaxEntries = ticks, samples
	object.RecordedEdges.MaxEntries, object.EdgesSeen.MaxEntries = edges, edges
	object.CpuSnapshots.MaxEntries = uint32(p.kernel.CPUs)
	for _, bySlot := range []*ebpf.MapSpec{object.Unwanted, object.SumsOfSlot, object.StatesOfSlot} {
		bySlot.MaxEntries = uint32(slots)
	}
	err = errors.Join(
		object.Cpus.Set(uint32(p.kernel.CPUs)),
		object.Slots.Set(uint32(slots)),
		object.CountsDisk.Set(disks != nil),
		object.IntervalNs.Set(uint64(o.Interval)),
		object.TickMask.Set(ticks-1),
		object.SampleMask.Set(samples-1),
		object.UseRunQueueClock.Set(p.kernel.RunQueueClock),
		object.CgroupSubsysIndex.Set(p.kernel.Subsys),
		object.MemoryIndex.Set(p.kernel.Memory),
		object.CpuIndex.Set(p.kernel.CPU),
		object.PageBytes.Set(uint32(os.Getpagesize())))
	if err != nil {
		return fmt.Errorf("BUG: setting the object's constants: %w", err)
	}
	var variables recorderVariables
	if r.collection, err = host.NewMaps(spec, shared, &r.maps, &variables); err != nil {
		return fmt.Errorf("making the ring: %w", err)
	}
	if err := r.mapTables(); err != nil {
		return err
	}
	return r.start(spec, variables.ClocksRead)
}

// ringSizes are how many samples and ticks there is room for: powers of two.
func ringSizes(o RecorderOptions, slots int) (samples, ticks uint32) {
	perSecond := max(int(ringTime/o.Interval), 1)
	if o.RingBytes <= 0 {
		o.RingBytes = min(max(perSecond*slots*sampleBytes, minRingBytes), maxRingBytes)
	}
	// Down, since it is a bound; a tick has one sample at least.
	samples = uint32(1) << (bits.Len(uint(max(o.RingBytes/sampleBytes, 16))) - 1)
	ticks = uint32(1) << bits.Len(uint(min(8*perSecond, int(samples))))
	return samples, min(ticks, samples)
}

func (r *Recorder) mapTables() (err error) {
	if r.control, err = host.MapTable[recorderRecorderControl](r.maps.Control); err != nil {
		return err
	}
	if r.ticks, err = host.MapTable[recorderRecorderTick](r.maps.Ticks); err != nil {
		return err
	}
	if r.samples, err = host.MapTable[recorderRecorderSample](r.maps.Samples); err != nil {
		return err
	}
	if r.unwanted, err = host.MapTable[uint64](r.maps.Unwanted); err != nil {
		return err
	}
	r.edges, err = host.MapTable[recorderRecordedEdge](r.maps.RecordedEdges)
	return err
}

func (r *Recorder) start(spec *ebpf.CollectionSpec, clocksRead *ebpf.Variable) error {
	k := *r.module.kernel
	if k.Types = r.module.options.Types; k.Types == nil {
		k.Types = btf.NewCache()
		defer debug.FreeOSMemory()
	}
	load := func(name string) (*ebpf.Program, error) {
		program, err := host.LoadProgram(&k, spec, r.collection, name)
		if err != nil {
			return nil, fmt.Errorf("loading %s: %w", name, err)
		}
		r.programs = append(r.programs, program)
		return program, nil
	}
	if k.RunQueueClock {
		program, err := load(recorderProgRecorderClocks)
		if err != nil {
			return err
		}
		r.clocks = &host.Clocks{Program: program, Read: clocksRead}
	}
	var err error
	if r.starter, err = load(recorderProgStartRecorder); err != nil {
		return err
	}
	if err := r.findStates(load); err != nil {
		r.module.Logger.Debug("memory and throttling are not in the ticks", "error", err)
	}
	if err := r.update(); err != nil {
		return err
	}
	interval := uint64(r.interval)
	return r.arm((monotonic.Now()/interval + 1) * interval)
}

// findStates attaches what the samples' memory and throttling need: the removal first.
func (r *Recorder) findStates(load func(string) (*ebpf.Program, error)) error {
	forget, err := load(recorderProgRemoveStates)
	if err != nil {
		return err
	}
	removal, err := link.AttachTracing(link.TracingOptions{Program: forget})
	if err != nil {
		return fmt.Errorf("attaching remove_states: %w", err)
	}
	r.links = append(r.links, removal)
	if find, err := load(recorderProgFindAllStates); err == nil {
		r.states = func() error {
			_, err := find.Run(&ebpf.RunOptions{})
			return err
		}
		return nil
	}
	find, err := load(recorderProgFindStates) // before Linux 6.7
	if err != nil {
		return err
	}
	iter, err := link.AttachIter(link.IterOptions{Program: find})
	if err != nil {
		return fmt.Errorf("attaching find_states: %w", err)
	}
	r.states, r.links = func() error { return host.Run(iter) }, append(r.links, iter)
	return nil
}

// arm starts the timers with a tick that is due then. One is enough.
func (r *Recorder) arm(dueNS uint64) error {
	c := &r.control.Entries[0]
	atomic.StoreUint64(&c.DueNs, dueNS)
	atomic.StoreUint32(&c.Stopped, 0)
	want, started := int(r.maps.Timers.MaxEntries()), 0
	var errs []error
	start := func() {
		if err := r.startTimer(uint32(started)); err != nil {
			errs = append(errs, err)
			return
		}
		started++
	}
	r.timerCPUs = timerCPUs(want)
	host.VisitCPUs(r.timerCPUs, start)
	if started == 0 {
		start() // on whatever CPU this is
	}
	if started == 0 {
		return fmt.Errorf("starting a timer: %w", errors.Join(errs...))
	}
	if started < want {
		r.module.Logger.Debug("fewer timers take the recorder's ticks than could", "timers", started, "cpus",
			r.timerCPUs, "error", errors.Join(errs...))
	}
	return nil
}

// startTimer starts one on the CPU that the caller is on.
func (r *Recorder) startTimer(number uint32) error {
	result, err := r.starter.Run(&ebpf.RunOptions{Context: number})
	if err != nil {
		return err
	}
	if result != 0 {
		return fmt.Errorf("the kernel refused step %d", result)
	}
	return nil
}

// timerCPUs are that many of the allowed CPUs, as far apart as can be; none where there are more than a mask has.
func timerCPUs(n int) (cpus []int) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil
	}
	var all []int
	for cpu := range len(allowed) * bits.UintSize {
		if allowed.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	for i := range n {
		cpus = append(cpus, all[i*(len(all)-1)/max(n-1, 1)])
	}
	return slices.Compact(cpus)
}

// Cost is the time that the timers have taken so far, ticks and all, in ns.
func (r *Recorder) Cost() uint64 { return host.Load(&r.control.Entries[0].CostNs) }

// Pause stops the timers until Resume. Ticks in between have no numbers.
func (r *Recorder) Pause() { atomic.StoreUint32(&r.control.Entries[0].Stopped, 1) }

// Resume starts the timers again, with a tick that is due within two intervals.
func (r *Recorder) Resume() error {
	interval := uint64(r.interval)
	return r.arm((monotonic.Now()/interval + 2) * interval)
}

// Interval between two ticks.
func (r *Recorder) Interval() time.Duration { return r.interval }

// RingBytes is the kernel memory of the ring.
func (r *Recorder) RingBytes() int {
	return len(r.samples.Entries)*sampleBytes + len(r.ticks.Entries)*tickBytes
}

// Drain hands over the ticks since the last call, in order; each is only valid during the call. It
// has to be called about every quarter of a second, since it also tells the kernel what has
// changed: which edges there are, and how far the clocks have drifted apart.
func (r *Recorder) Drain(take func(*model.Tick)) error {
	c := &r.control.Entries[0]
	made := host.Load(&c.TicksMade)
	for taken := c.TicksTaken; taken < made; taken++ {
		t := &r.ticks.Entries[taken%uint64(len(r.ticks.Entries))]
		r.read(t)
		take(&r.tick)
		atomic.StoreUint64(&c.SamplesTaken, t.FirstSample+uint64(t.Samples))
		atomic.StoreUint64(&c.TicksTaken, taken+1)
	}
	return r.update()
}

func (r *Recorder) read(t *recorderRecorderTick) {
	r.tick = model.Tick{Number: t.Number, DueNS: t.DueNs, BeganNS: t.BeganNs, CostNS: t.CostNs,
		IdleNS: t.IdleNs, OtherNS: t.OtherNs, Running: t.Running, Samples: r.tick.Samples[:0]}
	for i := range uint64(t.Samples) {
		s := &r.samples.Entries[(t.FirstSample+i)%uint64(len(r.samples.Entries))]
		r.tick.Samples = append(r.tick.Samples, model.TickSample{
			Group: model.CgroupID(s.Group), CPUNS: s.CpuNs, Running: s.Running, RunQueueNS: s.WaitNs, Waits: s.Waits,
			Voluntary: s.Voluntary, Involuntary: s.Involuntary, SentBytes: s.SentBytes, ReceivedBytes: s.ReceivedBytes,
			Asking: s.ClientInFlight, Serving: s.ServerInFlight,
			HasMemory: s.Known&sampleMemory != 0, MemoryBytes: s.MemoryBytes,
			HasThrottled: s.Known&sampleThrottled != 0, ThrottledNS: s.ThrottledNs, ThrottledPeriods: s.ThrottledPeriods,
			MinorFaults: s.MinorFaults, MajorFaults: s.MajorFaults,
			HasDisk: s.Known&sampleDisk != 0, DiskReadBytes: s.DiskReadBytes, DiskWriteBytes: s.DiskWriteBytes,
			DiskReads: s.DiskReads, DiskWrites: s.DiskWrites, DiskNS: s.DiskTimeNs,
		})
	}
}

// Losses are the ticks that were not recorded since the start.
func (r *Recorder) Losses() model.TickLosses {
	c := &r.control.Entries[0]
	return model.TickLosses{Full: host.Load(&c.TicksFull), Late: host.Load(&c.TicksLate)}
}

// Ignore leaves a control group out of the ticks to come.
func (r *Recorder) Ignore(id model.CgroupID) {
	if slot, found := r.module.groups.SlotOf(id); found && int(slot) < len(r.unwanted.Entries) {
		atomic.StoreUint64(&r.unwanted.Entries[slot], uint64(id))
	}
}

// update tells the kernel what it cannot find out at a tick, or only slowly.
func (r *Recorder) update() error {
	c := &r.control.Entries[0]
	if r.clocks != nil {
		ahead, err := r.ahead.Read(r.clocks)
		if err != nil {
			return err
		}
		atomic.StoreInt64(&c.ClockAheadNs, ahead)
		atomic.StoreUint32(&c.ClockKnown, 1)
	}
	now := time.Now()
	if now.Sub(r.listed) < listEdgesEvery {
		return nil
	}
	r.listed = now
	r.listGroups()
	r.listEdges()
	if r.states == nil || !r.statesDue() {
		return nil
	}
	if err := r.states(); err != nil {
		return fmt.Errorf("looking for new control groups: %w", err)
	}
	return nil
}

// listGroups lists the groups that have a slot.
func (r *Recorder) listGroups() {
	clear(r.slots)
	groups := uint64(0)
	slots := r.module.groups.Slots()
	for slot := r.module.options.FirstSlot; slot < len(slots); slot++ {
		if id := host.Load(&slots[slot]); id != 0 {
			r.slots[model.CgroupID(id)] = uint32(slot)
			groups += id
		}
	}
	r.groups, r.groupsChanged = groups, groups != r.groups
}

// statesDue tells whether it is time to scan all tasks for where the controllers count. With 500 tasks that takes an
// iterator 2 ms, and the kernel's own walk a third of it. A new group may get its first task some time after it was made.
func (r *Recorder) statesDue() bool {
	r.stateScans++
	if r.groupsChanged {
		r.stateScans = 0
	}
	return r.stateScans < statesNewScans || r.stateScans%statesEvery == 0
}

// listEdges lists the edges whose owners are sampled. The kernel compares the owners, so that a
// entry that was given to another edge meanwhile does not count for the old one.
func (r *Recorder) listEdges() {
	listed := uint32(0)
	for index, owner := range r.module.edges.EdgeOwners() {
		slot, found := r.slots[model.CgroupID(owner)]
		if !found {
			continue
		}
		e := &r.edges.Entries[listed]
		if e.Owner != owner || e.Index != index || e.Slot != slot {
			// A tick in between finds either no edge, or one that it checks.
			atomic.StoreUint64(&e.Owner, 0)
			atomic.StoreUint32(&e.Index, index)
			atomic.StoreUint32(&e.Slot, slot)
			atomic.StoreUint64(&e.Owner, owner)
		}
		listed++
	}
	atomic.StoreUint32(&r.control.Entries[0].Edges, listed)
}

// Close stops the timers and gives the ring back.
func (r *Recorder) Close() error {
	var errs []error
	if r.control != nil {
		atomic.StoreUint32(&r.control.Entries[0].Stopped, 1)
		errs = append(errs, r.control.Close())
	}
	if r.ticks != nil {
		errs = append(errs, r.ticks.Close())
	}
	if r.samples != nil {
		errs = append(errs, r.samples.Close())
	}
	if r.unwanted != nil {
		errs = append(errs, r.unwanted.Close())
	}
	if r.edges != nil {
		errs = append(errs, r.edges.Close())
	}
	for _, l := range r.links {
		errs = append(errs, l.Close())
	}
	for _, program := range r.programs {
		errs = append(errs, program.Close())
	}
	if r.collection != nil {
		r.collection.Close()
	}
	r.control, r.ticks, r.samples, r.unwanted, r.edges = nil, nil, nil, nil, nil
	r.programs, r.collection, r.links, r.states = nil, nil, nil, nil
	return errors.Join(errs...)
}
