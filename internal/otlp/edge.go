package otlp

import (
	"net/netip"
	"time"

	"outsight/internal/model"
)

var edgeMetrics = []Metric{
	{EdgeRequestBytes, "outsight.edge.request", "By", model.Counter,
		"Bytes from the client to the server",
		nil, counter(func(e *model.Edge) uint64 { return requestBytes(e) }), nil},
	{EdgeResponseBytes, "outsight.edge.response", "By", model.Counter,
		"Bytes from the server to the client",
		nil, counter(func(e *model.Edge) uint64 { return responseBytes(e) }), nil},
	{EdgeRequestPackets, "outsight.edge.request.packets", "{packet}", model.Counter,
		"UDP packets from the client to the server, as programs handed them over",
		nil, udpCounter(func(e *model.Edge) uint64 { return requestPackets(e) }), nil},
	{EdgeResponsePackets, "outsight.edge.response.packets", "{packet}", model.Counter,
		"UDP packets from the server to the client, as programs handed them over",
		nil, udpCounter(func(e *model.Edge) uint64 { return responsePackets(e) }), nil},
	{EdgeOneWay, "outsight.edge.one_way_packets", "{packet}", model.Counter,
		"UDP packets in streams that nobody answers; they are no transactions",
		nil, udpCounter(func(e *model.Edge) uint64 { return e.Counters.OneWay }), nil},
	{EdgeTransactionDuration, "outsight.edge.transaction.duration", "s", model.HistogramSeries,
		"Time of a request and its reply: on the client from the first byte sent to the last received, on the server from the first byte received to the last sent",
		nil, func(e *model.Edge, to *collector) { to.histogram(e.Counters.Latency) }, nil},
	{EdgeConnectionsOpened, "outsight.edge.connections.opened", "{connection}", model.Counter,
		"Connections established, or found open at the start",
		nil, counter(func(e *model.Edge) uint64 { return e.Counters.Opens }), nil},
	{EdgeConnectionsClosed, "outsight.edge.connections.closed", "{connection}", model.Counter,
		"Connections that ended",
		nil, counter(func(e *model.Edge) uint64 { return e.Counters.Closes }), nil},
	{EdgeConnectionFailures, "outsight.edge.connection.failures", "{connection}", model.Counter,
		"Attempts to connect that failed, by reason (type: refused, timed_out, unreachable, other); client's side only",
		nil, connectionFailures, nil},
	{EdgeRetransmits, "outsight.edge.retransmits", "{segment}", model.Counter,
		"TCP segments sent again",
		nil, counter(func(e *model.Edge) uint64 { return e.Counters.Retransmits }), nil},
	{EdgeAborted, "outsight.edge.aborted_transactions", "{transaction}", model.Counter,
		"Requests that ended without a reply",
		nil, counter(func(e *model.Edge) uint64 { return e.Counters.Aborts }), nil},
	{EdgeContinued, "outsight.edge.continued_replies", "{reply}", model.Counter,
		"Replies that went on after a second of silence; their latency lacks the tail",
		nil, counter(func(e *model.Edge) uint64 { return e.Counters.Continued }), nil},
	{EdgeTransactions, "outsight.edge.transactions", "{transaction}", model.Counter,
		"Transactions that ended, whatever their duration",
		nil, counter(func(e *model.Edge) uint64 { return e.Counters.Transactions() }), nil},
	{EdgeRequestsInFlight, "outsight.edge.requests_in_flight", "{request}", model.Gauge,
		"Requests whose reply has not begun",
		nil, func(e *model.Edge, to *collector) { to.value(float64(e.Counters.InFlight())) }, nil},
	{EdgeTransfers, "outsight.edge.transfers", "{transaction}", model.Counter,
		"Transactions whose reply flowed for over a second; not in the duration",
		nil, counter(func(e *model.Edge) uint64 { return e.Counters.Transfers }), nil},
	{EdgeHeld, "outsight.edge.held_requests", "{transaction}", model.Counter,
		"Transactions whose reply began over ten seconds after the request; not in the duration",
		nil, counter(func(e *model.Edge) uint64 { return e.Counters.Held }), nil},
	{EdgePushes, "outsight.edge.pushes", "{push}", model.Counter,
		"Times that a server sent without having been asked",
		nil, counter(func(e *model.Edge) uint64 { return e.Counters.Pushes }), nil},
	{EdgeUpgrades, "outsight.edge.upgrades", "{connection}", model.Counter,
		"Connections that both ends agreed to make streams (WebSocket, replication, subscriptions)",
		nil, counter(func(e *model.Edge) uint64 { return e.Counters.Upgrades }), nil},
	{EdgeLost, "outsight.edge.lost_transactions", "{transaction}", model.Counter,
		"Transactions whose end is not known: their HTTP/2 connection could not be followed any more",
		nil, counter(func(e *model.Edge) uint64 { return e.Counters.Lost }), nil},
	{EdgeResets, "outsight.edge.connections.reset", "{connection}", model.Counter,
		"Connections that ended with a reset",
		nil, counter(func(e *model.Edge) uint64 { return e.Counters.Resets }), nil},
	{EdgeTimeouts, "outsight.edge.connections.timed_out", "{connection}", model.Counter,
		"Connections whose other end fell silent",
		nil, counter(func(e *model.Edge) uint64 { return e.Counters.TimedOut }), nil},
	{EdgeUnseenBytes, "outsight.edge.unseen", "By", model.Counter,
		"Bytes received by the kernel and read by no call that is seen (splice), or never read",
		nil, counter(func(e *model.Edge) uint64 { return e.Counters.UnseenBytes }), nil},
	{EdgeJitter, "outsight.edge.round_trip_deviation", "s", model.Counter,
		"Sum of the mean deviation of the round-trip time, one for each entry of the round-trip time",
		nil, func(e *model.Edge, to *collector) { to.value(float64(e.Counters.JitterSumNS) / 1e9) }, nil},
	{EdgeWindowLimited, "outsight.edge.window_limited", "s", model.Counter,
		"Time in which the other end's receive window held the sender up, of connections that ended",
		nil, func(e *model.Edge, to *collector) { to.value(float64(e.Counters.WindowLimitedNS) / 1e9) }, nil},
	{EdgeRoundTripMin, "outsight.edge.round_trip.min", "s", model.Gauge,
		"Least round-trip time of all connections",
		nil, func(e *model.Edge, to *collector) {
			if e.Counters.RTTMinNS > 0 {
				to.value(float64(e.Counters.RTTMinNS) / 1e9)
			}
		}, nil},
	{EdgeFirstByte, "outsight.edge.first_byte.duration", "s", model.HistogramSeries,
		"Time from a request's first byte to its reply's first byte",
		nil, func(e *model.Edge, to *collector) { to.histogram(e.Counters.TimeToFirstByte) }, nil},
	{EdgeRoundTrip, "outsight.edge.round_trip.duration", "s", model.HistogramSeries,
		"Smoothed round-trip time of the path as the kernel measures it, at the end of each transaction",
		nil, func(e *model.Edge, to *collector) { to.histogram(e.Counters.RTT) }, nil},
	{EdgeConnectionDuration, "outsight.edge.connection.duration", "s", model.HistogramSeries,
		"Duration of connections that ended",
		nil, func(e *model.Edge, to *collector) { to.histogram(e.Counters.Duration) }, nil},
	{EndpointRequests, "outsight.endpoint.requests", "{request}", model.Counter,
		"Requests by protocol, endpoint and the status of their reply, where they were recognised",
		nil, func(e *model.Edge, to *collector) {
			to.endpoints(e, func(p *model.Endpoint) float64 { return float64(p.Transactions()) })
		}, nil},
	{EndpointDuration, "outsight.endpoint.request.duration", "s", model.HistogramSeries,
		"Time of a request and its reply by protocol, endpoint and the status of the reply",
		nil, func(e *model.Edge, to *collector) { to.endpointHistograms(e) }, nil},
	{EdgePaired, "outsight.edge.paired", "", model.Gauge,
		"1 where both ends of the edge were counted",
		nil, func(e *model.Edge, to *collector) { to.value(boolean(e.Paired)) }, nil},
	{EdgeConfidence, "outsight.edge.confidence", "", model.Gauge,
		"How the other end was found: 3 the kernel saw both ends, 2 a listener, 1 an address, 0 not found",
		nil, func(e *model.Edge, to *collector) { to.value(float64(e.Confidence)) }, nil},
}

