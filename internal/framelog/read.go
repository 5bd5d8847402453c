package framelog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// indexCacheBytes bounds the indexes of minutes that are kept in memory.
const indexCacheBytes = 8 << 20

// ErrUnavailable means that frames cannot be read now, and perhaps later: they are in a bucket that does not answer.
var ErrUnavailable = errors.New("the bucket of frames is not available")

// located is a frame in a segment.
type located struct {
	in *segment
	entry
}

// blockCache has the indexes of minutes that were read last.
type blockCache struct {
	mu       sync.Mutex
	maxBytes int
	bytes    int
	blocks   map[blockID]*block
	clock    uint64
}

type blockID struct {
	segment uint64
	minute  int64
}

type block struct {
	minuteIndex
	used uint64
}

func newBlockCache(maxBytes int) *blockCache {
	return &blockCache{maxBytes: maxBytes, blocks: map[blockID]*block{}}
}

func (c *blockCache) get(id blockID) (minuteIndex, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.blocks[id]
	if b == nil {
		return minuteIndex{}, false
	}
	c.clock++
	b.used = c.clock
	return b.minuteIndex, true
}

func (c *blockCache) put(id blockID, m minuteIndex) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocks[id] != nil {
		return
	}
	c.clock++
	c.blocks[id] = &block{m, c.clock}
	c.bytes += len(m.entries)
	for c.bytes > c.maxBytes && len(c.blocks) > 1 {
		oldest := blockID{}
		least := c.clock
		for id, b := range c.blocks {
			if b.used < least {
				oldest, least = id, b.used
			}
		}
		c.bytes -= len(c.blocks[oldest].entries)
		delete(c.blocks, oldest)
	}
}

// index is that of a minute of a closed segment.
func (f *Files) index(g *segment, minute int64) (m minuteIndex, err error) {
	ref, ok := g.reference(minute)
	if !ok {
		return m, nil
	}
	id := blockID{g.number, minute}
	if m, ok = f.blocks.get(id); ok {
		return m, nil
	}
	b := make([]byte, ref.length)
	if _, err = g.from.ReadAt(b, ref.offset); err == nil {
		m, err = parseIndex(b, minute)
	}
	if err != nil {
		return m, fmt.Errorf("reading the index of %012d%s: %w", g.number, suffix, err)
	}
	f.blocks.put(id, m)
	return m, nil
}

// entries are where the frames of a stream are that are of a minute and can be read, in order of their numbers.
func (f *Files) entries(v *view, s *stream, minute int64) []located {
	all, _ := f.tryEntries(v, s, minute)
	return all
}

func (f *Files) tryEntries(v *view, s *stream, minute int64) (all []located, err error) {
	all, err = f.indexed(v, s, minute)
	slices.SortStableFunc(all, func(a, b located) int { return cmp.Compare(a.number, b.number) })
	return f.readable(all), err
}

// indexed are the frames of a stream and a minute that indexes tell of.
func (f *Files) indexed(v *view, s *stream, minute int64) (all []located, err error) {
	var some []entry
	for _, g := range f.of(v, minute) {
		some = some[:0]
		f.mu.RLock()
		open := g.open != nil
		if open {
			some = append(some, g.open.minutes[minute][s]...)
		}
		f.mu.RUnlock()
		if !open {
			local, ok := g.local(s)
			if !ok {
				continue
			}
			m, failed := f.index(g, minute)
			if failed != nil {
				if errors.Is(failed, ErrUnavailable) {
					err = failed
				} else {
					f.damage(g, -minute-1, failed)
				}
				continue
			}
			some = m.of(local, some)
		}
		for _, e := range some {
			all = append(all, located{g, e})
		}
	}
	return all, err
}

// readable leaves out what could not be read before, and what lacks its key frame. Of a frame that is there twice,
// because a segment and that which replaces it are both there, the first is taken.
func (f *Files) readable(all []located) []located {
	f.mu.RLock()
	defer f.mu.RUnlock()
	kept := all[:0]
	key := uint64(0)
	for _, l := range all {
		if _, bad := l.in.bad[l.offset]; bad {
			continue
		}
		if l.behind == 0 {
			key = l.number
		}
		if n := len(kept); l.key() != key || n > 0 && kept[n-1].number == l.number {
			continue
		}
		kept = append(kept, l)
	}
	return kept
}

// damage remembers that something cannot be read. A damaged index has a negative place.
func (f *Files) damage(g *segment, place int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := g.bad[place]; known {
		return
	}
	if g.bad == nil {
		g.bad = map[int64]struct{}{}
	}
	g.bad[place] = struct{}{}
	g.reindex = g.reindex || place < 0
	f.counts.Damaged++
	f.o.Logger.Error("a frame cannot be read: the one before it is used", "segment", g.number, "err", err)
}

