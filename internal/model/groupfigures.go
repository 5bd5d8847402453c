package model

// Controllers whose control group files a kernel program reads instead, each of which may be in a hierarchy of its own.
const (
	MemoryController = iota
	CPUController
	PIDsController
	UnifiedController // the v2 hierarchy, whatever it controls: pressure is kept of its groups
	FigureControllers
)

// GroupFigures are what files of a control group say, read by a kernel program.
type GroupFigures struct {
	// Which of the following are there. Kills belongs to memory.oom_control or memory.events, Stat to memory.stat.
	HasMemory, HasKills, HasStat, HasThrottle, HasThreads  bool
	HasPressure, HasMemoryLimit, HasQuota, HasThreadsLimit bool

	MemoryBytes, Kills, Threads uint64
	// Throttle is without the quota.
	Throttle ThrottleCounters
	// Stat are the counters behind memory.stat, in the kernel's own order and units: exact, which the file need not be.
	Stat StatWords
	// Pressure is what the files would say if they were read. It may fall a little: the kernel weights
	// CPUs by what they did between two readings.
	Pressure PressureCounters
	// MemoryLimit in bytes is what memory.max of v2 says, or memory.stat of v1. 0 is none, as with the other limits.
	MemoryLimit uint64
	// QuotaCores is in whole Microcores.
	QuotaCores   float64
	ThreadsLimit uint64
}

// StatWords are counters of the kernel whose meaning is to be found out.
type StatWords [96]int64
