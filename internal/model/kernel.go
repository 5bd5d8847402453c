package model

import (
	"net/netip"
	"time"
)

// CgroupEventKind says what happened to a control group.
type CgroupEventKind uint8

// The lifecycle events of control groups.
const (
	CgroupMade CgroupEventKind = iota + 1
	CgroupRemoved
	TaskAttached
	// OOMKill: the kernel killed process PID of the group because there was no memory. Path is the name of the process.
	OOMKill
	// MetricsFile: process PID of the group announces a file with metrics. Path is MetricsFilePrefix and the number of its
	// descriptor.
	MetricsFile
)

// MetricsFilePrefix begins the name that a thread gives itself for a moment to announce a file with metrics.
const MetricsFilePrefix = "outsight:"

// CgroupEvent is a lifecycle event of a control group, in the hierarchy of CgroupID.
type CgroupEvent struct {
	Kind CgroupEventKind
	ID   CgroupID
	// Path relative to the hierarchy's root, cut at 255 bytes.
	Path string
	// PID of the attached task (host pid namespace), for TaskAttached.
	PID  int
	Time time.Time
}

// CgroupCounters are the kernel's counters of one control group, its children not included.
type CgroupCounters struct {
	ID CgroupID
	// Slot says what the counters stand for where ID is 0.
	Slot CgroupSlot
	CPU  CPUCounters
	TaskCounters
	// Files is nil where the kernel cannot say.
	Files *FileCounters
	// Reclaim is 0 where nobody counts it.
	Reclaim ReclaimCounters
	// Perf has one entry for each kind of core; nil where there are no counters.
	Perf []PerfCounters
	// Work and WorkNS are what energy is divided by, for each package: weighted cycles, 0 where there
	// are no counters, and CPU time. Both nil where nobody asked for them.
	Work, WorkNS []uint64
}

// CgroupSlot distinguishes ordinary control groups from the two that always exist.
type CgroupSlot uint8

// OrdinaryCgroup is any group; OtherCgroups collects those for which the table had no room;
// IdleTime is the time in which a CPU ran nothing.
const (
	OrdinaryCgroup CgroupSlot = iota
	OtherCgroups
	IdleTime
)

// CPUCounters are scheduler counters; threads that run at the time of reading are included up
// to that time.
type CPUCounters struct {
	UsageNS uint64
	// Voluntary switches: the thread went to sleep. Involuntary: it could have run on.
	Voluntary, Involuntary uint64
	// PollingNS is the part of UsageNS after which a thread slept for a time that it chose (nanosleep): nobody woke it up. 0
	// before Linux 5.15.
	PollingNS uint64
	// RunQueue is the distribution of the time that threads waited, runnable, for a CPU.
	RunQueue *Histogram
}

// Role is the end of a connection that a counter was taken at.
type Role uint8

// The roles of a connection's end.
const (
	RoleUnknown Role = iota
	RoleClient
	RoleServer
)

func (r Role) String() string {
	switch r {
	case RoleClient:
		return "client"
	case RoleServer:
		return "server"
	}
	return "unknown"
}

// Transport is the protocol that an edge's ends talk over.
type Transport uint8

// The transports. A UDP edge has no connections: its client is who sends first.
const (
	TCP Transport = iota
	UDP
)

func (t Transport) String() string {
	if t == UDP {
		return "udp"
	}
	return "tcp"
}

// KernelEdge is what the kernel counted for all connections that share a key, at one end.
type KernelEdge struct {
	Key KernelEdgeKey
	// Instance distinguishes entries that have the same key: while one is given up, the kernel
	// may already have made the next.
	Instance uint32
	// PID is a process that uses, or used, the edge; 0 if not known. It may be gone.
	PID      int
	Counters EdgeCounters
	// MostInFlight and KnowsMost are those of Edge.
	MostInFlight uint64
	KnowsMost    bool
	// Endpoints are what was asked for on the edge, where that was recognised.
	Endpoints []Endpoint
	// Connections and PacketSamples are those of Edge.
	Connections   []uint64
	PacketSamples []PacketSample
}

