package ingest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/minio/highwayhash"

	"outsight/internal/damaged"
)

// The NATS server reads a block up to the first record that is damaged, cuts off the rest, and says nothing. So blocks
// are looked through before it starts: of a damaged one a copy is kept, and it is written again with all records that
// can be read.
//
// A record, little-endian:
//
//	length of the record 4 (top bit: has a header) | sequence 8 | time in ns 8 | length of the subject 2 | subject
//	| length of the header 4, where it has one | header | data | hash 8, of all but the lengths
const (
	recordHeader = 22
	recordHash   = 8
	emptyRecord  = recordHeader + recordHash
	hasHeader    = uint32(1) << 31
	deletedBit   = uint64(1) << 62 // a record that says that another message is gone
	erasedBit    = uint64(1) << 63
	maxRecord    = 32 << 20
	headerPrefix = "NATS/1.0"
	headerEnd    = "\r\n\r\n"
)

// maxDamagedBytes bounds the copies of damaged files of the queue.
const maxDamagedBytes = 64 << 20

// Repaired is what was found when the queue was opened.
type Repaired struct {
	// Blocks that were damaged, and about how many messages are Lost with them.
	Blocks int
	Lost   uint64
}

// repairer looks through the streams in the directory of an embedded server.
type repairer struct {
	copies damaged.Dir
	logger *slog.Logger
	found  Repaired
}

// repairStreams makes the streams below dir such that the server reads all that can be read.
func repairStreams(dir string, logger *slog.Logger) (Repaired, error) {
	r := &repairer{copies: damaged.Dir{Path: filepath.Join(dir, "damaged"), MaxBytes: maxDamagedBytes}, logger: logger}
	streams, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*"))
	if err != nil {
		return r.found, err
	}
	for _, stream := range streams {
		if err := r.stream(stream); err != nil {
			return r.found, fmt.Errorf("repairing the queue's stream %q: %w", filepath.Base(stream), err)
		}
	}
	return r.found, nil
}

