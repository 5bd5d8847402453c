package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

const (
	// momentStep is the time between moments that have files, in ms. It is that of a keptLevel.
	momentStep = 60_000
	// momentShare of Options.MaxBytes is for files.
	momentShare = 16
	// momentSettle is how long after a moment its file is written, in ms: samples of others come a little late.
	momentSettle = 60_000
	// momentWait is how long the file of a moment is waited with for sources that are behind, in ms, and sourceSilent
	// how long one may be silent before it is not waited for.
	momentWait, sourceSilent = 10 * 60_000, 2 * 60_000
	// momentDeadline is when a moment may be kept no longer, in ms.
	momentDeadline = 16 * 60_000

	momentSuffix = ".moment"
)

// momentFiles are files of moments, one for each minute of a large store, for as long as the store has samples of that
// time: a window of long ago is read out of two of them, where chunks would take many times as long. A file is exact or
// is not there: a sample that comes later and belongs to its moment makes it go before that sample is stored, and it is
// written again while the moment is still kept in memory.
type momentFiles struct {
	dir      string
	maxBytes int64
	logger   *slog.Logger

	// upTo is the last moment, in ms, that has or had a file, late the one whose file the last late sample removed, and
	// skip the last one that is to have none: it could not be written, or there is no room for it. unsynced is whether
	// files were removed since sync. They are of who appends; upTo and skip change between batches.
	upTo, late, skip int64
	unsynced         bool

	// mu guards what follows.
	mu    sync.Mutex
	known []momentInfo // in the order of their times
	// writing is the moment whose file is being written, or noSample; spoiled is whether a late sample has come meanwhile.
	writing int64
	spoiled bool
	// failing is whether the last file could not be written.
	failing bool
	// stale are moments whose files could not be removed, and removed is how many late samples have removed.
	stale   []int64
	removed uint64
}

// momentInfo is a file.
type momentInfo struct{ at, bytes int64 }

func (m momentInfo) compare(at int64) int { return cmp.Compare(m.at, at) }

// openMoments finds the files in a directory, which need not be there.
func openMoments(dir string, maxBytes int64, logger *slog.Logger) (*momentFiles, error) {
	m := &momentFiles{dir: dir, maxBytes: maxBytes, logger: logger, upTo: noSample, late: noSample, skip: noSample,
		writing: noSample}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		// Files that are not known now might be taken for right later.
		return nil, fmt.Errorf("reading the files of moments, all of which may be removed: %w", err)
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), momentSuffix)
		seconds, err := strconv.ParseInt(name, 10, 64)
		info, missing := e.Info()
		if !ok || err != nil || missing != nil || seconds*1000%momentStep != 0 {
			if strings.HasSuffix(e.Name(), momentSuffix+".new") { // a crash left it
				os.Remove(filepath.Join(dir, e.Name()))
			}
			continue
		}
		m.known = append(m.known, momentInfo{seconds * 1000, info.Size()})
		m.upTo = max(m.upTo, seconds*1000)
	}
	slices.SortFunc(m.known, func(a, b momentInfo) int { return a.compare(b.at) })
	return m, nil
}

func (m *momentFiles) path(at int64) string {
	return filepath.Join(m.dir, strconv.FormatInt(at/1000, 10)+momentSuffix)
}

// came is that a sample of the time at, in ms, is about to be stored.
func (m *momentFiles) came(at int64) {
	if at > m.upTo {
		return
	}
	moment := momentFrom(at, momentStep)
	if moment == m.late || at <= moment-keptRecent {
		return
	}
	m.late = moment
	if m.remove(moment) {
		m.unsynced = true
	}
}

// sync makes sure that files which came has removed stay so where power is lost.
func (m *momentFiles) sync() {
	if !m.unsynced {
		return
	}
	m.unsynced = false
	if err := syncFile(m.dir); err != nil {
		m.logger.Warn("after a loss of power, maps may lack samples that came late", "err", err)
	}
}

// remove removes the file of a moment, whether it is there or being written. It is whether there was one.
func (m *momentFiles) remove(at int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.writing == at {
		m.spoiled = true
	}
	i, ok := slices.BinarySearchFunc(m.known, at, momentInfo.compare)
	if !ok {
		return false
	}
	m.known = slices.Delete(m.known, i, i+1)
	m.removed++
	m.unlink(at)
	return true
}

// unlink removes a file that is not known any more; what fails is tried again.
func (m *momentFiles) unlink(at int64) {
	if err := os.Remove(m.path(at)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if len(m.stale) == 0 {
			m.logger.Warn("removing the file of a moment failed: after a restart, maps of that time may be wrong",
				"file", m.path(at), "err", err)
		}
		m.stale = append(m.stale, at)
	}
}

