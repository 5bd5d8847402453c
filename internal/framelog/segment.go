package framelog

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"slices"
	"sync/atomic"
)

var errDamaged = errors.New("damaged")

// The levels of a segment say how far it is thinned.
const (
	levelFine = iota
	levelMiddle
	levelKeys
)

// segment is a file of frames. Once it is closed, it has an index and is not changed any more.
type segment struct {
	number uint64
	level  uint8
	// size is that of the file, in bytes, and frames how many are in it. Of an open segment they grow.
	size   int64
	frames int
	// streams are by the number that entries of the index have; minutes ascend. Both are empty while it is open.
	streams []*stream
	minutes []minuteRef
	// replaced are the segments of which it was made.
	replaced []uint64
	// open is nil once it is closed.
	open *openIndex
	// from has the content.
	from source
	// remote means that the content is in the bucket.
	remote bool

	// users counts those who read it, and the log itself. The last one closes the file.
	users atomic.Int64
	// bad are offsets of records that could not be read; the lock of Files guards it.
	bad map[int64]struct{}
	// reindex says that its index is damaged.
	reindex bool
}

// source is the content of a segment.
type source interface {
	io.ReaderAt
	io.Closer
}

// minuteRef says where the index of a minute is.
type minuteRef struct {
	minute, offset  int64
	length, entries uint32
}

// openIndex is the index of a segment that is written to.
type openIndex struct {
	minutes map[int64]map[*stream][]entry
	streams map[*stream]struct{}
}

func newOpenIndex() *openIndex {
	return &openIndex{minutes: map[int64]map[*stream][]entry{}, streams: map[*stream]struct{}{}}
}

func (o *openIndex) add(s *stream, e entry) {
	minute := minuteOf(e.time)
	of := o.minutes[minute]
	if of == nil {
		of = map[*stream][]entry{}
		o.minutes[minute] = of
	}
	all := of[s]
	at := len(all)
	for at > 0 && all[at-1].number > e.number {
		at--
	}
	of[s] = slices.Insert(all, at, e)
	o.streams[s] = struct{}{}
}

func pathOf(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%012d", number)+suffix)
}

func (g *segment) release() {
	if g.users.Add(-1) == 0 {
		g.from.Close()
	}
}

// reference is the index of a minute; ok is false where it has no frames of it.
func (g *segment) reference(minute int64) (m minuteRef, ok bool) {
	at, ok := slices.BinarySearchFunc(g.minutes, minute, func(m minuteRef, minute int64) int {
		return cmp.Compare(m.minute, minute)
	})
	if !ok {
		return m, false
	}
	return g.minutes[at], true
}

// local is the number of a stream in the segment.
func (g *segment) local(s *stream) (uint32, bool) {
	at, ok := slices.BinarySearchFunc(g.streams, s, compareStreams)
	return uint32(at), ok
}

func compareStreams(a, b *stream) int {
	return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.host, b.host), cmp.Compare(a.epoch, b.epoch))
}

// newest is the newest minute of a closed segment.
func (g *segment) newest() int64 { return g.minutes[len(g.minutes)-1].minute }

// streamInfo is what a directory says of a stream.
type streamInfo struct {
	streamName
	first, last int64
	lastNumber  uint64
	minutes     minuteSet
}

// directory is the last record of a closed segment.
type directory struct {
	level    uint8
	frames   int
	replaced []uint64
	streams  []streamInfo
	minutes  []minuteRef
}

func (d *directory) append(b []byte) []byte {
	le := binary.LittleEndian
	return appendRecord(b, func(b []byte) []byte {
		b = append(b, kindDirectory, d.level, 0, 0)
		for _, n := range [...]int{len(d.replaced), len(d.streams), len(d.minutes)} {
			b = le.AppendUint32(b, uint32(n))
		}
		for _, n := range d.replaced {
			b = le.AppendUint64(b, n)
		}
		for i := range d.streams {
			s := &d.streams[i]
			for _, n := range [...]uint64{s.epoch, uint64(s.first), uint64(s.last), s.lastNumber} {
				b = le.AppendUint64(b, n)
			}
			runs := s.minutes.runs()
			b = le.AppendUint32(b, uint32(len(runs)))
			b = append(b, byte(len(s.tenant)), byte(len(s.host)), 0, 0)
			b = append(append(b, s.tenant...), s.host...)
			for _, run := range runs {
				b = le.AppendUint32(le.AppendUint64(b, uint64(run[0])), uint32(run[1]))
			}
		}
		for _, m := range d.minutes {
			b = le.AppendUint64(le.AppendUint64(b, uint64(m.minute)), uint64(m.offset))
			b = le.AppendUint32(le.AppendUint32(b, m.length), m.entries)
		}
		return b
	})
}

