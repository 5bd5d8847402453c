package model

import (
	"net/netip"
	"time"
)

// Snapshot is everything that an agent knew at one time. It is immutable.
type Snapshot struct {
	// Time of the reading; Window since the reading before it (0 in the first).
	Time   time.Time
	Window time.Duration
	// ClockError bounds how far the host's clock is off, as its kernel estimates it (adjtimex), or by a PTP device where
	// ClockByDevice is true; 0 where neither does.
	ClockError    time.Duration
	ClockByDevice bool
	// ClockDevice is nil where none is compared with the host's clock, or it could not be read.
	ClockDevice *ClockDevice
	Host        Host
	// Containers in order of ID. A container that ended since the last snapshot is in this
	// one with its last numbers, and in no later one.
	Containers []ContainerSample
	// Edges in order of their key.
	Edges []Edge
	// Translations of addresses that are about edges whose other end was not found: it may be on
	// another host.
	Translations []Translation
	// Energy of the host; nil where nobody accounts for it.
	Energy *EnergySample
	// Probes are the measurements of the network to other hosts; nil where there are none.
	Probes *ProbeSample
	// Capacities are those of paths between containers of this host that were measured on request, in order of the ends.
	Capacities []Capacity
	// Drops are packets that the kernel dropped, also those of containers; nil where they are not counted.
	Drops *PacketDropCounters
	Self  SelfSample
}

// ClockDevice is a PTP device that the host's clock was compared with.
type ClockDevice struct {
	// Device as in "/dev/ptp0".
	Device string
	// Ahead is by how much the host's clock is ahead of the device's, give or take the Uncertainty of the reading.
	Ahead, Uncertainty time.Duration
}

// ContainerSample is a container with its cumulative counters and current levels. A group of
// numbers that could not be had is nil.
type ContainerSample struct {
	Container *Container
	CPU       *CPUCounters
	// Contention is what the container's threads waited for a CPU behind.
	Contention *Contention
	Processes  *ProcessCounters
	Throttle   *ThrottleCounters
	Memory     *MemorySample
	// Reclaim is of what threads did to get memory, Pressure the kernel's own account of what was short.
	Reclaim  *ReclaimCounters
	Pressure *PressureCounters
	// Victims are nil where no process was killed for lack of memory since the agent's start.
	Victims *OOMVictims
	// Disk is what the control group's files report; Devices what the kernel programs counted, in order of the
	// device.
	Disk    *DiskCounters
	Devices []DeviceSample
	// Files are what its threads read and wrote by system calls.
	Files *FileCounters
	// Syncs of files with the disk; nil where there were none.
	Syncs   *SyncCounters
	Network *NetworkCounters
	TCP     *TCPCounters
	// Drops are packets that the kernel dropped; nil where they are not counted.
	Drops *PacketDropCounters
	// Forward is nil where nothing was forwarded.
	Forward *ForwardCounters
	// Proxy is nil where no request was seen to be sent on.
	Proxy *ProxyCounters
	// Applications are what processes have defined themselves, in order of the name.
	Applications []ApplicationMetric
	// Listeners in order of their address, those of Container.Listeners and others that dropped
	// something before they were closed.
	Listeners []ListenerCounters
	// Perf has one entry for each kind of core, Energy one for each domain and meter; nil where there
	// are none.
	Perf   []PerfCounters
	Energy []EnergyCounter
	// ProcessPerf are parts of Perf, in order of the name; nil where processes are not counted.
	ProcessPerf []ProcessPerf
}

// ListenerCounters are of all sockets of a container that listen at an address.
type ListenerCounters struct {
	// Address is the zero AddrPort for those that found no room in the list.
	Address netip.AddrPort
	// Drops counts attempts to connect that found no room in the accept queue.
	Drops uint64
	// AcceptQueue is that of the socket whose queue is the fullest.
	AcceptQueue
}

// AcceptQueue is how many connections wait to be accepted (Queued) of how many fit. A QueueLimit of 0 is not known.
type AcceptQueue struct{ Queued, QueueLimit uint64 }

// IsFuller reports whether a larger share of it is used than of another one.
func (q AcceptQueue) IsFuller(than AcceptQueue) bool {
	return q.QueueLimit > 0 && (than.QueueLimit == 0 || q.Queued*than.QueueLimit > than.Queued*q.QueueLimit)
}

