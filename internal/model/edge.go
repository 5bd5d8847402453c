package model

import "fmt"

// EdgeCounters are cumulative counters of one edge, from the side of the end that counted.
type EdgeCounters struct {
	SentBytes, ReceivedBytes uint64
	// SentPackets and ReceivedPackets count datagrams, of UDP alone: calls that sent or received
	// one. A call that hands over several at once (UDP_SEGMENT, UDP_GRO) counts as one.
	SentPackets, ReceivedPackets uint64
	// OneWay counts datagrams, of UDP alone, in streams that nobody answers (statistics, video).
	// They are no transactions.
	OneWay uint64
	// Opens counts connections established (or found open at the start), Closes those ended.
	Opens, Closes uint64
	// Failures counts connection attempts that failed: FailuresRefused,
	// FailuresTimedOut, FailuresUnreachable and those for other reasons.
	Failures                                               uint64
	FailuresRefused, FailuresTimedOut, FailuresUnreachable uint64
	// Resets counts connections that ended with a reset, TimedOut those whose other end fell
	// silent.
	Resets, TimedOut uint64
	// Retransmits counts retransmitted segments.
	Retransmits uint64
	// Requests counts transactions begun, Replies those whose reply has begun. Their
	// difference, less Aborts, waits for the server now.
	Requests, Replies uint64
	// Aborts counts transactions that ended without a reply.
	Aborts uint64
	// Transfers counts transactions whose reply flowed for over a second, Held those whose
	// reply began more than ten seconds after the request (a long poll). Neither is in Latency:
	// their times do not show how fast the server is.
	Transfers, Held uint64
	// Continued counts replies that went on after a second of silence, when their
	// transaction had already been counted; its latency lacks the tail.
	Continued uint64
	// Pushes counts times that a server sent without having been asked. A connection with
	// several of them in a row is a stream, of which no transactions are counted.
	Pushes uint64
	// Upgrades counts connections that became streams by agreement of both ends (WebSocket,
	// replication, subscriptions). From then on they have no transactions.
	Upgrades uint64
	// Lost counts transactions whose end is not known, because their HTTP/2 connection could not
	// be followed any more; LostWaiting those of them whose reply had not begun.
	Lost, LostWaiting uint64
	// UnseenBytes were received by the kernel and never read by a call that the programs see
	// (splice to a pipe, or left unread); known when a connection ends.
	UnseenBytes uint64
	// JitterSumNS sums the mean deviation of the round-trip time, one for each entry of RTT.
	JitterSumNS uint64
	// WindowLimitedNS is the time in which the peer's receive window held this end up.
	WindowLimitedNS uint64
	// SendLimitedNS is the time in which this end's own send buffer held it up: it was too small for the path.
	SendLimitedNS uint64
	// RTTMinNS is the least round-trip time of all connections, 0 until one was measured.
	RTTMinNS uint64
	// Latency has one entry per transaction: on a client from the first byte sent to the last
	// byte received, on a server from the first byte received to the last byte sent (Brondolin
	// and Santambrogio 2020, figure 4).
	Latency *Histogram
	// TimeToFirstByte has one entry per reply: from the request's first byte to the reply's.
	TimeToFirstByte *Histogram
	// RTT is the kernel's smoothed round-trip time at the end of each transaction; Duration is
	// of connections. Both nil until there is one.
	RTT, Duration *Histogram
	// Packets is what was seen of the packets themselves.
	Packets PacketCounters
}

// PacketCounters count the packets with data of an edge as they go over the network, at one end: TCP segments, as the
// kernel counts them, and UDP datagrams, as calls send and receive them. Bytes are those of the data. All are 0 where
// packets are not counted.
type PacketCounters struct {
	// Sent ones have retransmissions among them, received ones of TCP copies. ReceivedBytes of TCP have each byte once.
	SentPackets, SentBytes, ReceivedPackets, ReceivedBytes uint64
	// Reordered counts packets received that are older than one that was received before (RFC 4737), Duplicated
	// copies of packets that were received, and Repeated segments that were sent again although they had been
	// received.
	Reordered, Duplicated, Repeated uint64
	// Delay is the time from the other end's stack to this one's, of the packets of which it was measured: those
	// that were sent on this host. DelayVariationNS sums the differences between one delay and the next (RFC 3550).
	Delay            *Histogram
	DelayVariationNS uint64
	// UnreadNS is for how long requests lay in the server's sockets until they were read, UnreadRequests of how many.
	UnreadNS, UnreadRequests uint64
	// Observed is of how many packets received the order and the delay were looked at: Reordered, Duplicated, Repeated,
	// Delay and UnreadRequests are of these. The others are of all.
	Observed uint64
	// Sampled counts packets sent and received of which is known when, to be compared with what the other host has.
	Sampled uint64
	// Retransmitted counts TCP segments that this end sent again, those without data among them, and OutOfOrder those
	// that it received when one before them was missing.
	Retransmitted, OutOfOrder uint64
}

// Plain lists the counters that add up: all but the histogram.
func (n *PacketCounters) Plain() [packetCounters]*uint64 {
	return [...]*uint64{&n.SentPackets, &n.SentBytes, &n.ReceivedPackets, &n.ReceivedBytes, &n.Reordered, &n.Duplicated,
		&n.Repeated, &n.DelayVariationNS, &n.UnreadNS, &n.UnreadRequests, &n.Observed, &n.Retransmitted, &n.OutOfOrder, &n.Sampled}
}

// Seen reports whether any packet was.
func (n *PacketCounters) Seen() bool { return n.SentPackets|n.ReceivedPackets != 0 }

// Transactions is the number of finished transactions.
func (c *EdgeCounters) Transactions() uint64 {
	n := c.Transfers + c.Held
	if c.Latency != nil {
		n += c.Latency.Count
	}
	return n
}

// plainCounters and packetCounters are how many there are of each.
const packetCounters, plainCounters = 14, 28 + packetCounters

// Plain lists the counters that add up: all but the histograms and RTTMinNS.
func (c *EdgeCounters) Plain() (all [plainCounters]*uint64) {
	packets := c.Packets.Plain()
	copy(all[copy(all[:], []*uint64{
		&c.SentBytes, &c.ReceivedBytes, &c.SentPackets, &c.ReceivedPackets, &c.OneWay, &c.Opens, &c.Closes, &c.Failures,
		&c.FailuresRefused, &c.FailuresTimedOut,
		&c.FailuresUnreachable, &c.Resets, &c.TimedOut, &c.Retransmits, &c.Requests, &c.Replies, &c.Aborts, &c.Transfers,
		&c.Held, &c.Continued, &c.Pushes, &c.Upgrades, &c.Lost, &c.LostWaiting, &c.UnseenBytes, &c.JitterSumNS,
		&c.WindowLimitedNS,
		&c.SendLimitedNS,
	}):], packets[:])
	return all
}

// Histograms lists the histograms, any of which may be nil.
func (c *EdgeCounters) Histograms() [5]**Histogram {
	return [...]**Histogram{&c.Latency, &c.TimeToFirstByte, &c.RTT, &c.Duration, &c.Packets.Delay}
}

