package api

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

// number describes one number of a node or an edge: its key in the JSON, and the query whose
// chart it is a point of. In Query, $match stands for label matchers and $window for a duration.
type number struct {
	Key   string `json:"key"`
	Title string `json:"title"`
	// Unit is "cores", "s", "B", "B/s", "/s", "ratio" or "" for a plain count.
	Unit  string `json:"unit"`
	Query string `json:"query"`
}

func rate(name, extra string) string { return "sum(rate(" + name + "{$match" + extra + "}[$window]))" }
func level(name string) string       { return "sum(" + name + "{$match})" }
func gained(names ...string) string {
	for i, name := range names {
		names[i] = "sum(increase(" + name + "{$match}[$window]))"
	}
	return strings.Join(names, " + ")
}

// gainedOf is gained of a metric's series of one type.
func gainedOf(name, kind string) string {
	return "sum(increase(" + name + `{$match,type="` + kind + `"}[$window]))`
}

func quantileOf(q, name string) string {
	return "histogram_quantile(" + q + ", " + rate(name, "") + ")"
}

// usageNumbers are the numbers of graph.Usage, in the order in which people look at them.
var usageNumbers = []number{
	{"cpu_cores", "CPU", "cores", rate(otlp.ContainerCPUUsage, "")},
	{"run_queue_p99", "Run-queue delay p99", "s", quantileOf("0.99", otlp.ContainerRunQueueLatency)},
	{"run_queue_p50", "Run-queue delay p50", "s", quantileOf("0.5", otlp.ContainerRunQueueLatency)},
	{"throttled_share", "Throttled periods", "ratio", rate(otlp.ContainerCFSThrottledPeriods, "") + " / " + rate(otlp.ContainerCFSPeriods, "")},
	{"throttled_seconds", "Throttled time", "cores", rate(otlp.ContainerCFSThrottledTime, "")},
	{"voluntary_switches", "Voluntary switches", "/s", rate(otlp.ContainerContextSwitches, `,type="voluntary"`)},
	{"involuntary_switches", "Involuntary switches", "/s", rate(otlp.ContainerContextSwitches, `,type="involuntary"`)},
	{"threads", "Threads", "", level(otlp.ContainerThreads)},
	{"busy_threads", "Busy threads", "", level(otlp.ContainerBusyThreads)},
	{"cpu_quota_cores", "CPU quota", "cores", level(otlp.ContainerCPUQuota)},
	{"forks", "Forks", "/s", rate(otlp.ContainerForks, "")},
	{"execs", "Execs", "/s", rate(otlp.ContainerExecs, "")},
	{"exits", "Exits", "/s", rate(otlp.ContainerExits, "")},
	{"memory_bytes", "Memory", "B", level(otlp.ContainerMemoryUsage)},
	{"working_set_bytes", "Working set", "B", level(otlp.ContainerMemoryWorkingSet)},
	{"rss_bytes", "Anonymous memory", "B", level(otlp.ContainerMemoryRSS)},
	{"cache_bytes", "Page cache", "B", level(otlp.ContainerMemoryCache)},
	{"memory_limit_bytes", "Memory limit", "B", level(otlp.ContainerMemoryLimit)},
	{"minor_page_faults", "Minor page faults", "/s", rate(otlp.ContainerPageFaults, `,type="minor"`)},
	{"major_page_faults", "Major page faults", "/s", rate(otlp.ContainerPageFaults, `,type="major"`)},
	{"oom_kills", "Out-of-memory kills", "", gained(otlp.ContainerOOMKills)},
	{"network_receive_bytes", "Network in", "B/s", rate(otlp.ContainerReceiveBytes, "")},
	{"network_transmit_bytes", "Network out", "B/s", rate(otlp.ContainerTransmitBytes, "")},
	{"receive_packets", "Packets in", "/s", rate(otlp.ContainerReceivePackets, "")},
	{"transmit_packets", "Packets out", "/s", rate(otlp.ContainerTransmitPackets, "")},
	{"network_errors", "Network errors", "", gained(otlp.ContainerReceiveErrors, otlp.ContainerTransmitErrors)},
	{"network_dropped", "Packets dropped", "", gained(otlp.ContainerReceivePacketsDropped, otlp.ContainerTransmitPacketsDropped)},
	{"zero_windows", "Receive windows closed", "", gained(otlp.ContainerZeroWindows)},
	{"listen_overflows", "Accept queue overflows", "", gained(otlp.ContainerListenOverflows)},
	{"disk_read_bytes", "Disk read", "B/s", rate(otlp.ContainerDiskReadBytes, "")},
	{"disk_write_bytes", "Disk write", "B/s", rate(otlp.ContainerDiskWriteBytes, "")},
	{"disk_reads", "Disk reads", "/s", rate(otlp.ContainerDiskReads, "")},
	{"disk_writes", "Disk writes", "/s", rate(otlp.ContainerDiskWrites, "")},
}

