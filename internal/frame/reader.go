package frame

import (
	"encoding/binary"
	"math"
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

// reader reads numbers of a block. Once it has failed, it answers zeros.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) fail() {
	r.b, r.failed = nil, true
}

func (r *reader) uvarint() uint64 {
	if len(r.b) > 0 && r.b[0] < 0x80 {
		n := uint64(r.b[0])
		r.b = r.b[1:]
		return n
	}
	return r.long()
}

// long reads a number of more than one byte.
func (r *reader) long() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
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
func (r *reader) bytes() []byte {
	n := r.count(len(r.b))
	if n > len(r.b) { // the length itself took bytes
		r.fail()
		return nil
	}
	part := r.b[:n:n]
	r.b = r.b[n:]
	return part
}

func (r *reader) text() string { return string(r.bytes()) }

func (r *reader) float() float64 {
	if len(r.b) < 8 {
		r.fail()
		return 0
	}
	f := math.Float64frombits(binary.LittleEndian.Uint64(r.b))
	r.b = r.b[8:]
	return f
}

func zigzag(n uint64) uint64 { return n<<1 ^ uint64(int64(n)>>63) }

func unzigzag(n uint64) uint64 { return n>>1 ^ -(n & 1) }
