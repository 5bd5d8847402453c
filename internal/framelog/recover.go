package framelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"outsight/internal/damaged"
)

// recover opens all segments. One that was not closed is read to its last whole record, and closed.
func (f *Files) recover(ctx context.Context) error {
	numbers, err := f.list()
	if err != nil {
		return err
	}
	for _, number := range numbers {
		f.next = max(f.next, number+1)
		if err := f.load(number); err != nil {
			return err
		}
	}
	if err := f.openBucket(ctx); err != nil {
		return err
	}
	return f.removeReplaced()
}

// list are the numbers of the segments, ascending. Files that were not finished are removed.
func (f *Files) list() (numbers []uint64, err error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), temporary) || damaged.IsLeftover(e.Name()) {
			if err := os.Remove(filepath.Join(f.dir, e.Name())); err != nil {
				return nil, err
			}
			continue
		}
		text, ours := strings.CutSuffix(e.Name(), suffix)
		if number, err := strconv.ParseUint(text, 10, 64); ours && err == nil {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// load opens a segment.
func (f *Files) load(number uint64) error {
	path := pathOf(f.dir, number)
	file, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	g, err := f.loadFile(number, file)
	if err != nil {
		return errors.Join(fmt.Errorf("reading %q: %w", path, err), file.Close())
	}
	if g == nil || g.from != file { // there is nothing in it, or it was written again
		return file.Close()
	}
	return nil
}

func (f *Files) loadFile(number uint64, file *os.File) (*segment, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	head := make([]byte, fileHeaderBytes)
	if n, err := file.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	} else if err := checkFileHeader(head[:n]); err != nil && !errors.Is(err, errDamaged) {
		return nil, err
	}
	d, err := readDirectory(file, info.Size())
	if err == nil {
		return f.adopt(number, d, file, info.Size()), nil
	}
	if !errors.Is(err, errDamaged) {
		return nil, err
	}
	return f.repair(number, file, info.Size())
}

// adopt adds a closed segment.
func (f *Files) adopt(number uint64, d *directory, from source, size int64) *segment {
	g := &segment{number: number, level: d.level, size: size, frames: d.frames, minutes: d.minutes,
		replaced: d.replaced, from: from}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.adoptStreams(g, d)
	f.add(g)
	return g
}

// adoptStreams makes the streams of a directory known. mu is held.
func (f *Files) adoptStreams(g *segment, d *directory) {
	for i := range d.streams {
		info := &d.streams[i]
		s := f.know(&stream{streamName: info.streamName, first: info.first, last: info.last})
		s.first, s.last = min(s.first, info.first), max(s.last, info.last)
		s.lastNumber = max(s.lastNumber, info.lastNumber)
		for _, run := range info.minutes.runs() {
			for k := range run[1] {
				s.minutes.add(run[0] + k)
			}
		}
		s.segments++
		g.streams = append(g.streams, s)
		f.newest = max(f.newest, info.last)
	}
}

// removeReplaced removes segments of which another one was made: the program ended before it did so.
func (f *Files) removeReplaced() error {
	replaced := map[uint64]bool{}
	for _, g := range f.segments {
		for _, number := range g.replaced {
			replaced[number] = true
		}
	}
	var old []*segment
	for _, g := range f.segments {
		if replaced[g.number] {
			old = append(old, g)
		}
	}
	return f.remove(old)
}

// scanned is what a file has that was not closed.
type scanned struct {
	frames []frameRecord // without their data
	places []entry
	// holes are damaged parts with good records behind them; end is that of the last frame.
	holes [][2]int64
	end   int64
	// closing means that a part of the index follows the frames, so that nothing of them is missing.
	closing bool
}

// scan reads all records that can be read.
func scan(b []byte) *scanned {
	s := &scanned{end: fileHeaderBytes}
	for at := int64(fileHeaderBytes); at < int64(len(b)); {
		r, err := parseRecord(b[at:])
		if err != nil {
			next := nextRecord(b, at+1)
			if next < 0 {
				s.closing = beginsIndex(b[at:])
				break
			}
			s.holes = append(s.holes, [2]int64{at, next})
			at = next
			continue
		}
		if r.kind == kindIndex || r.kind == kindDirectory {
			s.closing = true
			break
		}
		if one, err := parseFrame(r.body); err == nil {
			one.data = nil
			s.frames = append(s.frames, one)
			s.places = append(s.places, entry{time: one.time, number: one.number, offset: at, length: uint32(r.size),
				behind: uint32(one.number - one.key)})
			s.end = at + r.size
		} else {
			s.holes = append(s.holes, [2]int64{at, at + r.size})
		}
		at += r.size
	}
	return s
}

