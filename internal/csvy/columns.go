package csvy

// Column names that the report knows by name; all others are in Columns.
const (
	Tick             = "tick"
	DueNS            = "due_ns"
	LatenessNS       = "lateness_ns"
	TickCostNS       = "tick_cost_ns"
	CPUNS            = "cpu_ns"
	Running          = "running"
	RunQueueNS       = "run_queue_ns"
	SentBytes        = "sent_bytes"
	ReceivedBytes    = "received_bytes"
	RequestsAsking   = "requests_asking"
	RequestsServing  = "requests_serving"
	MemoryBytes      = "memory_bytes"
	MemoryLimitBytes = "memory_limit_bytes"
	MajorFaults      = "major_faults"
	DiskReadBytes    = "disk_read_bytes"
	DiskWriteBytes   = "disk_write_bytes"
	DiskTimeNS       = "disk_time_ns"
	ThrottledNS      = "throttled_ns"
	CPUQuotaNS       = "cpu_quota_ns"
	CPUPeriodNS      = "cpu_period_ns"
	// LostTicks is appended by the writer; see Writer.Lost.
	LostTicks = "lost_ticks"
)

// columns are all that Outsight itself records.
var columns = []Column{
	{Tick, "1", Counter, FromKernel},
	{DueNS, "ns", Counter, FromKernel},
	{LatenessNS, "ns", Gauge, FromKernel},
	{TickCostNS, "ns", Gauge, FromKernel},
	{CPUNS, "ns", Counter, FromKernel},
	{Running, "1", Gauge, FromKernel},
	{RunQueueNS, "ns", Counter, FromKernel},
	{"run_queue_waits", "1", Counter, FromKernel},
	{"voluntary_switches", "1", Counter, FromKernel},
	{"involuntary_switches", "1", Counter, FromKernel},
	{SentBytes, "By", Counter, FromKernel},
	{ReceivedBytes, "By", Counter, FromKernel},
	{RequestsAsking, "1", Gauge, FromKernel},
	{RequestsServing, "1", Gauge, FromKernel},
	{MemoryBytes, "By", Gauge, FromKernel},
	{MemoryLimitBytes, "By", Gauge, FromFile},
	{"minor_faults", "1", Counter, FromKernel},
	{MajorFaults, "1", Counter, FromKernel},
	{DiskReadBytes, "By", Counter, FromKernel},
	{DiskWriteBytes, "By", Counter, FromKernel},
	{"disk_reads", "1", Counter, FromKernel},
	{"disk_writes", "1", Counter, FromKernel},
	{"disk_discard_bytes", "By", Counter, FromFile},
	{"disk_discards", "1", Counter, FromFile},
	{DiskTimeNS, "ns", Counter, FromKernel},
	{ThrottledNS, "ns", Counter, FromKernel},
	{"throttled_periods", "1", Counter, FromKernel},
	{"periods", "1", Counter, FromFile},
	{CPUQuotaNS, "ns", Gauge, FromFile},
	{CPUPeriodNS, "ns", Gauge, FromFile},
	{"refaults_anon", "1", Counter, FromFile},
	{"refaults_file", "1", Counter, FromFile},
	{"pressure_cpu_waiting_ns", "ns", Counter, FromFile},
	{"pressure_cpu_stalled_ns", "ns", Counter, FromFile},
	{"pressure_memory_waiting_ns", "ns", Counter, FromFile},
	{"pressure_memory_stalled_ns", "ns", Counter, FromFile},
	{"pressure_io_waiting_ns", "ns", Counter, FromFile},
	{"pressure_io_stalled_ns", "ns", Counter, FromFile},
	{"threads", "1", Gauge, FromFile},
	{"threads_limit", "1", Gauge, FromFile},
	{LostTicks, "1", Counter, FromKernel},
}

// Columns are all columns that Outsight names itself. A recording has those of them that it could
// get, in any order, and may have rAdvisor's as well (see RAdvisorColumns).
func Columns() []Column { return append([]Column(nil), columns...) }

// ColumnNamed describes a column of Outsight's or of rAdvisor's. Of a name that is neither's, the
// answer is a gauge of unit "1".
func ColumnNamed(name string) Column {
	for _, list := range [][]Column{columns, radvisorV2, radvisorV1} {
		for _, c := range list {
			if c.Name == name {
				return c
			}
		}
	}
	if base, ok := vectorOf(name); ok {
		return Column{name, ColumnNamed(base).Unit, Counter, FromFile}
	}
	return Column{name, "1", Gauge, FromFile}
}
