package model

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
)

// Names of endpoints that stand for more than one thing asked: OtherEndpoint collects those for
// which a table had no room, InvalidEndpoint requests that the protocol does not allow.
const (
	OtherEndpoint   = "other"
	InvalidEndpoint = "invalid"
)

// EndpointKey is what tells the endpoints of an edge apart.
type EndpointKey struct {
	Protocol Protocol
	// Name is what was asked for, in at most 48 printable bytes: method and templated route,
	// command, or statement.
	Name string
	// Status is "1xx" to "5xx", or "101" for a switch of protocols, for HTTP; "ok" or "error"
	// for others; empty where the reply does not tell. For DNS "ok" or the response code:
	// "nxdomain", "servfail", "refused", "formerr", "notimp", or "rcode9" and the like.
	Status string
}

// Failed tells whether the status says that the server failed to do what was asked.
func (k EndpointKey) Failed() bool {
	switch k.Status {
	case "error", "5xx", "servfail", "refused":
		return true
	}
	return false
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