// Add adds what gained counted to c. The histograms of c are replaced, never changed, so that
// they may be shared.
func (c *EdgeCounters) Add(gained *EdgeCounters) {
	if *c == (EdgeCounters{}) {
		*c = *gained
		return
	}
	from := gained.Plain()
	for i, to := range c.Plain() {
		*to += *from[i]
	}
	if gained.RTTMinNS != 0 && (c.RTTMinNS == 0 || gained.RTTMinNS < c.RTTMinNS) {
		c.RTTMinNS = gained.RTTMinNS
	}
	histograms := gained.Histograms()
	for i, to := range c.Histograms() {
		switch h := *histograms[i]; {
		case h == nil:
		case *to == nil:
			*to = h
		default:
			sum := (*to).Clone()
			sum.Merge(h)
			*to = sum
		}
	}
}

// Since is what c gained after before, an earlier state of the same counters.
func (c *EdgeCounters) Since(before *EdgeCounters) EdgeCounters {
	gained := *c
	if *before == (EdgeCounters{}) {
		return gained
	}
	from := before.Plain()
	for i, to := range gained.Plain() {
		*to -= *from[i]
	}
	histograms := before.Histograms()
	for i, to := range gained.Histograms() {
		if *to != nil {
			*to = (*to).Since(*histograms[i])
		}
	}
	return gained
}

// Precedes reports whether after can be a later state of c: no counter went down.
func (c *EdgeCounters) Precedes(after *EdgeCounters) bool {
	if *c == *after {
		return true
	}
	later := after.Plain()
	for i, n := range c.Plain() {
		if *n > *later[i] {
			return false
		}
	}
	histograms := after.Histograms()
	for i, h := range c.Histograms() {
		if *h != nil && (*histograms[i] == nil || (*h).Count > (*histograms[i]).Count) {
			return false
		}
	}
	return true
}

// InFlight is the number of requests whose reply has not begun.
func (c *EdgeCounters) InFlight() uint64 {
	if done := c.Replies + c.Aborts + c.LostWaiting; done < c.Requests {
		return c.Requests - done
	}
	return 0
}

// Completeness is Completeness of the edge's counters.
func (c *EdgeCounters) Completeness() float64 {
	return Completeness(float64(c.ReceivedBytes), float64(c.UnseenBytes), float64(c.Transactions()), float64(c.Lost))
}

// Completeness is the share of what happened that is counted: of the bytes received those that were
// seen, or of the transactions those that were followed to their end, whichever is less. It is 1
// where nothing was missed.
func Completeness(seenBytes, unseenBytes, ended, lost float64) float64 {
	share := func(counted, missed float64) float64 {
		if missed <= 0 {
			return 1
		}
		return counted / (counted + missed)
	}
	return min(share(seenBytes, unseenBytes), share(ended, lost))
}

