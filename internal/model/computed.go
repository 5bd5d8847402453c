package model

// OfServer is what a server computes of what many frames tell: no frame has it, and no agent.
const OfServer Entity = "server"

// Metrics of resources that are bounded, as "outsight runout" tells them.
const (
	RunOutTime = "outsight_runout_timestamp_seconds"
	RunOutUsed = "outsight_runout_used_ratio"
)

// Labels of these metrics: what is bounded (predict.BoundedKind), and which of the times it is.
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
			"server. Of a host's resources name is the host's, and there is no id"},
	{Name: RunOutUsed, OTel: "outsight.runout.used", Unit: "1", Kind: Gauge, Entity: OfServer,
		Labels: []string{ResourceLabel},
		Help:   "Share of a bounded resource that is in use, 0 to 1. Computed by the server"},
}
