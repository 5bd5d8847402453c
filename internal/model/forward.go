package model

// ForwardCounters are of what a container's network namespace forwards: packets that come in for somebody else, and leave
// again (a router, a firewall).
type ForwardCounters struct {
	// Packets that the kernel passed on. One that a program passes on between two devices of its own (TUN) counts
	// twice: to the program, and from it.
	Packets uint64
	// Took is how long packets took from where they came in to where they left, of those that were timed; nil where none was.
	Took *Histogram
	// Unmatched packets were to be timed, and were not seen to leave: the container dropped them, took them for itself
	// or changed them.
	Unmatched uint64
	// TimedOneIn is of how many packets one is timed now; 0 where none is.
	TimedOneIn uint64
}

// ForwardingNamespace is a network namespace whose packets are to be timed.
type ForwardingNamespace struct {
	// NetNS is its inode, PID a process in it.
	NetNS uint32
	PID   int
	// PacketsPerSecond that it forwards, about.
	PacketsPerSecond float64
	// Idle says that it forwards nothing for the time being: what was counted stays.
	Idle bool
}

// KernelForward is what the kernel counted of a network namespace that forwards.
type KernelForward struct {
	NetNS uint32
	// Instance distinguishes countings: in one, counters only grow.
	Instance uint64
	// Took is of packets that were seen to leave, Unmatched of those that were not until another one took their place.
	Took      *Histogram
	Unmatched uint64
	// TimedOneIn is of how many packets one is timed now.
	TimedOneIn uint64
}
