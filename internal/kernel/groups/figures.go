package groups

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// WatchesGroups tells whether the kernel takes the programs.
func (p *Groups) WatchesGroups() bool { return p.read != nil }

// WatchGroup finds the controllers of a control group by a task in it or below it; ids are the inodes of its directory
// in the hierarchy of each controller, 0 where it has none. found is false where none of them is the task's.
func (p *Groups) WatchGroup(pid int, ids [model.FigureControllers]uint64) (slot uint32, found bool, err error) {
	switch {
	case len(p.free) > 0:
		slot = p.free[len(p.free)-1]
	case int(p.next) < p.options.Max:
		slot = p.next
	default:
		p.refused.Add(1)
		return 0, false, ErrFull
	}
	result, err := p.watch.Run(&ebpf.RunOptions{Context: groupsWatchRequest{Slot: slot, Pid: int32(pid), Ids: ids}})
	if err != nil {
		return 0, false, fmt.Errorf("finding the controllers of process %d: %w", pid, err)
	}
	if int32(result) <= 0 {
		return 0, false, nil
	}
	if slot == p.next {
		p.next++
		host.Store(&p.control.Entries[0].Groups, uint64(p.next))
	} else {
		p.free = p.free[:len(p.free)-1]
	}
	p.used.Add(1)
	return slot, true, p.ReadGroup(slot)
}

// UnwatchGroup frees a slot.
func (p *Groups) UnwatchGroup(slot uint32) error {
	if err := run(p.watch, groupsWatchRequest{Slot: slot}); err != nil {
		return fmt.Errorf("freeing slot %d: %w", slot, err)
	}
	p.free = append(p.free, slot)
	p.used.Add(^uint64(0))
	return nil
}

// ReadGroups reads the figures of all groups that are watched.
func (p *Groups) ReadGroups() error {
	if p.used.Load() == 0 {
		return nil
	}
	return p.readSlots(groupsReadRequest{Count: p.next, Details: 1})
}

// ReadGroup reads those of one group.
func (p *Groups) ReadGroup(slot uint32) error {
	return p.readSlots(groupsReadRequest{First: slot, Count: 1, Details: 1})
}

// busyPause is how long a reading waits for one by the timer, which takes some 0.1 ms, and busyAttempts how often: a
// virtual processor may stand still for longer than that.
const busyPause, busyAttempts = time.Millisecond, 100

func (p *Groups) readSlots(request groupsReadRequest) error {
	for range busyAttempts {
		result, err := p.read.Run(&ebpf.RunOptions{Context: request})
		switch {
		case err != nil:
			return err
		case result == 0:
			return nil
		}
		time.Sleep(busyPause)
	}
	return errors.New("the figures of groups are being read all the time")
}

// ReadGroupsEvery has a timer in the kernel read the figures of all groups that are watched, at that interval, while
// ReadGroups is not called as often: because this process sleeps, has no CPU time, or is stopped. 0 ends it. Many groups
// are read in slices. The timer ends with the module.
func (p *Groups) ReadGroupsEvery(interval time.Duration) error {
	if p.start == nil {
		return errors.New("reading figures by a timer: the kernel refuses it")
	}
	host.Store(&p.control.Entries[0].IntervalNs, uint64(interval))
	if interval == 0 {
		return nil
	}
	if err := run(p.start, nil); err != nil {
		return fmt.Errorf("starting the timer that reads figures: %w", err)
	}
	return nil
}

// TimerReadings is how often the timer has read all groups, and how long that took.
func (p *Groups) TimerReadings() (readings uint64, took time.Duration) {
	if p.control == nil {
		return 0, 0
	}
	c := &p.control.Entries[0]
	return host.Load(&c.Readings), time.Duration(host.Load(&c.CostNs))
}

// FlushedStat are the counters behind memory.stat as far as the kernel has flushed them: what the file says unless to
// read it flushes. ok is false where there are none.
func (p *Groups) FlushedStat(slot uint32) (words model.StatWords, ok bool) {
	if err := run(p.flushedWords, groupsReadRequest{First: slot, Count: 1}); err != nil {
		return words, false
	}
	f := &p.flushed.Entries[0]
	return f.Words, f.Known != 0
}

// Figures are what was read last. It waits for the timer where that is writing them. ok is false where the group is
// gone.
func (p *Groups) Figures(slot uint32, to *model.GroupFigures) (ok bool) {
	f, details := &p.figures.Entries[slot], &p.details.Entries[slot]
	for range busyAttempts {
		head := atomic.LoadUint64(&f.Head)
		known := copyFigures(to, f, details)
		if atomic.LoadUint64(&f.Tail) == head {
			return known
		}
		time.Sleep(busyPause)
	}
	*to = model.GroupFigures{}
	return false
}

// copyFigures loads 8 bytes at a time, upwards: see docs/format/figures.md.
func copyFigures(to *model.GroupFigures, f *groupsGroupFigures, details *groupsGroupDetails) (found bool) {
	known := atomic.LoadUint32(&f.Known)
	has := func(which groupsGroupFigure) bool { return known&uint32(which) != 0 }
	to.HasMemory, to.HasKills = has(groupsGroupFigureFIGURE_MEMORY), has(groupsGroupFigureFIGURE_KILLS)
	to.HasStat, to.HasThrottle = has(groupsGroupFigureFIGURE_STAT), has(groupsGroupFigureFIGURE_THROTTLE)
	to.HasThreads, to.HasPressure = has(groupsGroupFigureFIGURE_THREADS), has(groupsGroupFigureFIGURE_PRESSURE_NOW)
	to.HasMemoryLimit, to.HasQuota = has(groupsGroupFigureFIGURE_MEMORY_LIMIT), has(groupsGroupFigureFIGURE_QUOTA)
	to.HasThreadsLimit = has(groupsGroupFigureFIGURE_THREADS_LIMIT)
	to.MemoryBytes, to.Kills, to.Threads = host.Load(&f.MemoryBytes), host.Load(&f.Kills), host.Load(&f.Threads)
	to.Throttle = model.ThrottleCounters{Periods: host.Load(&f.Periods), ThrottledPeriods: host.Load(&f.ThrottledPeriods),
		ThrottledNS: host.Load(&f.ThrottledNs)}
	pressure := func(some, full groupsGroupPressure) model.Pressure {
		return model.Pressure{WaitingNS: host.Load(&f.PressureNs[some]), StalledNS: host.Load(&f.PressureNs[full]), Known: to.HasPressure}
	}
	to.Pressure.IO = pressure(groupsGroupPressurePRESSURE_IO_SOME, groupsGroupPressurePRESSURE_IO_FULL)
	to.Pressure.Memory = pressure(groupsGroupPressurePRESSURE_MEMORY_SOME, groupsGroupPressurePRESSURE_MEMORY_FULL)
	to.Pressure.CPU = pressure(groupsGroupPressurePRESSURE_CPU_SOME, groupsGroupPressurePRESSURE_CPU_FULL)
	to.MemoryLimit, to.ThreadsLimit = host.Load(&f.MemoryLimitBytes), host.Load(&f.ThreadsLimit)
	to.QuotaCores = float64(host.Load(&f.QuotaMicrocores)) / model.Microcores
	for i := range details.Words {
		to.Stat[i] = atomic.LoadInt64(&details.Words[i])
	}
	return known != 0
}

func run(program *ebpf.Program, request any) error {
	result, err := program.Run(&ebpf.RunOptions{Context: request})
	if err != nil {
		return err
	}
	if result != 0 {
		return fmt.Errorf("the program answers %d", int32(result))
	}
	return nil
}

var _ host.Module = (*Groups)(nil)
