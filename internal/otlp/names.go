package otlp

// Stored names of the metrics of a container. Their labels are host, id, name, image and
// runtime, without those whose value is not known.
const (
	ContainerInfo                   = "container_info"
	ContainerStartTime              = "container_start_time_seconds"
	ContainerCPUUsage               = "container_cpu_usage_seconds_total"
	ContainerContextSwitches        = "container_context_switches_total"
	ContainerRunQueueLatency        = "container_run_queue_latency_seconds"
	ContainerForks                  = "container_process_forks_total"
	ContainerExecs                  = "container_process_execs_total"
	ContainerExits                  = "container_process_exits_total"
	ContainerThreads                = "container_threads"
	ContainerCFSPeriods             = "container_cpu_cfs_periods_total"
	ContainerCFSThrottledPeriods    = "container_cpu_cfs_throttled_periods_total"
	ContainerCFSThrottledTime       = "container_cpu_cfs_throttled_seconds_total"
	ContainerMemoryUsage            = "container_memory_usage_bytes"
	ContainerMemoryWorkingSet       = "container_memory_working_set_bytes"
	ContainerMemoryRSS              = "container_memory_rss"
	ContainerMemoryCache            = "container_memory_cache"
	ContainerMemoryLimit            = "container_spec_memory_limit_bytes"
	ContainerPageFaults             = "container_memory_page_faults_total"
	ContainerOOMKills               = "container_oom_kills_total"
	ContainerDiskReadBytes          = "container_fs_reads_bytes_total"
	ContainerDiskWriteBytes         = "container_fs_writes_bytes_total"
	ContainerDiskReads              = "container_fs_reads_total"
	ContainerDiskWrites             = "container_fs_writes_total"
	ContainerReceiveBytes           = "container_network_receive_bytes_total"
	ContainerTransmitBytes          = "container_network_transmit_bytes_total"
	ContainerReceivePackets         = "container_network_receive_packets_total"
	ContainerTransmitPackets        = "container_network_transmit_packets_total"
	ContainerReceiveErrors          = "container_network_receive_errors_total"
	ContainerTransmitErrors         = "container_network_transmit_errors_total"
	ContainerReceivePacketsDropped  = "container_network_receive_packets_dropped_total"
	ContainerTransmitPacketsDropped = "container_network_transmit_packets_dropped_total"
)

// Stored names of the metrics of an edge. Their labels are host, side, client, client_id,
// server, server_id, service and transport.
const (
	EdgeRequestBytes        = "outsight_edge_request_bytes_total"
	EdgeResponseBytes       = "outsight_edge_response_bytes_total"
	EdgeTransactionDuration = "outsight_edge_transaction_duration_seconds"
	EdgeConnectionsOpened   = "outsight_edge_connections_opened_total"
	EdgeConnectionsClosed   = "outsight_edge_connections_closed_total"
	EdgeConnectionFailures  = "outsight_edge_connection_failures_total"
	EdgeRetransmits         = "outsight_edge_retransmits_total"
	EdgeAborted             = "outsight_edge_aborted_transactions_total"
	EdgeContinued           = "outsight_edge_continued_replies_total"
	EdgePaired              = "outsight_edge_paired"
)

// Stored names of what Outsight tells of the host and of itself. Their label is host.
const (
	HostCPUIdle         = "outsight_host_cpu_idle_seconds_total"
	HostCPUOther        = "outsight_host_cpu_other_seconds_total"
	HostCores           = "outsight_host_cores"
	HostMemory          = "outsight_host_memory_bytes"
	AgentCPU            = "outsight_agent_cpu_seconds_total"
	AgentResidentMemory = "outsight_agent_resident_memory_bytes"
	AgentRead           = "outsight_agent_read_seconds"
	ProgramRuns         = "outsight_program_runs_total"
	ProgramRunTime      = "outsight_program_run_seconds_total"
	Drops               = "outsight_drops_total"
	Entries             = "outsight_entries"
	Capacity            = "outsight_capacity"
	FeatureAvailable    = "outsight_feature_available"
	BuildInfo           = "outsight_build_info"
)

// Names of labels.
const (
	LabelHost      = "host"
	LabelID        = "id"
	LabelName      = "name"
	LabelImage     = "image"
	LabelRuntime   = "runtime"
	LabelType      = "type"
	LabelPod       = "pod"
	LabelNamespace = "namespace"
	LabelPodUID    = "pod_uid"
	LabelSide      = "side"
	LabelClient    = "client"
	LabelClientID  = "client_id"
	LabelServer    = "server"
	LabelServerID  = "server_id"
	LabelService   = "service"
	LabelTransport = "transport"
	LabelProgram   = "program"
	LabelPurpose   = "purpose"
	LabelVersion   = "version"
	LabelGoVersion = "goversion"
)
