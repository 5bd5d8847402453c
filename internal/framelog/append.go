package framelog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"outsight/internal/damaged"
)

// errKeyMissing is why a frame that nobody could read is refused.
var errKeyMissing = errors.New("its key frame is not there")

// pending is a frame that is to be written.
type pending struct {
	frameRecord
	of *stream
	at entry
}

// Append implements Log. When the disk refuses to sync a file once, it refuses all frames from then on: what the kernel
// has of the file is not known then.
func (f *Files) Append(ctx context.Context, batch []Encoded) error {
	f.appending.Lock()
	defer f.appending.Unlock()
	if err := cmp.Or(ctx.Err(), f.failed); err != nil {
		return err
	}
	if f.closed {
		return ErrClosed
	}
	accepted, rejected, err := f.accept(batch)
	if err != nil {
		return err
	}
	if len(accepted) > 0 {
		if err := f.write(accepted); err != nil {
			return err
		}
	}
	return rejected
}

// accept decides which frames are stored. A key frame comes before those that need it.
func (f *Files) accept(batch []Encoded) (accepted []pending, rejected, err error) {
	v, err := f.view()
	if err != nil {
		return nil, nil, err
	}
	defer v.done()
	records := make([]frameRecord, len(batch))
	order := make([]int, len(batch))
	for i := range batch {
		records[i], order[i] = recordOf(&batch[i]), i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := &records[i], &records[j]
		return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.host, b.host), cmp.Compare(a.epoch, b.epoch),
			cmp.Compare(a.number, b.number))
	})
	a := acceptor{f: f, v: v, fresh: map[streamName]*stream{}, taken: map[frameID]int64{}, now: f.o.Now()}
	var count Stats
	var reasons []error
	for _, i := range order {
		switch p, err := a.check(records[i]); {
		case errors.Is(err, errDuplicate):
			count.Duplicates++
		case err != nil:
			if errors.Is(err, errKeyMissing) {
				count.KeyMissing++
			} else {
				count.Rejected++
			}
			if len(reasons) < maxReasons {
				reasons = append(reasons, fmt.Errorf("frame %d of epoch %d of %q: %w", records[i].number, records[i].epoch,
					records[i].host, err))
			}
		default:
			accepted = append(accepted, p)
		}
	}
	f.mu.Lock()
	f.counts.Duplicates += count.Duplicates
	f.counts.KeyMissing += count.KeyMissing
	f.counts.Rejected += count.Rejected
	f.mu.Unlock()
	if n := count.KeyMissing + count.Rejected; n > 0 {
		rejected = fmt.Errorf("%w: %d of %d: %w", ErrRejected, n, len(batch), errors.Join(reasons...))
	}
	return accepted, rejected, nil
}

// maxReasons bounds the reasons that an error tells.
const maxReasons = 10

var errDuplicate = errors.New("it is there already")

type frameID struct {
	of     *stream
	number uint64
}

// acceptor checks the frames of a batch.
type acceptor struct {
	f *Files
	v *view
	// fresh are streams that are not known yet, taken the minutes of the frames of this batch.
	fresh map[streamName]*stream
	taken map[frameID]int64
	now   time.Time
}

func (a *acceptor) check(r frameRecord) (p pending, err error) {
	if err := r.check(); err != nil {
		return p, err
	}
	at := time.Unix(0, r.time)
	if ahead := at.Sub(a.now); ahead > a.f.o.MaxAhead {
		return p, fmt.Errorf("its time %v is %v ahead: at most %v", at.UTC(), ahead, a.f.o.MaxAhead)
	}
	if age := a.now.Sub(at); age > a.f.o.MaxAge {
		return p, fmt.Errorf("its time %v is %v ago: frames are kept for %v", at.UTC(), age, a.f.o.MaxAge)
	}
	of, err := a.stream(&r)
	if err != nil {
		return p, err
	}
	minute := minuteOf(r.time)
	if a.has(of, minute, r.number) {
		return p, errDuplicate
	}
	if r.key != r.number && !a.has(of, minute, r.key) {
		return p, errKeyMissing
	}
	a.taken[frameID{of, r.number}] = minute
	return pending{r, of, entry{time: r.time, number: r.number, length: uint32(r.size()),
		behind: uint32(r.number - r.key)}}, nil
}

// stream is that of a frame.
func (a *acceptor) stream(r *frameRecord) (*stream, error) {
	name := streamName{r.tenant, r.host, r.epoch}
	if s := a.fresh[name]; s != nil {
		return s, nil
	}
	a.f.mu.RLock()
	defer a.f.mu.RUnlock()
	if s := a.f.streams[name]; s != nil {
		return s, nil
	}
	if len(a.f.streams)+len(a.fresh) >= a.f.o.MaxStreams {
		return nil, fmt.Errorf("there are %d epochs of hosts already", a.f.o.MaxStreams)
	}
	s := &stream{streamName: name, first: r.time, last: r.time}
	a.fresh[name] = s
	return s, nil
}

// has reports whether there is a frame, in this batch or in the log.
func (a *acceptor) has(of *stream, minute int64, number uint64) bool {
	if at, ok := a.taken[frameID{of, number}]; ok {
		return at == minute
	}
	a.f.mu.RLock()
	known, newer := of.keyMinute == minute && of.key == number, number > of.lastNumber
	a.f.mu.RUnlock()
	if known || newer {
		return known
	}
	// Where the bucket does not answer, a frame that is a day late may be stored twice. It is read once.
	for _, e := range a.f.entries(a.v, of, minute) {
		if e.number == number {
			return true
		}
	}
	return false
}