// EdgeRows are the metrics of an edge, in the order in which they are written.
var EdgeRows = []Row[Edge]{
	{Name: "outsight_edge_request_bytes_total", OTel: "outsight.edge.request", Unit: "By", Kind: Counter,
		Help: "Bytes from the client to the server",
		Columns: []Column[Edge]{{Name: "request_bytes", Count: requestBytes, Shown: []Number{
			{Key: "request_bytes_per_second", Title: "Request bytes", Unit: "B/s", Group: GroupRequests, Order: 4,
				Formula: Rate},
			{Key: "request_bytes", Title: "Request bytes in all", Unit: "B", Group: GroupRequests,
				Order: 6, Always: true}}}}},
	{Name: "outsight_edge_response_bytes_total", OTel: "outsight.edge.response", Unit: "By", Kind: Counter,
		Help: "Bytes from the server to the client",
		Columns: []Column[Edge]{{Name: "response_bytes", Count: responseBytes, Shown: []Number{
			{Key: "response_bytes_per_second", Title: "Response bytes", Unit: "B/s", Group: GroupRequests, Order: 5,
				Formula: Rate},
			{Key: "response_bytes", Title: "Response bytes in all", Unit: "B", Group: GroupRequests,
				Order: 7, Always: true}}}}},
	{Name: "outsight_edge_request_packets_total", OTel: "outsight.edge.request.packets", Unit: "{packet}",
		Kind: Counter,
		Help: "UDP packets from the client to the server, as programs handed them over",
		Columns: []Column[Edge]{{Name: "request_packets", Count: ofUDP(requestPackets), Shown: []Number{
			{Key: "request_packets", Title: "Request packets", Group: GroupRequests, Order: 8}}}}},
	{Name: "outsight_edge_response_packets_total", OTel: "outsight.edge.response.packets", Unit: "{packet}",
		Kind: Counter,
		Help: "UDP packets from the server to the client, as programs handed them over",
		Columns: []Column[Edge]{{Name: "response_packets", Count: ofUDP(responsePackets), Shown: []Number{
			{Key: "response_packets", Title: "Response packets", Group: GroupRequests, Order: 9}}}}},
	{Name: "outsight_edge_one_way_packets_total", OTel: "outsight.edge.one_way_packets", Unit: "{packet}",
		Kind: Counter,
		Help: "UDP packets in streams that nobody answers; they are no transactions",
		Columns: []Column[Edge]{{Name: "one_way", Count: ofUDP(func(e *Edge) uint64 { return e.Counters.OneWay }),
			Shown: []Number{
				{Key: "one_way", Title: "Packets without reply", Group: GroupNotTimed, Order: 4,
					Meaning: "Packets in streams that nobody answers"}}}}},
	{Name: "outsight_edge_transaction_duration_seconds", OTel: "outsight.edge.transaction.duration", Unit: "s",
		Kind: HistogramSeries,
		Help: "Time of a request and its reply: on the client from the first byte sent to the last received, on the server from " +
			"the first byte received to the last sent",
		Columns: []Column[Edge]{{Name: "latency",
			Histogram: ofHistogram(func(c *EdgeCounters) *Histogram { return c.Latency }),
			Shown: []Number{
				{Key: "p50", Title: "p50", Unit: "s", Group: GroupLatency, Order: 1, Formula: QuantileOf,
					Quantile: 0.5},
				{Key: "p75", Title: "p75", Unit: "s", Group: GroupLatency, Order: 2, Formula: QuantileOf,
					Quantile: 0.75},
				{Key: "p90", Title: "p90", Unit: "s", Group: GroupLatency, Order: 3, Formula: QuantileOf,
					Quantile: 0.9},
				{Key: "p99", Title: "p99", Unit: "s", Group: GroupLatency, Order: 4, Formula: QuantileOf,
					Quantile: 0.99},
				{Key: "mean", Title: "Mean", Unit: "s", Group: GroupLatency, Order: 5, Formula: MeanOf},
				{Key: "network_seconds", Title: "Network time (p50)", Unit: "s", Group: GroupBetween, Order: 1, Ends: true,
					Formula: Derived, Meaning: "By how much the median that the client waits is longer than that which the server takes",
					Query: latencyP50(RoleClient) + " - " + latencyP50(RoleServer)}}}}},
	{Name: "outsight_edge_connections_opened_total", OTel: "outsight.edge.connections.opened", Unit: "{connection}",
		Kind: Counter,
		Help: "Connections established, or found open at the start",
		Columns: []Column[Edge]{{Name: "connections_opened", Dense: true,
			Count: ofEdge(func(c *EdgeCounters) uint64 { return c.Opens }),
			Shown: []Number{
				{Key: "connections_open", Title: "Connections open", Group: GroupConnections, Order: 1, Always: true,
					Formula: Derived,
					Query:   "sum(outsight_edge_connections_opened_total{$match}) - sum(outsight_edge_connections_closed_total{$match})"},
				{Key: "connections_opened", Title: "Connections opened", Group: GroupConnections,
					Order: 2, Always: true}}}}},
	{Name: "outsight_edge_connections_closed_total", OTel: "outsight.edge.connections.closed", Unit: "{connection}",
		Kind: Counter,
		Help: "Connections that ended",
		Columns: []Column[Edge]{{Name: "connections_closed", Dense: true,
			Count: ofEdge(func(c *EdgeCounters) uint64 { return c.Closes }),
			Shown: []Number{{Key: "connections_closed", Title: "Connections closed", Group: GroupConnections,
				Order: 3, Always: true}}}}},
	{Name: "outsight_edge_connection_failures_total", OTel: "outsight.edge.connection.failures", Unit: "{connection}",
		Kind: Counter,
		Help: "Attempts to connect that failed, by reason (type: refused, timed_out, unreachable, other); client's side only",
		Columns: []Column[Edge]{
			{Name: "failures_refused", Label: typed("refused"),
				Count: ofAttempts(func(c *EdgeCounters) uint64 { return c.FailuresRefused }), Shown: []Number{
					{Key: "failures", Title: "Failed connections", Group: GroupTrouble,
						Order: 1, Always: true, Trouble: true,
						Meaning: "Attempts to connect that failed",
						Of:      []string{"failures_refused", "failures_timed_out", "failures_unreachable", "failures_other"},
						Query:   "sum(increase(outsight_edge_connection_failures_total{$match}[$window]))"},
					{Key: "failures_refused", Title: "Refused connections", Group: GroupTrouble,
						Order: 2, Trouble: true}}},
			{Name: "failures_timed_out", Label: typed("timed_out"),
				Count: ofAttempts(func(c *EdgeCounters) uint64 { return c.FailuresTimedOut }), Shown: []Number{
					{Key: "failures_timed_out", Title: "Connections timed out while opening", Group: GroupTrouble,
						Order: 3, Trouble: true}}},
			{Name: "failures_unreachable", Label: typed("unreachable"),
				Count: ofAttempts(func(c *EdgeCounters) uint64 { return c.FailuresUnreachable }), Shown: []Number{
					{Key: "failures_unreachable", Title: "Unreachable", Group: GroupTrouble, Order: 4, Trouble: true}}},
			{Name: "failures_other", Label: typed("other"), Count: ofAttempts(failuresOther)}}},
	{Name: "outsight_edge_retransmits_total", OTel: "outsight.edge.retransmits", Unit: "{segment}", Kind: Counter,
		Help: "TCP segments sent again",
		Columns: []Column[Edge]{{Name: "retransmits",
			Count: ofEdge(func(c *EdgeCounters) uint64 { return c.Retransmits }),
			Shown: []Number{{Key: "retransmits", Title: "Retransmitted segments", Group: GroupPath,
				Order: 5, Always: true, Trouble: true, TCP: true,
				Meaning: "TCP segments sent again, because they were lost or late"}}}}},
	{Name: "outsight_edge_aborted_transactions_total", OTel: "outsight.edge.aborted_transactions",
		Unit: "{transaction}", Kind: Counter,
		Help: "Requests that ended without a reply",
		Columns: []Column[Edge]{{Name: "aborted", Count: ofEdge(func(c *EdgeCounters) uint64 { return c.Aborts }),
			Shown: []Number{{Key: "aborted", Title: "Aborted transactions", Group: GroupTrouble,
				Order: 7, Always: true, Trouble: true,
				Meaning: "Requests that ended without a reply"}}}}},
	{Name: "outsight_edge_continued_replies_total", OTel: "outsight.edge.continued_replies", Unit: "{reply}",
		Kind: Counter,
		Help: "Replies that went on after a second of silence; their latency lacks the tail",
		Columns: []Column[Edge]{{Name: "continued", Count: ofEdge(func(c *EdgeCounters) uint64 { return c.Continued }),
			Shown: []Number{{Key: "continued", Title: "Continued replies", Group: GroupTrouble,
				Order: 8, Always: true, Trouble: true,
				Meaning: "Replies that went on after a second of silence; their latency lacks the tail"}}}}},
	{Name: "outsight_edge_transactions_total", OTel: "outsight.edge.transactions", Unit: "{transaction}", Kind: Counter,
		Help: "Transactions that ended, whatever their duration",
		Columns: []Column[Edge]{{Name: "transactions", Dense: true, Count: ofEdge((*EdgeCounters).Transactions),
			Shown: []Number{
				{Key: "transactions_per_second", Title: "Requests", Unit: "/s", Group: GroupRequests, Order: 1,
					Formula: Rate,
					Meaning: "Requests whose reply has ended, per second", Query: orCounted("rate")},
				{Key: "transactions", Title: "Transactions", Group: GroupRequests, Order: 2, Always: true,
					Meaning: "Requests whose reply has ended", Query: orCounted("increase")}}}}},
	{Name: "outsight_edge_requests_in_flight", OTel: "outsight.edge.requests_in_flight", Unit: "{request}", Kind: Gauge,
		Help: "Requests whose reply has not begun",
		Columns: []Column[Edge]{{Name: "in_flight", Mean: true, Count: ofEdge((*EdgeCounters).InFlight), Shown: []Number{
			{Key: "in_flight", Title: "Requests in flight", Group: GroupRequests, Order: 3, Formula: Level,
				Meaning: "Requests that wait for their reply at the end of the window"}}}}},
	{Name: "outsight_edge_requests_in_flight_most", OTel: "outsight.edge.requests_in_flight.most", Unit: "{request}", Kind: Gauge,
		Help: "The most requests that waited for their reply at any moment since the reading before; TCP only",
		Columns: []Column[Edge]{{Name: "in_flight_most", Mean: true, Count: mostInFlight, Shown: []Number{
			{Key: "in_flight_most", Title: "Most in flight", Group: GroupRequests, Order: 3, TCP: true, Formula: PeakLevel,
				Meaning: "The most requests that waited for their reply at any moment since the last full minute before the end of the window; " +
					"of several edges the sum of theirs"}}}}},
	{Name: "outsight_edge_transfers_total", OTel: "outsight.edge.transfers", Unit: "{transaction}", Kind: Counter,
		Help: "Transactions whose reply flowed for over a second; not in the duration",
		Columns: []Column[Edge]{{Name: "transfers", Count: ofEdge(func(c *EdgeCounters) uint64 { return c.Transfers }),
			Shown: []Number{
				{Key: "transfers", Title: "Transfers over 1 s", Group: GroupNotTimed, Order: 1,
					Meaning: "Requests whose reply flowed for over a second: downloads, not slow requests"}}}}},
	{Name: "outsight_edge_held_requests_total", OTel: "outsight.edge.held_requests", Unit: "{transaction}",
		Kind: Counter,
		Help: "Transactions whose reply began over ten seconds after the request; not in the duration",
		Columns: []Column[Edge]{{Name: "held", Count: ofEdge(func(c *EdgeCounters) uint64 { return c.Held }),
			Shown: []Number{
				{Key: "held", Title: "Replies after 10 s", Group: GroupNotTimed, Order: 2,
					Meaning: "Requests whose reply began after over ten seconds: long polls, not slow requests"}}}}},
	{Name: "outsight_edge_pushes_total", OTel: "outsight.edge.pushes", Unit: "{push}", Kind: Counter,
		Help: "Times that a server sent without having been asked",
		Columns: []Column[Edge]{{Name: "pushes", Count: ofEdge(func(c *EdgeCounters) uint64 { return c.Pushes }),
			Shown: []Number{
				{Key: "pushes", Title: "Pushes of the server", Group: GroupNotTimed, Order: 3,
					Meaning: "Times that the server sent without having been asked"}}}}},
	{Name: "outsight_edge_upgrades_total", OTel: "outsight.edge.upgrades", Unit: "{connection}", Kind: Counter,
		Help:    "Connections that both ends agreed to make streams (WebSocket, replication, subscriptions)",
		Columns: []Column[Edge]{{Name: "upgrades", Count: ofEdge(func(c *EdgeCounters) uint64 { return c.Upgrades })}}},
	{Name: "outsight_edge_lost_transactions_total", OTel: "outsight.edge.lost_transactions", Unit: "{transaction}",
		Kind: Counter,
		Help: "Transactions whose end is not known: their HTTP/2 connection could not be followed any more",
		Columns: []Column[Edge]{{Name: "lost_transactions",
			Count: ofEdge(func(c *EdgeCounters) uint64 { return c.Lost }), Shown: []Number{
				{Key: "lost_transactions", Title: "Transactions lost sight of", Group: GroupCompleteness, Order: 2,
					Meaning: "Requests that had not ended when their HTTP/2 connection could no longer be followed"}}}}},
	{Name: "outsight_edge_connections_reset_total", OTel: "outsight.edge.connections.reset", Unit: "{connection}",
		Kind: Counter,
		Help: "Connections that ended with a reset",
		Columns: []Column[Edge]{{Name: "resets", Count: ofEdge(func(c *EdgeCounters) uint64 { return c.Resets }),
			Shown: []Number{
				{Key: "resets", Title: "Resets", Group: GroupTrouble, Order: 5, Trouble: true,
					Meaning: "Connections that ended with a reset instead of a close"}}}}},
	{Name: "outsight_edge_connections_timed_out_total", OTel: "outsight.edge.connections.timed_out",
		Unit: "{connection}", Kind: Counter,
		Help: "Connections whose other end fell silent",
		Columns: []Column[Edge]{{Name: "timed_out", Count: ofEdge(func(c *EdgeCounters) uint64 { return c.TimedOut }),
			Shown: []Number{
				{Key: "timed_out", Title: "Timed out connections", Group: GroupTrouble, Order: 6, Trouble: true,
					Meaning: "Connections whose other end fell silent"}}}}},
	{Name: "outsight_edge_unseen_bytes_total", OTel: "outsight.edge.unseen", Unit: "By", Kind: Counter,
		Help: "Bytes received by the kernel and read by no call that is seen (splice), or never read",
		Columns: []Column[Edge]{{Name: "unseen_bytes",
			Count: ofEdge(func(c *EdgeCounters) uint64 { return c.UnseenBytes }), Shown: []Number{
				{Key: "unseen_bytes", Title: "Unseen bytes", Unit: "B", Group: GroupCompleteness, Order: 1, Trouble: true,
					Meaning: "Received by the kernel and read by no call that is seen (splice), or never read"},
				// Which bytes an end received depends on the end: there is no query for it.
				{Key: "completeness", Unit: "ratio", Group: GroupCompleteness, Order: 3, Formula: Derived,
					Meaning: "Share of what happened that is counted; absent where nothing was received"}}}}},
	{Name: "outsight_edge_round_trip_deviation_seconds_total", OTel: "outsight.edge.round_trip_deviation", Unit: "s",
		Kind: Counter,
		Help: "Sum of the mean deviation of the round-trip time, one for each entry of the round-trip time",
		Columns: []Column[Edge]{{Name: "rtt_deviation", Per: Nanoseconds,
			Count: ofEdge(func(c *EdgeCounters) uint64 { return c.JitterSumNS }),
			Shown: []Number{{Key: "jitter", Title: "Jitter", Unit: "s", Group: GroupPath, Order: 4, Formula: Derived,
				Of:      []string{"rtt_deviation", "rtt"},
				Meaning: "By how much the round trip varies, on average",
				Query: "sum(rate(outsight_edge_round_trip_deviation_seconds_total{$match}[$window])) / " +
					"histogram_count(sum(rate(outsight_edge_round_trip_duration_seconds{$match}[$window])))"}}}}},
	{Name: "outsight_edge_window_limited_seconds_total", OTel: "outsight.edge.window_limited", Unit: "s", Kind: Counter,
		Help: "Time in which the other end's receive window held the sender up, of connections that ended",
		Columns: []Column[Edge]{{Name: "window_limited", Per: Nanoseconds,
			Count: ofEdge(func(c *EdgeCounters) uint64 { return c.WindowLimitedNS }),
			Shown: []Number{{Key: "window_limited_seconds", Title: "Held up by the receiver", Unit: "s",
				Group: GroupPath, Order: 6,
				Meaning: "Time in which the receiver took no more, of connections that ended"}}}}},
	{Name: "outsight_edge_send_buffer_limited_seconds_total", OTel: "outsight.edge.send_buffer_limited", Unit: "s",
		Kind: Counter,
		Help: "Time in which this end's own send buffer held it up, of connections that ended",
		Columns: []Column[Edge]{{Name: "send_limited", Per: Nanoseconds,
			Count: ofEdge(func(c *EdgeCounters) uint64 { return c.SendLimitedNS }),
			Shown: []Number{{Key: "send_buffer_limited_seconds", Title: "Held up by its send buffer", Unit: "s",
				Group:   GroupPath,
				Meaning: "Time in which the sender’s own buffer was too small for the path, of connections that ended"}}}}},
	{Name: "outsight_edge_round_trip_min_seconds", OTel: "outsight.edge.round_trip.min", Unit: "s", Kind: Gauge,
		Help: "Least round-trip time of all connections",
		Columns: []Column[Edge]{{Name: "rtt_min", Fold: Least, Per: Nanoseconds, Count: rttMin, Shown: []Number{
			{Key: "rtt_min", Title: "Least round trip", Unit: "s", Group: GroupPath, Order: 3, Formula: LeastLevel,
				Meaning: "The least round trip since the agent began"}}}}},
	{Name: "outsight_edge_first_byte_duration_seconds", OTel: "outsight.edge.first_byte.duration", Unit: "s",
		Kind: HistogramSeries,
		Help: "Time from a request's first byte to its reply's first byte",
		Columns: []Column[Edge]{{Name: "first_byte",
			Histogram: ofHistogram(func(c *EdgeCounters) *Histogram { return c.TimeToFirstByte }),
			Shown: []Number{
				{Key: "first_byte_p50", Title: "First byte p50", Unit: "s", Group: GroupLatency, Order: 6,
					Formula: QuantileOf, Quantile: 0.5,
					Meaning: "From the first byte of a request to the first byte of its reply"},
				{Key: "first_byte_p99", Title: "First byte p99", Unit: "s", Group: GroupLatency, Order: 7,
					Formula: QuantileOf, Quantile: 0.99,
					Meaning: "From the first byte of a request to the first byte of its reply"},
				{Key: "client_seconds", Title: "In the client", Unit: "s", Group: GroupSplit, Order: 1, Ends: true, Formula: Derived,
					Meaning: "Until the request is sent, and from the arrival of the reply until it is read; on average",
					Query: "clamp_min(" + firstByteMean(RoleClient) + " - " + delayMean(RoleServer) + " - (" + serverPart() + ") - " +
						delayMean(RoleClient) + ", 0)"},
				{Key: "server_seconds", Title: "In the server", Unit: "s", Group: GroupSplit, Order: 3, Ends: true, Formula: Derived,
					Meaning: "From the arrival of the request in the server’s socket to the first byte of the reply, on average",
					Query:   serverPart()}}}}},
	{Name: "outsight_edge_round_trip_duration_seconds", OTel: "outsight.edge.round_trip.duration", Unit: "s",
		Kind: HistogramSeries,
		Help: "Smoothed round-trip time of the path as the kernel measures it, at the end of each transaction",
		Columns: []Column[Edge]{{Name: "rtt", Histogram: ofHistogram(func(c *EdgeCounters) *Histogram { return c.RTT }),
			Shown: []Number{
				{Key: "rtt_p50", Title: "Round trip p50", Unit: "s", Group: GroupPath, Order: 1, Formula: QuantileOf,
					Quantile: 0.5,
					Meaning:  "Time that a packet and its acknowledgement take, as the kernel measures it"},
				{Key: "rtt_p99", Title: "Round trip p99", Unit: "s", Group: GroupPath, Order: 2, Formula: QuantileOf,
					Quantile: 0.99,
					Meaning:  "Time that a packet and its acknowledgement take, as the kernel measures it"}}}}},
	{Name: "outsight_edge_connection_duration_seconds", OTel: "outsight.edge.connection.duration", Unit: "s",
		Kind: HistogramSeries,
		Help: "Duration of connections that ended",
		Columns: []Column[Edge]{{Name: "duration",
			Histogram: ofHistogram(func(c *EdgeCounters) *Histogram { return c.Duration }),
			Shown: []Number{
				{Key: "duration_p50", Title: "Connection duration p50", Unit: "s", Group: GroupConnections, Order: 4,
					Formula:  QuantileOf,
					Quantile: 0.5},
				{Key: "duration_p99", Title: "Connection duration p99", Unit: "s", Group: GroupConnections, Order: 5,
					Formula:  QuantileOf,
					Quantile: 0.99}}}}},
	{Name: "outsight_edge_network_request_packets_total", OTel: "outsight.edge.network.request.packets", Unit: "{packet}",
		Kind: Counter,
		Help: "Packets with data from the client to the server as they go over the network: sent by the client, " +
			"retransmissions among them, or received by the server, copies among them",
		Columns: []Column[Edge]{{Name: "network_request_packets", Count: ofPackets(func(e *Edge) uint64 {
			return towardsServer(e, e.Counters.Packets.SentPackets, e.Counters.Packets.ReceivedPackets)
		}), Shown: []Number{{Key: "network_request_packets", Title: "Packets to the server", Group: GroupPath, Order: 10,
			Meaning: "Packets with data to the server: on the client side those sent, retransmissions among them, on the server " +
				"side those that arrived"},
			{Key: "lost_there", Title: "Lost on the way there", Group: GroupBetween, Order: 8, Ends: true, Trouble: true,
				Formula: Derived, Meaning: "Packets that the client sent and that did not arrive; of ends on one host",
				Query: "clamp_min(" + sentLess("request", RoleClient, RoleServer) + ", 0)"},
			{Key: "loss_ratio", Title: "Lost both ways", Unit: "ratio", Group: GroupBetween, Order: 10, Ends: true, Trouble: true,
				Formula: Derived, Meaning: "Share of the packets that were sent, in both directions, and did not arrive; of ends on one host",
				Query: "(clamp_min(" + sentLess("request", RoleClient, RoleServer) + ", 0) + clamp_min(" +
					sentLess("response", RoleServer, RoleClient) + ", 0)) / (" + packets("request", RoleClient) + " + " +
					packets("response", RoleServer) + ")"}}}}},
	{Name: "outsight_edge_network_response_packets_total", OTel: "outsight.edge.network.response.packets",
		Unit: "{packet}", Kind: Counter,
		Help: "Packets with data from the server to the client as they go over the network: sent by the server, " +
			"retransmissions among them, or received by the client, copies among them",
		Columns: []Column[Edge]{{Name: "network_response_packets", Count: ofPackets(func(e *Edge) uint64 {
			return towardsServer(e, e.Counters.Packets.ReceivedPackets, e.Counters.Packets.SentPackets)
		}), Shown: []Number{{Key: "network_response_packets", Title: "Packets to the client", Group: GroupPath, Order: 11,
			Meaning: "Packets with data to the client: on the server side those sent, retransmissions among them, on the client " +
				"side those that arrived"},
			{Key: "lost_back", Title: "Lost on the way back", Group: GroupBetween, Order: 9, Ends: true, Trouble: true,
				Formula: Derived, Meaning: "Packets that the server sent and that did not arrive; of ends on one host",
				Query: "clamp_min(" + sentLess("response", RoleServer, RoleClient) + ", 0)"}}}}},
	{Name: "outsight_edge_network_request_bytes_total", OTel: "outsight.edge.network.request", Unit: "By", Kind: Counter,
		Help: "Data in packets from the client to the server: sent by the client, with what was sent again, or received by " +
			"the server, of TCP each byte once",
		Columns: []Column[Edge]{{Name: "network_request_bytes", Count: ofPackets(func(e *Edge) uint64 {
			return towardsServer(e, e.Counters.Packets.SentBytes, e.Counters.Packets.ReceivedBytes)
		})}}},
	{Name: "outsight_edge_network_response_bytes_total", OTel: "outsight.edge.network.response", Unit: "By",
		Kind: Counter,
		Help: "Data in packets from the server to the client: sent by the server, with what was sent again, or received by " +
			"the client, of TCP each byte once",
		Columns: []Column[Edge]{{Name: "network_response_bytes", Count: ofPackets(func(e *Edge) uint64 {
			return towardsServer(e, e.Counters.Packets.ReceivedBytes, e.Counters.Packets.SentBytes)
		})}}},
	{Name: "outsight_edge_network_reordered_packets_total", OTel: "outsight.edge.network.reordered_packets", Unit: "{packet}",
		Kind: Counter,
		Help: "Packets that arrived at this end after one that was sent later (RFC 4737), of those that were observed",
		Columns: []Column[Edge]{{Name: "network_reordered",
			Count: ofPackets(func(e *Edge) uint64 { return e.Counters.Packets.Reordered }), Shown: []Number{
				{Key: "network_reordered", Title: "Reordered packets", Group: GroupPath, Order: 12, Trouble: true,
					Meaning: "Packets that arrived at this end after one that was sent later, " +
						"of those that were observed"}}}}},
	{Name: "outsight_edge_network_duplicated_packets_total", OTel: "outsight.edge.network.duplicated_packets", Unit: "{packet}",
		Kind: Counter,
		Help: "Copies of packets, made on the way, that arrived at this end, of those that were observed",
		Columns: []Column[Edge]{{Name: "network_duplicated",
			Count: ofPackets(func(e *Edge) uint64 { return e.Counters.Packets.Duplicated }), Shown: []Number{
				{Key: "network_duplicated", Title: "Copied packets", Group: GroupPath, Order: 13, Trouble: true,
					Meaning: "Copies of packets, made on the way, that arrived at this end, " +
						"of those that were observed"}}}}},
	{Name: "outsight_edge_network_repeated_packets_total", OTel: "outsight.edge.network.repeated_packets", Unit: "{packet}",
		Kind: Counter,
		Help: "TCP segments that arrived at this end, sent again although they had arrived before, of those that were " +
			"observed",
		Columns: []Column[Edge]{{Name: "network_repeated",
			Count: ofPackets(func(e *Edge) uint64 { return e.Counters.Packets.Repeated }), Shown: []Number{
				{Key: "network_repeated", Title: "Needless retransmissions", Group: GroupPath, Order: 14, Trouble: true,
					Meaning: "TCP segments that were sent again although they had arrived at this end, " +
						"of those that were observed"}}}}},
	{Name: "outsight_edge_network_observed_packets_total", OTel: "outsight.edge.network.observed_packets", Unit: "{packet}",
		Kind: Counter,
		Help: "Packets received whose order and delay were looked at: those in slices of time, or all while there are few",
		Columns: []Column[Edge]{{Name: "network_observed",
			Count: ofPackets(func(e *Edge) uint64 { return e.Counters.Packets.Observed }), Shown: []Number{
				{Key: "network_observed", Title: "Packets observed", Group: GroupPath, Order: 18,
					Meaning: "Packets that arrived at this end whose order and delay were looked at: what was found of " +
						"them is an estimate for all"},
				{Key: "observed_there", Title: "Observed there", Unit: "ratio", Group: GroupBetween, Order: 19, Ends: true,
					Formula: Derived, Meaning: "Share of the packets to the server of which the delays there are: those observed",
					Query: observedShare("request", RoleServer)},
				{Key: "observed_back", Title: "Observed back", Unit: "ratio", Group: GroupBetween, Order: 20, Ends: true,
					Formula: Derived, Meaning: "Share of the packets to the client of which the delays back are: those observed",
					Query: observedShare("response", RoleClient)}}}}},
	{Name: "outsight_edge_network_sampled_packets_total", OTel: "outsight.edge.network.sampled_packets", Unit: "{packet}",
		Kind: Counter,
		Help: "Packets sent and received at this end that were sampled, to be found again at the other host: up to 12 a second " +
			"each way, chosen by the packet alone",
		Columns: []Column[Edge]{{Name: "network_sampled",
			Count: ofPackets(func(e *Edge) uint64 { return e.Counters.Packets.Sampled }), Shown: []Number{
				{Key: "network_sampled", Title: "Packets sampled", Group: GroupPath, Order: 21,
					Meaning: "Packets sent and received at this end that were sampled, to be found again at the other host: " +
						"delays between hosts are of these"}}}}},
	{Name: "outsight_edge_network_retransmitted_packets_total", OTel: "outsight.edge.network.retransmitted_packets",
		Unit: "{packet}", Kind: Counter,
		Help: "TCP segments that this end sent again, as the kernel counts them: those without data among them",
		Columns: []Column[Edge]{{Name: "network_retransmitted",
			Count: ofPackets(func(e *Edge) uint64 { return e.Counters.Packets.Retransmitted }), Shown: []Number{
				{Key: "network_retransmitted", Title: "Packets sent again", Group: GroupPath, Order: 19, Trouble: true,
					Meaning: "TCP segments that this end sent again"}}}}},
	{Name: "outsight_edge_network_out_of_order_packets_total", OTel: "outsight.edge.network.out_of_order_packets",
		Unit: "{packet}", Kind: Counter,
		Help: "TCP segments that arrived at this end when one before them was missing: lost, or on its way",
		Columns: []Column[Edge]{{Name: "network_out_of_order",
			Count: ofPackets(func(e *Edge) uint64 { return e.Counters.Packets.OutOfOrder }), Shown: []Number{
				{Key: "network_out_of_order", Title: "Packets out of order", Group: GroupPath, Order: 20, Trouble: true,
					Meaning: "TCP segments that arrived at this end when one before them was missing: lost, or " +
						"on its way"}}}}},
	{Name: "outsight_edge_network_delay_seconds", OTel: "outsight.edge.network.delay", Unit: "s", Kind: HistogramSeries,
		Help: "Time of packets from the other end’s network stack to this end’s, of a sample of those that were sent on the " +
			"same host",
		Columns: []Column[Edge]{{Name: "network_delay",
			Histogram: ofHistogram(func(c *EdgeCounters) *Histogram { return c.Packets.Delay }), Shown: append([]Number{
				{Key: "network_delay_p50", Title: "One-way delay p50", Unit: "s", Group: GroupPath, Order: 7,
					Formula: QuantileOf, Quantile: 0.5,
					Meaning: "Time of a packet on its way to this end"},
				{Key: "network_delay_p99", Title: "One-way delay p99", Unit: "s", Group: GroupPath, Order: 8,
					Formula: QuantileOf, Quantile: 0.99,
					Meaning: "Time of a packet on its way to this end"},
				{Key: "network_delay_samples", Title: "Packets timed", Group: GroupPath, Order: 15, Formula: Derived,
					Meaning: "Packets whose delay on the way to this end was measured",
					Query:   "histogram_count(sum(increase(outsight_edge_network_delay_seconds{$match}[$window])))"},
				{Key: "delay_there_p50", Title: "Delay there p50", Unit: "s", Group: GroupBetween, Order: 2, Ends: true,
					Side: RoleServer, Formula: QuantileOf, Quantile: 0.5, Meaning: "Time of a packet on its way to the server"},
				{Key: "delay_there_p99", Title: "Delay there p99", Unit: "s", Group: GroupBetween, Order: 3, Ends: true,
					Side: RoleServer, Formula: QuantileOf, Quantile: 0.99, Meaning: "Time of a packet on its way to the server"},
				{Key: "delay_back_p50", Title: "Delay back p50", Unit: "s", Group: GroupBetween, Order: 4, Ends: true,
					Side: RoleClient, Formula: QuantileOf, Quantile: 0.5, Meaning: "Time of a packet on its way to the client"},
				{Key: "delay_back_p99", Title: "Delay back p99", Unit: "s", Group: GroupBetween, Order: 5, Ends: true,
					Side: RoleClient, Formula: QuantileOf, Quantile: 0.99, Meaning: "Time of a packet on its way to the client"},
				{Key: "delay_there_error", Title: "Delay there ±", Unit: "s", Group: GroupBetween, Order: 11, Ends: true,
					Formula: Derived, Meaning: "By how much a delay to the server may be wrong, because two hosts have two clocks"},
				{Key: "delay_back_error", Title: "Delay back ±", Unit: "s", Group: GroupBetween, Order: 12, Ends: true,
					Formula: Derived, Meaning: "By how much a delay to the client may be wrong, because two hosts have two clocks"},
				{Key: "above_minimum_there_p50", Title: "Above the least there p50", Unit: "s", Group: GroupBetween, Order: 13,
					Ends: true, Formula: Derived, Meaning: "Between hosts: delay to the server above the least of the last 10 s; " +
						"needs no clock"},
				{Key: "above_minimum_there_p99", Title: "Above the least there p99", Unit: "s", Group: GroupBetween, Order: 14,
					Ends: true, Formula: Derived, Meaning: "Between hosts: delay to the server above the least of the last 10 s; " +
						"needs no clock"},
				{Key: "above_minimum_back_p50", Title: "Above the least back p50", Unit: "s", Group: GroupBetween, Order: 15,
					Ends: true, Formula: Derived, Meaning: "Between hosts: delay to the client above the least of the last 10 s; " +
						"needs no clock"},
				{Key: "above_minimum_back_p99", Title: "Above the least back p99", Unit: "s", Group: GroupBetween, Order: 16,
					Ends: true, Formula: Derived, Meaning: "Between hosts: delay to the client above the least of the last 10 s; " +
						"needs no clock"},
				{Key: "matched_there", Title: "Packets matched there", Group: GroupBetween, Order: 17, Ends: true, Formula: Derived,
					Meaning: "Packets to the server that both hosts sampled in the last 10 s"},
				{Key: "matched_back", Title: "Packets matched back", Group: GroupBetween, Order: 18, Ends: true, Formula: Derived,
					Meaning: "Packets to the client that both hosts sampled in the last 10 s"},
				{Key: "network_there_seconds", Title: "Network there", Unit: "s", Group: GroupSplit, Order: 2, Ends: true,
					Side: RoleServer, Formula: MeanOf, Meaning: "A packet on its way to the server, on average"},
				{Key: "network_back_seconds", Title: "Network back", Unit: "s", Group: GroupSplit, Order: 4, Ends: true,
					Side: RoleClient, Formula: MeanOf, Meaning: "A packet on its way to the client, on average"},
				{Key: "network_both_seconds", Title: "Network both ways", Unit: "s", Group: GroupSplit, Order: 5, Ends: true,
					Formula: Derived, Meaning: "A packet on its way to the server and one to the client, on average, between hosts " +
						"whose clocks do not tell them apart"}},
				stackNumbers()...)}}},
	{Name: "outsight_edge_network_delay_variation_seconds_total", OTel: "outsight.edge.network.delay_variation",
		Unit: "s", Kind: Counter,
		Help: "Sum of the differences between the delay of one packet and the next (RFC 3550), one for each entry of the delay",
		Columns: []Column[Edge]{{Name: "network_delay_variation", Per: Nanoseconds,
			Count: ofPackets(func(e *Edge) uint64 { return e.Counters.Packets.DelayVariationNS }),
			Shown: []Number{{Key: "network_jitter", Title: "One-way jitter", Unit: "s", Group: GroupPath, Order: 9,
				Formula: Derived, Of: []string{"network_delay_variation", "network_delay"},
				Meaning: "By how much the delay of one packet differs from the one before, on average",
				Query:   delayVariation("")},
				{Key: "jitter_there", Title: "Jitter there", Unit: "s", Group: GroupBetween, Order: 6, Ends: true, Formula: Derived,
					Meaning: "By how much the delay of a packet to the server differs from that of the one before, on average",
					Query:   delayVariation(ofSide(RoleServer))},
				{Key: "jitter_back", Title: "Jitter back", Unit: "s", Group: GroupBetween, Order: 7, Ends: true, Formula: Derived,
					Meaning: "By how much the delay of a packet to the client differs from that of the one before, on average",
					Query:   delayVariation(ofSide(RoleClient))}}}}},
	{Name: "outsight_edge_network_unread_seconds_total", OTel: "outsight.edge.network.unread", Unit: "s", Kind: Counter,
		Help: "Time for which requests lay in the server’s sockets until it read them; of the server’s end",
		Columns: []Column[Edge]{{Name: "network_unread", Per: Nanoseconds,
			Count: ofPackets(func(e *Edge) uint64 { return e.Counters.Packets.UnreadNS }),
			Shown: []Number{{Key: "network_unread_mean", Title: "Unread at the server", Unit: "s", Group: GroupPath, Order: 16,
				Formula: Derived, Meaning: "For how long a request lay in the server’s socket until it was read, on average",
				Query: "sum(rate(outsight_edge_network_unread_seconds_total{$match}[$window])) / " +
					"sum(rate(outsight_edge_network_unread_requests_total{$match}[$window]))"}}}}},
	{Name: "outsight_edge_network_unread_requests_total", OTel: "outsight.edge.network.unread_requests",
		Unit: "{request}", Kind: Counter,
		Help: "Requests of which outsight_edge_network_unread_seconds_total is the sum",
		Columns: []Column[Edge]{{Name: "network_unread_requests",
			Count: ofPackets(func(e *Edge) uint64 { return e.Counters.Packets.UnreadRequests }), Shown: []Number{
				{Key: "network_unread_requests", Title: "Requests timed unread", Group: GroupPath, Order: 17,
					Meaning: "Requests of which it was measured how long they lay in the server’s socket until it read them"}}}}},
	{Name: "outsight_edge_completeness_ratio", OTel: "outsight.edge.completeness", Unit: "1", Kind: Gauge,
		Help:    "Share of what happened at this end that is counted: of received bytes, or of transactions, whichever is less",
		Columns: []Column[Edge]{{Name: "completeness", Fold: Least, Value: edgeCompleteness}}},
	{Name: "outsight_edge_paired", OTel: "outsight.edge.paired", Kind: Gauge, Graph: true,
		Help: "1 where both ends of the edge were counted",
		Columns: []Column[Edge]{{Name: "paired", Fold: Least,
			Value: func(e *Edge) (float64, bool) { return boolean(e.Paired), true }}}},
	{Name: "outsight_edge_confidence", OTel: "outsight.edge.confidence", Kind: Gauge, Graph: true,
		Help: "How the other end was found: 3 the kernel saw both ends, 2 a listener, 1 an address, 0 not found",
		Columns: []Column[Edge]{{Name: "confidence", Fold: Least,
			Value: func(e *Edge) (float64, bool) { return float64(e.Confidence), true }}}},
}

