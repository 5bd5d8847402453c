package otlp

// Stored names of the metrics of a container. Their labels are host, id, name, image and
// runtime, without those whose value is not known.
const (
	ContainerInfo                   = "container_info"
	ContainerStartTime              = "container_start_time_seconds"
	ContainerCPUUsage               = "container_cpu_usage_seconds_total"
	ContainerContextSwitches        = "container_context_switches_total"
	ContainerRunQueueLatency        = "container_run_queue_latency_seconds"
	ContainerRunQueueWaitBy         = "container_run_queue_wait_by_seconds_total"
	ContainerPreemptionsBy          = "container_preemptions_by_total"
	ContainerForks                  = "container_process_forks_total"
	ContainerExecs                  = "container_process_execs_total"
	ContainerExits                  = "container_process_exits_total"
	ContainerThreads                = "container_threads"
	ContainerBusyThreads            = "container_busy_threads"
	ContainerCPUQuota               = "container_cpu_quota_cores"
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
	ContainerOOMVictims             = "container_oom_victims_total"
	ContainerRefaults               = "container_memory_refaults_total"
	ContainerReclaimStall           = "container_memory_reclaim_stall_seconds_total"
	ContainerReclaimStalls          = "container_memory_reclaim_stalls_total"
	ContainerCPUWaiting             = "container_pressure_cpu_waiting_seconds_total"
	ContainerCPUStalled             = "container_pressure_cpu_stalled_seconds_total"
	ContainerMemoryWaiting          = "container_pressure_memory_waiting_seconds_total"
	ContainerMemoryStalled          = "container_pressure_memory_stalled_seconds_total"
	ContainerIOWaiting              = "container_pressure_io_waiting_seconds_total"
	ContainerIOStalled              = "container_pressure_io_stalled_seconds_total"
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
	ContainerZeroWindows            = "container_network_tcp_zero_windows_total"
	ContainerZeroWindowsEnded       = "container_network_tcp_zero_windows_ended_total"
	ContainerZeroWindowDrops        = "container_network_tcp_zero_window_drops_total"
	ContainerListenOverflows        = "container_network_tcp_listen_overflows_total"
	ContainerListenerDrops          = "container_listener_drops_total"
)

// Stored names of the metrics of an edge. Their labels are host, side, client, client_id,
// server, server_id, service and transport, and client_process and server_process where known.
const (
	EdgeRequestBytes        = "outsight_edge_request_bytes_total"
	EdgeResponseBytes       = "outsight_edge_response_bytes_total"
	EdgeTransactionDuration = "outsight_edge_transaction_duration_seconds"
	EdgeRequestPackets      = "outsight_edge_request_packets_total"
	EdgeResponsePackets     = "outsight_edge_response_packets_total"
	EdgeOneWay              = "outsight_edge_one_way_packets_total"
	EdgeConnectionsOpened   = "outsight_edge_connections_opened_total"
	EdgeConnectionsClosed   = "outsight_edge_connections_closed_total"
	EdgeConnectionFailures  = "outsight_edge_connection_failures_total"
	EdgeTransactions        = "outsight_edge_transactions_total"
	EdgeRequestsInFlight    = "outsight_edge_requests_in_flight"
	EdgeTransfers           = "outsight_edge_transfers_total"
	EdgeHeld                = "outsight_edge_held_requests_total"
	EdgePushes              = "outsight_edge_pushes_total"
	EdgeResets              = "outsight_edge_connections_reset_total"
	EdgeTimeouts            = "outsight_edge_connections_timed_out_total"
	EdgeUnseenBytes         = "outsight_edge_unseen_bytes_total"
	EdgeJitter              = "outsight_edge_round_trip_deviation_seconds_total"
	EdgeWindowLimited       = "outsight_edge_window_limited_seconds_total"
	EdgeRoundTripMin        = "outsight_edge_round_trip_min_seconds"
	EdgeFirstByte           = "outsight_edge_first_byte_duration_seconds"
	EdgeRoundTrip           = "outsight_edge_round_trip_duration_seconds"
	EdgeConnectionDuration  = "outsight_edge_connection_duration_seconds"
	EdgeRetransmits         = "outsight_edge_retransmits_total"
	EdgeAborted             = "outsight_edge_aborted_transactions_total"
	EdgeContinued           = "outsight_edge_continued_replies_total"
	EdgeUpgrades            = "outsight_edge_upgrades_total"
	EdgeLost                = "outsight_edge_lost_transactions_total"
	EdgeCompleteness        = "outsight_edge_completeness_ratio"
	EdgePaired              = "outsight_edge_paired"
	EdgeConfidence          = "outsight_edge_confidence"
)

// Stored names of the metrics of an endpoint. Their labels are those of the edge, and protocol,
// endpoint and status.
const (
	EndpointRequests = "outsight_endpoint_requests_total"
	EndpointDuration = "outsight_endpoint_request_duration_seconds"
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
	ProgramMissed       = "outsight_program_missed_events_total"
	Drops               = "outsight_drops_total"
	Entries             = "outsight_entries"
	Capacity            = "outsight_capacity"
	FeatureAvailable    = "outsight_feature_available"
	EdgesCompleteness   = "outsight_edges_completeness_ratio"
	EdgesUnmatched      = "outsight_edges_unmatched_ratio"
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
	// LabelContainer is the container's name in its pod; LabelWorkload what people deployed that the
	// pod belongs to, LabelWorkloadKind what that is ("Deployment").
	LabelContainer    = "container"
	LabelWorkload     = "workload"
	LabelWorkloadKind = "workload_kind"
	// On edges, these and LabelNamespace, LabelPod, LabelNode begin with one of the prefixes. LabelNode is of ends on
	// other hosts.
	ClientPrefix = "client_"
	ServerPrefix = "server_"
	LabelNode    = "node"
	// The Kubernetes service that an edge's client dials.
	LabelServiceName      = "service_name"
	LabelServiceNamespace = "service_namespace"
	// Who ran while a container waited: the other container, or in LabelByName alone one of ByOwn and so on.
	LabelByID     = "by_id"
	LabelByName   = "by_name"
	LabelSide     = "side"
	LabelClient   = "client"
	LabelClientID = "client_id"
	LabelServer   = "server"
	LabelServerID = "server_id"
	// The processes at an edge's two ends.
	LabelClientProcess = "client_process"
	LabelServerProcess = "server_process"
	// What passes the connections of an edge on, if anything does.
	LabelVia       = "via"
	LabelService   = "service"
	LabelProcess   = "process"
	LabelTransport = "transport"
	LabelProgram   = "program"
	LabelProtocol  = "protocol"
	LabelEndpoint  = "endpoint"
	LabelStatus    = "status"
	LabelPurpose   = "purpose"
	LabelVersion   = "version"
	LabelGoVersion = "goversion"
)

// Values of LabelByName that are no container's name: other threads of the same container, nobody (the CPU had to wake
// up), its own CPU quota, whoever was on a CPU that the thread was moved away from, and all that are not told apart.
const (
	ByOwn      = "own"
	ByIdle     = "idle"
	ByQuota    = "quota"
	ByMigrated = "migrated"
	ByOther    = "other"
)
