package main

import (
	"context"
	"sync/atomic"

	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

// storeSink keeps snapshots in a store, and tells of the store's bounds.
type storeSink struct {
	store anyStore
	// drops as they were after the last snapshot: a store that works may let ask for them wait,
	// and a reading of the counters must not.
	drops atomic.Pointer[[]model.Drop]
}

func newStoreSink(s anyStore) *storeSink {
	sink := &storeSink{store: s}
	sink.update()
	return sink
}

// Consume implements agent.Sink.
func (s *storeSink) Consume(ctx context.Context, snapshot *model.Snapshot) error {
	defer s.update()
	return s.store.Append(ctx, otlp.Convert(snapshot))
}

// Features implements agent.Reporter.
func (s *storeSink) Features() []model.Feature { return nil }

// Drops implements agent.Reporter.
func (s *storeSink) Drops() []model.Drop { return *s.drops.Load() }

func (s *storeSink) update() {
	drops := storeDrops(s.store.Stats())
	s.drops.Store(&drops)
}

// storeDrops are the bounds of a store.
func storeDrops(s store.Stats) []model.Drop {
	return []model.Drop{
		{Name: "store/series", Count: s.NoRoom, Used: uint64(s.Series), Capacity: uint64(s.MaxSeries)},
		// What is above MaxBytes is the oldest, which goes; samples are lost where the disk is full.
		{Name: "store/bytes", Used: uint64(s.Bytes), Capacity: uint64(s.MaxBytes)},
		{Name: "store/disk-space", Count: s.NoSpace},
		{Name: "store/refused-samples", Count: s.TooOld + s.Conflicts + s.Malformed},
		{Name: "store/refused-by-remote", Count: s.Refused},
		{Name: "store/unwritten-series", Count: s.Unwritten},
		{Name: "store/remote-answers", Count: s.AnswersTooLarge + s.BadAnswers},
		{Name: "store/waiting-queries", Count: s.QueriesTurnedAway},
		{Name: "store/query-samples", Count: s.QueriesTooLarge},
		{Name: "store/query-time", Count: s.QueriesTooSlow},
	}
}
