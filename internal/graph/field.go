package graph

// Field names one kind of stored series as an input of FromSeries. The caller knows how the
// series are called in its store; this package does not.
type Field uint8

// The things that a field may be of: its upper bits tell which, the others its place among their fields.
const (
	ofContainer Field = iota << kindShift
	ofEdge
	ofEndpoint
	kinds     = 3
	kindShift = 6
	placeMask = ofEdge - 1
	maxPlaces = int(Info) + 1 // a container has the most fields, of which Info is the last
)

func (f Field) kind() Field { return f &^ placeMask }

func (f Field) place() int { return int(f & placeMask) }

// values are numbers by Field, of one thing.
type values struct {
	numbers [maxPlaces]float64
	// known has a bit for each number that is there.
	known uint64
}

func (v *values) set(f Field, number float64) {
	v.numbers[f.place()] = number
	v.known |= 1 << f.place()
}

// of is 0 where there is no such number.
func (v *values) of(f Field) float64 { return v.numbers[f.place()] }

func (v *values) has(f Field) bool { return v.known&(1<<f.place()) != 0 }

func (v *values) remove(f Field) {
	v.numbers[f.place()] = 0
	v.known &^= 1 << f.place()
}

// add adds the numbers of another thing of the same kind.
func (v *values) add(other *values) {
	for i, n := range other.numbers {
		v.numbers[i] += n
	}
	v.known |= other.known
}

// The series of a container. Their labels are host, id, name, image and runtime, and in Kubernetes
// namespace, pod, container, workload and workload_kind. Those that are not said to be levels or histograms are cumulative counters.
const (
	CPUSeconds Field = ofContainer + iota
	RunQueue         // histogram
	VoluntarySwitches
	InvoluntarySwitches
	Forks
	Execs
	Exits
	Threads     // level
	BusyThreads // level
	CPUQuota    // level, cores
	ThrottlePeriods
	ThrottledPeriods
	ThrottledSeconds
	MemoryUsage      // level
	MemoryWorkingSet // level
	MemoryRSS        // level
	MemoryCache      // level
	MemoryLimit      // level
	MinorFaults
	MajorFaults
	OOMKills
	DiskReadBytes
	DiskWriteBytes
	DiskReads
	DiskWrites
	ReceiveBytes
	TransmitBytes
	ReceivePackets
	TransmitPackets
	ReceiveErrors
	TransmitErrors
	ReceiveDropped
	TransmitDropped
	ZeroWindows
	ListenOverflows
	StartTime // level, Unix seconds
	Info      // level, with the labels of a pod
)

// The series of an edge. Their labels are host, side, client, client_id, client_process, server,
// server_id, server_process, service, transport and via; in Kubernetes those of a container for each end,
// as in client_pod, and service_name, service_namespace, client_node and server_node.
const (
	RequestBytes Field = ofEdge + iota
	ResponseBytes
	Latency // histogram
	RequestPackets
	ResponsePackets
	OneWay
	ConnectionsOpened
	ConnectionsClosed
	FailuresRefused
	FailuresTimedOut
	FailuresUnreachable
	FailuresOther
	Retransmits
	Aborted
	Continued
	Transactions
	Transfers
	Held
	Pushes
	Resets
	TimedOut
	UnseenBytes
	LostTransactions
	FirstByte // histogram
	RTT       // histogram
	RTTDeviation
	WindowLimited
	ConnectionDuration // histogram
	RTTMin             // level, seconds
	InFlight           // level
	Paired             // level, 0 or 1
	Confidence         // level, a model.Confidence
)

// The series of an endpoint. Their labels are those of its edge, and protocol, endpoint and status.
const (
	EndpointRequests Field = ofEndpoint + iota
	EndpointLatency        // histogram
)

var levels = [kinds << kindShift]bool{
	Threads: true, BusyThreads: true, CPUQuota: true, MemoryUsage: true, MemoryWorkingSet: true, MemoryRSS: true, MemoryCache: true,
	MemoryLimit: true, StartTime: true, Info: true, Paired: true, RTTMin: true, InFlight: true, Confidence: true,
}

// IsSparse tells whether a series of the field that was zero all the time may be left out of an Input: counters and histograms of edges, but for
// transactions, which would be taken from the histogram then, and those of which the last value counts, which may be of another series of the edge.
func (f Field) IsSparse() bool {
	return f.kind() == ofEdge && !levels[f] && f != Transactions && f != ConnectionsOpened && f != ConnectionsClosed
}
