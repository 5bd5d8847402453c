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
	s.Failures += e.values[Failures]
	s.Retransmits += e.values[Retransmits]
	s.Aborted += e.values[Aborted]
	s.Continued += e.values[Continued]
	s.RequestPackets += e.values[RequestPackets]
	s.ResponsePackets += e.values[ResponsePackets]
	s.OneWay += e.values[OneWay]
	s.latency.Merge(e.latency)
	s.endpoints = s.endpoints.add(e.endpoints)
	return s
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
	s.Retransmits += o.Retransmits
	s.Aborted += o.Aborted
	s.Continued += o.Continued
	s.RequestPackets += o.RequestPackets
	s.ResponsePackets += o.ResponsePackets
	s.OneWay += o.OneWay
	s.latency.Merge(&o.latency)
	return s
}

// finish computes the rates and quantiles from the counts.
func (s *Side) finish(seconds float64) *Side {
	if s == nil {
		return nil
	}
	s.Transactions = s.latency.Count
	s.TransactionsPerSecond = per(s.Transactions, seconds)
	s.RequestBytesPerSecond = per(s.RequestBytes, seconds)
	s.ResponseBytesPerSecond = per(s.ResponseBytes, seconds)
	s.P50, s.P75 = quantile(&s.latency, 0.5), quantile(&s.latency, 0.75)
	s.P90, s.P99 = quantile(&s.latency, 0.9), quantile(&s.latency, 0.99)
	if s.latency.Count > 0 {
		mean := Seconds(s.latency.Sum / s.latency.Count)
		s.Mean = &mean
	}
	return s
}

func quantile(h *model.FloatHistogram, q float64) *Seconds {
	v := Seconds(h.Quantile(q))
	if math.IsNaN(float64(v)) {
		return nil
	}
	return &v
}