func counter(read func(*model.Edge) uint64) func(*model.Edge, *collector) {
	return func(e *model.Edge, to *collector) { to.value(float64(read(e))) }
}

// udpCounter is a counter that edges of TCP do not have.
func udpCounter(read func(*model.Edge) uint64) func(*model.Edge, *collector) {
	return func(e *model.Edge, to *collector) {
		if e.Transport == model.UDP {
			to.value(float64(read(e)))
		}
	}
}

func requestPackets(e *model.Edge) uint64 {
	if e.Side == model.RoleServer {
		return e.Counters.ReceivedPackets
	}
	return e.Counters.SentPackets
}

func responsePackets(e *model.Edge) uint64 {
	if e.Side == model.RoleServer {
		return e.Counters.SentPackets
	}
	return e.Counters.ReceivedPackets
}

func requestBytes(e *model.Edge) uint64 {
	if e.Side == model.RoleServer {
		return e.Counters.ReceivedBytes
	}
	return e.Counters.SentBytes
}

func responseBytes(e *model.Edge) uint64 {
	if e.Side == model.RoleServer {
		return e.Counters.SentBytes
	}
	return e.Counters.ReceivedBytes
}

// edgeKey is what the labels of an edge's series are made from: two edges with one key would
// be one series twice.
type edgeKey struct {
	side             model.Role
	client, server   string
	clientN, serverN string
	clientP, serverP string
	service          netip.AddrPort
	transport        model.Transport
}