// orCounted is a query of a counter; where agents stored none yet, what their histogram counted.
func orCounted(counter, histogram string) string {
	return counter + " or histogram_count(" + histogram + ")"
}

// sideNumbers are the numbers of graph.Side. Its completeness is none of them: which bytes an end
// received depends on the end.
var sideNumbers = []number{
	{"transactions_per_second", "Requests", "/s", orCounted(rate(otlp.EdgeTransactions, ""), rate(otlp.EdgeTransactionDuration, ""))},
	{"p50", "p50", "s", quantileOf("0.5", otlp.EdgeTransactionDuration)},
	{"p75", "p75", "s", quantileOf("0.75", otlp.EdgeTransactionDuration)},
	{"p90", "p90", "s", quantileOf("0.9", otlp.EdgeTransactionDuration)},
	{"p99", "p99", "s", quantileOf("0.99", otlp.EdgeTransactionDuration)},
	{"mean", "Mean", "s", "histogram_avg(" + rate(otlp.EdgeTransactionDuration, "") + ")"},
	{"first_byte_p50", "First byte p50", "s", quantileOf("0.5", otlp.EdgeFirstByte)},
	{"first_byte_p99", "First byte p99", "s", quantileOf("0.99", otlp.EdgeFirstByte)},
	{"in_flight", "Requests in flight", "", level(otlp.EdgeRequestsInFlight)},
	{"request_bytes_per_second", "Request bytes", "B/s", rate(otlp.EdgeRequestBytes, "")},
	{"response_bytes_per_second", "Response bytes", "B/s", rate(otlp.EdgeResponseBytes, "")},
	{"transactions", "Transactions", "", orCounted(gained(otlp.EdgeTransactions), gained(otlp.EdgeTransactionDuration))},
	{"request_bytes", "Request bytes in all", "B", gained(otlp.EdgeRequestBytes)},
	{"response_bytes", "Response bytes in all", "B", gained(otlp.EdgeResponseBytes)},
	{"request_packets", "Request packets", "", gained(otlp.EdgeRequestPackets)},
	{"response_packets", "Response packets", "", gained(otlp.EdgeResponsePackets)},
	{"rtt_p50", "Round trip p50", "s", quantileOf("0.5", otlp.EdgeRoundTrip)},
	{"rtt_p99", "Round trip p99", "s", quantileOf("0.99", otlp.EdgeRoundTrip)},
	{"rtt_min", "Least round trip", "s", "min(" + otlp.EdgeRoundTripMin + "{$match})"},
	{"jitter", "Jitter", "s", rate(otlp.EdgeJitter, "") + " / histogram_count(" + rate(otlp.EdgeRoundTrip, "") + ")"},
	{"window_limited_seconds", "Held up by the receiver", "s", gained(otlp.EdgeWindowLimited)},
	{"duration_p50", "Connection duration p50", "s", quantileOf("0.5", otlp.EdgeConnectionDuration)},
	{"duration_p99", "Connection duration p99", "s", quantileOf("0.99", otlp.EdgeConnectionDuration)},
	{"connections_open", "Connections open", "", level(otlp.EdgeConnectionsOpened) + " - " + level(otlp.EdgeConnectionsClosed)},
	{"connections_opened", "Connections opened", "", gained(otlp.EdgeConnectionsOpened)},
	{"connections_closed", "Connections closed", "", gained(otlp.EdgeConnectionsClosed)},
	{"failures", "Failed connections", "", gained(otlp.EdgeConnectionFailures)},
	{"failures_refused", "Refused connections", "", gainedOf(otlp.EdgeConnectionFailures, "refused")},
	{"failures_timed_out", "Connections timed out while opening", "", gainedOf(otlp.EdgeConnectionFailures, "timed_out")},
	{"failures_unreachable", "Unreachable", "", gainedOf(otlp.EdgeConnectionFailures, "unreachable")},
	{"retransmits", "Retransmitted segments", "", gained(otlp.EdgeRetransmits)},
	{"resets", "Resets", "", gained(otlp.EdgeResets)},
	{"timed_out", "Timed out connections", "", gained(otlp.EdgeTimeouts)},
	{"aborted", "Aborted transactions", "", gained(otlp.EdgeAborted)},
	{"continued", "Continued replies", "", gained(otlp.EdgeContinued)},
	{"transfers", "Transfers over 1 s", "", gained(otlp.EdgeTransfers)},
	{"held", "Replies after 10 s", "", gained(otlp.EdgeHeld)},
	{"pushes", "Pushes of the server", "", gained(otlp.EdgePushes)},
	{"one_way", "Packets without reply", "", gained(otlp.EdgeOneWay)},
	{"unseen_bytes", "Unseen bytes", "B", gained(otlp.EdgeUnseenBytes)},
	{"lost_transactions", "Transactions lost sight of", "", gained(otlp.EdgeLost)},
}

// failedStatuses matches those of model.FailedStatuses.
var failedStatuses = `,status=~"` + strings.Join(model.FailedStatuses, "|") + `"`

