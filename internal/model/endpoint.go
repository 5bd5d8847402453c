package model

import (
	"slices"
	"strings"
)

// Protocol is what a connection's requests were recognised as.
type Protocol string

// The protocols whose requests are read. Requests of others are transactions without endpoint.
const (
	HTTP       Protocol = "http"
	Redis      Protocol = "redis"
	PostgreSQL Protocol = "postgresql"
	MySQL      Protocol = "mysql"
	Kafka      Protocol = "kafka"
	Memcached  Protocol = "memcached"
	DNS        Protocol = "dns"
	HTTP2      Protocol = "http2"
	GRPC       Protocol = "grpc"
)

// Names of endpoints that stand for more than one thing asked: OtherEndpoint collects those for
// which a table had no room, InvalidEndpoint requests that the protocol does not allow.
const (
	OtherEndpoint   = "other"
	InvalidEndpoint = "invalid"
)

// EndpointKey is what distinguishes the endpoints of an edge.
type EndpointKey struct {
	Protocol Protocol
	// Name is what was asked for, in at most 48 printable bytes (96 for HTTP/2 and gRPC): method
	// and templated route, command, or statement. It is "unknown" where a connection was joined
	// after the request's path was known.
	Name string
	// Status is "1xx" to "5xx", or "101" for a switch of protocols, for HTTP; "ok" or "error"
	// for others; empty where the reply does not say. For DNS "ok" or the response code:
	// "nxdomain", "servfail", "refused", "formerr", "notimp", or "rcode9" and the like. For gRPC
	// it is the call's: "ok", "not_found", "unavailable" and so on.
	Status string
}

// FailedStatuses are the values of EndpointKey.Status that say that the server failed to do what
// was asked; those of gRPC as OpenTelemetry has them for servers.
var FailedStatuses = []string{"error", "5xx", "servfail", "refused",
	"unknown", "deadline_exceeded", "unimplemented", "internal", "unavailable", "data_loss"}

// Failed reports whether the status is one of FailedStatuses.
func (k EndpointKey) Failed() bool { return slices.Contains(FailedStatuses, k.Status) }

// Endpoint counts the transactions of an edge that asked for the same thing and were answered
// alike. The counters are cumulative.
type Endpoint struct {
	EndpointKey
	// Aside counts transactions that are not in Latency: transfers and held ones; see
	// EdgeCounters.
	Aside uint64
	// Latency has one entry for every other transaction.
	Latency *Histogram
}

// Transactions is the number of finished transactions.
func (e *Endpoint) Transactions() uint64 {
	if e.Latency == nil {
		return e.Aside
	}
	return e.Aside + e.Latency.Count
}

// Plus is the sum of two endpoints with the key of e. It shares histograms that need no sum.
func (e Endpoint) Plus(other *Endpoint) Endpoint {
	e.Aside += other.Aside
	switch {
	case other.Latency == nil:
	case e.Latency == nil:
		e.Latency = other.Latency
	default:
		sum := e.Latency.Clone()
		sum.Merge(other.Latency)
		e.Latency = sum
	}
	return e
}

// Since is what e gained after before, an earlier state of it.
func (e Endpoint) Since(before *Endpoint) Endpoint {
	e.Aside -= before.Aside
	if e.Latency != nil && before.Latency != nil {
		e.Latency = e.Latency.Since(before.Latency)
	}
	return e
}

// Precedes reports whether after can be a later state of e.
func (e *Endpoint) Precedes(after *Endpoint) bool {
	if e.Aside > after.Aside {
		return false
	}
	return e.Latency == nil || after.Latency != nil && e.Latency.Count <= after.Latency.Count
}

// EndpointRows are the metrics of an endpoint, whose labels are those of its edge, and protocol, endpoint and status.
var EndpointRows = []Row[Endpoint]{
	{Name: "outsight_endpoint_requests_total", OTel: "outsight.endpoint.requests", Unit: "{request}", Kind: Counter,
		Help: "Requests by protocol, endpoint and the status of their reply, where they were recognised",
		Columns: []Column[Endpoint]{{Name: "requests",
			Count: func(e *Endpoint) (uint64, bool) { return e.Transactions(), true }, Shown: []Number{
				{Key: "requests_per_second", Title: "Requests", Unit: "/s", Group: GroupRequests, Formula: Rate},
				{Key: "errors_per_second", Title: "Errors", Unit: "/s", Group: GroupRequests, Formula: Derived,
					Query: "sum(rate(" +
						`outsight_endpoint_requests_total{$match,status=~"` + strings.Join(FailedStatuses, "|") + `"}[$window]))`}}}}},
	{Name: "outsight_endpoint_request_duration_seconds", OTel: "outsight.endpoint.request.duration", Unit: "s",
		Kind: HistogramSeries,
		Help: "Time of a request and its reply by protocol, endpoint and the status of the reply",
		Columns: []Column[Endpoint]{{Name: "latency",
			Histogram: func(e *Endpoint) (*Histogram, bool) { return e.Latency, true },
			Shown: []Number{
				{Key: "p50", Title: "p50", Unit: "s", Group: GroupLatency, Formula: QuantileOf, Quantile: 0.5},
				{Key: "p99", Title: "p99", Unit: "s", Group: GroupLatency, Formula: QuantileOf, Quantile: 0.99}}}}},
}
