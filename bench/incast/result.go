package incast

import "time"

// Result is what a simulation has counted.
type Result struct {
	// Elapsed until the last host was read.
	Elapsed time.Duration
	// Latency of hosts: from their first request's posting to their last completion's polling.
	Latency Latency
	// WireBytes is what the replies have on the wire, and Utilisation the share of the controller's link that they take
	// of it over Elapsed.
	WireBytes   int64
	Utilisation float64
	// QueueMost and QueueMean are of the switch's port to the controller, in bytes.
	QueueMost int
	QueueMean float64
	// Packets of the controller's hosts: Sent = Received + Dropped. Useless are those of Received that came after their
	// fragment was asked for again.
	Sent, Received, Dropped, Marked, Useless int
	SentBytes, ReceivedBytes, DroppedBytes   int64
	// Requests for fragments, Repeated ones included.
	Requests, Repeated int
	// Pauses that the switch has sent, and the share of Elapsed for which a machine was paused, on average over machines.
	Pauses int
	Paused float64
	// Thread is the share of Elapsed for which the controller's thread did something else than wait.
	Thread float64
	// Others are the packets that are not the controller's; OthersDelay is how long one waited in the queue on average.
	OthersSent, OthersDropped int
	OthersDelay               time.Duration
	// OthersUsed is the share of the link that they took.
	OthersUsed float64
}

// Latency of hosts.
type Latency struct{ Mean, P50, P99, Most time.Duration }

// latencies of sorted ones; there is one at least.
func (*Result) latencies(sorted []instant) (l Latency) {
	var sum instant
	for _, one := range sorted {
		sum += one
	}
	at := func(share float64) time.Duration { return sorted[int(share*float64(len(sorted)-1)+0.5)].duration() }
	return Latency{(sum / instant(len(sorted))).duration(), at(0.5), at(0.99), at(1)}
}

// MarkedShare is how many of the received packets were marked.
func (r *Result) MarkedShare() float64 { return float64(r.Marked) / float64(max(r.Received, 1)) }