// endpointNumbers are the numbers of graph.Endpoint.
var endpointNumbers = []number{
	{"requests_per_second", "Requests", "/s", rate(otlp.EndpointRequests, "")},
	{"errors_per_second", "Errors", "/s", rate(otlp.EndpointRequests, failedStatuses)},
	{"p50", "p50", "s", quantileOf("0.5", otlp.EndpointDuration)},
	{"p99", "p99", "s", quantileOf("0.99", otlp.EndpointDuration)},
}

// outsidePattern matches the id label of an end outside of the hosts: an address, or "others".
const outsidePattern = `([0-9]{1,3}[.]){3}[0-9]{1,3}|[0-9a-fA-F]*:.*|others`

// idMatch is what follows the name of an id label to select a node: ="..." or =~"...".
func idMatch(n *graph.Node) string {
	switch {
	case n.Kind == graph.KindHost && n.SeriesID == "":
		return "!~" + strconv.Quote(outsidePattern) + "," + otlp.LabelHost + "=" + strconv.Quote(n.Host)
	case n.Kind == graph.KindHost:
		return "=" + strconv.Quote(n.SeriesID) + "," + otlp.LabelHost + "=" + strconv.Quote(n.Host)
	case n.Kind == graph.KindPod:
		return anyOf(slices.Concat(n.Members, n.Addresses))
	case n.SeriesID != "" && len(n.Addresses) > 0 && n.Kind != graph.KindOutside:
		return anyOf(slices.Concat([]string{n.SeriesID}, n.Addresses))
	case n.SeriesID != "":
		return "=" + strconv.Quote(n.SeriesID)
	case n.AddressCount > len(n.Addresses):
		return "=~" + strconv.Quote(outsidePattern)
	}
	return anyOf(n.Addresses)
}

func anyOf(ids []string) string {
	quoted := make([]string, len(ids))
	for i, id := range ids {
		quoted[i] = regexp.QuoteMeta(id)
	}
	return "=~" + strconv.Quote(strings.Join(quoted, "|"))
}

// kubeMatch selects the series of a workload or namespace by labels whose names begin with prefix;
// it is empty for other nodes.
func kubeMatch(n *graph.Node, prefix string) string {
	switch n.Kind {
	case graph.KindNamespace:
		return prefix + otlp.LabelNamespace + "=" + strconv.Quote(n.PodNamespace)
	case graph.KindWorkload:
		return fmt.Sprintf("%s%s=%q,%[1]s%[4]s=%[5]q,%[1]s%[6]s=%[7]q", prefix, otlp.LabelNamespace, n.PodNamespace,
			otlp.LabelWorkload, n.Workload, otlp.LabelWorkloadKind, n.WorkloadKind)
	}
	return ""
}

func usageMatch(n *graph.Node) string { return cmp.Or(kubeMatch(n, ""), otlp.LabelID+idMatch(n)) }

// endMatch selects the edges of which a node is the client or the server. Where processes are
// told apart, the node of a container is about its ends without a known process.
func endMatch(n *graph.Node, by graph.Grouping, idLabel, processLabel string) string {
	match := kubeMatch(n, strings.TrimSuffix(idLabel, otlp.LabelID))
	if match == "" {
		match = idLabel + idMatch(n)
	}
	if by == graph.ByProcess && n.Kind != graph.KindOutside {
		match += "," + processLabel + "=" + strconv.Quote(n.Process)
	}
	return match
}

// servedMatch and calledMatch select a node's edges as its own end counted them; for an end
// outside, as the other end did.
func servedMatch(n *graph.Node, by graph.Grouping) string {
	side := "server"
	if n.Kind == graph.KindOutside {
		side = "client"
	}
	return fmt.Sprintf(`%s,%s=%q`, endMatch(n, by, otlp.LabelServerID, otlp.LabelServerProcess), otlp.LabelSide, side)
}

func calledMatch(n *graph.Node, by graph.Grouping) string {
	side := "client"
	if n.Kind == graph.KindOutside {
		side = "server"
	}
	return fmt.Sprintf(`%s,%s=%q`, endMatch(n, by, otlp.LabelClientID, otlp.LabelClientProcess), otlp.LabelSide, side)
}

// edgeMatch selects both sides of an edge. Series of before there was UDP have no transport.
func edgeMatch(client, server *graph.Node, transport string, by graph.Grouping) string {
	if transport == model.TCP.String() {
		transport += "|"
	}
	return fmt.Sprintf(`%s,%s,%s=~%q`, endMatch(client, by, otlp.LabelClientID, otlp.LabelClientProcess),
		endMatch(server, by, otlp.LabelServerID, otlp.LabelServerProcess), otlp.LabelTransport, transport)
}

// expand is the query of a number with its parameters filled in.
func (n number) expand(match string, seconds float64) string {
	window := strconv.Itoa(max(2, int(seconds+0.5))) + "s"
	return strings.NewReplacer("$match", match, "$window", window).Replace(n.Query)
}
