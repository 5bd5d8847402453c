package model

// Tick is what the recorder's timers saw, at one moment, of all the control groups that it watches.
type Tick struct {
	// Number counts the ticks of a recording from 0. Numbers that are missing are ticks that found
	// no room or that the timers left out because they were late.
	Number uint64
	// DueNS and BeganNS are when the tick was due and when it began, on the monotonic clock in
	// nanoseconds; CostNS is how long it took.
	DueNS, BeganNS, CostNS uint64
	// IdleNS is the time in which CPUs ran nothing, OtherNS that of control groups for which the
	// table had no room. Running is how many CPUs were not idle.
	IdleNS, OtherNS uint64
	Running         uint32
	Samples         []TickSample
}

// TickSample is one control group at one tick. Counters only grow; times are in nanoseconds.
type TickSample struct {
	Group CgroupID
	// CPUNS is the CPU time, that of the threads that are running included; Running is how many
	// threads were on a CPU.
	CPUNS   uint64
	Running uint32
	// RunQueueNS is what threads have waited for a CPU, Waits how often.
	RunQueueNS, Waits      uint64
	Voluntary, Involuntary uint64
	// MinorFaults and MajorFaults are page faults of its threads; for a major one something was read
	// from disk.
	MinorFaults, MajorFaults uint64
	// SentBytes and ReceivedBytes are those of the group's sockets, both roles together.
	SentBytes, ReceivedBytes uint64
	// Asking is how many requests of the group wait for their replies, Serving how many requests
	// to it are not answered yet.
	Asking, Serving uint32
	// MemoryBytes is what the group and those below it use, page cache included. ThrottledNS and
	// ThrottledPeriods are how long, and in how many periods, it had used up its CPU quota. They are
	// not known of every group.
	HasMemory, HasThrottled       bool
	MemoryBytes                   uint64
	ThrottledNS, ThrottledPeriods uint64
	// What was done on block devices, and DiskNS the time that it took, from issue to completion, of all
	// requests together. Not known where the kernel does not count it.
	HasDisk                       bool
	DiskReadBytes, DiskWriteBytes uint64
	DiskReads, DiskWrites         uint64
	DiskNS                        uint64
}

// TickLosses are the ticks that a recording does not have.
type TickLosses struct {
	// Full are ticks that found no room, because the earlier ones were not read in time.
	Full uint64
	// Late are ticks that were left out, because all timers, or the tick before, were too late.
	Late uint64
}
