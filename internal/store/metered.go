package store

import (
	"context"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// metered is a store of which each series that a query reads is charged to the query's account.
type metered struct {
	storage.Queryable
	meter *meter
}

// Querier implements storage.Queryable.
func (m metered) Querier(from, to int64) (storage.Querier, error) {
	q, err := m.Queryable.Querier(from, to)
	if err != nil {
		return nil, err
	}
	return &meteredQuerier{q, m.meter}, nil
}

// meter charges the series of one query. It is of one goroutine.
type meter struct {
	cost *cost
	// next is the index in cost.flows of the next selector.
	next      int
	allowance allowance
	// longest is the greatest length of a stored value, times how often it is charged, and charged how much that was so
	// far.
	longest, times, charged int64
	err                     error
}

// begin charges what does not depend on series.
func (m *meter) begin() error {
	m.times = m.cost.times
	return m.allowance.reserve(m.cost.fixed)
}

// series charges one series of the flow f; false if the memory is used up.
func (m *meter) series(f *flow, of labels.Labels) bool {
	if m.err != nil {
		return false
	}
	bytes, times, err := f.charge(of, m.longest)
	if err != nil {
		m.err = err
		return false
	}
	if m.times += times; m.cost.included {
		of.Range(func(l labels.Label) { m.longest = max(m.longest, int64(len(l.Value))) })
		most := multiply(m.times, m.longest)
		bytes += most - m.charged
		m.charged = most
	}
	m.err = m.allowance.reserve(bytes)
	return m.err == nil
}

type meteredQuerier struct {
	storage.Querier
	meter *meter
}

// Select implements storage.Querier.
func (q *meteredQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) storage.SeriesSet {
	set := q.Querier.Select(ctx, sorted, hints, matchers...)
	m := q.meter
	if m.next >= len(m.cost.flows) {
		return storage.ErrSeriesSet(badQuery("BUG: the query engine reads more selectors than the query has"))
	}
	f := m.cost.flows[m.next]
	m.next++
	return &meteredSet{SeriesSet: set, meter: m, flow: f}
}

type meteredSet struct {
	storage.SeriesSet
	meter *meter
	flow  *flow
	at    storage.Series
}

// Next implements storage.SeriesSet.
func (s *meteredSet) Next() bool {
	if !s.SeriesSet.Next() {
		return false
	}
	s.at = s.SeriesSet.At()
	return s.meter.series(s.flow, s.at.Labels())
}

// At implements storage.SeriesSet.
func (s *meteredSet) At() storage.Series { return s.at }

// Err implements storage.SeriesSet.
func (s *meteredSet) Err() error {
	if s.meter.err != nil {
		return s.meter.err
	}
	return s.SeriesSet.Err()
}