// has is whether there is a file of a moment.
func (m *momentFiles) has(at int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := slices.BinarySearchFunc(m.known, at, momentInfo.compare)
	return ok
}

// near is the newest moment with a file at or before at, no more than most before it, all in ms, of those that begin no
// earlier than oldest.
func (m *momentFiles) near(at, most, oldest int64) (moment int64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, exact := slices.BinarySearchFunc(m.known, at, momentInfo.compare)
	if !exact {
		i--
	}
	if i < 0 || at-m.known[i].at > most || m.known[i].at-keptRecent < oldest {
		return 0, false
	}
	return m.known[i].at, true
}

// begin says that the file of a moment is about to be written. It is called between batches.
func (m *momentFiles) begin(at int64) {
	m.upTo, m.late = max(m.upTo, at), noSample
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writing, m.spoiled = at, false
}

// badMoment is what is wrong with a file.
type badMoment struct {
	at  int64
	err error
}

func (b *badMoment) Error() string { return b.err.Error() }
func (b *badMoment) Unwrap() error { return b.err }

// damaged tells of a file that cannot be read, and removes it where it will never be.
func (m *momentFiles) damaged(b *badMoment) {
	if !m.has(b.at) {
		return // a late sample has removed it
	}
	m.logger.Warn("reading the file of a moment failed: maps of that time will take longer", "file", m.path(b.at),
		"err", b.err)
	if errors.Is(b.err, errBadMoment) || errors.Is(b.err, fs.ErrNotExist) {
		m.remove(b.at)
	}
}

// write writes the file of the moment that was begun; false where a late sample has come meanwhile. stored returns when
// the samples are on the disk: a file must not have what a loss of power takes from the store.
func (m *momentFiles) write(at int64, parts []string, sources []*keptSource, stored func() error) (bool, error) {
	err := os.MkdirAll(m.dir, 0o700)
	made := m.path(at) + ".new"
	size := int64(0)
	if err == nil {
		if size, err = writeMoment(made, at, parts, sources); err == nil {
			err = stored()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writing = noSample
	if err == nil && !m.spoiled {
		err = os.Rename(made, m.path(at))
	}
	if err != nil || m.spoiled {
		os.Remove(made)
		m.failed(at, err)
		return false, err
	}
	m.failing = false
	if i, ok := slices.BinarySearchFunc(m.known, at, momentInfo.compare); !ok {
		m.known = slices.Insert(m.known, i, momentInfo{at, size})
	}
	return true, nil
}

// failed tells once of what goes wrong again and again.
func (m *momentFiles) failed(at int64, err error) {
	if err == nil || errors.Is(err, errLateMoment) || m.failing {
		return
	}
	m.failing = true
	m.logger.Warn("writing the file of a moment failed: maps of that time will take longer", "file", m.path(at), "err",
		err)
}

func writeMoment(path string, at int64, parts []string, sources []*keptSource) (size int64, err error) {
	w, err := newMomentWriter(path, parts)
	if err != nil {
		return 0, err
	}
	err = w.write([]byte(momentMagic))
	for i := 0; i < len(sources) && err == nil; i++ {
		err = w.add(sources[i], at)
	}
	err = w.finish(err)
	return w.at, err
}

// prune removes files that begin before oldest, in ms, and the oldest ones where all take more than their share. It is
// the last moment that found no room, or noSample.
func (m *momentFiles) prune(oldest int64) (crowded int64) {
	crowded = noSample
	m.mu.Lock()
	n, total := 0, int64(0)
	for _, f := range m.known {
		total += f.bytes
	}
	for ; n < len(m.known) && (total > m.maxBytes || m.known[n].at-keptRecent < oldest); n++ {
		if total > m.maxBytes {
			crowded = m.known[n].at
		}
		total -= m.known[n].bytes
		m.unlink(m.known[n].at)
	}
	m.known = slices.Delete(m.known, 0, n)
	again := m.stale
	m.stale = nil
	for _, at := range again {
		if _, ok := slices.BinarySearchFunc(m.known, at, momentInfo.compare); !ok {
			m.unlink(at)
		}
	}
	m.mu.Unlock()
	if n > 0 {
		if err := syncFile(m.dir); err != nil {
			m.logger.Warn("after a loss of power, files of moments may take more room than they should", "err", err)
		}
	}
	return crowded
}

// size is how many there are, and how many bytes they take; late is how many late samples have removed.
func (m *momentFiles) size() (files int, bytes int64, late uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.known {
		bytes += f.bytes
	}
	return len(m.known), bytes, m.removed
}
