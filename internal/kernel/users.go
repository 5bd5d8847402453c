package kernel

import (
	"outsight/internal/kernel/block"
	"outsight/internal/kernel/host"
	"outsight/internal/kernel/net"
	"outsight/internal/kernel/sched"
	"outsight/internal/kernel/tick"
)

// What users of the modules need of them.
type (
	// CounterMode chooses hardware counters.
	CounterMode = sched.CounterMode
	// Transaction is one entry of an edge's latency histogram, by itself.
	Transaction = net.Transaction
	// DiskRequest is one request to a device.
	DiskRequest = block.DiskRequest
	// Recorder samples every control group at each tick.
	Recorder = tick.Recorder
	// RecorderOptions of Record.
	RecorderOptions = tick.RecorderOptions
)

// The modes of counters.
const (
	CountersOff       = sched.CountersOff
	CountersAuto      = sched.CountersAuto
	CountersProcesses = sched.CountersProcesses
	CountersSoftware  = sched.CountersSoftware
)

// Names of features, and bounds of recordings.
const (
	ContentionFeature   = sched.ContentionFeature
	ReclaimFeature      = sched.ReclaimFeature
	VictimFeature       = sched.VictimFeature
	MetricsFileFeature  = sched.MetricsFileFeature
	DropFeature         = net.DropFeature
	DefaultHTRatio      = sched.DefaultHTRatio
	MinRecorderInterval = tick.MinRecorderInterval
	MaxRecorderInterval = tick.MaxRecorderInterval
)

// ParseCounterMode reads a mode as users write it.
func ParseCounterMode(text string) (CounterMode, error) { return sched.ParseCounterMode(text) }

// AttachNothing attaches programs that do nothing to the hook of a context switch, until detach. It is for benchmarks.
func AttachNothing(programs int) (detach func() error, err error) {
	return host.AttachNothing(programs)
}
