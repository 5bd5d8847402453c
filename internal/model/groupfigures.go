package model

// Controllers whose control group files a kernel program reads instead, each of which may be in a hierarchy of its own.
const (
	MemoryController = iota
	CPUController
	PIDsController
	FigureControllers
)

// GroupFigures are what files of a control group say, read by a kernel program.
type GroupFigures struct {
	// Which of the following are there. Kills belongs to memory.oom_control or memory.events, Stat to memory.stat.
	HasMemory, HasKills, HasStat, HasThrottle, HasThreads bool

	MemoryBytes, Kills, Threads uint64
	Throttle                    ThrottleCounters
	// Stat are the counters behind memory.stat, in the kernel's own order and units: exact, which the file need not be.
	Stat StatWords
}

// StatWords are counters of the kernel whose meaning is to be found out.
type StatWords [96]int64
