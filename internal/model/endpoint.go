package model

import (
	"bytes"
	"slices"
	"strconv"
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

// protocolNumbers are the numbers of protocols in the kernel's records (enum protocol of bpf/net/proto/endpoints.h).
var protocolNumbers = [...]Protocol{1: HTTP, 2: Redis, 3: PostgreSQL, 4: MySQL, 5: Kafka, 6: Memcached, 7: DNS, 8: HTTP2,
	9: GRPC}

// The numbers of statuses in the kernel's records (enum status of the same file). 1 to 5 are the classes of HTTP's.
const (
	statusOK       = 6
	statusError    = 7
	statusSwitched = 8
	statusRCode    = 16
	statusGRPC     = 32
)

// responseCodes are the names of DNS response codes.
var responseCodes = map[uint8]string{1: "formerr", 2: "servfail", 3: "nxdomain", 4: "notimp", 5: "refused"}

// grpcStatuses are those of gRPC, by their number.
var grpcStatuses = [...]string{"ok", "cancelled", "unknown", "invalid_argument", "deadline_exceeded", "not_found",
	"already_exists", "permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range",
	"unimplemented", "internal", "unavailable", "data_loss", "unauthenticated"}

// EndpointKeyOf is the key of an endpoint's record in the kernel (docs/format/edges.md); the name may end with zeros.
func EndpointKeyOf(protocol, status uint8, name []byte) EndpointKey {
	text, _, _ := bytes.Cut(name, []byte{0})
	key := EndpointKey{Name: Printable(string(text), len(name))}
	if int(protocol) < len(protocolNumbers) {
		key.Protocol = protocolNumbers[protocol]
	}
	switch s := status; {
	case s >= 1 && s <= 5:
		key.Status = strconv.Itoa(int(s)) + "xx"
	case s == statusOK:
		key.Status = "ok"
	case s == statusError:
		key.Status = "error"
	case s == statusSwitched:
		key.Status = "101"
	case s >= statusRCode && s < statusGRPC:
		key.Status = responseCode(s - statusRCode)
	case s >= statusGRPC && int(s-statusGRPC) < len(grpcStatuses):
		key.Status = grpcStatuses[s-statusGRPC]
	}
	return key
}

func responseCode(code uint8) string {
	if name := responseCodes[code]; name != "" {
		return name
	}
	return "rcode" + strconv.Itoa(int(code))
}

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
