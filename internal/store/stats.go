package store

import (
	"time"

	"github.com/prometheus/prometheus/tsdb"
)

// Stats is the state of a Store, and what its limits refused. Counts are since Open.
type Stats struct {
	// Series in memory, of at most MaxSeries; Live of them were in their host's last batch.
	Series, MaxSeries, Live int
	// LabelBytes of the series in memory, of at most MaxLabelBytes. Unread series of the log had more labels than fit
	// when the store was opened. NoLabelRoom counts new series refused because of LabelBytes.
	LabelBytes, MaxLabelBytes int64
	Unread, NoLabelRoom       uint64
	Sources                   int
	// Oldest and Newest sample; both zero while there is none.
	Oldest, Newest time.Time
	// Blocks and bytes on disk, the log included, of at most MaxBytes.
	Blocks          int
	Bytes, MaxBytes int64
	// Batches and Samples stored; Ended series that were marked so.
	Batches, Samples, Ended uint64
	// DamagedFiles were found when the store was opened, and about Damaged samples are lost with them.
	DamagedFiles, Damaged uint64
	// Samples that were not stored: see ErrRejected.
	TooOld, Conflicts, Malformed, NoRoom uint64
	// Refused by a remote store, which does not always say why.
	Refused uint64
	// NoSpace counts those of batches that met ErrNoSpace.
	NoSpace uint64
	// Clock counts those of batches that met ErrClock.
	Clock uint64
	// Queries answered or failed, those that ran out of time or of samples, and those turned
	// away because too many waited.
	Queries, QueriesTooLarge, QueriesTooSlow, QueriesTurnedAway uint64
	// QueryMemory are the bytes that queries and answers hold, of at most MaxQueryMemory.
	QueryMemory, MaxQueryMemory int64
	// QueriesWithoutMemory counts queries and answers refused for want of memory, QueriesStopped those ended because
	// the process had too little left.
	QueriesWithoutMemory, QueriesStopped uint64
	// Of a remote store: requests to write, the bytes in them, those that were tried again, series of
	// batches that could not be written and may be appended again, and answers to queries that were
	// too large or no answers.
	WriteRequests, WriteBytes, WriteRetries, Unwritten uint64
	// SentBytes is what a remote store's connections took, queries included.
	SentBytes                   uint64
	AnswersTooLarge, BadAnswers uint64
}

// counts are the counters behind Stats of appends.
type counts struct {
	batches, samples, ended                 uint64
	tooOld, conflicts, malformed, overLimit uint64
	refused                                 uint64
	noSpace, clock                          uint64
}

func (c *counts) add(other *counts) {
	c.batches += other.batches
	c.samples += other.samples
	c.ended += other.ended
	c.tooOld += other.tooOld
	c.conflicts += other.conflicts
	c.malformed += other.malformed
	c.overLimit += other.overLimit
	c.refused += other.refused
}

func (c *counts) rejected() uint64 { return c.tooOld + c.conflicts + c.malformed + c.overLimit }

// stats are those of appending.
func (k *tracker) stats() Stats {
	c := &k.counts
	return Stats{
		Sources: len(k.sources), Live: k.live(), Batches: c.batches, Samples: c.samples, Ended: c.ended,
		LabelBytes: k.usage.bytes.Used(), MaxLabelBytes: k.usage.bytes.Capacity(), Unread: k.usage.unread.Load(),
		NoLabelRoom: k.usage.labelsRefused.Load(),
		TooOld:      c.tooOld, Conflicts: c.conflicts, Malformed: c.malformed, NoRoom: c.overLimit, NoSpace: c.noSpace,
		Clock: c.clock, Refused: c.refused,
	}
}

// Stats is the state of the store now.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	head := s.db.Head()
	stats := s.tracker.stats()
	s.gate.addTo(&stats)
	stats.DamagedFiles, stats.Damaged = uint64(s.repaired.files), s.repaired.lost
	stats.Series, stats.MaxSeries, stats.MaxBytes = int(head.NumSeries()), s.options.MaxSeries, s.options.MaxBytes
	if s.closed {
		return stats
	}
	stats.Bytes = head.Size()
	blocks := s.db.Blocks()
	stats.Blocks = len(blocks)
	for _, b := range blocks {
		stats.Bytes += b.Size()
	}
	if oldest, newest := s.oldest(), s.newest(); oldest <= newest {
		stats.Oldest, stats.Newest = time.UnixMilli(oldest), time.UnixMilli(newest)
	}
	return stats
}

// newest is the time of the newest sample, in ms; the least number where there is none.
func (s *Store) newest() int64 { return newestOf(s.db) }

func newestOf(db *tsdb.DB) int64 {
	newest := db.Head().MaxTime()
	for _, b := range db.Blocks() {
		newest = max(newest, b.MaxTime())
	}
	return newest
}

// oldest is the time of the oldest sample, in ms; the greatest number where there is none.
func (s *Store) oldest() int64 {
	oldest := s.db.Head().MinTime()
	for _, b := range s.db.Blocks() {
		oldest = min(oldest, b.MinTime())
	}
	return oldest
}