func keyOf(e *model.Edge) edgeKey {
	return edgeKey{e.Side, e.Client.ID(), e.Server.ID(), e.Client.Name(), e.Server.Name(),
		e.Client.Process, e.Server.Process, e.Service, e.Transport}
}

// uniqueEdges adds up edges that have the same labels, in the order of the first of each.
func uniqueEdges(edges []model.Edge) []model.Edge {
	at := make(map[edgeKey]int, len(edges))
	unique := make([]model.Edge, 0, len(edges))
	for i := range edges {
		e := edges[i]
		k := keyOf(&e)
		if j, ok := at[k]; ok {
			addEdge(&unique[j], &e)
			continue
		}
		at[k] = len(unique)
		unique = append(unique, e)
	}
	return unique
}

func connectionFailures(e *model.Edge, to *collector) {
	c := &e.Counters
	if e.Side != model.RoleClient && c.Failures == 0 || e.Transport != model.TCP {
		return
	}
	known := c.FailuresRefused + c.FailuresTimedOut + c.FailuresUnreachable
	to.value(float64(c.FailuresRefused), label(LabelType, "refused"))
	to.value(float64(c.FailuresTimedOut), label(LabelType, "timed_out"))
	to.value(float64(c.FailuresUnreachable), label(LabelType, "unreachable"))
	to.value(float64(c.Failures-min(known, c.Failures)), label(LabelType, "other"))
}

// addEdge adds e to sum, which is a copy of ours.
func addEdge(sum, e *model.Edge) {
	sum.Counters.Add(&e.Counters)
	sum.Endpoints = model.MergeEndpoints(sum.Endpoints, e.Endpoints)
	sum.Paired = sum.Paired && e.Paired
	sum.Confidence = min(sum.Confidence, e.Confidence)
	if e.Start.IsZero() || e.Start.Before(sum.Start) {
		sum.Start = e.Start
	}
}

// edgeStart is when the counters of e were zero: what e says, else the later start of its two
// ends, which no counter of it can be older than.
func edgeStart(e *model.Edge) (start time.Time) {
	if !e.Start.IsZero() {
		return e.Start
	}
	for _, p := range []model.Peer{e.Client, e.Server} {
		if p.Container != nil && p.Container.Started.After(start) {
			start = p.Container.Started
		}
	}
	return start
}