// newest is the newest frame of a stream that is no later than a time and not of an earlier minute than oldest.
func (f *Files) newestAt(v *view, s *stream, at, oldest int64) (found located, ok bool, err error) {
	for minute := minuteOf(at); ; minute-- {
		f.mu.RLock()
		minute, ok = s.minutes.before(minute)
		f.mu.RUnlock()
		if !ok || minute < oldest {
			return found, false, nil
		}
		all, err := f.tryEntries(v, s, minute)
		if err != nil {
			return found, false, err
		}
		for i := len(all) - 1; i >= 0; i-- {
			if all[i].time <= at {
				return all[i], true, nil
			}
		}
	}
}

// firstAfter is the first frame of a stream after one time and no later than another.
func (f *Files) firstAfter(v *view, s *stream, after, until int64) (found located, ok bool, err error) {
	for minute := minuteOf(after); ; minute++ {
		f.mu.RLock()
		minute, ok = s.minutes.after(minute)
		f.mu.RUnlock()
		if !ok || minute > minuteOf(until) {
			return found, false, nil
		}
		all, err := f.tryEntries(v, s, minute)
		if err != nil {
			return found, false, err
		}
		for _, l := range all {
			if l.time > after && l.time <= until {
				return l, true, nil
			}
		}
	}
}

// keyOf is the key frame of a frame.
func (f *Files) keyOf(v *view, s *stream, l located) (key located, err error) {
	all, err := f.tryEntries(v, s, minuteOf(l.time))
	for _, one := range all {
		if one.number == l.key() {
			return one, nil
		}
	}
	return key, errors.Join(err, errKeyMissing)
}

// Reads that lie at most readGap bytes apart are one, of at most readBytes.
const (
	readGap   = 32 << 10
	readBytes = 4 << 20
)

// readAll reads the data of frames, in as few reads as their places allow. done is called with each frame's data, or
// with why it cannot be read; the data is only good until it returns.
func readAll(all []located, done func(l located, data []byte, err error)) {
	var buffer []byte
	for _, some := range together(all) {
		buffer = slices.Grow(buffer[:0], lengthOf(some))
		readRecords(some, buffer, func(l located, record []byte, err error) {
			if err == nil {
				record, err = dataOf(record, l)
			}
			done(l, record, err)
		})
	}
}

// together are the frames by the reads that they take, in order of their places.
func together(all []located) (reads [][]located) {
	slices.SortFunc(all, func(a, b located) int {
		return cmp.Or(cmp.Compare(a.in.number, b.in.number), cmp.Compare(a.offset, b.offset))
	})
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].in == all[0].in && all[n].offset-all[n-1].end() <= readGap &&
			all[n].end()-all[0].offset <= readBytes {
			n++
		}
		reads, all = append(reads, all[:n]), all[n:]
	}
	return reads
}

// end is where the frame's record ends.
func (l *located) end() int64 { return l.offset + int64(l.length) }

// lengthOf is how many bytes a read takes.
func lengthOf(one []located) int { return int(one[len(one)-1].end() - one[0].offset) }

// readRecords reads frames in one read into the capacity of buffer. done is called with each one's record, as much as
// there is of it, or with why it cannot be read.
func readRecords(one []located, buffer []byte, done func(l located, record []byte, err error)) {
	begin := one[0].offset
	n, err := one[0].in.from.ReadAt(buffer[:lengthOf(one)], begin)
	if errors.Is(err, io.EOF) {
		err = nil // what is missing is found in the record
	}
	for _, l := range one {
		if err != nil {
			done(l, nil, err)
			continue
		}
		done(l, buffer[min(l.offset-begin, int64(n)):min(l.end()-begin, int64(n))], nil)
	}
}

// readAhead asks the system to read frames, and does not wait for them.
func readAhead(one []located) {
	if file, ok := one[0].in.from.(*os.File); ok {
		// It is a hint: where it fails, they are read later.
		_ = unix.Fadvise(int(file.Fd()), one[0].offset, int64(lengthOf(one)), unix.FADV_WILLNEED)
	}
}

// dataOf is the encoded frame of a record.
func dataOf(b []byte, l located) ([]byte, error) {
	r, err := parseRecord(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	one, err := parseFrame(r.body)
	if err == nil && (one.number != l.number || one.time != l.time) {
		err = fmt.Errorf("%w: it is another frame", errDamaged)
	}
	return one.data, err
}
