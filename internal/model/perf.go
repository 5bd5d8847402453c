package model

// HardwareEvents and SoftwareEvents name the events of PerfCounters by their index.
var (
	HardwareEvents = [4]string{"cycles", "instructions", "cache_references", "cache_misses"}
	SoftwareEvents = [4]string{"cpu_clock", "task_clock", "context_switches", "page_faults"}
)

// PerfCounters are hardware counters of one kind of core, cumulative. They were counted as one group:
// always all of them, or none.
type PerfCounters struct {
	// PMU is what counted: "cpu", on hybrid machines "cpu_core" or "cpu_atom", or "software".
	PMU string
	// Known has a bit for each index of Counts that is counted here; others are absent, not zero.
	Known uint8
	// Counts are extrapolated from the time in which the group had the hardware (RunningNS) to that
	// in which it should have (EnabledNS).
	Counts               [4]uint64
	EnabledNS, RunningNS uint64
	// Shared are the parts of Counts[0] while 1, 2, 3, and 4 or more threads of the core were busy.
	Shared [4]uint64
}

// Name of the event at an index of Counts.
func (c *PerfCounters) Name(i int) string {
	if c.PMU == "software" {
		return SoftwareEvents[i]
	}
	return HardwareEvents[i]
}

// ProcessGain is what a process counted between two readings.
type ProcessGain struct {
	// Group is its control group, PID its number, Process the kernel's name of it, cut at 15 bytes.
	Group   CgroupID
	PID     int
	Process string
	// Perf has one entry for each kind of core.
	Perf []PerfCounters
}

// ProcessPerf is what the processes of one name in a container counted, cumulative.
type ProcessPerf struct {
	// Process is the name, or "other" for those that are not distinguished.
	Process string
	Perf    []PerfCounters
}

// PackageTime is what the CPUs of one package (socket) did, cumulative.
type PackageTime struct {
	// ID is the kernel's number of the package.
	ID             int
	BusyNS, IdleNS uint64
	// Counted is true where every CPU that is on line has hardware counters.
	Counted bool
}
