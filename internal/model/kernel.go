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
	// Files is nil where the kernel cannot tell.
	Files *FileCounters
	// Reclaim is 0 where nobody counts it.
	Reclaim ReclaimCounters
	// Perf has one entry for each kind of core; nil where there are no counters.
	Perf []PerfCounters
	// Work and WorkNS are what energy is divided by, for each package: weighted cycles, 0 where there
	// are no counters, and CPU time. Both nil where nobody asked for them.
	Work, WorkNS []uint64
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
	// Instance tells entries apart that have the same key: while one is given up, the kernel
	// may already have made the next.
	Instance uint32
	// PID is a process that uses, or used, the edge; 0 if not known. It may be gone.
	PID      int
	Counters EdgeCounters
	// Endpoints are what was asked for on the edge, where that was recognised.
	Endpoints []Endpoint
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

// EdgeCounters are cumulative counters of one edge, from the side of the end that counted.
type EdgeCounters struct {
	SentBytes, ReceivedBytes uint64
	// SentPackets and ReceivedPackets count datagrams, of UDP alone: calls that sent or received
	// one. A call that hands over several at once (UDP_SEGMENT, UDP_GRO) counts as one.
	SentPackets, ReceivedPackets uint64
	// OneWay counts datagrams, of UDP alone, in streams that nobody answers (statistics, video).
	// They are no transactions.
	OneWay uint64
	// Opens counts connections established (or found open at the start), Closes those ended.
	Opens, Closes uint64
	// Failures counts connection attempts that never came to be: FailuresRefused,
	// FailuresTimedOut, FailuresUnreachable and those for other reasons.
	Failures                                               uint64
	FailuresRefused, FailuresTimedOut, FailuresUnreachable uint64
	// Resets counts connections that ended with a reset, TimedOut those whose other end fell
	// silent.
	Resets, TimedOut uint64
	// Retransmits counts retransmitted segments.
	Retransmits uint64
	// Requests counts transactions begun, Replies those whose reply has begun. Their
	// difference, less Aborts, waits for the server now.
	Requests, Replies uint64
	// Aborts counts transactions that ended without a reply.
	Aborts uint64
	// Transfers counts transactions whose reply flowed for over a second, Held those whose
	// reply began more than ten seconds after the request (a long poll). Neither is in Latency:
	// their times do not tell how fast the server is.
	Transfers, Held uint64
	// Continued counts replies that went on after a second of silence, when their
	// transaction had already been counted; its latency lacks the tail.
	Continued uint64
	// Pushes counts times that a server sent without having been asked. A connection with
	// several of them in a row is a stream, of which no transactions are counted.
	Pushes uint64
	// Upgrades counts connections that became streams by agreement of both ends (WebSocket,
	// replication, subscriptions). From then on they have no transactions.
	Upgrades uint64
	// Lost counts transactions whose end is not known, because their HTTP/2 connection could not
	// be followed any more; LostWaiting those of them whose reply had not begun.
	Lost, LostWaiting uint64
	// UnseenBytes were received by the kernel and never read by a call that the programs see
	// (splice to a pipe, or left unread); known when a connection ends.
	UnseenBytes uint64
	// JitterSumNS sums the mean deviation of the round-trip time, one for each entry of RTT.
	JitterSumNS uint64
	// WindowLimitedNS is the time in which the peer's receive window held this end up.
	WindowLimitedNS uint64
	// RTTMinNS is the least round-trip time of all connections, 0 until one was measured.
	RTTMinNS uint64
	// Latency has one entry per transaction: on a client from the first byte sent to the last
	// byte received, on a server from the first byte received to the last byte sent (Brondolin
	// and Santambrogio 2020, figure 4).
	Latency *Histogram
	// TimeToFirstByte has one entry per reply: from the request's first byte to the reply's.
	TimeToFirstByte *Histogram
	// RTT is the kernel's smoothed round-trip time at the end of each transaction; Duration is
	// of connections. Both nil until there is one.
	RTT, Duration *Histogram
}