// ThrottleCounters are of the container's own CPU quota (cpu.stat).
type ThrottleCounters struct {
	Periods, ThrottledPeriods uint64
	ThrottledNS               uint64
	// QuotaCores is the quota over its period, in cores; 0 where there is none.
	QuotaCores float64
}

// MemorySample holds levels in bytes and cumulative fault counters.
type MemorySample struct {
	UsageBytes uint64
	// WorkingSetBytes is usage less inactive file pages, as cAdvisor computes it.
	WorkingSetBytes uint64
	RSSBytes        uint64
	CacheBytes      uint64
	// LimitBytes is 0 where there is no limit.
	LimitBytes      uint64
	PageFaults      uint64
	MajorPageFaults uint64
	OOMKills        uint64
	// AnonRefaults and FileRefaults count pages that were read again soon after they had been reclaimed for lack of
	// memory: the working set does not fit. HasRefaults is false where the kernel does not say.
	AnonRefaults, FileRefaults uint64
	HasRefaults                bool
}

// DiskCounters sum a container's block I/O over all devices, as the control group's files report it.
type DiskCounters struct {
	ReadBytes, WriteBytes uint64
	Reads, Writes         uint64
}

// NetworkCounters sum all interfaces, without loopback, of a container's network namespace.
type NetworkCounters struct {
	ReceiveBytes, TransmitBytes     uint64
	ReceivePackets, TransmitPackets uint64
	ReceiveErrors, TransmitErrors   uint64
	ReceiveDropped, TransmitDropped uint64
}

// TCPCounters are of the TCP connections of a container's network namespace, read every thirty
// seconds.
type TCPCounters struct {
	// ZeroWindows counts times that a receiver in the namespace asked its sender to stop because its
	// buffer was full, ZeroWindowsEnded times that it had room again; ZeroWindowDrops segments
	// that arrived nevertheless.
	ZeroWindows, ZeroWindowsEnded, ZeroWindowDrops uint64
	// ListenOverflows counts connections for which a listening socket's queue had no room.
	ListenOverflows uint64
}

// Edge is a directed client-to-server relation, as one of its ends counted it. The two ends of
// one relation on the same host are two Edges with the same client and server.
type Edge struct {
	// Instance tells the edge from all others that this agent counted, whatever becomes known of its ends; 0 where that
	// is not known.
	Instance uint64
	// Side is the end that counted. RoleUnknown marks the one edge that sums, over the ends of
	// all connections for which the kernel's table had no room, what each end sent and received.
	Side Role
	// Client and Server are the two ends; without container and address where Side is RoleUnknown.
	Client, Server Peer
	// Service is the server's address and port as the client addresses it.
	Service   netip.AddrPort
	Transport Transport
	// Backend is the server's address and port as the server itself sees it, where the address
	// is translated on the way and that is known. It is the zero AddrPort otherwise.
	Backend netip.AddrPort
	// Via names the process that passes the connections on, where one on the host does ("docker-proxy"); its own ends
	// are not edges. Or it names a process of the host that holds this end's socket in the container's network
	// namespace, on its behalf ("dockerd", whose resolver is at 127.0.0.11).
	Via string
	// Confidence in the end that did not count.
	Confidence Confidence
	// Paired is true where the other end's Edge is in the same snapshot.
	Paired   bool
	Counters EdgeCounters
	// MostInFlight is the greatest number of requests in flight at any moment since the reading before; where several of
	// the kernel's edges are one, no more than the sum of theirs. KnowsMost is that it is known at all.
	MostInFlight uint64
	KnowsMost    bool
	// Endpoints are what was asked for, where that was recognised, in order of their key.
	Endpoints []Endpoint
	// Connections are hashes of the initial sequence numbers of some of the newest connections, the same at both ends
	// whatever translates addresses on the way; none where the kernel programs do not tell them.
	Connections []uint64
	// PacketSamples are of packets that were sent to the other end, or received from it, in the last PacketSamplesLast.
	PacketSamples []PacketSample
	// Start is when Counters were all zero: the time of the last reading that did not have the
	// edge. It is the zero Time where that is not known.
	Start time.Time
}

