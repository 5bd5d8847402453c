package store

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
)

// replayFactor is how many times the bytes of labels that may be in memory the log may have: those of series that have
// ended are in it, too, until it is cut.
const replayFactor = 2

// openBounded opens the database in dir. Where its log has labels of more bytes than fit into memory, as after a flood
// that ended the process, the series with the most of them are taken out of the log, and counted.
func openBounded(dir string, log *slog.Logger, o Options, options *tsdb.Options, u *seriesUsage) (*tsdb.DB, error) {
	options.SeriesLifecycleCallback = u
	most := replayFactor * o.LabelBytes
	u.replay.Store(most)
	defer u.replay.Store(0)
	db, err := tsdb.Open(dir, log, nil, options, nil)
	if !errors.Is(err, errReplay) {
		return db, err
	}
	u.forget()
	unread, err := cutLog(filepath.Join(dir, "wal"), most, o, u, log)
	if err != nil {
		return nil, fmt.Errorf("taking series out of the log: %w", err)
	}
	u.unread.Store(uint64(unread))
	o.Logger.Warn("the log had labels of more bytes than fit into memory: the series with the most of them are not read, and what was stored of them since "+
		"the last block is lost", "series", unread, "bytes", most, "remedy",
		"raise --max-label-bytes, or find who sends such labels")
	// What remains fits by its own count.
	u.replay.Store(0)
	return tsdb.Open(dir, log, nil, options, nil)
}

// forget begins to count anew.
func (u *seriesUsage) forget() {
	for _, used := range u.series.Usages() {
		u.series.Add(used.Tenant, -used.Used)
	}
	for _, used := range u.bytes.Usages() {
		u.bytes.Add(used.Tenant, -used.Used)
	}
}

// logSeries is a series of the log: what its labels count, and a hash of them.
type logSeries struct {
	hash  uint64
	bytes int64
}

// cutLog rewrites a log as a checkpoint without the series with the most bytes of labels, so that those of the others
// are at most so many.
func cutLog(dir string, most int64, o Options, u *seriesUsage, log *slog.Logger) (unread int, err error) {
	first, last, err := wlog.Segments(dir)
	if err != nil {
		return 0, fmt.Errorf("listing segments: %w", err)
	}
	refs, err := readLogSeries(dir, last, u, log)
	if err != nil {
		return 0, err
	}
	// The same labels may have several references.
	sizes := map[uint64]int64{}
	for _, s := range refs {
		sizes[s.hash] = s.bytes
	}
	all := make([]logSeries, 0, len(sizes))
	for hash, bytes := range sizes {
		all = append(all, logSeries{hash, bytes})
	}
	slices.SortFunc(all, func(a, b logSeries) int {
		return cmp.Or(cmp.Compare(a.bytes, b.bytes),
			cmp.Compare(a.hash, b.hash))
	})
	dropped := map[uint64]bool{}
	for _, s := range all {
		if most -= s.bytes; most < 0 {
			dropped[s.hash] = true
		}
	}
	options := o.tsdbOptions()
	w, err := wlog.NewSize(log, nil, dir, options.WALSegmentSize, options.WALCompression)
	if err != nil {
		return 0, fmt.Errorf("opening the log: %w", err)
	}
	keep := func(ref chunks.HeadSeriesRef) bool { return !dropped[refs[ref].hash] }
	_, err = wlog.Checkpoint(log, w, first, last, keep, math.MinInt64, false)
	if err == nil {
		// The checkpoint stands for the segments up to the last; a process that ends here finds both, and begins anew.
		err = errors.Join(w.Truncate(last+1), wlog.DeleteCheckpoints(dir, last))
	}
	return len(dropped), errors.Join(err, w.Close())
}

// readLogSeries reads the series of a log by their references.
func readLogSeries(dir string, last int, u *seriesUsage, log *slog.Logger) (map[chunks.HeadSeriesRef]logSeries, error) {
	var ranges []wlog.SegmentRange
	from := -1
	checkpoint, index, err := wlog.LastCheckpoint(dir)
	switch {
	case err == nil:
		ranges, from = append(ranges, wlog.SegmentRange{Dir: checkpoint, First: -1, Last: -1}), index+1
	case !errors.Is(err, record.ErrNotFound):
		return nil, fmt.Errorf("finding the checkpoint: %w", err)
	}
	segments, err := wlog.NewSegmentsRangeReader(append(ranges, wlog.SegmentRange{Dir: dir, First: from, Last: last})...)
	if err != nil {
		return nil, fmt.Errorf("reading the log: %w", err)
	}
	defer segments.Close()
	refs := map[chunks.HeadSeriesRef]logSeries{}
	reader, decoder := wlog.NewReader(segments), record.NewDecoder(labels.NewSymbolTable(), log)
	var series []record.RefSeries
	for reader.Next() {
		if decoder.Type(reader.Record()) != record.Series {
			continue
		}
		if series, err = decoder.Series(reader.Record(), series[:0]); err != nil {
			return nil, fmt.Errorf("reading the log's series: %w", err)
		}
		for _, s := range series {
			_, bytes := u.of(s.Labels)
			refs[s.Ref] = logSeries{s.Labels.Hash(), bytes}
		}
		clear(series) // of the labels
	}
	return refs, reader.Err()
}