// KernelEdgeKey identifies an edge as one end sees it. The ephemeral client port is masked.
type KernelEdgeKey struct {
	// Owner is the control group of the end that counted.
	Owner CgroupID
	// Peer is the control group of the other end where that is on the same host, 0 otherwise. Of
	// the two ends of a connection the kernel knows it exactly.
	Peer CgroupID
	// NetNS is the inode of the network namespace of the end that counted.
	NetNS     uint32
	Transport Transport
	Role      Role
	// Service is the server's address and port as this end sees it (before or after address
	// translation).
	Service netip.AddrPort
	// Client is the client's address, for RoleServer. It is the zero Addr where the edge table
	// was nearly full and all further clients of one service were put together.
	Client netip.Addr
	// Far is the service's address as the other end sees it, where that end is on the same host
	// and sees another one. On a Forwarder's client end it is the address where the forwarder
	// was dialled.
	Far netip.AddrPort
	// Process is the name of the process at the end that counted, PeerProcess that of the other
	// end where it is on the same host, each cut at 15 bytes by the kernel; empty if not known.
	Process, PeerProcess string
	// Forwarder marks an end of a process that only passes on what others send (Docker's
	// userland proxy). Forwarded marks a server's end whose client dialled a forwarder: Peer,
	// Client and Far are those of the connection to the forwarder.
	Forwarder, Forwarded bool
	// Others marks what the owner has beyond its quota: of the other fields, only Role and Transport are set.
	Others bool
	// Overflow marks the single entry that collects what found no room at all.
	Overflow bool
}

// OverQuota is how often a control group would have had more of a table than its quota.
type OverQuota struct {
	Owner CgroupID
	// Of is the table: "edges", "listeners", "endpoints", "connection_pairs" or "http2_streams".
	Of    string
	Count uint64
}

// Listener is a TCP socket in the listening state.
type Listener struct {
	NetNS   uint32
	Address netip.AddrPort
	Owner   CgroupID
	// Process that listens, by name and id; Forwarder as in KernelEdgeKey.
	Process   string
	PID       int
	Forwarder bool
	// Drops counts attempts to connect that the kernel dropped because the accept queue was full,
	// or there was no memory: what it counts as ListenDrops, since the listener was found.
	Drops uint64
	// AcceptQueue is that of the last sweep; its limit is one more than the backlog of listen(2), or than net.core.somaxconn. Of several sockets it
	// is that of the fullest.
	AcceptQueue
}

// KernelPacketDrops are packets that the kernel dropped for one reason at one device.
type KernelPacketDrops struct {
	// Owner is the control group of the socket that sent them or was to receive them; 0 where no socket is known.
	Owner CgroupID
	// NetNS is the network namespace of the device, or of the socket where there is none; 0 where neither is known.
	// Interface is the device's index there, 0 for none, and Device its name, empty where it is not known.
	NetNS, Interface uint32
	Device           string
	// Reason is the kernel's name for it, as in "SOCKET_RCVBUFF".
	Reason string
	// Packets only grow, until the entry is evicted.
	Packets uint64
}

// FeatureState says whether a feature of the kernel side works on this host.
type FeatureState string

// The states of a feature.
const (
	FeatureWorks  FeatureState = "works"
	FeatureAbsent FeatureState = "absent"
	// FeatureOff: it is an option that was not chosen.
	FeatureOff FeatureState = "off"
)

// Feature is one hook, counter or runtime, as `outsight doctor` reports it.
type Feature struct {
	// Name as in "tp_btf/sched_switch"; Purpose is what it is for, as a person would say it.
	Name, Purpose string
	State         FeatureState
	// Reason is why it is absent, or works less well than it could, and Remedy what it would take.
	Reason, Remedy string
	// Required features are those without which the main job cannot run.
	Required bool
}

// Drop is a bounded thing that overflowed and how often it did.
type Drop struct {
	// Name of the map, queue or cache; Count of updates that found no room.
	Name  string
	Count uint64
	// Capacity and Used in entries, 0 where they do not apply.
	Capacity, Used uint64
}

// Part is something that an agent does. Most of what it counts it can shed to keep its budget.
type Part struct {
	// Name as in "transfers"; Purpose is what is missing without it.
	Name, Purpose string
	// Fixed parts are never shed: their cost is reported.
	Fixed bool
	// Under is the part without which this one counts nothing; empty for none.
	Under string
	// Programs of the kernel that it takes, as in ProgramCost.
	Programs []string
}

// ProgramCost is what one kernel program has cost so far.
type ProgramCost struct {
	Name string
	// Runs and RunTimeNS are 0 while the kernel's program statistics are off.
	Runs uint64
	// Missed counts events at which the kernel did not run it: it was already running on that CPU.
	Missed    uint64
	RunTimeNS uint64
	// Counted is how often it ran by its own count, which goes on while the statistics are off; 0 where it has none.
	// Such a program is attached for moments only.
	Counted uint64
}
