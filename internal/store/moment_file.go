package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"

	"github.com/klauspost/compress/zstd"
)

// A file of a moment has the values that the sources had then:
//
//	momentMagic
//	a block for each source, compressed
//	the index: where each block is, and the names of series that are not in them
//	the index' length and checksum, 4 bytes each, and momentMagic again
//
// Numbers are little-endian, or varints. Blocks and index have checksums: what a loss of power left is not read.
const momentMagic = "outsight moment 1\n"

// maxMomentBlock bounds a block before it is compressed, and the index, in bytes.
const maxMomentBlock = 256 << 20

var (
	errBadMoment  = errors.New("damaged")
	errLateMoment = errors.New("not all is known")
	castagnoli    = crc32.MakeTable(crc32.Castagnoli)
)

// momentBlock is where a source's values are in a file.
type momentBlock struct {
	tenant, key          string
	offset, length, size int64 // size is that before it was compressed
	checksum             uint32
}

// momentIndex is what a file has.
type momentIndex struct {
	// parts are names of which series came in parts: they are not in it.
	parts  []string
	blocks []momentBlock // in the order of their keys
}

// momentWriter writes a file.
type momentWriter struct {
	file  *os.File
	at    int64
	index momentIndex
	block momentEncoder
	zip   *zstd.Encoder
	bytes []byte
}

func newMomentWriter(path string, parts []string) (*momentWriter, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	zip, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &momentWriter{file: f, zip: zip, index: momentIndex{parts: parts}}, nil
}

func (w *momentWriter) write(b []byte) error {
	n, err := w.file.Write(b)
	w.at += int64(n)
	return err
}

// add writes what a source had at a moment; errLateMoment where that is not kept.
func (w *momentWriter) add(s *keptSource, moment int64) error {
	if !w.block.encode(s, moment) {
		return errLateMoment
	}
	if w.block.things == 0 {
		return nil
	}
	w.bytes = w.block.assemble(w.bytes[:0])
	if len(w.bytes) > maxMomentBlock {
		return fmt.Errorf("%d bytes of one source: at most %d", len(w.bytes), maxMomentBlock)
	}
	b := momentBlock{tenant: s.tenant, key: s.key, offset: w.at, size: int64(len(w.bytes))}
	packed := w.zip.EncodeAll(w.bytes, w.block.packed[:0])
	w.block.packed = packed
	b.length, b.checksum = int64(len(packed)), crc32.Checksum(packed, castagnoli)
	w.index.blocks = append(w.index.blocks, b)
	return w.write(packed)
}

// finish writes the index. The file is closed in any case.
func (w *momentWriter) finish(err error) error {
	if err == nil {
		index := w.index.encode(nil)
		end := binary.LittleEndian.AppendUint32(nil, uint32(len(index)))
		end = binary.LittleEndian.AppendUint32(end, crc32.Checksum(index, castagnoli))
		err = errors.Join(w.write(index), w.write(append(end, momentMagic...)))
	}
	return errors.Join(err, w.zip.Close(), w.file.Close())
}

func (x *momentIndex) encode(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(x.parts)))
	for _, name := range x.parts {
		b = appendString(b, name)
	}
	b = binary.AppendUvarint(b, uint64(len(x.blocks)))
	for i := range x.blocks {
		k := &x.blocks[i]
		b = appendString(appendString(b, k.tenant), k.key)
		for _, n := range []int64{k.offset, k.length, k.size, int64(k.checksum)} {
			b = binary.AppendUvarint(b, uint64(n))
		}
	}
	return b
}

func appendString(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// openMoment opens a file and reads its index; errBadMoment where it is not whole.
func openMoment(path string) (*os.File, *momentIndex, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	index, err := readIndex(f)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("reading %q: %w", path, err), f.Close())
	}
	return f, index, nil
}