// beginsIndex reports whether a record that is not whole is one of the index.
func beginsIndex(b []byte) bool {
	return len(b) > recordHeaderBytes && bytes.Equal(b[:4], recordMagic[:]) && b[recordHeaderBytes] != kindFrame
}

// nextRecord is where the next whole record begins, or -1.
func nextRecord(b []byte, at int64) int64 {
	for at < int64(len(b)) {
		found := bytes.Index(b[at:], recordMagic[:])
		if found < 0 {
			return -1
		}
		at += int64(found)
		if _, err := parseRecord(b[at:]); err == nil {
			return at
		}
		at++
	}
	return -1
}

// repair closes a segment that has no directory. What is behind the last whole record is cut off; of a file with damage
// between records, a copy is kept and it is written again without that.
func (f *Files) repair(number uint64, file *os.File, size int64) (*segment, error) {
	path := file.Name()
	b := make([]byte, size)
	if _, err := file.ReadAt(b, 0); err != nil && size > 0 {
		return nil, err
	}
	s := scan(b)
	if err := checkFileHeader(b); err != nil && len(s.frames) > 0 {
		s.holes = append([][2]int64{{0, fileHeaderBytes}}, s.holes...)
	}
	tail := b[min(s.end, size):]
	switch {
	case len(s.holes) > 0:
		kept, err := f.copies.Copy(path)
		if err != nil {
			return nil, err
		}
		f.counts.Damaged += uint64(len(s.holes))
		f.o.Logger.Error("a file of frames was damaged: all frames of it that can be read are kept", "file", path,
			"damaged_parts", len(s.holes), "kept_frames", len(s.frames), "copy", kept)
	case len(tail) > 0 && !s.closing && size > fileHeaderBytes:
		kept, err := f.keepTail(path, tail)
		if err != nil {
			return nil, err
		}
		f.o.Logger.Warn("the end of a file of frames cannot be read: a write that was cut off, or damage", "file", path,
			"cut_off_bytes", len(tail), "kept_frames", len(s.frames), "copy", kept)
	}
	if len(s.frames) == 0 {
		return nil, errors.Join(os.Remove(path), damaged.SyncDir(f.dir))
	}
	if len(s.holes) > 0 {
		return f.rewrite(number, b, s)
	}
	return f.finish(number, file, s, nil)
}

// keepTail keeps a copy of what is cut off.
func (f *Files) keepTail(path string, tail []byte) (kept string, err error) {
	copied := path + ".end" + temporary
	if err := os.WriteFile(copied, tail, 0o600); err != nil {
		return "", err
	}
	return f.copies.Move(copied)
}

// rewrite writes a file again with its good records alone. replaced are other segments that it stands for.
func (f *Files) rewrite(number uint64, b []byte, s *scanned, replaced ...uint64) (*segment, error) {
	content := fileHeader()
	for i := range s.places {
		e := &s.places[i]
		record := b[e.offset : e.offset+int64(e.length)]
		e.offset = int64(len(content))
		content = append(content, record...)
	}
	s.end = int64(len(content))
	path := pathOf(f.dir, number)
	if err := damaged.Replace(path, content); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	g, err := f.finish(number, file, s, replaced)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return g, nil
}

// finish closes a segment behind its last frame.
func (f *Files) finish(number uint64, file *os.File, s *scanned, replaced []uint64) (*segment, error) {
	o := newOpenIndex()
	known := map[streamName]*stream{}
	for i := range s.frames {
		one := &s.frames[i]
		name := streamName{one.tenant, one.host, one.epoch}
		if known[name] == nil {
			known[name] = &stream{streamName: name}
		}
		o.add(known[name], s.places[i])
	}
	d, entries, _ := o.directory()
	d.replaced = replaced
	b := seal(s.end, d, entries)
	d.frames = len(s.frames)
	err := file.Truncate(s.end)
	if err == nil {
		_, err = file.WriteAt(b, s.end)
	}
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		return nil, err
	}
	return f.adopt(number, d, file, s.end+int64(len(b))), nil
}
