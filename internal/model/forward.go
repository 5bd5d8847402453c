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

var ofForward = in(func(s *ContainerSample) *ForwardCounters { return s.Forward })

func forwardTook(s *ContainerSample) (*Histogram, bool) {
	if s.Forward == nil {
		return nil, false
	}
	return s.Forward.Took, true
}

var containerForwardRows = []Row[ContainerSample]{
	{Name: "container_forward_packets_total", OTel: "container.forward.packets", Unit: "{packet}",
		Kind: Counter,
		Help: "Packets that the container's network namespace forwarded; read every 5 s",
		Columns: []Column[ContainerSample]{{Name: "forwarded_packets", File: true,
			Count: ofForward(func(f *ForwardCounters) uint64 { return f.Packets }),
			Shown: []Number{{Key: "forwarded_packets", Title: "Packets forwarded", Unit: "/s", Group: GroupNetwork,
				Formula: Rate}}}}},
	{Name: "container_forward_duration_seconds", OTel: "container.forward.duration", Unit: "s",
		Kind: HistogramSeries,
		Help: "Time from a packet's coming into the container's network namespace to its leaving it at another interface",
		Columns: []Column[ContainerSample]{{Name: "forward_took", Histogram: forwardTook, Shown: []Number{
			{Key: "forward_p50", Title: "Forwarding time p50", Unit: "s", Group: GroupNetwork, Formula: QuantileOf,
				Quantile: 0.5, Meaning: "Half of the packets that were timed took less to pass through"},
			{Key: "forward_p99", Title: "Forwarding time p99", Unit: "s", Group: GroupNetwork, Formula: QuantileOf,
				Quantile: 0.99, Meaning: "99 % of the packets that were timed took less to pass through"}}}}},
	{Name: "container_forward_unmatched_packets_total", OTel: "container.forward.unmatched_packets",
		Unit: "{packet}", Kind: Counter,
		Help: "Packets that were to be timed and were not seen to leave: dropped, changed, or for the container itself",
		Columns: []Column[ContainerSample]{{Name: "forward_unmatched",
			Count: ofForward(func(f *ForwardCounters) uint64 { return f.Unmatched })}}},
	{Name: "container_forward_timed_one_in", OTel: "container.forward.timed_one_in", Unit: "{packet}",
		Kind: Gauge,
		Help: "Of how many packets that are forwarded one is timed",
		Columns: []Column[ContainerSample]{{Name: "forward_timed_one_in",
			Count: ofForward(func(f *ForwardCounters) uint64 { return f.TimedOneIn })}}},
}
