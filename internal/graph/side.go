package graph

import (
	"math"

	"outsight/internal/model"
)

func (s *Side) add(e *edgeChange) *Side {
	if s == nil {
		s = &Side{}
	}
	s.RequestBytes += e.values[RequestBytes]
	s.ResponseBytes += e.values[ResponseBytes]
	s.ConnectionsOpened += e.values[ConnectionsOpened]
	s.ConnectionsClosed += e.values[ConnectionsClosed]
	s.ConnectionsOpen += max(0, e.opened-e.closed)
	s.FailuresRefused += e.values[FailuresRefused]
	s.FailuresTimedOut += e.values[FailuresTimedOut]
	s.FailuresUnreachable += e.values[FailuresUnreachable]
	s.Failures += e.values[FailuresRefused] + e.values[FailuresTimedOut] + e.values[FailuresUnreachable] + e.values[FailuresOther]
	s.Retransmits += e.values[Retransmits]
	s.Aborted += e.values[Aborted]
	s.Continued += e.values[Continued]
	s.RequestPackets += e.values[RequestPackets]
	s.ResponsePackets += e.values[ResponsePackets]
	s.OneWay += e.values[OneWay]
	s.addConnections(e)
	s.latency.Merge(e.latency)
	if n, ok := e.values[Transactions]; ok {
		s.Transactions += n
	} else if e.latency != nil {
		s.Transactions += e.latency.Count
	}
	s.endpoints = s.endpoints.add(e.endpoints)
	return s
}

// addConnections adds what is told of the ways that connections go, beside their requests.
func (s *Side) addConnections(e *edgeChange) {
	s.InFlight += e.values[InFlight]
	s.Transfers += e.values[Transfers]
	s.Held += e.values[Held]
	s.Pushes += e.values[Pushes]
	s.Resets += e.values[Resets]
	s.TimedOut += e.values[TimedOut]
	s.UnseenBytes += e.values[UnseenBytes]
	s.rttDeviation += e.values[RTTDeviation]
	s.firstByte.Merge(e.firstByte)
	s.rtt.Merge(e.rtt)
	s.duration.Merge(e.duration)
	s.WindowLimitedSeconds += e.values[WindowLimited]
	if least := Seconds(e.values[RTTMin]); least > 0 {
		s.leastRTT(&least)
	}
	s.received += e.received()
}

// received is how many bytes the end that counted has received.
func (e *edgeChange) received() float64 {
	if e.side == model.RoleServer {
		return e.values[RequestBytes]
	}
	return e.values[ResponseBytes]
}

func (s *Side) leastRTT(other *Seconds) {
	if other != nil && (s.RTTMin == nil || *other < *s.RTTMin) {
		s.RTTMin = other
	}
}

func (s *Side) merge(o *Side) *Side {
	if s == nil {
		s = &Side{}
	}
	s.RequestBytes += o.RequestBytes
	s.ResponseBytes += o.ResponseBytes
	s.ConnectionsOpened += o.ConnectionsOpened
	s.ConnectionsClosed += o.ConnectionsClosed
	s.ConnectionsOpen += o.ConnectionsOpen
	s.Failures += o.Failures
	s.FailuresRefused += o.FailuresRefused
	s.FailuresTimedOut += o.FailuresTimedOut
	s.FailuresUnreachable += o.FailuresUnreachable
	s.Retransmits += o.Retransmits
	s.Aborted += o.Aborted
	s.Continued += o.Continued
	s.RequestPackets += o.RequestPackets
	s.ResponsePackets += o.ResponsePackets
	s.OneWay += o.OneWay
	s.Transactions += o.Transactions
	s.InFlight += o.InFlight
	s.Transfers += o.Transfers
	s.Held += o.Held
	s.Pushes += o.Pushes
	s.Resets += o.Resets
	s.TimedOut += o.TimedOut
	s.UnseenBytes += o.UnseenBytes
	s.rttDeviation += o.rttDeviation
	s.received += o.received
	s.leastRTT(o.RTTMin)
	s.latency.Merge(&o.latency)
	s.firstByte.Merge(&o.firstByte)
	s.rtt.Merge(&o.rtt)
	s.duration.Merge(&o.duration)
	s.WindowLimitedSeconds += o.WindowLimitedSeconds
	return s
}

// finish computes the rates and quantiles from the counts.
func (s *Side) finish(seconds float64) *Side {
	if s == nil {
		return nil
	}
	s.TransactionsPerSecond = per(s.Transactions, seconds)
	s.RequestBytesPerSecond = per(s.RequestBytes, seconds)
	s.ResponseBytesPerSecond = per(s.ResponseBytes, seconds)
	s.P50, s.P75 = quantile(&s.latency, 0.5), quantile(&s.latency, 0.75)
	s.P90, s.P99 = quantile(&s.latency, 0.9), quantile(&s.latency, 0.99)
	if s.latency.Count > 0 {
		mean := Seconds(s.latency.Sum / s.latency.Count)
		s.Mean = &mean
	}
	s.FirstByteP50, s.FirstByteP99 = quantile(&s.firstByte, 0.5), quantile(&s.firstByte, 0.99)
	s.RTTP50, s.RTTP99 = quantile(&s.rtt, 0.5), quantile(&s.rtt, 0.99)
	s.DurationP50, s.DurationP99 = quantile(&s.duration, 0.5), quantile(&s.duration, 0.99)
	if s.rtt.Count > 0 {
		jitter := Seconds(s.rttDeviation / s.rtt.Count)
		s.Jitter = &jitter
	}
	s.Completeness = per(s.received, s.received+s.UnseenBytes)
	return s
}

func quantile(h *model.FloatHistogram, q float64) *Seconds {
	v := Seconds(h.Quantile(q))
	if math.IsNaN(float64(v)) {
		return nil
	}
	return &v
}
