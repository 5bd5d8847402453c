package graph

// Field names one kind of stored series as an input of FromSeries. The caller knows how the
// series are called in its store; this package does not.
type Field string

// The series of a container. Their labels are host, id, name, image and runtime, and in Kubernetes
// namespace, pod, container, workload and workload_kind. Those that are not said to be levels or histograms are cumulative counters.
const (
	CPUSeconds          Field = "cpu_seconds"
	RunQueue            Field = "run_queue" // histogram
	VoluntarySwitches   Field = "voluntary_switches"
	InvoluntarySwitches Field = "involuntary_switches"
	Forks               Field = "forks"
	Execs               Field = "execs"
	Exits               Field = "exits"
	Threads             Field = "threads"      // level
	BusyThreads         Field = "busy_threads" // level
	CPUQuota            Field = "cpu_quota"    // level, cores
	ThrottlePeriods     Field = "throttle_periods"
	ThrottledPeriods    Field = "throttled_periods"
	ThrottledSeconds    Field = "throttled_seconds"
	MemoryUsage         Field = "memory_usage"       // level
	MemoryWorkingSet    Field = "memory_working_set" // level
	MemoryRSS           Field = "memory_rss"         // level
	MemoryCache         Field = "memory_cache"       // level
	MemoryLimit         Field = "memory_limit"       // level
	MinorFaults         Field = "minor_faults"
	MajorFaults         Field = "major_faults"
	OOMKills            Field = "oom_kills"
	DiskReadBytes       Field = "disk_read_bytes"
	DiskWriteBytes      Field = "disk_write_bytes"
	DiskReads           Field = "disk_reads"
	DiskWrites          Field = "disk_writes"
	ReceiveBytes        Field = "receive_bytes"
	TransmitBytes       Field = "transmit_bytes"
	ReceivePackets      Field = "receive_packets"
	TransmitPackets     Field = "transmit_packets"
	ReceiveErrors       Field = "receive_errors"
	TransmitErrors      Field = "transmit_errors"
	ReceiveDropped      Field = "receive_dropped"
	TransmitDropped     Field = "transmit_dropped"
	ZeroWindows         Field = "zero_windows"
	ListenOverflows     Field = "listen_overflows"
	StartTime           Field = "start_time" // level, Unix seconds
	Info                Field = "info"       // level, with the labels of a pod
)

// The series of an edge. Their labels are host, side, client, client_id, client_process, server,
// server_id, server_process, service, transport and via; in Kubernetes those of a container for each end,
// as in client_pod, and service_name, service_namespace, client_node and server_node.
const (
	RequestBytes        Field = "request_bytes"
	ResponseBytes       Field = "response_bytes"
	Latency             Field = "latency" // histogram
	RequestPackets      Field = "request_packets"
	ResponsePackets     Field = "response_packets"
	OneWay              Field = "one_way"
	ConnectionsOpened   Field = "connections_opened"
	ConnectionsClosed   Field = "connections_closed"
	FailuresRefused     Field = "failures_refused"
	FailuresTimedOut    Field = "failures_timed_out"
	FailuresUnreachable Field = "failures_unreachable"
	FailuresOther       Field = "failures_other"
	Retransmits         Field = "retransmits"
	Aborted             Field = "aborted"
	Continued           Field = "continued"
	Transactions        Field = "transactions"
	Transfers           Field = "transfers"
	Held                Field = "held"
	Pushes              Field = "pushes"
	Resets              Field = "resets"
	TimedOut            Field = "timed_out"
	UnseenBytes         Field = "unseen_bytes"
	LostTransactions    Field = "lost_transactions"
	FirstByte           Field = "first_byte" // histogram
	RTT                 Field = "rtt"        // histogram
	RTTDeviation        Field = "rtt_deviation"
	WindowLimited       Field = "window_limited"
	ConnectionDuration  Field = "connection_duration" // histogram
	RTTMin              Field = "rtt_min"             // level, seconds
	InFlight            Field = "in_flight"           // level
	Paired              Field = "paired"              // level, 0 or 1
	Confidence          Field = "confidence"          // level, a model.Confidence
)

// The series of an endpoint. Their labels are those of its edge, and protocol, endpoint and status.
const (
	EndpointRequests Field = "endpoint_requests"
	EndpointLatency  Field = "endpoint_latency" // histogram
)

var endpointFields = map[Field]bool{EndpointRequests: true, EndpointLatency: true}

var levels = map[Field]bool{
	Threads: true, BusyThreads: true, CPUQuota: true, MemoryUsage: true, MemoryWorkingSet: true, MemoryRSS: true, MemoryCache: true,
	MemoryLimit: true, StartTime: true, Info: true, Paired: true, RTTMin: true, InFlight: true, Confidence: true,
}

var edgeFields = map[Field]bool{
	RequestBytes: true, ResponseBytes: true, Latency: true, ConnectionsOpened: true,
	ConnectionsClosed: true, FailuresRefused: true, FailuresTimedOut: true, FailuresUnreachable: true, FailuresOther: true, Retransmits: true, Aborted: true, Continued: true,
	Paired: true, RequestPackets: true, ResponsePackets: true, OneWay: true,
	Transactions: true, Transfers: true, Held: true, Pushes: true, Resets: true, TimedOut: true,
	UnseenBytes: true, LostTransactions: true, FirstByte: true, RTT: true, RTTDeviation: true, RTTMin: true, InFlight: true,
	Confidence: true, WindowLimited: true, ConnectionDuration: true,
}
