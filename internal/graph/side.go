package graph

import "outsight/internal/model"

// add adds what was counted at one end. The histograms of e are those of s from now on.
func (s *Side) add(e *edgeChange) *Side {
	if s == nil {
		s = &Side{}
	}
	s.RequestBytes += e.of(RequestBytes)
	s.ResponseBytes += e.of(ResponseBytes)
	s.ConnectionsOpened += e.of(ConnectionsOpened)
	s.ConnectionsClosed += e.of(ConnectionsClosed)
	s.ConnectionsOpen += max(0, e.opened-e.closed)
	s.FailuresRefused += e.of(FailuresRefused)
	s.FailuresTimedOut += e.of(FailuresTimedOut)
	s.FailuresUnreachable += e.of(FailuresUnreachable)
	s.Failures += e.of(FailuresRefused) + e.of(FailuresTimedOut) + e.of(FailuresUnreachable) + e.of(FailuresOther)
	s.Retransmits += e.of(Retransmits)
	s.Aborted += e.of(Aborted)
	s.Continued += e.of(Continued)
	s.RequestPackets += e.of(RequestPackets)
	s.ResponsePackets += e.of(ResponsePackets)
	s.OneWay += e.of(OneWay)
	s.addConnections(e)
	take(&s.latency, e.latency)
	if e.has(Transactions) {
		s.Transactions += e.of(Transactions)
	} else if e.latency != nil {
		s.Transactions += e.latency.Count
	}
	s.endpoints = s.endpoints.add(e.endpoints)
	return s
}

// addConnections adds what is told of the ways that connections go, beside their requests.
func (s *Side) addConnections(e *edgeChange) {
	s.InFlight += e.of(InFlight)
	s.Transfers += e.of(Transfers)
	s.Held += e.of(Held)
	s.Pushes += e.of(Pushes)
	s.Resets += e.of(Resets)
	s.TimedOut += e.of(TimedOut)
	s.UnseenBytes += e.of(UnseenBytes)
	s.LostTransactions += e.of(LostTransactions)
	s.rttDeviation += e.of(RTTDeviation)
	take(&s.firstByte, e.firstByte)
	take(&s.rtt, e.rtt)
	take(&s.duration, e.duration)
	s.WindowLimitedSeconds += e.of(WindowLimited)
	if least := Seconds(e.of(RTTMin)); least > 0 {
		s.leastRTT(&least)
	}
	s.received += e.received()
}

// received is how many bytes the end that counted has received.
func (e *edgeChange) received() float64 {
	if e.side == model.RoleServer {
		return e.of(RequestBytes)
	}
	return e.of(ResponseBytes)
}

func (s *Side) leastRTT(other *Seconds) {
	if other != nil && (s.RTTMin == nil || *other < *s.RTTMin) {
		s.RTTMin = other
	}
}

// own is s with memory of its own, but for that of its histograms.
func (s *Side) own() *Side {
	if s == nil {
		return nil
	}
	side := *s
	return &side
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
	s.LostTransactions += o.LostTransactions
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
	numbers, durations := s.numbers[:], s.durations[:]
	number := func(into **float64, v float64) {
		numbers[0] = v
		*into, numbers = &numbers[0], numbers[1:]
	}
	duration := func(into **Seconds, v float64) {
		durations[0] = Seconds(v)
		*into, durations = &durations[0], durations[1:]
	}
	if seconds > 0 {
		number(&s.TransactionsPerSecond, s.Transactions/seconds)
		number(&s.RequestBytesPerSecond, s.RequestBytes/seconds)
		number(&s.ResponseBytesPerSecond, s.ResponseBytes/seconds)
	}
	durations = quantiles(&s.latency, durations, []**Seconds{&s.P50, &s.P75, &s.P90, &s.P99}, 0.5, 0.75, 0.9, 0.99)
	if s.latency.Count > 0 {
		duration(&s.Mean, s.latency.Sum/s.latency.Count)
	}
	durations = quantiles(&s.firstByte, durations, []**Seconds{&s.FirstByteP50, &s.FirstByteP99}, 0.5, 0.99)
	durations = quantiles(&s.rtt, durations, []**Seconds{&s.RTTP50, &s.RTTP99}, 0.5, 0.99)
	durations = quantiles(&s.duration, durations, []**Seconds{&s.DurationP50, &s.DurationP99}, 0.5, 0.99)
	if s.rtt.Count > 0 {
		duration(&s.Jitter, s.rttDeviation/s.rtt.Count)
	}
	if s.received+s.UnseenBytes > 0 {
		number(&s.Completeness, model.Completeness(s.received, s.UnseenBytes, s.Transactions, s.LostTransactions))
	}
	return s
}

func quantile(h *model.FloatHistogram, q float64) (one *Seconds) {
	quantiles(h, make([]Seconds, 1), []**Seconds{&one}, q)
	return one
}

// quantiles are those of h at the shares, which are in ascending order, in a part of room, of which it is the rest; they stay nil where h is
// empty.
func quantiles(h *model.FloatHistogram, room []Seconds, into []**Seconds, shares ...float64) (rest []Seconds) {
	if h == nil || h.Count <= 0 {
		return room
	}
	var values [4]float64
	h.Quantiles(values[:], shares...)
	for i, v := range values[:len(shares)] {
		room[i] = Seconds(v)
		*into[i] = &room[i]
	}
	return room[len(shares):]
}
