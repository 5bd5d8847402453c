package model

// OfServer is what a server computes of what many frames tell: no frame has it, and no agent.
const OfServer Entity = "server"

// Metrics of resources that are bounded, as "outsight runout" tells them.
const (
	RunOutTime = "outsight_runout_timestamp_seconds"
	RunOutUsed = "outsight_runout_used_ratio"
)

// Metrics of both ends of an edge together, as the map tells them: where the time of its requests goes, and what the packets
// say of the way between two hosts.
const (
	EndsTime         = "outsight_ends_time_seconds"
	EndsDelay        = "outsight_ends_network_delay_seconds"
	EndsDelayError   = "outsight_ends_network_delay_error_seconds"
	EndsAboveMinimum = "outsight_ends_network_above_minimum_seconds"
	EndsPart         = "outsight_ends_network_part_seconds"
	EndsJitter       = "outsight_ends_network_jitter_seconds"
	EndsMatched      = "outsight_ends_network_matched_packets"
)

// Labels of metrics of both ends: on which hosts they are, which part of the time, there or back, and which quantile.
const (
	ClientHostLabel = "client_host"
	ServerHostLabel = "server_host"
	PartLabel       = "part"
	DirectionLabel  = "direction"
	QuantileLabel   = "quantile"
)

// Labels of metrics of bounded resources: what is bounded (predict.BoundedKind), and which of the times it is.
const (
	ResourceLabel = "resource"
	BoundLabel    = "bound"
)

// ComputedMetrics are those of OfServer.
var ComputedMetrics = []Metric{
	{Name: RunOutTime, OTel: "outsight.runout.timestamp", Unit: "s", Kind: Gauge, Entity: OfServer,
		Labels: []string{ResourceLabel, BoundLabel},
		Help: "Time at which a bounded resource will be used up if its use goes on as in the last day, since the Unix epoch: " +
			"expected, and the earliest and the latest in nine of ten cases; none where that is not in sight. Computed by the " +
			"server. Of a host's memory and CPU time name is the host's, of a filesystem where it is mounted, and there is no id; those of requests are of no host"},
	{Name: RunOutUsed, OTel: "outsight.runout.used", Unit: "1", Kind: Gauge, Entity: OfServer,
		Labels: []string{ResourceLabel},
		Help:   "Share of a bounded resource that is in use. Computed by the server"},
	{Name: EndsTime, OTel: "outsight.ends.time", Unit: "s", Kind: Gauge, Entity: OfServer, Labels: []string{PartLabel},
		Help: "Where the time from a request’s first byte to its reply’s goes, on average in the last interval: in the client, " +
			"network_there, in the server, network_back; network_both where clocks do not tell there from back. Computed by the server"},
	{Name: EndsDelay, OTel: "outsight.ends.network.delay", Unit: "s", Kind: Gauge, Entity: OfServer,
		Labels: []string{DirectionLabel, QuantileLabel},
		Help: "One-way delay of packets between two hosts in the last 10 s, of a sample; none where that is no more than is not " +
			"known of the clocks. Computed by the server"},
	{Name: EndsDelayError, OTel: "outsight.ends.network.delay_error", Unit: "s", Kind: Gauge, Entity: OfServer,
		Labels: []string{DirectionLabel},
		Help:   "By how much that delay may be wrong, either way. Computed by the server"},
	{Name: EndsAboveMinimum, OTel: "outsight.ends.network.above_minimum", Unit: "s", Kind: Gauge, Entity: OfServer,
		Labels: []string{DirectionLabel, QuantileLabel},
		Help: "By how much packets between two hosts took longer than the fastest on the same way in the last 10 s; no clock is " +
			"in it. Computed by the server"},
	{Name: EndsPart, OTel: "outsight.ends.network.part", Unit: "s", Kind: Gauge, Entity: OfServer,
		Labels: []string{DirectionLabel, PartLabel, QuantileLabel},
		Help: "One-way delay of packets between two hosts in its parts: sender_stack and receiver_stack, from a socket to the " +
			"interface of its host and back, exact; wire, none where that is no more than is not known of the clocks. Computed by " +
			"the server"},
	{Name: EndsJitter, OTel: "outsight.ends.network.jitter", Unit: "s", Kind: Gauge, Entity: OfServer,
		Labels: []string{DirectionLabel},
		Help: "By how much the delay of a packet between two hosts differs from that of the one before, on average. Computed by " +
			"the server"},
	{Name: EndsMatched, OTel: "outsight.ends.network.matched_packets", Unit: "{packet}", Kind: Gauge, Entity: OfServer,
		Labels: []string{DirectionLabel},
		Help:   "Packets of the last 10 s that both hosts sampled, of which the others tell. Computed by the server"},
}
