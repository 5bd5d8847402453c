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

// errNoBatch means that the spool is empty.
var errNoBatch = errors.New("the spool is empty")

const (
	// segmentBytes is the size at which the next segment is begun. A segment is removed when all of it was sent.
	segmentBytes = 1 << 20
	// maxRecord bounds one batch, in bytes.
	maxRecord = 16 << 20

	suffix = ".spool"
	// A record is: length of the payload, checksum, number of samples, length of the name, name, payload.
	headerBytes = 4 + 4 + 4 + 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Spool keeps batches in files until they are sent. One goroutine may call Put, and another one Next and Sent.
type Spool struct {
	dir      string
	maxBytes int64
	lock     *os.File

	// mu guards the rest.
	mu sync.Mutex
	// segments by age; the last one is written to.
	segments []*segment
	writing  *os.File
	reading  *os.File
	// lastNumber is the highest number of a segment. None is used twice, so that a Position identifies one batch.
	lastNumber uint64
	// offset is how far the first segment was read, in bytes.
	offset int64
	stats  SpoolStats
}

// segment is one file of the spool.
type segment struct {
	number           uint64
	bytes            int64
	batches, samples uint64
}

// SpoolStats is the state of a spool. Counts are since it was opened.
type SpoolStats struct {
	// Batches and Bytes in the spool, of at most MaxBytes. Bytes count until their segment is removed.
	Batches         uint64
	Bytes, MaxBytes int64
	// DroppedBatches were removed unsent because the spool was full; DroppedSamples were in them.
	DroppedBatches, DroppedSamples uint64
	// Damaged counts unreadable batches and truncated ends of segments, such as after a crash of the host.
	Damaged uint64
}

// OpenSpool opens the spool in dir, and creates the directory if it is missing. A record that a killed agent wrote in
// part is truncated. The error wraps ErrInUse while another process has it open.
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
		s.lastNumber = max(s.lastNumber, number)
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

// scan counts the readable records of a segment. If a record before the last is damaged, a copy of the segment is kept
// and it is written again without that record. A damaged end is truncated.
func (s *Spool) scan(g *segment) error {
	f, err := os.Open(s.path(g))
	if err != nil {
		return fmt.Errorf("reading the spool: %w", err)
	}
	defer f.Close()
	var good []byte // the readable records, if one is damaged
	offset, holes := int64(0), uint64(0)
	for {
		b, size, err := readRecord(f, offset)
		if err != nil {
			// The length is nearly always intact: then another record follows.
			if size == 0 {
				break
			}
			if _, _, err := readRecord(f, offset+size); err != nil {
				break
			}
			if holes == 0 {
				good = make([]byte, g.bytes)
				if _, err := f.ReadAt(good, 0); err != nil {
					return fmt.Errorf("reading the spool: %w", err)
				}
			}
			holes++
			offset += size
			continue
		}
		if holes > 0 {
			record := make([]byte, size)
			if _, err := f.ReadAt(record, offset); err != nil {
				return fmt.Errorf("reading the spool: %w", err)
			}
			good = append(good, record...)
		}
		offset += size
		g.bytes += size
		g.batches++
		g.samples += b.Samples
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("reading the spool: %w", err)
	}
	s.stats.Damaged += holes
	if info.Size() > offset {
		s.stats.Damaged++
	}
	switch {
	case holes > 0:
		if _, err := (damaged.Dir{Path: filepath.Join(s.dir, "damaged"),
			MaxBytes: maxDamagedBytes}).Copy(f.Name()); err != nil {
			return err
		}
		return damaged.Replace(f.Name(), good)
	case info.Size() > offset:
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

// Batch is one request.
type Batch struct {
	// Name is unique among the batches of all agents, and of earlier instances of this one.
	Name    string
	Samples uint64
	// Data is the request, compressed with zstd.
	Data []byte
}

// readRecord reads the batch at an offset. With an error, size is 0 or what its header states.
func readRecord(f io.ReaderAt, offset int64) (b Batch, size int64, err error) {
	var header [headerBytes]byte
	if _, err := f.ReadAt(header[:], offset); err != nil {
		return b, 0, err
	}
	length, sum := binary.LittleEndian.Uint32(header[0:]), binary.LittleEndian.Uint32(header[4:])
	name := int(binary.LittleEndian.Uint16(header[12:]))
	if length > maxRecord {
		return b, 0, fmt.Errorf("a batch of %d bytes", length)
	}
	body := make([]byte, name+int(length))
	if _, err := f.ReadAt(body, offset+headerBytes); err != nil {
		return b, 0, err
	}
	if crc32.Update(crc32.Checksum(header[8:], castagnoli), castagnoli, body) != sum {
		return b, headerBytes + int64(len(body)), errors.New("wrong checksum")
	}
	b = Batch{Name: string(body[:name]), Samples: uint64(binary.LittleEndian.Uint32(header[8:])), Data: body[name:]}
	return b, headerBytes + int64(len(body)), nil
}

// Put writes a batch. If the spool is full, the oldest segments are dropped.
func (s *Spool) Put(b Batch) error {
	record := make([]byte, headerBytes, headerBytes+len(b.Name)+len(b.Data))
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
		// The next record overwrites it.
		return fmt.Errorf("writing to the spool: %w", err)
	}
	g.bytes += int64(len(record))
	g.batches++
	g.samples += b.Samples
	s.stats.Batches++
	s.stats.Bytes += int64(len(record))
	return nil
}

// open returns the segment to write to; mu is held.
func (s *Spool) open() (*segment, error) {
	if n := len(s.segments); s.writing != nil && s.segments[n-1].bytes < segmentBytes {
		return s.segments[n-1], nil
	}
	g := &segment{number: s.lastNumber + 1}
	f, err := os.OpenFile(s.path(g), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making a file of the spool: %w", err)
	}
	if s.writing != nil {
		s.writing.Close()
	}
	s.writing, s.lastNumber = f, g.number
	s.segments = append(s.segments, g)
	return g, nil
}

// dropOldest removes the oldest segment and counts what was in it; mu is held.
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
	s.offset = 0
	if s.segments = s.segments[1:]; len(s.segments) == 0 && s.writing != nil {
		s.writing.Close()
		s.writing = nil
	}
	if err := os.Remove(s.path(g)); err != nil {
		return fmt.Errorf("removing a file of the spool: %w", err)
	}
	return nil
}

// Next returns the oldest batch, or errNoBatch. It stays in the spool until Sent.
func (s *Spool) Next() (Batch, Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.segments) > 0 {
		g := s.segments[0]
		if g.batches == 0 {
			if s.writing != nil && len(s.segments) == 1 && g.bytes < segmentBytes {
				return Batch{}, Position{}, errNoBatch
			}
			if err := s.removeFirst(); err != nil {
				return Batch{}, Position{}, err
			}
			continue
		}
		if s.reading == nil {
			f, err := os.Open(s.path(g))
			if err != nil {
				return Batch{}, Position{}, fmt.Errorf("reading the spool: %w", err)
			}
			s.reading = f
		}
		b, size, err := readRecord(s.reading, s.offset)
		if err != nil {
			// The following records cannot be found, so the segment is dropped.
			s.stats.Damaged++
			if err := s.dropOldest(); err != nil {
				return Batch{}, Position{}, err
			}
			continue
		}
		return b, Position{g.number, s.offset, size, b.Samples}, nil
	}
	return Batch{}, Position{}, errNoBatch
}

// Position is where a batch is in the spool.
type Position struct {
	segment      uint64
	offset, size int64
	samples      uint64
}

// Sent removes the batch at p. A batch that was dropped meanwhile is no error.
func (s *Spool) Sent(p Position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.segments) == 0 || s.segments[0].number != p.segment || s.offset != p.offset {
		return nil
	}
	g := s.segments[0]
	s.offset += p.size
	g.batches--
	g.samples -= p.samples
	s.stats.Batches--
	if g.batches == 0 {
		return s.removeFirst()
	}
	return nil
}

// Stats returns the state.
func (s *Spool) Stats() SpoolStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Close closes the files. What was not sent is there when the spool is opened again.
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
