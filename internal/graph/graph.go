// Package graph builds the service map: which containers run, what each uses, and who talks to
// whom, how much and how slowly. Its functions are pure: they turn snapshots or the answers of
// queries into a Graph, and a Graph into text, DOT, Mermaid or JSON.
package graph

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"outsight/internal/model"
)

// Graph is a service map over one window of time.
type Graph struct {
	// From and To are the window that was asked for.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// CoveredSeconds is how much of the window was observed. Rates are over this time.
	CoveredSeconds float64 `json:"covered_seconds"`
	// ErrorBound is the greatest relative error of every quantile in the graph.
	ErrorBound float64 `json:"error_bound"`
	// Nodes in order of Name, Edges in order of client and server name.
	Nodes []*Node `json:"nodes"`
	Edges []*Edge `json:"edges"`
	// OmittedEdges is how many of the least busy edges Limit has left out.
	OmittedEdges int `json:"omitted_edges"`
	// HiddenEdges is how many edges HideBelow has left out, because that was asked for.
	HiddenEdges int `json:"hidden_edges,omitempty"`
	// Unplaced sums the connections that are in no edge, because the kernel's table had no room
	// for one: what their ends on the hosts sent (RequestBytes) and received (ResponseBytes).
	// Nil where there were none.
	Unplaced *Side `json:"unplaced,omitempty"`
	// UnmatchedShare is the share, 0 to 1, of all edges with an end that is in no known container.
	UnmatchedShare float64 `json:"unmatched_share"`
	// UnmatchedBytesShare is the share of all edges' bytes that went over these.
	UnmatchedBytesShare float64 `json:"unmatched_bytes_share"`
	// CountedShare is, for each host with traffic, the share of the bytes received there that
	// was seen and is in an edge.
	CountedShare map[string]float64 `json:"counted_share"`

	// bytes are those of all edges, whatever was left out later.
	bytes float64
	// made is what the edges are in; nil where each has memory of its own.
	made *madeRoom
}

// Release says that nothing of the graph is needed any more, and that the memory of its edges may be used again. It need not be called, and
// may be called once.
func (g *Graph) Release() {
	g.made.release()
	g.made, g.Edges = nil, nil
}

// Kind tells what a node stands for.
type Kind string

// The kinds of nodes.
const (
	KindContainer Kind = "container"
	KindService   Kind = "service"
	KindHost      Kind = "host"
	KindOutside   Kind = "outside"
	// A Grouping makes these.
	KindPod       Kind = "pod"
	KindProcess   Kind = "process"
	KindWorkload  Kind = "workload"
	KindNamespace Kind = "namespace"
	// KindClusterService is a Kubernetes service of which no pod could be told.
	KindClusterService Kind = "cluster-service"
)

// Node is a container, a service, the rest of a host, or one or more addresses outside.
type Node struct {
	// ID is the container's ID; an outside server's address; OutsideID or OutsideServersID for
	// a group of addresses. The rest of host h is "host/h".
	ID   string `json:"id"`
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	Host string `json:"host,omitempty"`
	// SeriesID is the node's id label in stored series, empty for a group of addresses.
	SeriesID     string `json:"series_id,omitempty"`
	Image        string `json:"image,omitempty"`
	Runtime      string `json:"runtime,omitempty"`
	PodName      string `json:"pod,omitempty"`
	PodNamespace string `json:"namespace,omitempty"`
	// Workload is what people deployed that the pod belongs to, WorkloadKind what that is.
	Workload     string `json:"workload,omitempty"`
	WorkloadKind string `json:"workload_kind,omitempty"`
	// Members are the id labels of a pod's containers.
	Members []string `json:"members,omitempty"`
	// Process is what the processes of the node run, for KindProcess.
	Process string `json:"process,omitempty"`
	// Addresses of an outside node, or by which others know a node, at most MaxAddresses of AddressCount.
	Addresses    []string `json:"addresses,omitempty"`
	AddressCount int      `json:"address_count,omitempty"`
	// StartedSeconds is the container's start in Unix seconds, nil where not known.
	StartedSeconds *float64 `json:"started,omitempty"`
	// Gone is true for a container that was seen in the window but no more at its end.
	Gone bool `json:"gone,omitempty"`
	// Usage is nil for an outside node.
	Usage *Usage `json:"usage,omitempty"`
	// Served sums the edges on which the node is the server, Called those on which it is the
	// client; each as the node itself counted it where it did. Nil where there is no such edge.
	Served *Side `json:"served,omitempty"`
	Called *Side `json:"called,omitempty"`
}