// ofSide is the matcher of the series of one end.
func ofSide(side Role) string { return fmt.Sprintf(",side=%q", side) }

func latencyP50(side Role) string {
	return "histogram_quantile(0.5, sum(rate(outsight_edge_transaction_duration_seconds{$match" + ofSide(side) + "}[$window])))"
}

// firstByteMean and delayMean are queries of means, as an end counted them.
func firstByteMean(side Role) string {
	return "histogram_avg(sum(rate(outsight_edge_first_byte_duration_seconds{$match" + ofSide(side) + "}[$window])))"
}

func delayMean(side Role) string {
	return "histogram_avg(sum(rate(outsight_edge_network_delay_seconds{$match" + ofSide(side) + "}[$window])))"
}

// stackNumbers are the parts of the way between two hosts, as packets that were seen at both hosts' uplinks tell them.
func stackNumbers() (all []Number) {
	for _, way := range []struct{ name, to string }{{"there", "server"}, {"back", "client"}} {
		add := func(key, title, unit, meaning string) {
			all = append(all, Number{Key: key, Title: title, Unit: unit, Group: GroupStacks, Order: len(all) + 1, Ends: true,
				Formula: Derived, Meaning: meaning})
		}
		for _, part := range []struct{ key, title, meaning string }{
			{"sender_stack_", "Sender’s stack ", "From the sender’s socket to the interface by which a packet to the %s leaves its host: " +
				"its network namespace, bridges, rules; one clock, exact"},
			{"wire_", "Wire ", "From the sender’s interface, with its queue, to the receiver’s, on the way to the %s; as well known " +
				"as the delay there is"},
			{"wire_above_minimum_", "Wire above the least ", "By how much packets to the %s were on the wire for longer than the " +
				"fastest of the last 10 s; needs no clock"},
			{"receiver_stack_", "Receiver’s stack ", "From the interface by which a packet to the %s came to its host to the " +
				"receiver’s socket; one clock, exact"},
		} {
			for _, quantile := range []string{"p50", "p99"} {
				add(part.key+way.name+"_"+quantile, part.title+way.name+" "+quantile, "s", fmt.Sprintf(part.meaning, way.to))
			}
		}
		add("at_cards_"+way.name, "Packets seen at both interfaces "+way.name, "",
			"Packets to the "+way.to+" of the last 10 s that both hosts sampled, and saw leave and come in: those of the parts")
	}
	return all
}