// PacketSample is when a packet left its sender's stack, or arrived at its receiver's, by the clock of the host at the
// time of the snapshot. Which packets are sampled is decided by the packets alone, so that both ends have the same ones.
type PacketSample struct {
	// Packet identifies it among those of its edge, in PacketSampleBits bits: whatever translates addresses on the way.
	Packet uint64
	Time   time.Time
	// Sent is false of a packet that was received.
	Sent bool
	// Level is how round the packet is: fewer samples are those of the higher levels, at both ends.
	Level uint8
	// Stack is for how long it was on this host between its socket and the interface by which it left the host or came in, by
	// one clock: after Time of a packet that was sent, before it of one that was received. 0: it was seen at no such interface.
	Stack time.Duration
}

const (
	// PacketSampleBits is how many bits PacketSample.Packet has.
	PacketSampleBits = 48
	// PacketSamplesLast is how old a PacketSample may be: two hosts are not read at the same instant.
	PacketSamplesLast = 10 * time.Second
)

// Peer is an end of an edge.
type Peer struct {
	// Container is nil where the end is outside of the host.
	Container *Container
	// Address of the end; the zero Addr where it is not known or many were put together.
	Address netip.Addr
	// Process is the name of the process at this end: that of the program, or for programs that
	// run others (a virtual machine, an interpreter) the name of what they run. Empty where it
	// is not known.
	Process string
}

// ID is the container's ID, or the address of an end outside.
func (p Peer) ID() string {
	if p.Container != nil {
		return p.Container.ID
	}
	return p.Name()
}

// Name is the container's name, or the address of an end outside, or "others".
func (p Peer) Name() string {
	switch {
	case p.Container != nil:
		return p.Container.Name
	case p.Address.IsValid():
		return p.Address.String()
	}
	return "others"
}

// BudgetSample is what an agent costs the host. Costs are shares of the host's CPU time, all CPUs
// together being 1, of the last second or so.
type BudgetSample struct {
	// Limit is what it may cost; 0 is no limit.
	Limit float64
	// Own is the agent's process, Kernel its programs in the kernel.
	Own, Kernel float64
	Parts       []PartSample
}

// PartSample is one part of it.
type PartSample struct {
	Part
	Spent float64
	// Estimated is true where Spent is an assumed share of programs that another part has too.
	Estimated bool
	// Shed is true while it is off; Changes is how often that changed.
	Shed    bool
	Changes uint64
}

// SentBytes is what the agent's process wrote to network connections for one purpose, cumulative: all that its sockets
// took, compressed and encrypted where that is done.
type SentBytes struct {
	// To is "server", "otlp" (another backend), "store" (a remote store) or "http" (who asks for /metrics, or for the page
	// and its API).
	To    string
	Bytes uint64
}

// FileSystem is how much of a filesystem is used, in bytes, and how much programs without privileges may use of it.
type FileSystem struct {
	Mount                string
	UsedBytes, SizeBytes uint64
}

// SelfSample is what Outsight itself costs and misses on the host.
type SelfSample struct {
	// IdleNS is the time in which the host's CPUs ran nothing; OtherNS is CPU time of control
	// groups for which the table had no room. StealNS is what a hypervisor ran on the CPUs of this virtual machine.
	IdleNS, OtherNS, StealNS uint64
	// AvailableBytes is the memory that programs could get without swapping (MemAvailable); 0 where it is not known.
	AvailableBytes uint64
	// FileSystems of the host, in order of where they are mounted.
	FileSystems []FileSystem
	// CPUNS is the CPU time of the agent's own process, RSSBytes its resident memory.
	CPUNS, RSSBytes uint64
	Programs        []ProgramCost
	Drops           []Drop
	Features        []Feature
	// Sent is what the agent's process wrote to connections, by what for.
	Sent []SentBytes
	// Budget is what Outsight costs and what it may cost; nil before the first measurement.
	Budget *BudgetSample
	// ReadNS is how long the reading of this snapshot took.
	ReadNS uint64
}

// Translation says that on this host the connections of a client to one address go to another
// one.
type Translation struct {
	Client           netip.Addr
	Dialled, Reached netip.AddrPort
}
