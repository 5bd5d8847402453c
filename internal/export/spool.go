package export

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"outsight/internal/damaged"
)

// ErrInUse means that another agent has the spool's directory open.
var ErrInUse = errors.New("in use by another agent")

// errNoBatch means that no batch waits.
var errNoBatch = errors.New("the spool is empty")

const (
	// segmentBytes is the size from which on a new file is begun. A file goes as a whole, when all in it was sent.
	segmentBytes = 1 << 20
	// maxRecord bounds one batch in a file.
	maxRecord = 16 << 20

	suffix = ".spool"
	// A record is: length of the payload, its checksum, samples in it, length of its name, name, payload.
	headBytes = 4 + 4 + 4 + 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Spool keeps batches in files until they are sent. One goroutine may put and another one take.
type Spool struct {
	dir      string
	maxBytes int64
	lock     *os.File

	// mu guards the rest.
	mu sync.Mutex
	// segments in order; the last one is written to.
	segments []*segment
	writing  *os.File
	reading  *os.File
	// last number that a segment had. None is used twice, so that a Place is of one batch.
	last uint64
	// at is how far the first segment was read.
	at    int64
	stats SpoolStats
}

// segment is one file.
type segment struct {
	number           uint64
	bytes            int64
	batches, samples uint64
}

// SpoolStats tells what a spool holds. Counts are since it was opened.
type SpoolStats struct {
	// Batches and Bytes that wait, of at most MaxBytes. Bytes count as long as their file is there.
	Batches         uint64
	Bytes, MaxBytes int64
	// DroppedBatches had to go because the spool was full; DroppedSamples were in them.
	DroppedBatches, DroppedSamples uint64
	// Damaged counts batches that were taken out, and ends of files that were cut off, as after a crash of the machine.
	Damaged uint64
}

// OpenSpool opens the spool in dir, making the directory where it is missing. What a killed agent left half-written is
// cut off.
func OpenSpool(dir string, maxBytes int64) (*Spool, error) {
	if maxBytes < 2*segmentBytes {
		return nil, fmt.Errorf("a spool of %d bytes: want at least %d", maxBytes, 2*segmentBytes)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the spool: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("spool %q cannot be written: %w", dir, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, fmt.Errorf("spool %q: %w", dir, err)
	}
	s := &Spool{dir: dir, maxBytes: maxBytes, lock: lock, stats: SpoolStats{MaxBytes: maxBytes}}
	if err := s.recover(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Spool) recover() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("reading the spool: %w", err)
	}
	for _, e := range entries {
		text, ours := strings.CutSuffix(e.Name(), suffix)
		number, err := strconv.ParseUint(text, 10, 64)
		if !ours || err != nil {
			continue
		}
		g := &segment{number: number}
		s.last = max(s.last, number)
		if err := s.scan(g); err != nil {
			return err
		}
		if g.batches == 0 {
			if err := os.Remove(s.path(g)); err != nil {
				return fmt.Errorf("removing an empty file of the spool: %w", err)
			}
			continue
		}
		s.segments = append(s.segments, g)
		s.stats.Batches += g.batches
		s.stats.Bytes += g.bytes
	}
	slices.SortFunc(s.segments, func(a, b *segment) int {
		if a.number < b.number {
			return -1
		}
		return 1
	})
	return nil
}

// scan counts what is whole in a file. Of one that is damaged before its end, a copy is kept, and it is written again
// without that. A damaged end is cut off.
func (s *Spool) scan(g *segment) error {
	f, err := os.Open(s.path(g))
	if err != nil {
		return fmt.Errorf("reading the spool: %w", err)
	}
	defer f.Close()
	var good []byte // where a batch is damaged
	at, holes := int64(0), uint64(0)
	for {
		b, size, err := readRecord(f, at)
		if err != nil {
			// Its length is nearly always right. Then another batch follows it.
			if size == 0 {
				break
			}
			if _, _, err := readRecord(f, at+size); err != nil {
				break
			}
			if holes == 0 {
				good = make([]byte, g.bytes)
				if _, err := f.ReadAt(good, 0); err != nil {
					return fmt.Errorf("reading the spool: %w", err)
				}
			}
			holes++
			at += size
			continue
		}
		if holes > 0 {
			record := make([]byte, size)
			if _, err := f.ReadAt(record, at); err != nil {
				return fmt.Errorf("reading the spool: %w", err)
			}
			good = append(good, record...)
		}
		at += size
		g.bytes += size
		g.batches++
		g.samples += b.Samples
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("reading the spool: %w", err)
	}
	s.stats.Damaged += holes
	if info.Size() > at {
		s.stats.Damaged++
	}
	switch {
	case holes > 0:
		if _, err := (damaged.Dir{Path: filepath.Join(s.dir, "damaged"),
			MaxBytes: maxDamagedBytes}).Copy(f.Name()); err != nil {
			return err
		}
		return damaged.Replace(f.Name(), good)
	case info.Size() > at:
		if err := os.Truncate(f.Name(), g.bytes); err != nil {
			return fmt.Errorf("cutting off the end of %q: %w", f.Name(), err)
		}
	}
	return nil
}

// maxDamagedBytes bounds the copies of damaged files.
const maxDamagedBytes = 16 << 20

func (s *Spool) path(g *segment) string {
	return filepath.Join(s.dir, fmt.Sprintf("%012d", g.number)+suffix)
}

// Batch is one request to the server.
type Batch struct {
	// Name tells it from all others, those of other agents and other lives of this one included.
	Name    string
	Samples uint64
	// Data is the request, compressed with zstd.
	Data []byte
}

// readRecord reads the batch at an offset. With an error, size is 0 or how long the batch says to be.
func readRecord(f io.ReaderAt, at int64) (b Batch, size int64, err error) {
	var head [headBytes]byte
	if _, err := f.ReadAt(head[:], at); err != nil {
		return b, 0, err
	}
	length, sum := binary.LittleEndian.Uint32(head[0:]), binary.LittleEndian.Uint32(head[4:])
	name := int(binary.LittleEndian.Uint16(head[12:]))
	if length > maxRecord {
		return b, 0, fmt.Errorf("a batch of %d bytes", length)
	}
	body := make([]byte, name+int(length))
	if _, err := f.ReadAt(body, at+headBytes); err != nil {
		return b, 0, err
	}
	if crc32.Update(crc32.Checksum(head[8:], castagnoli), castagnoli, body) != sum {
		return b, headBytes + int64(len(body)), errors.New("wrong checksum")
	}
	b = Batch{Name: string(body[:name]), Samples: uint64(binary.LittleEndian.Uint32(head[8:])), Data: body[name:]}
	return b, headBytes + int64(len(body)), nil
}

// Put keeps a batch. Where it finds no room, the oldest file goes.
func (s *Spool) Put(b Batch) error {
	record := make([]byte, headBytes, headBytes+len(b.Name)+len(b.Data))
	binary.LittleEndian.PutUint32(record[0:], uint32(len(b.Data)))
	binary.LittleEndian.PutUint32(record[8:], uint32(b.Samples))
	binary.LittleEndian.PutUint16(record[12:], uint16(len(b.Name)))
	record = append(append(record, b.Name...), b.Data...)
	if len(b.Data) > maxRecord || int64(len(record)) > s.maxBytes/2 {
		return fmt.Errorf("a batch of %d bytes is too large for the spool", len(b.Data))
	}
	binary.LittleEndian.PutUint32(record[4:], crc32.Checksum(record[8:], castagnoli))
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.stats.Bytes+int64(len(record)) > s.maxBytes && len(s.segments) > 0 {
		if err := s.dropOldest(); err != nil {
			return err
		}
	}
	g, err := s.open()
	if err != nil {
		return err
	}
	if _, err := s.writing.WriteAt(record, g.bytes); err != nil {
		// What follows goes over it.
		return fmt.Errorf("writing to the spool: %w", err)
	}
	g.bytes += int64(len(record))
	g.batches++
	g.samples += b.Samples
	s.stats.Batches++
	s.stats.Bytes += int64(len(record))
	return nil
}

// open is the segment to write to. The caller holds mu.
func (s *Spool) open() (*segment, error) {
	if n := len(s.segments); s.writing != nil && s.segments[n-1].bytes < segmentBytes {
		return s.segments[n-1], nil
	}
	g := &segment{number: s.last + 1}
	f, err := os.OpenFile(s.path(g), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making a file of the spool: %w", err)
	}
	if s.writing != nil {
		s.writing.Close()
	}
	s.writing, s.last = f, g.number
	s.segments = append(s.segments, g)
	return g, nil
}

// dropOldest gives up the oldest file. The caller holds mu.
func (s *Spool) dropOldest() error {
	g := s.segments[0]
	s.stats.DroppedBatches += g.batches
	s.stats.DroppedSamples += g.samples
	return s.removeFirst()
}

func (s *Spool) removeFirst() error {
	g := s.segments[0]
	s.stats.Batches -= g.batches
	s.stats.Bytes -= g.bytes
	if s.reading != nil {
		s.reading.Close()
		s.reading = nil
	}
	s.at = 0
	if s.segments = s.segments[1:]; len(s.segments) == 0 && s.writing != nil {
		s.writing.Close()
		s.writing = nil
	}
	if err := os.Remove(s.path(g)); err != nil {
		return fmt.Errorf("removing a file of the spool: %w", err)
	}
	return nil
}

// Next is the oldest batch; errNoBatch where there is none. It stays until Sent.
func (s *Spool) Next() (Batch, Place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.segments) > 0 {
		g := s.segments[0]
		if g.batches == 0 {
			if s.writing != nil && len(s.segments) == 1 && g.bytes < segmentBytes {
				return Batch{}, Place{}, errNoBatch
			}
			if err := s.removeFirst(); err != nil {
				return Batch{}, Place{}, err
			}
			continue
		}
		if s.reading == nil {
			f, err := os.Open(s.path(g))
			if err != nil {
				return Batch{}, Place{}, fmt.Errorf("reading the spool: %w", err)
			}
			s.reading = f
		}
		b, size, err := readRecord(s.reading, s.at)
		if err != nil {
			// The disk lost what was there. The rest of the file cannot be found.
			s.stats.Damaged++
			if err := s.dropOldest(); err != nil {
				return Batch{}, Place{}, err
			}
			continue
		}
		return b, Place{g.number, s.at, size, b.Samples}, nil
	}
	return Batch{}, Place{}, errNoBatch
}

// Place is where a batch lies.
type Place struct {
	segment  uint64
	at, size int64
	samples  uint64
}

// Sent lets go of the batch at p. One that had to go meanwhile is no error.
func (s *Spool) Sent(p Place) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.segments) == 0 || s.segments[0].number != p.segment || s.at != p.at {
		return nil
	}
	g := s.segments[0]
	s.at += p.size
	g.batches--
	g.samples -= p.samples
	s.stats.Batches--
	if g.batches == 0 {
		return s.removeFirst()
	}
	return nil
}

// Stats is the state now.
func (s *Spool) Stats() SpoolStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Close closes the files. What waits is there when the spool is opened again.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range []*os.File{s.reading, s.writing} {
		if f != nil {
			f.Close()
		}
	}
	s.reading, s.writing = nil, nil
	return s.lock.Close()
}
