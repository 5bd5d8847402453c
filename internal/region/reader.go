package region

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
)

// Read is one part of a region: bytes of region from Offset on, as many as Into has. Both are multiples of 8.
type Read struct {
	Region uint32
	Offset uint64
	Into   []byte
	// Ordered has the words read upwards, each whole, as records with a head and a tail need it. Otherwise parts of a long
	// one may be read in any order.
	Ordered bool
	// Level says that words may also go down.
	Level bool
	// After has all reads before it be there before this one is made. Otherwise reads may be made in any order.
	After bool
}

// Reader carries reads to a host. A word of 8 bytes is read whole. It is for one goroutine at a time.
type Reader interface {
	// Read reads one part.
	Read(ctx context.Context, region uint32, offset uint64, into []byte) error
	// ReadAll reads several.
	ReadAll(ctx context.Context, reads []Read) error
}

// Stages are reads that may be made in any order, one stage after the other (Read.After).
func Stages(reads []Read) iter.Seq[[]Read] {
	return func(yield func([]Read) bool) {
		begin := 0
		for i := range reads {
			if reads[i].After && i > begin {
				if !yield(reads[begin:i]) {
					return
				}
				begin = i
			}
		}
		if begin < len(reads) {
			yield(reads[begin:])
		}
	}
}

// Split is the part of reads that has no more than so many reads and bytes, and the rest; a read may be in both. Bytes are
// a multiple of 8, as offsets are.
func Split(reads []Read, most, bytes int) (part, rest []Read) {
	for i, r := range reads {
		if i == most || bytes == 0 {
			return part, reads[i:]
		}
		if len(r.Into) > bytes {
			rest = append([]Read{{Region: r.Region, Offset: r.Offset + uint64(bytes), Into: r.Into[bytes:],
				Ordered: r.Ordered, Level: r.Level}}, reads[i+1:]...)
			r.Into = r.Into[:bytes]
			return append(part, r), rest
		}
		bytes -= len(r.Into)
		part = append(part, r)
	}
	return part, nil
}

// Errors of a Reader.
var (
	// ErrBounds: outside the region, or no multiple of 8.
	ErrBounds = errors.New("outside the region")
	// ErrGone: there is no such region any more.
	ErrGone = errors.New("there is no such region")
	// ErrRefused: the host does not let this reader read.
	ErrRefused = errors.New("refused")
)

// attempts bounds how often a region is read that changes meanwhile.
const attempts = 10

// ReadControl reads the control region.
func ReadControl(ctx context.Context, r Reader) (*Control, error) {
	first := make([]byte, headerBytes)
	for range attempts {
		if err := r.Read(ctx, ControlID, 0, first); err != nil {
			return nil, fmt.Errorf("reading the control region: %w", err)
		}
		h, err := decodeHeader(first)
		if err != nil {
			return nil, err
		}
		body, whole, err := readWhole(ctx, r, ControlID, first, h.UsedBytes, h.RegionBytes)
		if err != nil {
			return nil, fmt.Errorf("reading the control region: %w", err)
		}
		if whole {
			return DecodeControl(body)
		}
	}
	return nil, fmt.Errorf("reading the control region: %w", ErrBusy)
}

// ReadDictionary reads the dictionary.
func ReadDictionary(ctx context.Context, r Reader) (*Dictionary, error) {
	first := make([]byte, dictionaryHeaderBytes)
	for range attempts {
		if err := r.Read(ctx, DictionaryID, 0, first); err != nil {
			return nil, fmt.Errorf("reading the dictionary: %w", err)
		}
		h, err := decodeDictionaryHeader(first)
		if err != nil {
			return nil, err
		}
		body, whole, err := readWhole(ctx, r, DictionaryID, first, h.UsedBytes, h.RegionBytes)
		if err != nil {
			return nil, fmt.Errorf("reading the dictionary: %w", err)
		}
		if whole {
			return DecodeDictionary(body)
		}
	}
	return nil, fmt.Errorf("reading the dictionary: %w", ErrBusy)
}

// readWhole reads what is used of a region whose first bytes were read before, and after it the tail. whole is false where
// it changed meanwhile: who writes begins with the tail and ends with the head, so nothing was written between the two
// if they are of one generation, in whatever order the parts of the body were read.
func readWhole(ctx context.Context, r Reader, id uint32, first []byte, used, size uint32) (body []byte, whole bool,
	err error) {
	if used%8 != 0 {
		return nil, false, fmt.Errorf("%w: %d bytes are used, want a multiple of 8", ErrDamaged, used)
	}
	body, tail := make([]byte, used), make([]byte, 8)
	if err := r.Read(ctx, id, 0, body); err != nil {
		return nil, false, err
	}
	if err := r.Read(ctx, id, uint64(size)-8, tail); err != nil {
		return nil, false, err
	}
	return body, bytes.Equal(body[:len(first)], first) && [8]byte(first[generationOffset:]) == [8]byte(tail), nil
}
