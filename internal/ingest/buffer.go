package ingest

import (
	"math/bits"
	"sync"
)

// Buffers of requests are pooled by size, in powers of two; larger ones than the largest are not pooled.
const (
	leastBufferBits = 14 // 16 KiB
	bufferSizes     = 9  // the greatest has 4 MiB
)

// buffers is a pool for each size.
type buffers [bufferSizes]sync.Pool

// get returns an empty buffer with capacity for n bytes.
func (p *buffers) get(n int) []byte {
	size := max(0, bits.Len(uint(max(n, 1)-1))-leastBufferBits)
	if size >= bufferSizes {
		return make([]byte, 0, n)
	}
	if kept, ok := p[size].Get().(*[]byte); ok {
		return (*kept)[:0]
	}
	return make([]byte, 0, 1<<(size+leastBufferBits))
}

// put returns a buffer to its pool; it must not be used any more.
func (p *buffers) put(b []byte) {
	if size := bits.Len(uint(cap(b))) - 1 - leastBufferBits; size >= 0 && size < bufferSizes {
		b = b[:0]
		p[size].Put(&b)
	}
}
