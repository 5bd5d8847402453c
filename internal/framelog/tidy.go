package framelog

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"outsight/internal/damaged"
	"outsight/internal/frame"
)

// Tidy closes a segment that has been open for long, removes what retention says, thins what is old and moves segments
// of key frames to the bucket. The log does so by itself, see Options.TidyEvery.
func (f *Files) Tidy(ctx context.Context) error {
	f.tidying.Lock()
	defer f.tidying.Unlock()
	if err := f.closeOld(); err != nil {
		return err
	}
	f.retain()
	if err := f.reindex(); err != nil {
		return fmt.Errorf("making a damaged index again: %w", err)
	}
	for _, level := range [...]uint8{levelMiddle, levelKeys} {
		for _, group := range f.due(level) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f.compact(group, level); err != nil {
				return fmt.Errorf("thinning frames: %w", err)
			}
		}
	}
	return f.tidyBucket(ctx)
}

func (f *Files) closeOld() error {
	f.appending.Lock()
	defer f.appending.Unlock()
	switch {
	case f.closed:
		return ErrClosed
	case f.writing == nil || f.failed != nil || f.o.Now().Sub(f.opened) < f.o.SegmentAge:
		return nil
	}
	return f.closeSegment()
}

// reindex reads segments again of which the index was found damaged: their frames may be whole.
func (f *Files) reindex() error {
	f.mu.RLock()
	var all []*segment
	for _, g := range f.segments {
		if g.reindex && !g.remote {
			all = append(all, g)
		}
	}
	f.mu.RUnlock()
	for _, g := range all {
		b := make([]byte, g.size)
		if _, err := g.from.ReadAt(b, 0); err != nil {
			return err
		}
		s := scan(b)
		if len(s.frames) == 0 {
			continue
		}
		if _, err := f.copies.Copy(pathOf(f.dir, g.number)); err != nil {
			return err
		}
		if _, err := f.rewrite(f.number(), b, s, g.number); err != nil {
			return err
		}
		if err := f.remove([]*segment{g}); err != nil {
			return err
		}
	}
	return nil
}

// present is the time that ages are counted from: a clock that is ahead of all frames makes none of them old.
func (f *Files) present() time.Time {
	now := f.o.Now()
	f.mu.RLock()
	defer f.mu.RUnlock()
	if newest := time.Unix(0, f.newest); f.newest > 0 && newest.Before(now) {
		return newest
	}
	return now
}