func (r *repairer) stream(dir string) error {
	if err := r.description(dir); err != nil {
		return err
	}
	// Consumers are created anew when the stream is opened. A damaged one would prevent that.
	if err := os.RemoveAll(filepath.Join(dir, "obs")); err != nil {
		return err
	}
	s := &streamScan{name: filepath.Base(dir), deleted: map[uint64]bool{}}
	s.readState(filepath.Join(dir, "msgs", "index.db"))
	paths, err := blockPaths(filepath.Join(dir, "msgs"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := s.scan(path); err != nil {
			return err
		}
	}
	if len(s.damaged) == 0 {
		return nil
	}
	s.count()
	return r.rewrite(dir, s)
}

// description removes a damaged description of a stream, with which the server would ignore the stream. Opening the
// stream writes it again.
func (r *repairer) description(dir string) error {
	path, sumPath := filepath.Join(dir, "meta.inf"), filepath.Join(dir, "meta.sum")
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	sum, err := os.ReadFile(sumPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if hex.EncodeToString(hashOf(filepath.Base(dir), content)) == string(sum) {
		return nil
	}
	kept, err := r.copies.Move(path)
	if err != nil {
		return err
	}
	r.logger.Warn("the description of a stream of the queue was damaged and is made again", "stream",
		filepath.Base(dir), "copy", kept)
	if err := os.Remove(sumPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// rewrite copies each damaged block and writes its readable records.
func (r *repairer) rewrite(dir string, s *streamScan) error {
	for _, b := range s.damaged {
		kept, err := r.copies.Copy(b.path)
		if err != nil {
			return err
		}
		if b == s.damaged[len(s.damaged)-1] && b.number == s.lastBlock {
			// The server counts on from the last record. A number must not be given twice.
			if s.last > s.highest {
				b.good = append(b.good, s.tombstone(b.number, s.last, s.lastTime)...)
			}
		}
		if err := damaged.Replace(b.path, b.good); err != nil {
			return err
		}
		r.found.Blocks++
		r.found.Lost += b.lost
		lost := []any{"block", filepath.Base(b.path), "stream", s.name, "damaged_bytes", b.bytes, "lost_messages",
			b.lost, "kept_messages", b.messages, "copy", kept}
		if !b.from.IsZero() {
			lost = append(lost, "received_after", b.from)
		}
		if !b.to.IsZero() {
			lost = append(lost, "received_before", b.to)
		}
		if b.tail && b.lost == 0 {
			r.logger.Warn("the end of a block of the queue cannot be read: a write that was cut off, or damage", lost...)
		} else {
			r.logger.Error("a block of the queue was damaged: what can be read of it is kept", lost...)
		}
	}
	// It describes the blocks as they were. Without it the server reads them.
	if err := os.Remove(filepath.Join(dir, "msgs", "index.db")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return damaged.SyncDir(filepath.Join(dir, "msgs"))
}

// blockPaths are the blocks of a stream, in the order of their numbers.
func blockPaths(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if damaged.IsLeftover(e.Name()) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, err
			}
		} else if _, ok := blockNumber(e.Name()); ok {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	slices.SortFunc(paths, func(a, b string) int {
		x, _ := blockNumber(a)
		y, _ := blockNumber(b)
		return int(x) - int(y)
	})
	return paths, nil
}

func blockNumber(path string) (uint32, bool) {
	text, ok := strings.CutSuffix(filepath.Base(path), ".blk")
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), ok && err == nil
}

// streamScan is the result of reading the blocks of a stream.
type streamScan struct {
	name string
	// first and last message that the server knew of when it last wrote its state, and the time of last. 0 where that
	// is not known.
	first, last uint64
	lastTime    time.Time
	// highest message or tombstone that was found, at highestTime; lastBlock is the number of the last block.
	highest     uint64
	highestTime time.Time
	lastBlock   uint32
	// deleted are messages that were deleted.
	deleted map[uint64]bool
	damaged []*damagedBlock
	// holes are damaged parts, in order.
	holes []*hole
	// open are holes after which no message was found yet.
	open []*hole
}

// damagedBlock is a block with at least one hole.
type damagedBlock struct {
	path   string
	number uint32
	// good are the readable records, messages their number.
	good     []byte
	messages int
	// bytes are damaged, and lost messages were in them, which were received between from and to; either may be
	// unknown.
	bytes    int
	lost     uint64
	from, to time.Time
	// tail means that the end of the block cannot be read.
	tail bool
}

// hole is a damaged part of a block: its messages have sequences between after and before.
type hole struct {
	block         *damagedBlock
	after, before uint64
	begun, ended  time.Time
}

func hashOf(name string, parts ...[]byte) []byte {
	key := sha256.Sum256([]byte(name))
	h, err := highwayhash.New64(key[:])
	if err != nil {
		panic("BUG: the key of a hash has a wrong length: " + err.Error())
	}
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// readState reads the header of the file in which the server writes its state, when it ends and now and then. A damaged
// one, or one of another version, is ignored.
func (s *streamScan) readState(path string) {
	const magic, oldest, newest = 11, 1, 4
	b, err := os.ReadFile(path)
	if err != nil || len(b) < 32 {
		return
	}
	content, sum := b[:len(b)-recordHash], b[len(b)-recordHash:]
	if content[0] != magic || content[1] < oldest || content[1] > newest || !bytes.Equal(hashOf(s.name, content), sum) {
		return
	}
	d := bytes.NewReader(content[2:])
	unsigned := func() uint64 { n, _ := binary.ReadUvarint(d); return n }
	signed := func() int64 { n, _ := binary.ReadVarint(d); return n }
	unsigned() // messages
	unsigned() // bytes
	s.first = unsigned()
	signed() // time of the first
	s.last = unsigned()
	s.lastTime = time.Unix(0, signed())
}

// record is one of a block.
type record struct {
	end  int
	seq  uint64
	time int64
	// fixed is the length of the header, where the one that is written there is wrong: no hash is over it.
	fixed, fixedAt int
}

// blockReader reads one block.
type blockReader struct {
	buf []byte
	hh  interface {
		Write([]byte) (int, error)
		Sum([]byte) []byte
		Reset()
	}
	subject string
	// highest message so far.
	highest uint64
}

// at returns the record at an offset. A search accepts only records that can be distinguished from random bytes before
// they are hashed.
func (r *blockReader) at(at int, search bool) (record, bool) {
	b := r.buf[at:]
	if len(b) < emptyRecord {
		return record{}, false
	}
	length, subject := binary.LittleEndian.Uint32(b), int(binary.LittleEndian.Uint16(b[20:]))
	headed := length&hasHeader != 0
	length &^= hasHeader
	lengths := subject
	if headed {
		lengths += 4
	}
	if length < emptyRecord || length > maxRecord || int(length) > len(b) || recordHeader+lengths+recordHash > int(length) {
		return record{}, false
	}
	if search && !(length == emptyRecord && !headed && subject == 0) &&
		string(b[recordHeader:recordHeader+subject]) != r.subject {
		return record{}, false
	}
	body := b[recordHeader+lengths : length-recordHash]
	r.hh.Reset()
	r.hh.Write(b[4:20])
	r.hh.Write(b[recordHeader : recordHeader+subject])
	r.hh.Write(body)
	var sum [recordHash]byte
	if !bytes.Equal(r.hh.Sum(sum[:0]), b[length-recordHash:length]) {
		return record{}, false
	}
	found := record{end: at + int(length), seq: binary.LittleEndian.Uint64(b[4:]),
		time: int64(binary.LittleEndian.Uint64(b[12:]))}
	if headed {
		written := binary.LittleEndian.Uint32(b[recordHeader+subject:])
		want := bytes.Index(body, []byte(headerEnd)) + len(headerEnd)
		if bytes.HasPrefix(body, []byte(headerPrefix)) && want >= len(headerEnd) && int(written) != want {
			found.fixed, found.fixedAt = want, at+recordHeader+subject
		}
	}
	return found, true
}

// next is where the next record begins after a damaged one at an offset, or the end.
func (r *blockReader) next(at int) int {
	// A message may contain what looks like a record. If the damaged record has the right length, its inside is not
	// searched.
	if b := r.buf[at:]; len(b) >= emptyRecord {
		length := binary.LittleEndian.Uint32(b) &^ hasHeader
		if end := at + int(length); length >= emptyRecord && length <= maxRecord && end <= len(r.buf) {
			if _, ok := r.at(end, false); ok || end == len(r.buf) {
				return end
			}
		}
	}
	for at++; at+emptyRecord <= len(r.buf); at++ {
		if found, ok := r.at(at, true); ok && r.follows(found.seq) {
			return at
		}
	}
	return len(r.buf)
}

// follows reports whether the sequence of a record found by a search is plausible: a tombstone can be of any message.
func (r *blockReader) follows(seq uint64) bool {
	return seq&(deletedBit|erasedBit) != 0 || r.highest == 0 || seq > r.highest && seq-r.highest < mostMissing
}

// mostMissing bounds the messages that one damaged part can have had.
const mostMissing = 1 << 20

// scan reads a block.
func (s *streamScan) scan(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading a block of the queue: %w", err)
	}
	number, _ := blockNumber(path)
	s.lastBlock = number
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", s.name, number))
	hh, err := highwayhash.New64(key[:])
	if err != nil {
		return fmt.Errorf("making a hash: %w", err)
	}
	r := &blockReader{buf: content, hh: hh, subject: strings.ToLower(s.name), highest: s.highest}
	b := &damagedBlock{path: path, number: number}
	begin := 0 // of the good records that are not in b.good yet
	for at := 0; at < len(content); {
		found, ok := r.at(at, false)
		if !ok {
			next := r.next(at)
			b.good = append(b.good, content[begin:at]...)
			b.bytes += next - at
			b.tail = next == len(content)
			h := &hole{block: b, after: s.highest, begun: s.highestTime}
			s.holes, s.open = append(s.holes, h), append(s.open, h)
			at, begin = next, next
			continue
		}
		if found.fixed != 0 {
			// In memory alone, and in the block that is written again.
			binary.LittleEndian.PutUint32(content[found.fixedAt:], uint32(found.fixed))
			b.bytes += 4
		}
		s.take(found)
		r.highest = s.highest
		if found.seq&(deletedBit|erasedBit) == 0 {
			b.messages++
		}
		at = found.end
	}
	if b.bytes > 0 {
		b.good = append(b.good, content[begin:]...)
		s.damaged = append(s.damaged, b)
	}
	return nil
}

// take adds a record.
func (s *streamScan) take(r record) {
	if seq := r.seq &^ (deletedBit | erasedBit); r.seq != seq {
		s.deleted[seq] = true
		return
	}
	at := time.Unix(0, r.time)
	for _, h := range s.open {
		h.before, h.ended = r.seq, at
	}
	s.open = nil
	if r.seq > s.highest {
		s.highest, s.highestTime = r.seq, at
	}
}

// count finds how many unacknowledged messages were in each hole. It is called when all blocks have been read.
func (s *streamScan) count() {
	for _, h := range s.open {
		// After the last message that can be read.
		h.before = max(s.last, s.highest) + 1
		if s.last > s.highest {
			h.ended = s.lastTime
		}
	}
	counted := uint64(0)
	for _, h := range s.holes {
		// Messages before the first pending one were acknowledged.
		after := max(h.after, counted, max(s.first, 1)-1)
		if h.after == 0 {
			for seq := range s.deleted {
				if seq < h.before {
					after = max(after, seq)
				}
			}
		}
		lost := uint64(0)
		if h.before > after+1 {
			lost = h.before - after - 1
			for seq := range s.deleted {
				if after < seq && seq < h.before {
					lost--
				}
			}
		}
		counted = max(counted, h.before-1)
		h.block.lost += lost
		if lost > 0 || h.block.lost == 0 {
			if h.block.from.IsZero() {
				h.block.from = h.begun
			}
			h.block.to = h.ended
		}
	}
}

// tombstone is a record that marks a message as deleted.
func (s *streamScan) tombstone(block uint32, seq uint64, at time.Time) []byte {
	b := binary.LittleEndian.AppendUint32(nil, emptyRecord)
	b = binary.LittleEndian.AppendUint64(b, seq|deletedBit)
	b = binary.LittleEndian.AppendUint64(b, uint64(at.UnixNano()))
	b = append(b, 0, 0)
	return append(b, hashOf(fmt.Sprintf("%s-%d", s.name, block), b[4:20])...)
}