// Transactions is the number of finished transactions.
func (c *EdgeCounters) Transactions() uint64 {
	n := c.Transfers + c.Held
	if c.Latency != nil {
		n += c.Latency.Count
	}
	return n
}

// Plain lists the counters that add up: all but the histograms and RTTMinNS.
func (c *EdgeCounters) Plain() []*uint64 {
	return []*uint64{
		&c.SentBytes, &c.ReceivedBytes, &c.SentPackets, &c.ReceivedPackets, &c.OneWay, &c.Opens, &c.Closes, &c.Failures, &c.FailuresRefused, &c.FailuresTimedOut,
		&c.FailuresUnreachable, &c.Resets, &c.TimedOut, &c.Retransmits, &c.Requests, &c.Replies, &c.Aborts, &c.Transfers,
		&c.Held, &c.Continued, &c.Pushes, &c.Upgrades, &c.Lost, &c.LostWaiting, &c.UnseenBytes, &c.JitterSumNS, &c.WindowLimitedNS,
	}
}

// Histograms lists the histograms, any of which may be nil.
func (c *EdgeCounters) Histograms() []**Histogram {
	return []**Histogram{&c.Latency, &c.TimeToFirstByte, &c.RTT, &c.Duration}
}

// Add adds what gained counted to c. The histograms of c are replaced, never changed, so that
// they may be shared.
func (c *EdgeCounters) Add(gained *EdgeCounters) {
	from := gained.Plain()
	for i, to := range c.Plain() {
		*to += *from[i]
	}
	if gained.RTTMinNS != 0 && (c.RTTMinNS == 0 || gained.RTTMinNS < c.RTTMinNS) {
		c.RTTMinNS = gained.RTTMinNS
	}
	histograms := gained.Histograms()
	for i, to := range c.Histograms() {
		switch h := *histograms[i]; {
		case h == nil:
		case *to == nil:
			*to = h
		default:
			sum := (*to).Clone()
			sum.Merge(h)
			*to = sum
		}
	}
}

// Since is what c gained after before, an earlier state of the same counters.
func (c *EdgeCounters) Since(before *EdgeCounters) EdgeCounters {
	gained := *c
	from := before.Plain()
	for i, to := range gained.Plain() {
		*to -= *from[i]
	}
	histograms := before.Histograms()
	for i, to := range gained.Histograms() {
		if *to != nil {
			*to = (*to).Since(*histograms[i])
		}
	}
	return gained
}

// Precedes tells whether after can be a later state of c: no counter went down.
func (c *EdgeCounters) Precedes(after *EdgeCounters) bool {
	later := after.Plain()
	for i, n := range c.Plain() {
		if *n > *later[i] {
			return false
		}
	}
	histograms := after.Histograms()
	for i, h := range c.Histograms() {
		if *h != nil && (*histograms[i] == nil || (*h).Count > (*histograms[i]).Count) {
			return false
		}
	}
	return true
}

// InFlight is the number of requests whose reply has not begun.
func (c *EdgeCounters) InFlight() uint64 {
	if done := c.Replies + c.Aborts + c.LostWaiting; done < c.Requests {
		return c.Requests - done
	}
	return 0
}

// Completeness is Completeness of the edge's counters.
func (c *EdgeCounters) Completeness() float64 {
	return Completeness(float64(c.ReceivedBytes), float64(c.UnseenBytes), float64(c.Transactions()), float64(c.Lost))
}

// Completeness is the share of what happened that is counted: of the bytes received those that were
// seen, or of the transactions those that were followed to their end, whichever is less. It is 1
// where nothing was missed.
func Completeness(seenBytes, unseenBytes, ended, lost float64) float64 {
	share := func(counted, missed float64) float64 {
		if missed <= 0 {
			return 1
		}
		return counted / (counted + missed)
	}
	return min(share(seenBytes, unseenBytes), share(ended, lost))
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

// Part is something that an agent does. Most of what it counts it can give up to keep its budget.
type Part struct {
	// Name as in "transfers"; Purpose is what is missing without it.
	Name, Purpose string
	// Fixed parts are never given up: they tell what they cost.
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
}
