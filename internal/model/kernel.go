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
)

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
	// Slot tells what the counters stand for where ID is 0.
	Slot CgroupSlot
	CPU  CPUCounters
	// Forks, Execs and Exits count processes, not threads.
	Forks, Execs, Exits uint64
}

// CgroupSlot tells ordinary control groups from the two that always exist.
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

// KernelEdge is what the kernel counted for all connections that share a key, at one end.
type KernelEdge struct {
	Key KernelEdgeKey
	// Instance tells entries apart that have the same key: while one is given up, the kernel
	// may already have made the next.
	Instance uint32
	Counters EdgeCounters
}

// KernelEdgeKey identifies an edge as one end sees it. The ephemeral client port is masked.
type KernelEdgeKey struct {
	// Owner is the control group of the end that counted.
	Owner CgroupID
	// Peer is the control group of the client, for RoleServer on the same host; 0 otherwise.
	Peer CgroupID
	// NetNS is the inode of the network namespace of the end that counted.
	NetNS uint32
	Role  Role
	// Service is the server's address and port as this end sees it (before or after address
	// translation).
	Service netip.AddrPort
	// Client is the client's address, for RoleServer. It is the zero Addr where the edge table
	// was nearly full and all further clients of one service were put together.
	Client netip.Addr
	// Overflow marks the single entry that collects what found no room at all.
	Overflow bool
}

// EdgeCounters are cumulative counters of one edge, from the side of the end that counted.
type EdgeCounters struct {
	SentBytes, ReceivedBytes uint64
	// Opens counts connections established (or found open at the start), Closes those ended.
	Opens, Closes uint64
	// Failures counts connection attempts that never came to be.
	Failures uint64
	// Retransmits counts retransmitted segments.
	Retransmits uint64
	// Aborts counts transactions that ended without a reply.
	Aborts uint64
	// Continued counts replies that went on after a second of silence, when their
	// transaction had already been counted; its latency lacks the tail.
	Continued uint64
	// Latency has one entry per transaction: on a client from the first byte sent to the last
	// byte received, on a server from the first byte received to the last byte sent (Brondolin
	// and Santambrogio 2020, figure 4).
	Latency *Histogram
}

// Transactions is the number of finished transactions.
func (c *EdgeCounters) Transactions() uint64 {
	if c.Latency == nil {
		return 0
	}
	return c.Latency.Count
}

// Listener is a TCP socket in the listening state.
type Listener struct {
	NetNS   uint32
	Address netip.AddrPort
	Owner   CgroupID
}

// FeatureState says whether a feature of the kernel side works on this host.
type FeatureState string

// The states of a feature.
const (
	FeatureWorks  FeatureState = "works"
	FeatureAbsent FeatureState = "absent"
)

// Feature is one hook, counter or runtime, as `outsight doctor` reports it.
type Feature struct {
	// Name as in "tp_btf/sched_switch"; Purpose is what it is for, as a person would say it.
	Name, Purpose string
	State         FeatureState
	// Reason is why it is absent, Remedy what it would take. Both empty where it works.
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

// ProgramCost is what one kernel program has cost so far.
type ProgramCost struct {
	Name string
	// Runs and RunTimeNS are 0 while the kernel's program statistics are off.
	Runs, RunTimeNS uint64
}
