package otlp

// Stored names of those metrics of a container that code asks a store for by name; all are in the registry of
// internal/model. Their labels are host, id, name, image and runtime, without those whose value is not known.
const (
	ContainerInfo            = "container_info"
	ContainerCPUUsage        = "container_cpu_usage_seconds_total"
	ContainerRunQueueLatency = "container_run_queue_latency_seconds"
	ContainerRunQueueWaitBy  = "container_run_queue_wait_by_seconds_total"
	ContainerPreemptionsBy   = "container_preemptions_by_total"
	ContainerThreads         = "container_threads"
	ContainerMemoryUsage     = "container_memory_usage_bytes"
)

// Stored names of the metrics of an edge. Their labels are host, side, client, client_id,
// server, server_id, service and transport, and client_process and server_process where known.
const (
	EdgeRequestBytes        = "outsight_edge_request_bytes_total"
	EdgeTransactionDuration = "outsight_edge_transaction_duration_seconds"
	EdgeTransactions        = "outsight_edge_transactions_total"
	EdgeRoundTripMin        = "outsight_edge_round_trip_min_seconds"
	EdgeFirstByte           = "outsight_edge_first_byte_duration_seconds"
	EdgeRoundTrip           = "outsight_edge_round_trip_duration_seconds"
	EdgeConnectionDuration  = "outsight_edge_connection_duration_seconds"
	EdgeConfidence          = "outsight_edge_confidence"
)

// Stored names of the metrics of an endpoint. Their labels are those of the edge, and protocol,
// endpoint and status.
const (
	EndpointRequests = "outsight_endpoint_requests_total"
	EndpointDuration = "outsight_endpoint_request_duration_seconds"
)

// Stored names of metrics about the host and about Outsight itself. Their label is host.
const (
	HostCPUIdle         = "outsight_host_cpu_idle_seconds_total"
	HostCPUSteal        = "outsight_host_cpu_steal_seconds_total"
	HostCPUOther        = "outsight_host_cpu_other_seconds_total"
	HostCores           = "outsight_host_cores"
	HostMemory          = "outsight_host_memory_bytes"
	AgentCPU            = "outsight_agent_cpu_seconds_total"
	AgentResidentMemory = "outsight_agent_resident_memory_bytes"
	ProgramRuns         = "outsight_program_runs_total"
	ProgramRunTime      = "outsight_program_run_seconds_total"
	Drops               = "outsight_drops_total"
	Entries             = "outsight_entries"
	Capacity            = "outsight_capacity"
	CostRatio           = "outsight_cost_ratio"
	FeatureCost         = "outsight_feature_cost_ratio"
	FeatureAvailable    = "outsight_feature_available"
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
	LabelPod       = "pod"
	LabelNamespace = "namespace"
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
	// Which end of the edge counted.
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
	LabelTransport = "transport"
	LabelProgram   = "program"
	LabelProtocol  = "protocol"
	LabelEndpoint  = "endpoint"
	LabelStatus    = "status"
	LabelPurpose   = "purpose"
	LabelBasis     = "basis"
	LabelVersion   = "version"
)
