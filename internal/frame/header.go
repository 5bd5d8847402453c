package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrMalformed is the error of bytes that are no frame. Errors that wrap it say what was wrong.
var ErrMalformed = errors.New("malformed frame")

// ErrNoKey is the error of a frame whose key frame is another one than that which was given.
var ErrNoKey = errors.New("the key frame of this frame is not there")

// Version of the encoded form, docs/format/frame.md.
const Version = 1

// Limits of an encoded frame. What is past them is malformed: memory is bounded before it is allocated.
const (
	// MaxHost is the greatest length of a host's name, in bytes.
	MaxHost = 255
	// MaxBlock is the greatest length of what a frame has before it was compressed, in bytes.
	MaxBlock = 32 << 20
	// MaxRows is the greatest number of rows of a table, MaxStrings that of texts.
	MaxRows    = 1 << 20
	MaxStrings = 1 << 20
	// MaxValues is the greatest number of values that Decode allocates for a frame: 128 MiB.
	MaxValues = 1 << 24
	// maxMillis is the last millisecond of the year 9999.
	maxMillis = 253402300799999
)

const (
	magic = "OSFR"
	// fixedHeader is the length of a header without the host's name.
	fixedHeader = 76
)

// The blocks of a frame. Behind them are the sections that are compressed by themselves, so that a reader may leave one
// out.
const (
	schemaBlock = iota // in key frames alone
	mainBlock
	numBlocks
)

// block is a part of the encoded frame.
type block struct {
	compressed []byte
	// size before it was compressed; 0 is a block that is not there.
	size int
}

// encoded are the parts of an encoded frame.
type encoded struct {
	blocks [numBlocks]block
	// apart are the sections behind the blocks.
	apart []byte
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// DecodeHeader reads the header of an encoded frame, and checks that the frame is as long as the header says. It reads
// nothing else.
func DecodeHeader(data []byte) (Header, error) {
	h, _, err := decodeHeader(data)
	return h, err
}

func decodeHeader(data []byte) (h Header, e encoded, err error) {
	if len(data) < fixedHeader || string(data[:4]) != magic {
		return h, e, malformed("no header")
	}
	if data[4] != Version {
		return h, e, malformed("version %d, this program reads %d", data[4], Version)
	}
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(data[at:]) }
	host := int(binary.LittleEndian.Uint16(data[6:]))
	h.Epoch, h.Boot, h.Number, h.Key = u64(8), u64(16), u64(24), u64(32)
	now, clockError := u64(40), u64(48)
	switch {
	case data[5] != 0:
		return h, e, malformed("unknown flags %#x", data[5])
	case host > MaxHost || len(data) < fixedHeader+host:
		return h, e, malformed("a host's name of %d bytes", host)
	case h.Key == 0 || h.Key > h.Number:
		return h, e, malformed("number %d, key %d", h.Number, h.Key)
	case h.Epoch > math.MaxInt64 || now > math.MaxInt64 || clockError > math.MaxInt64:
		return h, e, malformed("a time that is out of range")
	}
	h.Time, h.ClockError = time.Unix(0, int64(now)).UTC(), time.Duration(clockError)
	rest := data[fixedHeader:]
	h.Host, rest = string(rest[:host]), rest[host:]
	for i := range e.blocks {
		length := binary.LittleEndian.Uint32(data[56+8*i:])
		size := binary.LittleEndian.Uint32(data[60+8*i:])
		if size > MaxBlock || uint64(length) > uint64(len(rest)) || length == 0 != (size == 0) {
			return h, e, malformed("block %d of %d bytes, %d uncompressed, where %d are left", i, length, size, len(rest))
		}
		e.blocks[i] = block{rest[:length], int(size)}
		rest = rest[length:]
	}
	if apart := binary.LittleEndian.Uint32(data[72:]); uint64(apart) != uint64(len(rest)) {
		return h, e, malformed("%d bytes behind its blocks, not %d", len(rest), apart)
	}
	e.apart = rest
	if h.IsKey() != (e.blocks[schemaBlock].size > 0) {
		return h, e, malformed("only key frames have a schema")
	}
	return h, e, nil
}

// appendHeader appends the header of a frame. Its blocks and the sections behind them follow in this order.
func appendHeader(dst []byte, h *Header, e *encoded) []byte {
	if len(h.Host) > MaxHost {
		panic("BUG: a host's name is longer than MaxHost")
	}
	le := binary.LittleEndian
	dst = append(dst, magic...)
	dst = append(dst, Version, 0)
	dst = le.AppendUint16(dst, uint16(len(h.Host)))
	for _, n := range [...]uint64{h.Epoch, h.Boot, h.Number, h.Key, uint64(h.Time.UnixNano()), uint64(h.ClockError)} {
		dst = le.AppendUint64(dst, n)
	}
	for i := range e.blocks {
		dst = le.AppendUint32(dst, uint32(len(e.blocks[i].compressed)))
		dst = le.AppendUint32(dst, uint32(e.blocks[i].size))
	}
	dst = le.AppendUint32(dst, uint32(len(e.apart)))
	return append(dst, h.Host...)
}
