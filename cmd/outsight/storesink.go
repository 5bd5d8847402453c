package main

import (
	"context"
	"errors"
	"sync/atomic"

	"outsight/internal/kubernetes"
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

// storeSink keeps snapshots in a store, and reports the store's bounds.
type storeSink struct {
	store anyStore
	// cluster puts names to what the agent knows by address; nil where there is none.
	cluster *kubernetes.Cluster
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
	return s.store.Append(ctx, s.cluster.Name(otlp.Convert(snapshot)))
}

// Features implements agent.Reporter.
func (s *storeSink) Features() []model.Feature { return storeFeatures(s.store) }

// storeFeatures are what a store cannot do now.
func storeFeatures(kept anyStore) []model.Feature {
	err := roomOf(kept)()
	if err == nil {
		return nil
	}
	f := model.Feature{Name: "store/samples", Purpose: "keeping what comes", State: model.FeatureAbsent,
		Reason: err.Error(), Required: true}
	if errors.Is(err, store.ErrClock) {
		f.Remedy = "set this host's clock; if it is right, what is stored is of a clock that was not: see the reason"
	}
	return []model.Feature{f}
}

// Drops implements agent.Reporter.
func (s *storeSink) Drops() []model.Drop { return *s.drops.Load() }

func (s *storeSink) update() {
	_, remote := s.store.(*store.Remote)
	drops := storeDrops(s.store.Stats(), remote)
	s.drops.Store(&drops)
}

// remoteSender reports what went to a remote store.
type remoteSender struct{ store *store.Remote }

// Sent implements agent.Sender.
func (s remoteSender) Sent() []model.SentBytes {
	return []model.SentBytes{{To: "store", Bytes: s.store.Stats().SentBytes}}
}

// storeDrops are the bounds of a store.
func storeDrops(s store.Stats, remote bool) []model.Drop {
	drops := []model.Drop{
		{Name: "store/series", Count: s.NoRoom, Used: uint64(s.Series), Capacity: uint64(s.MaxSeries)},
		{Name: "store/label-bytes", Count: s.NoLabelRoom, Used: uint64(max(0, s.LabelBytes)),
			Capacity: uint64(s.MaxLabelBytes)},
		{Name: "store/unread-series", Count: s.Unread},
		{Name: "store/refused-samples", Count: s.TooOld + s.Conflicts + s.Malformed + s.Refused},
		{Name: "store/waiting-queries", Count: s.QueriesTurnedAway},
		{Name: "store/query-samples", Count: s.QueriesTooLarge},
		{Name: "store/query-time", Count: s.QueriesTooSlow},
		{Name: "store/query-memory", Count: s.QueriesWithoutMemory + s.QueriesStopped, Used: uint64(s.QueryMemory),
			Capacity: uint64(s.MaxQueryMemory)},
	}
	if remote {
		return append(drops,
			// Of batches that the other system did not take in time, or to whom it gave no access.
			model.Drop{Name: "store/unwritten-series", Count: s.Unwritten},
			model.Drop{Name: "store/remote-answers", Count: s.AnswersTooLarge + s.BadAnswers})
	}
	return append(drops,
		// What is above MaxBytes is the oldest, which goes; samples are lost where the disk is full.
		model.Drop{Name: "store/bytes", Used: uint64(s.Bytes), Capacity: uint64(s.MaxBytes)},
		model.Drop{Name: "store/disk-space", Count: s.NoSpace},
		model.Drop{Name: "store/clock", Count: s.Clock},
		// Of files that were damaged when the store was opened.
		model.Drop{Name: "store/damaged-files", Count: s.DamagedFiles},
		model.Drop{Name: "store/damaged-samples", Count: s.Damaged})
}