func delayVariation(side string) string {
	return "sum(rate(outsight_edge_network_delay_variation_seconds_total{$match" + side + "}[$window])) / " +
		"histogram_count(sum(rate(outsight_edge_network_delay_seconds{$match" + side + "}[$window])))"
}

// serverPart is a query of the time in the server: until a call read the request, which is 0 where that was not
// measured, and to the first byte of the reply.
func serverPart() string {
	of := "{$match" + ofSide(RoleServer) + "}[$window]))"
	return firstByteMean(RoleServer) + " + (sum(rate(outsight_edge_network_unread_seconds_total" + of +
		" / sum(rate(outsight_edge_network_unread_requests_total" + of + " or vector(0))"
}

// packets is a query of those of a direction ("request" or "response") that an end counted.
func packets(direction string, side Role) string {
	return "sum(increase(outsight_edge_network_" + direction + "_packets_total{$match" + ofSide(side) + "}[$window]))"
}

// observedShare is a query of which share of the packets of a direction, that arrived at an end, was observed there.
func observedShare(direction string, receiver Role) string {
	return "clamp_max(" + packets("observed", receiver) + " / " + packets(direction, receiver) + ", 1)"
}

// sentLess is a query of the packets of a direction that were sent and did not arrive. Copies arrived besides; where
// none ever did there is no series.
func sentLess(direction string, sender, receiver Role) string {
	return packets(direction, sender) + " + (sum(increase(outsight_edge_network_duplicated_packets_total{$match" +
		ofSide(receiver) + "}[$window])) or vector(0)) - " + packets(direction, receiver)
}