// write stores frames: one write and one sync. appending is held.
func (f *Files) write(accepted []pending) error {
	g, err := f.openSegment()
	if err != nil {
		return err
	}
	size := int64(0)
	for i := range accepted {
		accepted[i].at.offset = g.size + size
		size += accepted[i].size()
	}
	b := make([]byte, 0, size)
	for i := range accepted {
		b = accepted[i].append(b)
	}
	if _, err := f.writing.WriteAt(b, g.size); err != nil {
		// The next write begins at the same place. What is left of this one would be read after a crash, as frames that
		// were not acknowledged and are sent again: it is cut off.
		if cut := f.writing.Truncate(g.size); cut != nil {
			f.fail(fmt.Errorf("cutting off what was written in part: %w", cut))
		}
		return fmt.Errorf("writing frames: %w", err)
	}
	if err := f.writing.Sync(); err != nil {
		f.fail(fmt.Errorf("syncing frames: %w", err))
		return f.failed
	}
	f.publish(g, accepted, size)
	if g.size >= f.o.SegmentBytes || f.o.Now().Sub(f.opened) >= f.o.SegmentAge {
		if err := f.closeSegment(); err != nil {
			// The frames are on the disk. A segment without an index is read when the log is opened again.
			f.fail(err)
		}
		f.retain()
	}
	return nil
}

// fail makes the log refuse frames from now on.
func (f *Files) fail(err error) {
	f.o.Logger.Error("the log of frames takes no frames any more, until it is opened again", "err", err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = fmt.Errorf("the log of frames takes no frames since an error: %w", err)
}

// publish makes frames known that are on the disk.
func (f *Files) publish(g *segment, accepted []pending, size int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range accepted {
		p := &accepted[i]
		s := f.know(p.of)
		s.note(p.at)
		if _, ok := g.open.streams[s]; !ok {
			s.segments++
		}
		g.open.add(s, p.at)
		f.newest = max(f.newest, p.time)
	}
	g.size += size
	g.frames += len(accepted)
	f.bytes += size
}

// know adds a stream to those that are known, or answers the one that is. mu is held.
func (f *Files) know(s *stream) *stream {
	if known := f.streams[s.streamName]; known != nil {
		return known
	}
	f.streams[s.streamName] = s
	return s
}

// note remembers that there is a frame.
func (s *stream) note(e entry) {
	s.first, s.last = min(s.first, e.time), max(s.last, e.time)
	s.lastNumber = max(s.lastNumber, e.number)
	minute := minuteOf(e.time)
	s.minutes.add(minute)
	if e.behind == 0 && e.number >= s.key {
		s.key, s.keyMinute = e.number, minute
	}
}

// openSegment is the segment that is written to. appending is held.
func (f *Files) openSegment() (*segment, error) {
	if f.writing != nil {
		return f.current, nil
	}
	number := f.number()
	path := pathOf(f.dir, number)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making a file of frames: %w", err)
	}
	_, err = file.Write(fileHeader())
	if err = errors.Join(err, damaged.SyncDir(f.dir)); err != nil {
		return nil, errors.Join(fmt.Errorf("making a file of frames: %w", err), file.Close(), os.Remove(path))
	}
	g := &segment{number: number, size: fileHeaderBytes, open: newOpenIndex(), from: file}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writing, f.current, f.opened = file, g, f.o.Now()
	f.add(g)
	return g, nil
}

func (f *Files) number() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	return f.next - 1
}

// add adds a segment, in order of numbers. mu is held.
func (f *Files) add(g *segment) {
	g.users.Add(1)
	all := slices.Clone(f.segments)
	at := len(all)
	for at > 0 && all[at-1].number > g.number {
		at--
	}
	f.segments = slices.Insert(all, at, g)
	f.bytes += g.size
}

// closeSegment writes the index of the open segment, if there is one. appending is held.
func (f *Files) closeSegment() error {
	if f.writing == nil {
		return nil
	}
	g := f.current
	d, entries, streams := g.open.directory() // only who holds appending adds to it
	b := seal(g.size, d, entries)
	_, err := f.writing.WriteAt(b, g.size)
	if err == nil {
		err = f.writing.Sync()
	}
	if err != nil {
		return fmt.Errorf("writing the index of frames: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g.streams, g.minutes, g.open = streams, d.minutes, nil
	g.size += int64(len(b))
	f.bytes += int64(len(b))
	f.writing, f.current = nil, nil
	return nil
}

// directory is that of an open segment, with its entries and its streams in order.
func (o *openIndex) directory() (*directory, map[int64][]streamEntry, []*stream) {
	streams := make([]*stream, 0, len(o.streams))
	for s := range o.streams {
		streams = append(streams, s)
	}
	slices.SortFunc(streams, compareStreams)
	d := newDirectory(streams, levelFine)
	entries := make(map[int64][]streamEntry, len(o.minutes))
	for minute, of := range o.minutes {
		for n, s := range streams {
			for _, e := range of[s] {
				entries[minute] = append(entries[minute], streamEntry{uint32(n), e})
				d.streams[n].note(e)
			}
		}
	}
	return d, entries, streams
}

func newDirectory(streams []*stream, level uint8) *directory {
	d := &directory{level: level, streams: make([]streamInfo, len(streams))}
	for i, s := range streams {
		d.streams[i].streamName = s.streamName
	}
	return d
}

func (s *streamInfo) note(e entry) {
	if s.first == 0 || e.time < s.first {
		s.first = e.time
	}
	s.last, s.lastNumber = max(s.last, e.time), max(s.lastNumber, e.number)
	s.minutes.add(minuteOf(e.time))
}