// Usage is what a container used. Rates are per second of the covered window; a nil number
// could not be had.
type Usage struct {
	CPUCores            *float64 `json:"cpu_cores,omitempty"`
	RunQueueP50         *Seconds `json:"run_queue_p50,omitempty"`
	RunQueueP99         *Seconds `json:"run_queue_p99,omitempty"`
	VoluntarySwitches   *float64 `json:"voluntary_switches,omitempty"`
	InvoluntarySwitches *float64 `json:"involuntary_switches,omitempty"`
	Threads             *float64 `json:"threads,omitempty"`
	// BusyThreads is over how many threads the CPU time was spread (model.ProcessCounters).
	BusyThreads          *float64 `json:"busy_threads,omitempty"`
	CPUQuotaCores        *float64 `json:"cpu_quota_cores,omitempty"`
	Forks                *float64 `json:"forks,omitempty"`
	Execs                *float64 `json:"execs,omitempty"`
	Exits                *float64 `json:"exits,omitempty"`
	ThrottledShare       *float64 `json:"throttled_share,omitempty"`
	ThrottledSeconds     *float64 `json:"throttled_seconds,omitempty"`
	MemoryBytes          *float64 `json:"memory_bytes,omitempty"`
	WorkingSetBytes      *float64 `json:"working_set_bytes,omitempty"`
	RSSBytes             *float64 `json:"rss_bytes,omitempty"`
	CacheBytes           *float64 `json:"cache_bytes,omitempty"`
	MemoryLimitBytes     *float64 `json:"memory_limit_bytes,omitempty"`
	MinorPageFaults      *float64 `json:"minor_page_faults,omitempty"`
	MajorPageFaults      *float64 `json:"major_page_faults,omitempty"`
	DiskReadBytes        *float64 `json:"disk_read_bytes,omitempty"`
	DiskWriteBytes       *float64 `json:"disk_write_bytes,omitempty"`
	DiskReads            *float64 `json:"disk_reads,omitempty"`
	DiskWrites           *float64 `json:"disk_writes,omitempty"`
	NetworkReceiveBytes  *float64 `json:"network_receive_bytes,omitempty"`
	NetworkTransmitBytes *float64 `json:"network_transmit_bytes,omitempty"`
	ReceivePackets       *float64 `json:"receive_packets,omitempty"`
	TransmitPackets      *float64 `json:"transmit_packets,omitempty"`
	// OOMKills, NetworkErrors and NetworkDropped are counts in the window, not rates.
	OOMKills       *float64 `json:"oom_kills,omitempty"`
	NetworkErrors  *float64 `json:"network_errors,omitempty"`
	NetworkDropped *float64 `json:"network_dropped,omitempty"`
	// ZeroWindows are times that a receiver in the network namespace closed its window,
	// ListenOverflows connections that found an accept queue full there; counts as well.
	ZeroWindows     *float64 `json:"zero_windows,omitempty"`
	ListenOverflows *float64 `json:"listen_overflows,omitempty"`
}

// Edge is a directed client-to-server relation, with the numbers of both of its ends. All
// services (ports) of one server are one edge, those over UDP another one.
type Edge struct {
	// ID is Client, '>' and Server, and "/udp" for UDP.
	ID string `json:"id"`
	// Client and Server are IDs of nodes.
	Client string `json:"client"`
	Server string `json:"server"`
	// Services are the server's addresses and ports, in order; Transport is "tcp" or "udp".
	Services  []string `json:"services"`
	Transport string   `json:"transport"`
	// ClientSide and ServerSide are what each end counted, nil for an end that did not count.
	ClientSide *Side `json:"client_side,omitempty"`
	ServerSide *Side `json:"server_side,omitempty"`
	// Paired is true where both ends counted the same connections; on two hosts, where both counted as
	// much between the same pods, to within 1 %.
	Paired bool `json:"paired"`
	// Confidence tells how the least sure end was found: "exact" (the kernel saw both ends),
	// "listener", "address", or "none" for an end that is in no known container.
	Confidence string `json:"confidence"`
	// Via names a process on the host that passes connections on, like "docker-proxy".
	Via string `json:"via,omitempty"`
	// NetworkSeconds is the client's p50 less the server's: the time spent between the two.
	// Nil unless Paired, because the two would be about different transactions.
	NetworkSeconds *float64 `json:"network_seconds,omitempty"`
	// Endpoints are what was asked for most, as the server counted it where it did; at most
	// MaxEndpoints. OmittedEndpoints is how many there are besides, OtherEndpoints their sum.
	Endpoints        []*Endpoint `json:"endpoints,omitempty"`
	OmittedEndpoints int         `json:"omitted_endpoints,omitempty"`
	OtherEndpoints   *Endpoint   `json:"other_endpoints,omitempty"`

	confidence model.Confidence
	settled    bool // an end of a part of it was settled by Kubernetes
}

// Best is the client's numbers where the client counted (it is who waits), else the server's.
func (e *Edge) Best() *Side {
	if e.ClientSide != nil {
		return e.ClientSide
	}
	return e.ServerSide
}

