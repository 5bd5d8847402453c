package frame

import (
	"encoding/binary"
	"sync"

	"github.com/klauspost/compress/huff0"
)

// The parts of a zstd frame (RFC 8878) that compressLiterals writes.
const (
	zstdMagic = 0xfd2fb528
	// zstdBlock is how many bytes before compression a block has at most.
	zstdBlock = 1 << 17
	// zstdCompressed is the type of a block, zstdLiterals that of literals that are compressed and have their code in front.
	zstdCompressed = 2
	zstdLiterals   = 2
	// oneStream is how many literals less than which are in one stream, and not in four.
	oneStream = 1 << 10
)

var literalCoders = sync.Pool{New: func() any { return &huff0.Scratch{Reuse: huff0.ReusePolicyNone} }}

// compressLiterals is compress for histograms: each byte is coded by how frequent it is, and nothing refers back to what
// was before it. Rows of buckets hardly repeat, so that they take no more bytes, and what they refer to would be more than
// half of the time of decompression. Any reader of zstd reads it.
func compressLiterals(dst, raw []byte) []byte {
	coder := literalCoders.Get().(*huff0.Scratch)
	defer literalCoders.Put(coder)
	coded := appendZstdHeader(dst, len(raw))
	for rest := raw; ; {
		part := rest[:min(zstdBlock, len(rest))]
		rest = rest[len(part):]
		var ok bool
		if coded, ok = appendLiterals(coded, part, len(rest) == 0, coder); !ok {
			return compress(dst, raw)
		}
		if len(rest) == 0 {
			return coded
		}
	}
}

// appendZstdHeader appends the header of a frame of so many bytes, which is its window.
func appendZstdHeader(dst []byte, size int) []byte {
	const single, of2, of4 = 1 << 5, 1 << 6, 2 << 6 // of how many bytes the size is, if not of one
	dst = binary.LittleEndian.AppendUint32(dst, zstdMagic)
	switch {
	case size < 1<<8:
		return append(dst, single, byte(size))
	case size < 1<<8+1<<16:
		return binary.LittleEndian.AppendUint16(append(dst, single|of2), uint16(size-1<<8))
	}
	return binary.LittleEndian.AppendUint32(append(dst, single|of4), uint32(size))
}

// appendLiterals appends a block. ok is false where its bytes cannot be coded: all are the same, or none is more frequent.
func appendLiterals(dst, raw []byte, last bool, coder *huff0.Scratch) (all []byte, ok bool) {
	// sizeFormat says how the two sizes are written: in so many bits each.
	encode, sizeFormat, bits := huff0.Compress4X, uint64(3), 18
	switch {
	case len(raw) < oneStream:
		encode, sizeFormat, bits = huff0.Compress1X, 0, 10
	case len(raw) < 1<<14:
		sizeFormat, bits = 2, 14
	}
	coded, _, err := encode(raw, coder)
	if err != nil {
		return dst, false
	}
	sizes := zstdLiterals | sizeFormat<<2 | uint64(len(raw))<<4 | uint64(len(coded))<<(4+bits)
	sizesBytes := (4 + 2*bits) / 8
	block := zstdCompressed<<1 | (sizesBytes+len(coded)+1)<<3
	if last {
		block |= 1
	}
	var header [8]byte
	binary.LittleEndian.PutUint32(header[:], uint32(block))
	dst = append(dst, header[:3]...)
	binary.LittleEndian.PutUint64(header[:], sizes)
	dst = append(append(dst, header[:sizesBytes]...), coded...)
	return append(dst, 0), true // it has no sequences
}
