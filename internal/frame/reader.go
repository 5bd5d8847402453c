package frame

import (
	"encoding/binary"
	"math"
	"math/bits"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// window is how far back compressed bytes refer: it bounds what a reader needs.
const window = 1 << 17

var encoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return e
})

var decoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(MaxBlock),
		zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return d
})

func compress(dst, raw []byte) []byte { return encoder().EncodeAll(raw, dst) }

// decompress decompresses a block into the memory of dst if there is enough.
func decompress(dst []byte, b block) ([]byte, error) {
	if b.size == 0 {
		return nil, nil
	}
	if cap(dst) < b.size {
		dst = make([]byte, 0, b.size)
	}
	raw, err := decoder().DecodeAll(b.compressed, dst[:0:b.size])
	if err != nil {
		return nil, malformed("%v", err)
	}
	if len(raw) != b.size {
		return nil, malformed("a block has %d bytes, not %d", len(raw), b.size)
	}
	return raw, nil
}

// reader reads numbers of a block. Once it has failed, it answers zeros. It counts up a position and does not cut its
// bytes: writing a pointer costs more while memory is collected.
type reader struct {
	b      []byte
	at     int
	failed bool
}

func (r *reader) fail() {
	r.at, r.failed = len(r.b), true
}

// left is how many bytes were not read.
func (r *reader) left() int { return len(r.b) - r.at }

func (r *reader) uvarint() uint64 {
	if r.at < len(r.b) && r.b[r.at] < 0x80 {
		r.at++
		return uint64(r.b[r.at-1])
	}
	return r.long()
}

// tops are the top bits of eight bytes: in the last byte of a number it is not set.
const tops = 0x8080808080808080

// long reads a number of more than one byte.
func (r *reader) long() uint64 {
	n, next := longAt(r.b, r.at)
	if next > len(r.b) {
		r.fail()
		return 0
	}
	r.at = next
	return n
}

// longAt is numberAt of a number of more than one byte.
func longAt(b []byte, at int) (n uint64, next int) {
	if at+1 < len(b) && b[at+1] < 0x80 {
		return uint64(b[at]&0x7f) | uint64(b[at+1])<<7, at + 2
	}
	if len(b)-at >= 8 {
		n := binary.LittleEndian.Uint64(b[at:])
		if last := ^n & tops; last != 0 {
			at += bits.TrailingZeros64(last)/8 + 1
			n &= (last ^ (last - 1)) &^ tops
			// Numbers of 7 bits become such of 14, 28 and 56.
			n = n&0x007f007f007f007f | n&0x7f007f007f007f00>>1
			n = n&0x00003fff00003fff | n&0x3fff00003fff0000>>2
			return n&0x000000000fffffff | n&0x0fffffff00000000>>4, at
		}
	}
	n, size := binary.Uvarint(b[min(at, len(b)):])
	if size <= 0 {
		return 0, len(b) + 1
	}
	return n, at + size
}

// count reads a number that is no greater than a limit.
func (r *reader) count(limit int) int {
	n := r.uvarint()
	if n > uint64(limit) {
		r.fail()
		return 0
	}
	return int(n)
}

// bytes reads a length and as many bytes.
func (r *reader) bytes() []byte { return r.take(r.uvarint()) }

// take takes n bytes.
func (r *reader) take(n uint64) []byte {
	if n > uint64(r.left()) {
		r.fail()
		return nil
	}
	begin := r.at
	r.at += int(n)
	return r.b[begin:r.at:r.at]
}

func (r *reader) text() string { return string(r.bytes()) }

func (r *reader) float() float64 {
	bits := r.take(8)
	if bits == nil {
		return 0
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(bits))
}

func zigzag(n uint64) uint64 { return n<<1 ^ uint64(int64(n)>>63) }

func unzigzag(n uint64) uint64 { return n>>1 ^ -(n & 1) }