// Side is what one end of an edge counted in the window.
type Side struct {
	// Transactions, RequestBytes (client to server) and ResponseBytes (server to client) are
	// exact counts; the rates are these over the covered time, nil where that is 0.
	Transactions           float64  `json:"transactions"`
	RequestBytes           float64  `json:"request_bytes"`
	ResponseBytes          float64  `json:"response_bytes"`
	TransactionsPerSecond  *float64 `json:"transactions_per_second,omitempty"`
	RequestBytesPerSecond  *float64 `json:"request_bytes_per_second,omitempty"`
	ResponseBytesPerSecond *float64 `json:"response_bytes_per_second,omitempty"`
	// InFlight requests wait for their reply at the end of the window.
	InFlight float64 `json:"in_flight,omitempty"`
	// Transfers (their reply flowed for over a second) and Held (it began after ten) are
	// transactions that are in no quantile. Pushes were sent by the server without a request.
	Transfers float64 `json:"transfers,omitempty"`
	Held      float64 `json:"held,omitempty"`
	Pushes    float64 `json:"pushes,omitempty"`
	// Quantiles and mean of the duration of a transaction; nil without transactions.
	P50  *Seconds `json:"p50,omitempty"`
	P75  *Seconds `json:"p75,omitempty"`
	P90  *Seconds `json:"p90,omitempty"`
	P99  *Seconds `json:"p99,omitempty"`
	Mean *Seconds `json:"mean,omitempty"`
	// FirstByte is the time from a request's first byte to its reply's.
	FirstByteP50 *Seconds `json:"first_byte_p50,omitempty"`
	FirstByteP99 *Seconds `json:"first_byte_p99,omitempty"`
	// RTT is the kernel's smoothed round-trip time, once per transaction. RTTMin is the least
	// since the agent's start; Jitter is the mean of the kernel's deviation of it.
	RTTP50 *Seconds `json:"rtt_p50,omitempty"`
	RTTP99 *Seconds `json:"rtt_p99,omitempty"`
	RTTMin *Seconds `json:"rtt_min,omitempty"`
	Jitter *Seconds `json:"jitter,omitempty"`
	// Duration is of connections that ended in the window; for WindowLimitedSeconds, summed over
	// them, the other end's receive window held this end up.
	DurationP50          *Seconds `json:"duration_p50,omitempty"`
	DurationP99          *Seconds `json:"duration_p99,omitempty"`
	WindowLimitedSeconds float64  `json:"window_limited_seconds,omitempty"`
	// ConnectionsOpen is the number at the end of the window; the others happened in it.
	ConnectionsOpen   float64 `json:"connections_open"`
	ConnectionsOpened float64 `json:"connections_opened"`
	ConnectionsClosed float64 `json:"connections_closed"`
	// Failures are attempts to connect that failed; those with a known reason are told apart.
	Failures            float64 `json:"failures"`
	FailuresRefused     float64 `json:"failures_refused,omitempty"`
	FailuresTimedOut    float64 `json:"failures_timed_out,omitempty"`
	FailuresUnreachable float64 `json:"failures_unreachable,omitempty"`
	Retransmits         float64 `json:"retransmits"`
	// Resets and TimedOut are connections that ended so.
	Resets   float64 `json:"resets,omitempty"`
	TimedOut float64 `json:"timed_out,omitempty"`
	// Aborted transactions ended without a reply, Continued replies went on after a pause and
	// their latency lacks the tail.
	Aborted   float64 `json:"aborted"`
	Continued float64 `json:"continued"`
	// Packets are UDP's alone. OneWay are those in streams that nobody answers.
	RequestPackets  float64 `json:"request_packets,omitempty"`
	ResponsePackets float64 `json:"response_packets,omitempty"`
	OneWay          float64 `json:"one_way,omitempty"`
	// UnseenBytes were received by the kernel and read by no call that is seen; known when a
	// connection ends. Completeness is model.Completeness of the side, nil where nothing was
	// received.
	UnseenBytes float64 `json:"unseen_bytes,omitempty"`
	// LostTransactions had not ended when their HTTP/2 connection could no longer be followed.
	LostTransactions float64  `json:"lost_transactions,omitempty"`
	Completeness     *float64 `json:"completeness,omitempty"`

	latency, firstByte, rtt, duration model.FloatHistogram
	rttDeviation, received            float64
	endpoints                         endpoints
	// durations and numbers are what the others point to.
	durations [12]Seconds
	numbers   [4]float64
}

// Seconds is a duration that may lie past the end of a histogram: +Inf, which JSON shows as the
// string "+Inf", and of which is known only that it is model.OverflowThreshold or more. It is 0
// for a duration of at most model.ZeroThreshold.
type Seconds float64

// MarshalJSON writes a number, or "+Inf".
func (s Seconds) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(s), 1) {
		return []byte(`"+Inf"`), nil
	}
	if math.IsNaN(float64(s)) || math.IsInf(float64(s), -1) {
		return json.Marshal(float64(s)) // which is an error
	}
	format := byte('f')
	if abs := math.Abs(float64(s)); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(make([]byte, 0, 24), float64(s), format, -1, 64), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	if string(b) == `"+Inf"` {
		*s = Seconds(math.Inf(1))
		return nil
	}
	v, err := strconv.ParseFloat(string(b), 64)
	*s = Seconds(v)
	return err
}

// JSON is the graph as indented JSON, ending with a newline.
func JSON(g *Graph) ([]byte, error) {
	b, err := json.MarshalIndent(g, "", "  ")
	return append(b, '\n'), err
}

// Node finds a node by ID, nil where there is none.
func (g *Graph) Node(id string) *Node {
	for _, n := range g.Nodes {
		if n.ID == id {
			return n
		}
	}
	return nil
}
