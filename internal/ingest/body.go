package ingest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"
)

// Errors of a body.
var (
	errTooLarge    = errors.New("request is too large")
	errUnsupported = errors.New("not supported")
)

// read reads all of r, at most limit bytes, and reserves them as they arrive.
func (i *Ingest) read(r io.Reader, limit int64, hold *reservation) (b []byte, err error) {
	const first = 16 << 10
	for held, size := int64(0), int64(first); ; size *= 2 {
		size = min(size, limit+1)
		if err := hold.grow(size - held); err != nil {
			return nil, err
		}
		held = size
		grown := i.bodies.get(int(size))[:len(b)]
		copy(grown, b)
		i.bodies.put(b)
		b = grown
		for int64(len(b)) < size {
			n, err := r.Read(b[len(b):size])
			b = b[:len(b)+n]
			if err == io.EOF {
				return b, nil
			}
			if err != nil {
				return nil, err
			}
		}
		if size == limit+1 {
			return nil, fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)
		}
	}
}

// decompress decodes raw, and reserves the bytes of the result.
func (i *Ingest) decompress(encoding string, raw []byte, hold *reservation) (b []byte, err error) {
	switch encoding {
	case "", "identity":
		return raw, nil
	case "gzip":
		z, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			return nil, fmt.Errorf("%w: gzip: %w", ErrMalformed, err)
		}
		b, err = i.read(z, i.options.MaxDecompressed, hold)
		return b, asMalformed("gzip", err)
	case "zstd":
		// A frame with a content size is decompressed at once.
		if size, ok := i.sizeOf(raw); ok {
			if err := hold.grow(int64(size)); err != nil {
				return nil, err
			}
			buffer := i.bodies.get(size)
			b, err := i.sized.DecodeAll(raw, buffer[:0:size])
			if !errors.Is(err, zstd.ErrDecoderSizeExceeded) {
				return buffer[:len(b)], asMalformed("zstd", i.asTooLarge(err))
			}
			// The sizes of the frames that follow are unknown: they are reserved as they are decompressed.
			i.bodies.put(buffer)
			hold.shrink(int64(size))
		}
		b, err = i.decompressFrames(raw, hold)
		return b, asMalformed("zstd", i.asTooLarge(err))
	}
	return nil, fmt.Errorf("%w: Content-Encoding %.40q, want gzip, zstd or identity", errUnsupported, encoding)
}

// decompressFrames decompresses zstd frames some of which have no content size.
func (i *Ingest) decompressFrames(raw []byte, hold *reservation) ([]byte, error) {
	window := windowBytes(largestWindow(raw))
	if err := hold.grow(window); err != nil {
		return nil, err
	}
	defer hold.shrink(window)
	z, err := zstd.NewReader(bytes.NewReader(raw), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(uint64(max(i.options.MaxDecompressed, maxWindow))+1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, fmt.Errorf("%w: zstd: %w", ErrMalformed, err)
	}
	defer z.Close()
	return i.read(z, i.options.MaxDecompressed, hold)
}

// largestWindow is the largest window that a frame of raw asks for, and at most maxWindow: larger ones are refused.
func largestWindow(raw []byte) (largest int64) {
	for len(raw) > 0 {
		var head zstd.Header
		if head.Decode(raw) != nil {
			break // the decompressor says what is wrong
		}
		size := int64(head.HeaderSize)
		if head.Skippable {
			size += int64(head.SkippableSize)
		} else {
			window := head.WindowSize
			if head.SingleSegment {
				window = head.FrameContentSize
			}
			largest = max(largest, int64(min(window, maxWindow)))
			size += blocksBytes(raw[min(size, int64(len(raw))):])
			if head.HasCheckSum {
				size += 4
			}
		}
		raw = raw[min(size, int64(len(raw))):]
	}
	return largest
}

// blocksBytes is the size in bytes of the blocks of a zstd frame (RFC 8878, 3.1.1.2).
func blocksBytes(raw []byte) (n int64) {
	const blockHead, repeated = 3, 1
	for n+blockHead <= int64(len(raw)) {
		head := uint32(raw[n]) | uint32(raw[n+1])<<8 | uint32(raw[n+2])<<16
		n += blockHead
		if head>>1&3 == repeated {
			n++
		} else {
			n += int64(head >> 3)
		}
		if head&1 != 0 {
			return n
		}
	}
	return int64(len(raw))
}

// windowBytes is the memory in bytes of a decompressor with such a window, its current block included.
func windowBytes(window int64) int64 { return window + 128<<10 }

// sizeOf is the content size of a zstd frame, if it has one and is within the limit.
func (i *Ingest) sizeOf(frame []byte) (size int, ok bool) {
	var head zstd.Header
	if head.Decode(frame) != nil || !head.HasFCS || head.FrameContentSize > uint64(i.options.MaxDecompressed) {
		return 0, false
	}
	return int(head.FrameContentSize), true
}

func (i *Ingest) asTooLarge(err error) error {
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fmt.Errorf("%w: more than %d bytes", errTooLarge, i.options.MaxDecompressed)
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return fmt.Errorf("%w: a window of more than %d bytes", errTooLarge, maxWindow)
	}
	return err
}

func asMalformed(what string, err error) error {
	switch {
	case err == nil || errors.Is(err, errBusy) || errors.Is(err, errTooLarge):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		// The request is in order: its sender must not drop it.
		return fmt.Errorf("%w: %s took too long", errBusy, what)
	}
	return fmt.Errorf("%w: %s: %w", ErrMalformed, what, err)
}
