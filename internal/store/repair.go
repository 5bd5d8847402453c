package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/wlog"

	"outsight/internal/damaged"
)

// The TSDB reads its log up to the first damaged record, and deletes what follows and all newer segments. With a
// damaged checkpoint or block it does not open at all. So all of them are checked before it opens: damaged files are
// copied, and a segment is written again with all readable records.

// damagedShare is the part of MaxBytes that damaged files may take besides, and leastDamaged the least of it.
const (
	damagedShare = 8
	leastDamaged = 64 << 20
)

// repaired is what was found when a store was opened.
type repaired struct {
	files int
	// lost is about how many samples could not be read.
	lost uint64
}

type repairer struct {
	copies damaged.Dir
	logger *slog.Logger
	found  repaired
	// damagedLogs means that a segment was written again: samples may lack their series.
	damagedLogs bool
}

func newRepairer(dir string, o Options) *repairer {
	return &repairer{copies: damaged.Dir{Path: filepath.Join(dir, "damaged"),
		MaxBytes: max(leastDamaged, o.MaxBytes/damagedShare)}, logger: o.Logger}
}

// repair makes dir such that the TSDB opens it and reads all that can be read.
func (r *repairer) repair(dir string) error {
	logs, err := logsIn(dir)
	if err != nil {
		return err
	}
	for _, path := range logs {
		if err := r.log(path); err != nil {
			return fmt.Errorf("repairing the log %q: %w", path, err)
		}
	}
	if r.damagedLogs {
		r.countOrphans(logs)
	}
	return r.blocks(dir)
}

// logsIn are the directories of the log and its checkpoints.
func logsIn(dir string) (logs []string, err error) {
	checkpoints, err := filepath.Glob(filepath.Join(dir, "wal", "checkpoint.*"))
	for _, path := range checkpoints {
		if !strings.HasSuffix(path, ".tmp") { // one that was not finished
			logs = append(logs, path)
		}
	}
	return append(logs, filepath.Join(dir, "wal"), filepath.Join(dir, "wbl")), err
}

// segments are the files of a log, in order. It makes those that are missing between others, because the TSDB wants
// all.
func (r *repairer) segments(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	next := -1
	for _, e := range entries { // in the order of their names, which have leading zeros
		path := filepath.Join(dir, e.Name())
		if damaged.IsLeftover(e.Name()) {
			if err := os.Remove(path); err != nil {
				return nil, err
			}
			continue
		}
		n, err := strconv.Atoi(e.Name())
		if err != nil || !e.Type().IsRegular() {
			continue
		}
		for ; next >= 0 && next < n; next++ {
			made := wlog.SegmentName(dir, next)
			if err := os.WriteFile(made, nil, 0o600); err != nil {
				return nil, err
			}
			r.found.files++
			r.logger.Error("a segment of the log is missing: what was in it is lost", "file", made)
		}
		next = n + 1
		paths = append(paths, path)
	}
	return paths, nil
}

// log repairs the segments of a log.
func (r *repairer) log(dir string) error {
	paths, err := r.segments(dir)
	if err != nil {
		return err
	}
	for i, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		s := scanSegment(content)
		if s.holes == 0 {
			continue
		}
		s.count()
		if err := r.rewrite(path, s, i == len(paths)-1); err != nil {
			return err
		}
		r.damagedLogs = true
	}
	return nil
}

// rewrite keeps a copy of a damaged segment and writes it again.
func (r *repairer) rewrite(path string, s *segmentScan, newest bool) error {
	kept, err := r.copies.Copy(path)
	if err != nil {
		return err
	}
	if err := damaged.Replace(path, encodeSegment(s.records)); err != nil {
		return err
	}
	about := []any{"file", path, "damaged_bytes", s.bytes, "kept_records", len(s.records), "copy", kept}
	if newest && s.tail && s.holes == 1 {
		// Its writer had not finished. Nothing of it was acknowledged, or it is damage of the very end.
		r.logger.Warn("the end of the log cannot be read: a write that was cut off, or damage", about...)
		return nil
	}
	r.found.files++
	r.found.lost += s.lost()
	about = append(about, "lost_samples_about", s.lost())
	if s.from != noSample {
		about = append(about, "lost_from", time.UnixMilli(s.from))
	}
	if s.to != noSample {
		about = append(about, "lost_to", time.UnixMilli(s.to))
	}
	r.logger.Error("a segment of the log was damaged: what can be read of it, and of newer ones, is kept", about...)
	return nil
}

// countOrphans counts the samples of which the series was in a damaged part.
func (r *repairer) countOrphans(logs []string) {
	c := newOrphans()
	for _, samples := range []bool{false, true} {
		for _, dir := range logs {
			paths, err := r.segments(dir)
			if err != nil {
				return
			}
			for _, path := range paths {
				if content, err := os.ReadFile(path); err == nil {
					for _, record := range scanSegment(content).records {
						c.add(record, samples)
					}
				}
			}
		}
	}
	if c.samples == 0 {
		return
	}
	r.found.lost += c.samples
	r.logger.Error("samples are lost, because the names of their series were in a damaged part of the log",
		"lost_samples", c.samples,
		"series", len(c.unknown), "lost_from", time.UnixMilli(c.from), "lost_to", time.UnixMilli(c.to))
}

// blocks takes blocks away that cannot be opened: with one of them, the TSDB would open none.
func (r *repairer) blocks(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		id, err := ulid.ParseStrict(e.Name())
		if err != nil || !e.IsDir() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		bad := openable(path)
		if bad == nil {
			continue
		}
		// Too little memory, too many open files: that is no damage.
		var system syscall.Errno
		if errors.As(bad, &system) && system != syscall.ENOENT && system != syscall.EIO {
			return fmt.Errorf("opening the block %q: %w", path, bad)
		}
		meta, metaErr := readMeta(path)
		kept, err := r.copies.Move(path)
		if err != nil {
			return err
		}
		r.found.files++
		about := []any{"block", e.Name(), "error", bad, "copy", kept}
		if metaErr == nil {
			r.found.lost += meta.Stats.NumSamples
			about = append(about, "lost_samples", meta.Stats.NumSamples, "lost_from", time.UnixMilli(meta.MinTime),
				"lost_to", time.UnixMilli(meta.MaxTime))
		} else {
			about = append(about, "written", ulid.Time(id.Time()))
		}
		r.logger.Error("a block cannot be opened and is set aside: its samples are missing", about...)
	}
	return nil
}

func openable(path string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reading the block: panic: %v", p)
		}
	}()
	b, err := tsdb.OpenBlock(slog.New(slog.DiscardHandler), path, nil, nil)
	if err != nil {
		return err
	}
	return b.Close()
}

// readMeta reads the description of a block.
func readMeta(dir string) (meta tsdb.BlockMeta, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err != nil {
		return meta, err
	}
	return meta, json.Unmarshal(b, &meta)
}