func readIndex(f *os.File) (*momentIndex, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	const endBytes = 8 + len(momentMagic)
	var begin [len(momentMagic)]byte
	var end [endBytes]byte
	from := info.Size() - int64(endBytes)
	if from < int64(len(begin)) {
		return nil, errBadMoment
	}
	if _, err := f.ReadAt(begin[:], 0); err != nil {
		return nil, err
	}
	if _, err := f.ReadAt(end[:], from); err != nil {
		return nil, err
	}
	length := int64(binary.LittleEndian.Uint32(end[:]))
	if string(begin[:]) != momentMagic || string(end[8:]) != momentMagic || length > min(from-int64(len(begin)),
		maxMomentBlock) {
		return nil, errBadMoment
	}
	bytes := make([]byte, length)
	if _, err := f.ReadAt(bytes, from-length); err != nil {
		return nil, err
	}
	if crc32.Checksum(bytes, castagnoli) != binary.LittleEndian.Uint32(end[4:]) {
		return nil, errBadMoment
	}
	return decodeIndex(bytes, from-length)
}

// decodeIndex is what encode has encoded, of a file with blocks before end.
func decodeIndex(b []byte, end int64) (*momentIndex, error) {
	d, x := momentDecoder{rest: b}, &momentIndex{}
	for n := d.count(); n > 0 && !d.bad; n-- {
		x.parts = append(x.parts, string(d.text()))
	}
	for n := d.count(); n > 0 && !d.bad; n-- {
		k := momentBlock{tenant: string(d.text()), key: string(d.text())}
		k.offset, k.length, k.size, k.checksum = int64(d.number()), int64(d.number()), int64(d.number()), uint32(d.number())
		if k.offset < 0 || k.length < 0 || k.size < 0 || k.offset > end || k.length > end-k.offset ||
			k.size > maxMomentBlock {
			d.bad = true
		}
		x.blocks = append(x.blocks, k)
	}
	if d.bad || len(d.rest) > 0 {
		return nil, errBadMoment
	}
	return x, nil
}

// read is a block, decompressed into memory that is used again.
func (k *momentBlock) read(f io.ReaderAt, unzip *zstd.Decoder, packed, into []byte) (room, bytes []byte, err error) {
	if int64(cap(packed)) < k.length {
		packed = make([]byte, k.length)
	}
	packed = packed[:k.length]
	if _, err := f.ReadAt(packed, k.offset); err != nil {
		return packed, into, err
	}
	if crc32.Checksum(packed, castagnoli) != k.checksum {
		return packed, into, errBadMoment
	}
	if into, err = unzip.DecodeAll(packed, into[:0]); err != nil || int64(len(into)) != k.size {
		return packed, into, errors.Join(errBadMoment, err)
	}
	return packed, into, nil
}

// momentEncoder encodes what a source had at a moment: names and types of series, and then the things that had values,
// each with its labels and its rows.
type momentEncoder struct {
	names, kinds momentTexts
	things       int
	rows         []byte // of all things
	row          []byte // of one of them
	packed       []byte
}

// momentTexts numbers texts.
type momentTexts struct {
	numbers map[string]uint64
	all     []byte // in the order of their numbers
}

func (t *momentTexts) reset() {
	if t.numbers == nil {
		t.numbers = map[string]uint64{}
	}
	clear(t.numbers)
	t.all = t.all[:0]
}

func (t *momentTexts) number(text string) uint64 {
	n, ok := t.numbers[text]
	if !ok {
		n = uint64(len(t.numbers))
		t.numbers[text] = n
		t.all = appendString(t.all, text)
	}
	return n
}

