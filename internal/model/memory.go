package model

import "time"

// ReclaimCounters count how long threads had to free memory before they got some.
type ReclaimCounters struct {
	// LimitNS and LimitStalls: because of a limit of the control group, or of one above it. HostNS and HostStalls: because
	// the host was short of memory. A stall counts when it ends.
	LimitNS, LimitStalls, HostNS, HostStalls uint64
}

// Add adds what was counted between two states to r.
func (r *ReclaimCounters) Add(to, from *ReclaimCounters) {
	r.LimitNS += to.LimitNS - from.LimitNS
	r.LimitStalls += to.LimitStalls - from.LimitStalls
	r.HostNS += to.HostNS - from.HostNS
	r.HostStalls += to.HostStalls - from.HostStalls
}

// OOMVictims are the processes of a container that were killed because there was no memory.
type OOMVictims struct {
	// Process and PID (in the host's pid namespace) of the last one, killed at Time.
	Process string
	PID     int
	Time    time.Time
	// Kills by the name of the process, in order of the names; "other" are those that are not distinguished.
	Kills []OOMKills
}

// OOMKills counts the processes of one name that were killed.
type OOMKills struct {
	Process string
	Count   uint64
}

// PressureCounters are the kernel's pressure stall information (PSI) of a container, in nanoseconds.
type PressureCounters struct {
	CPU, Memory, IO Pressure
}

// Pressure is for how long threads were held up for lack of a resource.
type Pressure struct {
	// WaitingNS: at least one thread was. StalledNS: all that had something to do were.
	WaitingNS, StalledNS uint64
	// Known is false where the kernel does not say.
	Known bool
}