// orCounted is a query of transactions; where agents stored no counter of them yet, what their histogram counted.
func orCounted(function string) string {
	return "sum(" + function + "(outsight_edge_transactions_total{$match}[$window])) or histogram_count(sum(" + function +
		"(outsight_edge_transaction_duration_seconds{$match}[$window])))"
}

func ofEdge(read func(*EdgeCounters) uint64) func(*Edge) (uint64, bool) {
	return func(e *Edge) (uint64, bool) { return read(&e.Counters), true }
}

// ofUDP is a counter that edges of TCP do not have.
func ofUDP(read func(*Edge) uint64) func(*Edge) (uint64, bool) {
	return func(e *Edge) (uint64, bool) {
		if e.Transport != UDP {
			return 0, false
		}
		return read(e), true
	}
}

// ofPackets is a counter of packets, which is not there where no packet was seen.
func ofPackets(read func(*Edge) uint64) func(*Edge) (uint64, bool) {
	return func(e *Edge) (uint64, bool) { return read(e), e.Counters.Packets.Seen() }
}

// towardsServer is what an end counted of the way to the server.
func towardsServer(e *Edge, ofClient, ofServer uint64) uint64 {
	if e.Side == RoleServer {
		return ofServer
	}
	return ofClient
}

// ofAttempts is a counter of attempts to connect, which are the client's.
func ofAttempts(read func(*EdgeCounters) uint64) func(*Edge) (uint64, bool) {
	return func(e *Edge) (uint64, bool) {
		if e.Side != RoleClient && e.Counters.Failures == 0 || e.Transport != TCP {
			return 0, false
		}
		return read(&e.Counters), true
	}
}