// reader reads numbers of a record, and remembers whether it ended too early.
type reader struct {
	b    []byte
	fail bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail, r.b = true, nil
		return make([]byte, min(max(n, 0), 16))
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) small() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) large() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

// maxRun bounds the minutes of a run: those of 20 years.
const maxRun = 20 * 366 * 24 * 60

// parseDirectory reads the body of the record.
func parseDirectory(body []byte) (*directory, error) {
	damaged := fmt.Errorf("%w: no directory of a segment", errDamaged)
	r := reader{b: body}
	head := r.take(4)
	replaced, streams, minutes := r.small(), r.small(), r.small()
	if r.fail || head[0] != kindDirectory || head[1] > levelKeys {
		return nil, damaged
	}
	d := &directory{level: head[1]}
	for i := uint32(0); i < replaced && !r.fail; i++ {
		d.replaced = append(d.replaced, r.large())
	}
	for i := uint32(0); i < streams && !r.fail; i++ {
		s := streamInfo{}
		s.epoch, s.first, s.last, s.lastNumber = r.large(), int64(r.large()), int64(r.large()), r.large()
		runs, names := r.small(), r.take(4)
		s.tenant = string(r.take(int(names[0])))
		s.host = string(r.take(int(names[1])))
		for j := uint32(0); j < runs && !r.fail; j++ {
			minute, count := int64(r.large()), int64(r.small())
			if count > maxRun {
				return nil, damaged
			}
			for k := range count {
				s.minutes.add(minute + k)
			}
		}
		d.streams = append(d.streams, s)
	}
	for i := uint32(0); i < minutes && !r.fail; i++ {
		m := minuteRef{minute: int64(r.large()), offset: int64(r.large()), length: r.small(), entries: r.small()}
		d.minutes, d.frames = append(d.minutes, m), d.frames+int(m.entries)
	}
	if r.fail || len(r.b) > 0 || minutes == 0 {
		return nil, damaged
	}
	return d, nil
}

// seal makes the index, the directory and the footer that go behind the frames of a segment, which end at offset.
func seal(offset int64, d *directory, entries map[int64][]streamEntry) []byte {
	var b []byte
	order := make([]int64, 0, len(entries))
	for minute := range entries {
		order = append(order, minute)
	}
	slices.Sort(order)
	d.minutes = d.minutes[:0]
	for _, minute := range order {
		all := entries[minute]
		sortEntries(all)
		begin := len(b)
		b = appendIndex(b, minute, all)
		d.minutes = append(d.minutes, minuteRef{minute, offset + int64(begin), uint32(len(b) - begin), uint32(len(all))})
	}
	begin := len(b)
	b = d.append(b)
	return appendFooter(b, offset+int64(begin), int64(len(b)-begin))
}

func appendFooter(b []byte, at, length int64) []byte {
	le := binary.LittleEndian
	b = append(b, footerMagic...)
	place := le.AppendUint64(le.AppendUint64(nil, uint64(at)), uint64(length))
	b = le.AppendUint32(b, formatVersion)
	b = le.AppendUint32(b, crc32.Checksum(place, castagnoli))
	return append(b, place...)
}

// readDirectory reads the directory of a closed segment. The error wraps errDamaged where there is none.
func readDirectory(from io.ReaderAt, size int64) (*directory, error) {
	if size < fileHeaderBytes+footerBytes {
		return nil, fmt.Errorf("%w: it has %d bytes", errDamaged, size)
	}
	foot := make([]byte, footerBytes)
	if _, err := from.ReadAt(foot, size-footerBytes); err != nil {
		return nil, err
	}
	at, length := int64(binary.LittleEndian.Uint64(foot[16:])), int64(binary.LittleEndian.Uint64(foot[24:]))
	if string(foot[:8]) != footerMagic || binary.LittleEndian.Uint32(foot[12:]) != crc32.Checksum(foot[16:], castagnoli) ||
		binary.LittleEndian.Uint32(foot[8:]) != formatVersion || at < fileHeaderBytes ||
		length < 0 || length > maxRecord+recordHeaderBytes || at+length != size-footerBytes {
		return nil, fmt.Errorf("%w: it has no footer", errDamaged)
	}
	b := make([]byte, length)
	if _, err := from.ReadAt(b, at); err != nil {
		return nil, err
	}
	r, err := parseRecord(b)
	if err != nil {
		return nil, fmt.Errorf("%w: its directory: %w", errDamaged, err)
	}
	return parseDirectory(r.body)
}
