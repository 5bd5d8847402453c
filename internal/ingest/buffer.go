package ingest

import (
	"math/bits"
	"sync"
)

// Buffers of requests are used again in sizes of powers of two; what is greater than the greatest is not kept.
const (
	leastBufferBits = 14 // 16 KiB
	bufferSizes     = 9  // the greatest has 4 MiB
)

// buffers are those that wait to be used again, by size.
type buffers [bufferSizes]sync.Pool

// get is an empty buffer with room for n bytes.
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

// put takes a buffer back, of which nobody may have a part any more.
func (p *buffers) put(b []byte) {
	if size := bits.Len(uint(cap(b))) - 1 - leastBufferBits; size >= 0 && size < bufferSizes {
		b = b[:0]
		p[size].Put(&b)
	}
}
