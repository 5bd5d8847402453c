package ingest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"

	"outsight/internal/quota"
)

// Errors of a body.
var (
	errTooLarge    = errors.New("request is too large")
	errUnsupported = errors.New("not supported")
)

// hold is what a request holds of its tenant's share of the bytes in memory. Memory is taken for a body as it comes, not by what the sender says
// of its length.
type hold struct {
	shares *quota.Shares
	tenant string
	bytes  int64
}

// more takes n bytes, or fails.
func (h *hold) more(n int64) error {
	if !h.shares.Take(h.tenant, n) {
		who := ""
		if h.tenant != "" {
			who = fmt.Sprintf(" of tenant %q", h.tenant)
		}
		return fmt.Errorf("%w: no room for %d bytes more of requests%s, of %d for all", errBusy, n, who, h.shares.Capacity())
	}
	h.bytes += n
	return nil
}

// less gives n bytes back.
func (h *hold) less(n int64) {
	h.shares.Add(h.tenant, -n)
	h.bytes -= n
}

func (h *hold) release() { h.less(h.bytes) }

// read reads all of r, at most limit bytes, which hold takes as they come.
func (i *Ingest) read(r io.Reader, limit int64, hold *hold) (b []byte, err error) {
	const first = 16 << 10
	for held, size := int64(0), int64(first); ; size *= 2 {
		size = min(size, limit+1)
		if err := hold.more(size - held); err != nil {
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

// decompress is raw without its encoding, for which hold takes what it becomes.
func (i *Ingest) decompress(encoding string, raw []byte, hold *hold) (b []byte, err error) {
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
		// A frame that tells its size is read at once.
		if size, told := i.sizeOf(raw); told {
			if err := hold.more(int64(size)); err != nil {
				return nil, err
			}
			buffer := i.bodies.get(size)
			b, err := i.sized.DecodeAll(raw, buffer[:0:size])
			if !errors.Is(err, zstd.ErrDecoderSizeExceeded) {
				return buffer[:len(b)], asMalformed("zstd", i.asTooLarge(err))
			}
			// More frames follow, of which nothing is known: they count as they come.
			i.bodies.put(buffer)
			hold.less(int64(size))
		}
		z, err := zstd.NewReader(bytes.NewReader(raw), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(uint64(max(i.options.MaxDecompressed, maxWindow))+1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, fmt.Errorf("%w: zstd: %w", ErrMalformed, err)
		}
		defer z.Close()
		b, err = i.read(z, i.options.MaxDecompressed, hold)
		return b, asMalformed("zstd", i.asTooLarge(err))
	}
	return nil, fmt.Errorf("%w: Content-Encoding %.40q, want gzip, zstd or identity", errUnsupported, encoding)
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
	switch {
	case err == nil || errors.Is(err, errBusy) || errors.Is(err, errTooLarge):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		// The request is in order: its sender must not drop it.
		return fmt.Errorf("%w: %s took too long", errBusy, what)
	}
	return fmt.Errorf("%w: %s: %w", ErrMalformed, what, err)
}
