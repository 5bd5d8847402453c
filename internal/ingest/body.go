package ingest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Errors of a body.
var (
	errTooLarge    = errors.New("request is too large")
	errUnsupported = errors.New("not supported")
)

// reserve takes n bytes of what all requests may hold, or fails. Memory is taken for a body as it comes, not by what the sender
// says of its length.
func (i *Ingest) reserve(n int64) error {
	if i.inFlight.Add(n) > i.options.InFlight {
		i.inFlight.Add(-n)
		return fmt.Errorf("%w: requests hold %d bytes already", errBusy, i.options.InFlight)
	}
	return nil
}

func (i *Ingest) release(n int64) { i.inFlight.Add(-n) }

// read reads all of r, at most limit bytes, and tells how much was reserved for it, also with an error.
func (i *Ingest) read(r io.Reader, limit int64) (b []byte, held int64, err error) {
	const first = 16 << 10
	for size := int64(first); ; size *= 2 {
		size = min(size, limit+1)
		if err := i.reserve(size - held); err != nil {
			return nil, held, err
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
				return b, held, nil
			}
			if err != nil {
				return nil, held, err
			}
		}
		if size == limit+1 {
			return nil, held, fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)
		}
	}
}

// decompress is raw without its encoding.
func (i *Ingest) decompress(encoding string, raw []byte) (b []byte, held int64, err error) {
	switch encoding {
	case "", "identity":
		return raw, 0, nil
	case "gzip":
		z, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			return nil, 0, fmt.Errorf("%w: gzip: %w", ErrMalformed, err)
		}
		b, held, err = i.read(z, i.options.MaxDecompressed)
		return b, held, asMalformed("gzip", err)
	case "zstd":
		// A frame that tells its size is read at once.
		if size, told := i.sizeOf(raw); told {
			held = int64(size)
			if err := i.reserve(held); err != nil {
				return nil, 0, err
			}
			buffer := i.bodies.get(size)
			b, err := i.sized.DecodeAll(raw, buffer[:0:held])
			if !errors.Is(err, zstd.ErrDecoderSizeExceeded) {
				return buffer[:len(b)], held, asMalformed("zstd", i.asTooLarge(err))
			}
			// More frames follow, of which nothing is known: they count as they come.
			i.bodies.put(buffer)
			i.release(held)
		}
		z, err := zstd.NewReader(bytes.NewReader(raw), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(uint64(max(i.options.MaxDecompressed, maxWindow))+1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, 0, fmt.Errorf("%w: zstd: %w", ErrMalformed, err)
		}
		defer z.Close()
		b, held, err = i.read(z, i.options.MaxDecompressed)
		return b, held, asMalformed("zstd", i.asTooLarge(err))
	}
	return nil, 0, fmt.Errorf("%w: Content-Encoding %.40q, want gzip, zstd or identity", errUnsupported, encoding)
}

// sizeOf is how many bytes a frame of zstd says that it has, if it says that and may have so many.
func (i *Ingest) sizeOf(frame []byte) (size int, told bool) {
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
	if err == nil || errors.Is(err, errBusy) || errors.Is(err, errTooLarge) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrMalformed, what, err)
}

// jsonLimits bound a request in JSON, and add what is reserved for it to held.
func (i *Ingest) jsonLimits(held *int64) jsonLimits {
	return jsonLimits{
		bytes: int(i.options.MaxDecompressed), elements: i.options.Limits.Points + i.options.Limits.elements(),
		grow: func(n int64) error {
			if err := i.reserve(n); err != nil {
				return err
			}
			*held += n
			return nil
		},
	}
}