// retain removes the oldest segments: those past MaxAge, and those that are too much.
func (f *Files) retain() {
	oldest := minuteOf(f.present().Add(-f.o.MaxAge).UnixNano())
	f.mu.RLock()
	closed := make([]*segment, 0, len(f.segments))
	for _, g := range f.segments {
		if g.open == nil {
			closed = append(closed, g)
		}
	}
	over := f.bytes - f.o.MaxBytes
	slices.SortStableFunc(closed, func(a, b *segment) int { return cmp.Compare(a.newest(), b.newest()) })
	n, frames := 0, 0
	for n < len(closed) && (closed[n].newest() < oldest || over > 0) {
		over -= closed[n].size
		frames += closed[n].frames
		n++
	}
	f.mu.RUnlock()
	if n == 0 {
		return
	}
	if err := f.remove(closed[:n]); err != nil {
		f.o.Logger.Error("removing old frames failed", "err", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Removed += uint64(frames)
}

// remove forgets segments and removes their files.
func (f *Files) remove(old []*segment) error {
	f.mu.Lock()
	removed := f.forget(old)
	f.forgetStreams()
	f.mu.Unlock()
	return f.unlink(removed)
}

// forget takes segments out of the log, and answers those that were in it. mu is held.
func (f *Files) forget(old []*segment) (removed []*segment) {
	kept := make([]*segment, 0, len(f.segments))
	for _, g := range f.segments {
		if !slices.Contains(old, g) {
			kept = append(kept, g)
			continue
		}
		removed = append(removed, g)
		f.bytes -= g.size
		for _, s := range g.streams {
			s.segments--
		}
	}
	f.segments = kept
	return removed
}

// forgetStreams forgets what is known of frames that are no more. mu is held.
func (f *Files) forgetStreams() {
	oldest := int64(0)
	for _, g := range f.segments {
		first := minuteOf(f.newest)
		if g.open == nil {
			first = g.minutes[0].minute
		} else {
			for minute := range g.open.minutes {
				first = min(first, minute)
			}
		}
		if oldest == 0 || first < oldest {
			oldest = first
		}
	}
	for name, s := range f.streams {
		if s.segments == 0 {
			delete(f.streams, name)
			continue
		}
		s.minutes.removeBefore(oldest)
		s.first = max(s.first, startOf(oldest).UnixNano())
	}
}

// unlink removes the files of segments. Those who read one can do so to the end.
func (f *Files) unlink(old []*segment) error {
	var all error
	for _, g := range old {
		if g.remote {
			f.mu.Lock()
			f.doomed = append(f.doomed, g.number)
			f.mu.Unlock()
		} else if err := os.Remove(pathOf(f.dir, g.number)); err != nil {
			all = errors.Join(all, err)
		}
		g.release()
	}
	return all
}

// span is how much time the segments have that are made by thinning.
func (f *Files) span(level uint8) time.Duration {
	if level == levelMiddle {
		return max(f.o.Fine/6, frame.KeyInterval).Truncate(frame.KeyInterval)
	}
	return max(f.o.Middle/24, f.o.MaxAge/1000, frame.KeyInterval).Truncate(frame.KeyInterval)
}

// due are the segments that are to be thinned to a level, in groups that become one segment each.
func (f *Files) due(level uint8) (groups [][]*segment) {
	age := f.o.Fine
	if level == levelKeys {
		age = f.o.Middle
	}
	span, old := f.span(level), f.present().Add(-age)
	by := map[int64][]*segment{}
	f.mu.RLock()
	for _, g := range f.segments {
		if g.open != nil || g.level != level-1 {
			continue
		}
		part := startOf(g.newest()).UnixNano() / int64(span)
		if !time.Unix(0, (part+1)*int64(span)).After(old) {
			by[part] = append(by[part], g)
		}
	}
	f.mu.RUnlock()
	parts := make([]int64, 0, len(by))
	for part := range by {
		parts = append(parts, part)
	}
	slices.Sort(parts)
	for _, part := range parts {
		groups = append(groups, by[part])
	}
	return groups
}

// compact makes one thinned segment of several. It is there, on the disk, before the others are removed; it names them,
// so that they are removed at the next start where the program ends in between.
func (f *Files) compact(group []*segment, level uint8) error {
	all, err := f.view()
	if err != nil {
		return err
	}
	defer all.done()
	w, err := f.newWriter(all, group, level)
	if err != nil {
		return err
	}
	d, err := w.write()
	if err != nil {
		return errors.Join(err, w.abandon())
	}
	for _, g := range group {
		if w.damaged[g] {
			if _, err := f.copies.Copy(pathOf(f.dir, g.number)); err != nil {
				return errors.Join(err, w.abandon())
			}
		}
	}
	made, err := w.finish(d)
	if err != nil {
		return errors.Join(err, w.abandon())
	}
	before := 0
	f.mu.Lock()
	if made != nil {
		f.adoptStreams(made, d)
		f.add(made)
		before = -made.frames
	}
	removed := f.forget(group)
	for _, g := range removed {
		before += g.frames
	}
	f.counts.Thinned += uint64(max(before, 0))
	f.forgetStreams()
	f.mu.Unlock()
	return f.unlink(removed)
}

// writer writes a segment of others.
type writer struct {
	f     *Files
	group []*segment
	// all are the segments of the log: the key frames of some frames may be in others than those of the group.
	all     *view
	level   uint8
	number  uint64
	file    *os.File
	out     *bufio.Writer
	offset  int64
	streams []*stream
	local   map[*stream]uint32
	entries map[int64][]streamEntry
	damaged map[*segment]bool
	buffer  []byte
}

func (f *Files) newWriter(all *view, group []*segment, level uint8) (*writer, error) {
	w := &writer{f: f, group: group, all: all, level: level, number: f.number(), local: map[*stream]uint32{},
		entries: map[int64][]streamEntry{}, damaged: map[*segment]bool{}}
	for _, g := range group {
		for _, s := range g.streams {
			if _, known := w.local[s]; !known {
				w.local[s] = 0
				w.streams = append(w.streams, s)
			}
		}
	}
	slices.SortFunc(w.streams, compareStreams)
	for i, s := range w.streams {
		w.local[s] = uint32(i)
	}
	file, err := os.OpenFile(pathOf(f.dir, w.number)+temporary, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	w.file, w.out = file, bufio.NewWriterSize(file, 1<<20)
	return w, nil
}

func (w *writer) abandon() error { return errors.Join(w.file.Close(), os.Remove(w.file.Name())) }

// write writes the frames, minute by minute: first all key frames, in order of hosts, and then the others in order of
// their times. So a map of a moment is read in few pieces.
func (w *writer) write() (*directory, error) {
	if _, err := w.out.Write(fileHeader()); err != nil {
		return nil, err
	}
	w.offset = fileHeaderBytes
	d := newDirectory(w.streams, w.level)
	for _, minute := range w.minutes() {
		for _, l := range w.choose(minute) {
			e, err := w.copy(l.located)
			if err != nil {
				return nil, err
			}
			if e.length == 0 {
				continue
			}
			w.entries[minute] = append(w.entries[minute], streamEntry{l.stream, e})
			d.streams[l.stream].note(e)
			d.frames++
		}
	}
	for _, g := range w.group {
		d.replaced = append(d.replaced, g.number)
	}
	return d, nil
}

func (w *writer) minutes() (all []int64) {
	for _, g := range w.group {
		for _, m := range g.minutes {
			all = append(all, m.minute)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// chosen is a frame that is kept.
type chosen struct {
	stream uint32
	located
}

// choose are the frames of a minute that are kept.
func (w *writer) choose(minute int64) (all []chosen) {
	for i, s := range w.streams {
		w.f.mu.RLock()
		last := s.lastNumber
		w.f.mu.RUnlock()
		slot := int64(-1)
		for _, l := range w.f.entries(w.all, s, minute) {
			// The last frame of an epoch has what was counted until its end.
			keep := l.behind == 0 || l.number == last
			if at := l.time / int64(w.f.o.MiddleEvery); w.level == levelMiddle && at != slot {
				keep, slot = true, at
			}
			if keep && slices.Contains(w.group, l.in) {
				all = append(all, chosen{uint32(i), l})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b chosen) int {
		switch aKey, bKey := a.behind == 0, b.behind == 0; {
		case aKey && bKey:
			return cmp.Compare(a.stream, b.stream)
		case aKey:
			return -1
		case bKey:
			return 1
		}
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.stream, b.stream))
	})
	return all
}

// copy copies a record. The entry has length 0 where it cannot be read.
func (w *writer) copy(l located) (e entry, err error) {
	w.buffer = slices.Grow(w.buffer[:0], int(l.length))[:l.length]
	b := w.buffer
	_, err = l.in.from.ReadAt(b, l.offset)
	if err == nil || errors.Is(err, io.EOF) {
		_, err = dataOf(b, l)
	}
	if err != nil {
		w.f.damage(l.in, l.offset, err)
		w.damaged[l.in] = true
		return entry{}, nil
	}
	if _, err := w.out.Write(b); err != nil {
		return entry{}, err
	}
	e = l.entry
	e.offset = w.offset
	w.offset += int64(l.length)
	return e, nil
}

// finish writes the index and gives the segment its name. It answers nil where there is no frame in it.
func (w *writer) finish(d *directory) (*segment, error) {
	if d.frames == 0 {
		return nil, w.abandon()
	}
	b := seal(w.offset, d, w.entries)
	_, err := w.out.Write(b)
	if err = errors.Join(err, w.out.Flush()); err != nil {
		return nil, err
	}
	if err = w.file.Sync(); err != nil {
		return nil, err
	}
	if err = os.Rename(w.file.Name(), pathOf(w.f.dir, w.number)); err != nil {
		return nil, err
	}
	if err = damaged.SyncDir(w.f.dir); err != nil {
		return nil, err
	}
	return &segment{number: w.number, level: w.level, size: w.offset + int64(len(b)), frames: d.frames,
		minutes: d.minutes, replaced: d.replaced, from: w.file}, nil
}
