package container

import "outsight/internal/model"

// Usage is what the control group files of a container say. Groups of numbers that cannot be
// read are nil. The pointers lead into the Usage itself: it must not be copied, and needs no
// other memory.
type Usage struct {
	Memory   *model.MemorySample
	Throttle *model.ThrottleCounters
	Pressure *model.PressureCounters
	Disk     *model.DiskCounters
	Network  *model.NetworkCounters
	// TCP is of the network namespace, as Network is.
	TCP *model.TCPCounters
	// Threads is the number of tasks now.
	Threads *uint64
	// BusyThreads is over how many threads CPU time is spread, 0 where that is not known.
	BusyThreads float64
	// Err reports why a file that is there could not be read or parsed; a group that has
	// vanished is no error.
	Err error

	numbers numbers
}

// numbers are the last numbers of a container, and which of them there are.
type numbers struct {
	memory   model.MemorySample
	throttle model.ThrottleCounters
	pressure model.PressureCounters
	disk     model.DiskCounters
	network  model.NetworkCounters
	stack    model.TCPCounters
	threads  uint64
	busy     float64
	has      [kinds]bool
}

// kind is a group of numbers.
type kind int

const (
	memoryNumbers kind = iota
	throttleNumbers
	pressureNumbers
	diskNumbers
	networkNumbers
	stackNumbers
	threadNumbers
	kinds
)

func (u *Usage) set(n *numbers) {
	u.numbers = *n
	u.BusyThreads = n.busy
	u.Memory, u.Throttle, u.Pressure, u.Disk, u.Network, u.TCP, u.Threads = nil, nil, nil, nil, nil, nil, nil
	if n.has[memoryNumbers] {
		u.Memory = &u.numbers.memory
	}
	if n.has[throttleNumbers] {
		u.Throttle = &u.numbers.throttle
	}
	if n.has[pressureNumbers] {
		u.Pressure = &u.numbers.pressure
	}
	if n.has[diskNumbers] {
		u.Disk = &u.numbers.disk
	}
	if n.has[networkNumbers] {
		u.Network = &u.numbers.network
	}
	if n.has[stackNumbers] {
		u.TCP = &u.numbers.stack
	}
	if n.has[threadNumbers] {
		u.Threads = &u.numbers.threads
	}
}