func ofHistogram(read func(*EdgeCounters) *Histogram) func(*Edge) (*Histogram, bool) {
	return func(e *Edge) (*Histogram, bool) { return read(&e.Counters), true }
}

func failuresOther(c *EdgeCounters) uint64 {
	return c.Failures - min(c.FailuresRefused+c.FailuresTimedOut+c.FailuresUnreachable, c.Failures)
}

func mostInFlight(e *Edge) (uint64, bool) { return e.MostInFlight, e.KnowsMost }

func rttMin(e *Edge) (uint64, bool) { return e.Counters.RTTMinNS, e.Counters.RTTMinNS > 0 }

func edgeCompleteness(e *Edge) (float64, bool) {
	if e.Counters.ReceivedBytes+e.Counters.UnseenBytes == 0 {
		return 0, false
	}
	return e.Counters.Completeness(), true
}

func requestPackets(e *Edge) uint64 {
	if e.Side == RoleServer {
		return e.Counters.ReceivedPackets
	}
	return e.Counters.SentPackets
}

func responsePackets(e *Edge) uint64 {
	if e.Side == RoleServer {
		return e.Counters.SentPackets
	}
	return e.Counters.ReceivedPackets
}

func requestBytes(e *Edge) (uint64, bool) {
	if e.Side == RoleServer {
		return e.Counters.ReceivedBytes, true
	}
	return e.Counters.SentBytes, true
}

func responseBytes(e *Edge) (uint64, bool) {
	if e.Side == RoleServer {
		return e.Counters.SentBytes, true
	}
	return e.Counters.ReceivedBytes, true
}