// encode is false where the moment is not kept.
func (e *momentEncoder) encode(s *keptSource, moment int64) bool {
	e.names.reset()
	e.kinds.reset()
	e.things, e.rows = 0, e.rows[:0]
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		return true
	}
	view, ok := s.view(moment)
	if !ok {
		return false
	}
	names := s.keeper.nameTexts()
	for _, th := range s.things {
		count := uint64(0)
		e.row = e.row[:0]
		for i := range th.rows {
			row := &th.rows[i]
			head := e.names.number(names[row.name]) << 1
			if row.isHistogram {
				h, encoded := view.histogram(row.slot)
				if h != nil {
					e.packed = encodeKept(e.packed[:0], h)
					encoded = e.packed
				}
				if len(encoded) == 0 {
					continue
				}
				e.row = binary.AppendUvarint(binary.AppendUvarint(e.row, head|1), e.kinds.number(row.kind))
				e.row = append(binary.AppendUvarint(e.row, uint64(len(encoded))), encoded...)
			} else {
				v, ok := view.number(row.slot)
				if !ok {
					continue
				}
				e.row = binary.AppendUvarint(binary.AppendUvarint(e.row, head), e.kinds.number(row.kind))
				e.row = appendValue(e.row, v)
			}
			count++
		}
		if count == 0 {
			continue
		}
		e.things++
		e.rows = binary.AppendUvarint(appendString(e.rows, th.key), count)
		e.rows = append(e.rows, e.row...)
	}
	return true
}

// assemble is the block.
func (e *momentEncoder) assemble(b []byte) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(e.names.numbers))), e.names.all...)
	b = append(binary.AppendUvarint(b, uint64(len(e.kinds.numbers))), e.kinds.all...)
	return append(binary.AppendUvarint(b, uint64(e.things)), e.rows...)
}

// appendValue encodes most values of counters in a few bytes: twice a whole number; all others behind a byte that is
// odd.
func appendValue(b []byte, v float64) []byte {
	if n := uint64(v); v >= 0 && v < 1<<53 && math.Float64bits(float64(n)) == math.Float64bits(v) {
		return binary.AppendUvarint(b, n<<1)
	}
	return binary.LittleEndian.AppendUint64(append(b, 1), math.Float64bits(v))
}

// momentDecoder reads what was encoded; bad is set where it makes no sense, and all that is read from then on is zero.
type momentDecoder struct {
	rest []byte
	bad  bool
}

func (d *momentDecoder) fail() {
	d.rest, d.bad = nil, true
}

func (d *momentDecoder) number() uint64 {
	if len(d.rest) > 0 && d.rest[0] < 0x80 {
		n := d.rest[0]
		d.rest = d.rest[1:]
		return uint64(n)
	}
	n, used := binary.Uvarint(d.rest)
	if used <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[used:]
	return n
}

// count is the number of things that follow, of which each takes a byte or more.
func (d *momentDecoder) count() int {
	n := d.number()
	if n > uint64(len(d.rest)) {
		d.fail()
		return 0
	}
	return int(n)
}

// text is a part of what is read.
func (d *momentDecoder) text() []byte {
	n := d.count()
	text := d.rest[:n:n]
	d.rest = d.rest[n:]
	return text
}

// value is what appendValue has encoded.
func (d *momentDecoder) value() float64 {
	n := d.number()
	if n&1 == 0 {
		return float64(n >> 1)
	}
	return d.float()
}

// float is one of 8 bytes.
func (d *momentDecoder) float() float64 {
	if len(d.rest) < 8 {
		d.fail()
		return 0
	}
	v := math.Float64frombits(binary.LittleEndian.Uint64(d.rest))
	d.rest = d.rest[8:]
	return v
}

// signed is what binary.AppendVarint has encoded.
func (d *momentDecoder) signed() int64 {
	n := d.number()
	return int64(n>>1) ^ -int64(n&1)
}

// splitLabels are those that appendLabels has encoded. They are parts of one text: there are many.
func splitLabels(key []byte) map[string]string {
	text, pairs := string(key), 0
	for d := (momentDecoder{rest: key}); len(d.rest) > 0; pairs++ {
		d.text()
		d.text()
	}
	found, d := make(map[string]string, pairs), momentDecoder{rest: key}
	next := func() string {
		n := len(d.text())
		end := len(text) - len(d.rest)
		return text[end-n : end]
	}
	for range pairs {
		name := next()
		found[name] = next()
	}
	return found
}
