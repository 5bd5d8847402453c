package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"outsight/internal/damaged"
)

// This host's clock may jump: years ahead and back, because of a wrong time server or a battery. Samples stored in
// between have a wrong time. They must not make the TSDB delete older, correct samples, nor reject all samples after
// the clock was corrected.

const (
	// aheadOfClock is how much newer than the clock what is stored may be. Senders' clocks may be ahead by less.
	aheadOfClock = time.Hour
	// longestGap is how long a time without samples counts for the retention.
	longestGap = time.Hour
)

// ErrClock means that this host's clock is behind what is stored already: it was ahead, or is behind now. Nothing of
// the batch is stored; it can be later, when the clock is right or the store was opened again.
var ErrClock = errors.New("the clock is behind the newest sample")

// checkClock fails while the newest sample is of the future.
func (s *Store) checkClock() error {
	newest, now := s.newest(), s.tracker.now()
	if newest <= now.Add(aheadOfClock).UnixMilli() {
		return nil
	}
	return fmt.Errorf("%w: it is %s, and there are samples up to %s; set the clock, or if it is right, make the file %s and start the server again: "+
		"it sets those of the future aside", ErrClock, now.UTC().Format(time.RFC3339),
		time.UnixMilli(newest).UTC().Format(time.RFC3339),
		filepath.Join(s.db.Dir(), futureName))
}

// futureName is a file in the data directory that says that this host's clock is right, though all that is stored is of
// the future. Without it that is not decided: the clock may as well be behind.
const futureName = "set-future-aside"

// SetFutureAside makes the next Open move samples of the future to the directory damaged: it is known that this host's
// clock is right.
func (s *Store) SetFutureAside() error {
	if err := damaged.Replace(filepath.Join(s.db.Dir(), futureName), nil); err != nil {
		return fmt.Errorf("noting that samples of the future are to be set aside: %w", err)
	}
	return nil
}

// beyondRetention are the blocks that are to be deleted. Time counts where there are samples: a gap, as a jump of the
// clock makes one, counts as longestGap at most. They are sorted, the newest first.
func beyondRetention(blocks []*tsdb.Block, retention time.Duration) map[ulid.ULID]struct{} {
	slices.SortFunc(blocks, func(a, b *tsdb.Block) int { return int(min(1, max(-1, b.MaxTime()-a.MaxTime()))) })
	deletable, age := map[ulid.ULID]struct{}{}, int64(0)
	begin := int64(0) // of the time that newer blocks have
	for i, b := range blocks {
		if i > 0 {
			if gap := begin - b.MaxTime(); gap > 0 {
				age += min(gap, longestGap.Milliseconds())
			}
			if age >= retention.Milliseconds() {
				deletable[b.Meta().ULID] = struct{}{}
			}
		}
		if b.Meta().Compaction.Deletable {
			deletable[b.Meta().ULID] = struct{}{}
		}
		from, to := b.MinTime(), b.MaxTime()
		if i > 0 {
			to = min(to, begin)
		} else {
			begin = to
		}
		age += max(0, to-from)
		begin = min(begin, from)
	}
	return deletable
}

// retain chooses the blocks that the TSDB deletes. db is nil until it has opened: before that, none is too old.
func retain(options Options, db func() *tsdb.DB) tsdb.BlocksToDeleteFunc {
	return func(blocks []*tsdb.Block) map[ulid.ULID]struct{} {
		deletable := beyondRetention(blocks, options.Retention)
		if open := db(); open != nil {
			for id := range tsdb.BeyondSizeRetention(open, blocks) {
				deletable[id] = struct{}{}
			}
		}
		return deletable
	}
}

// noSample is a time before all samples.
const noSample = math.MinInt64

// hasJumped reports whether samples after limit are there because the clock was ahead, and not because it is behind
// now: in the first case there is a gap between those before and those after. The TSDB must be closed.
func (r *repairer) hasJumped(dir string, limit time.Time) (bool, error) {
	before, after := int64(noSample), int64(math.MaxInt64)
	seen := func(from, to int64) {
		switch {
		case from > limit.UnixMilli():
			after = min(after, from)
		case to > limit.UnixMilli():
			before, after = max(before, from), limit.UnixMilli()
		default:
			before = max(before, to)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if _, err := ulid.ParseStrict(e.Name()); err == nil && e.IsDir() {
			if meta, err := readMeta(filepath.Join(dir, e.Name())); err == nil {
				seen(meta.MinTime, meta.MaxTime-1)
			}
		}
	}
	logs, err := logsIn(dir)
	if err != nil {
		return false, err
	}
	l := newLogReader()
	for _, log := range logs {
		paths, err := r.segments(log)
		if err != nil {
			return false, err
		}
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				return false, err
			}
			for _, record := range scanSegment(content).records {
				l.read(record, func(chunks.HeadSeriesRef) {}, func(_ chunks.HeadSeriesRef, at int64) { seen(at, at) })
			}
		}
	}
	return before != noSample && after >= limit.Add(aheadOfClock).UnixMilli(), nil
}

// setFutureAside takes away what is stored of the time after limit. The TSDB must be closed.
func (r *repairer) setFutureAside(dir string, limit time.Time) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if _, err := ulid.ParseStrict(e.Name()); err != nil || !e.IsDir() {
			continue
		}
		meta, err := readMeta(path)
		if err != nil || meta.MaxTime <= limit.UnixMilli() {
			continue
		}
		kept, err := r.copies.Move(path)
		if err != nil {
			return err
		}
		r.found.files++
		r.logger.Error("a block has samples of the future and is set aside", "block", e.Name(), "samples",
			meta.Stats.NumSamples,
			"from", time.UnixMilli(meta.MinTime), "to", time.UnixMilli(meta.MaxTime), "copy", kept)
	}
	// What it has, the log has too.
	if err := os.RemoveAll(filepath.Join(dir, "chunks_head")); err != nil {
		return err
	}
	logs, err := logsIn(dir)
	if err != nil {
		return err
	}
	for _, log := range logs {
		if err := r.futureLog(log, limit.UnixMilli()); err != nil {
			return fmt.Errorf("setting samples of the future aside, in %q: %w", log, err)
		}
	}
	return nil
}

// futureLog writes segments again without records that have samples of the time after limit. A record is of one batch,
// and so of one time.
func (r *repairer) futureLog(dir string, limit int64) error {
	paths, err := r.segments(dir)
	if err != nil {
		return err
	}
	l := newLogReader()
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		var kept []logRecord
		samples, changed := 0, false
		for _, record := range scanSegment(content).records {
			n, newest := 0, int64(noSample)
			marker := l.read(record, func(chunks.HeadSeriesRef) {}, func(_ chunks.HeadSeriesRef, at int64) {
				n++
				newest = max(newest, at)
			})
			switch {
			case marker: // of chunks on the disk, which are gone
				changed = true
			case newest > limit:
				changed = true
				samples += n
			default:
				kept = append(kept, record)
			}
		}
		if !changed {
			continue
		}
		copied := ""
		if samples > 0 {
			if copied, err = r.copies.Copy(path); err != nil {
				return err
			}
			r.found.files++
		}
		if err := damaged.Replace(path, encodeSegment(kept)); err != nil {
			return err
		}
		if samples > 0 {
			r.logger.Error("a segment of the log has samples of the future: they are set aside", "file", path,
				"samples", samples, "copy", copied)
		}
	}
	return nil
}
