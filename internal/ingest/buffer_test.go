package ingest

import (
	"math"
	"testing"
)

func TestBuffersHaveRoom(t *testing.T) {
	var p buffers
	for _, n := range []int{0, 1, 1<<14 - 1, 1 << 14, 1<<14 + 1, 100_000, 1 << 20, 1<<22 - 1, 1 << 22, 1<<22 + 1,
		1 << 25} {
		for range 3 {
			b := p.get(n)
			if len(b) != 0 || cap(b) < n || n > 1<<14 && cap(b) > max(2*n, 1<<14) {
				t.Errorf("for %d bytes: %d of %d", n, len(b), cap(b))
			}
			p.put(b[:cap(b)])
		}
	}
	// One that came from elsewhere has what its size promises.
	for _, n := range []int{0, 5, 1<<14 + 5, 1<<15 - 1, 3 << 20, 5 << 20, 1 << 26} {
		p.put(make([]byte, n))
	}
	for bytes := range 23 {
		if b := p.get(int(math.Exp2(float64(bytes)))); cap(b) < 1<<bytes {
			t.Errorf("for %d bytes: %d", 1<<bytes, cap(b))
		}
	}
}
