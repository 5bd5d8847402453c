// Package simulated has hosts with clocks of their own and packets between them, for tests.
package simulated

import (
	"math/rand/v2"

	"outsight/internal/clocks"
)

// Hosts are two, of which the second's clock is ahead by Offset at the first's time 0, and gains Drift.
type Hosts struct {
	Offset, Drift float64
	// There and Back are the least that packets take; Queue is what those there wait besides, at a time.
	There, Back float64
	Queue       func(at float64) float64
}

// Packets are some that go both ways in ten seconds.
func (h *Hosts) Packets(r *rand.Rand, count int) (ways [2][]clocks.Point) {
	for i := range count {
		at := 10 * (float64(i) + r.Float64()) / float64(count)
		there, back := h.Take(r, at)
		ways[0] = append(ways[0], clocks.Point{At: at, Took: there + h.Ahead(at+there)})
		ways[1] = append(ways[1], clocks.Point{At: at, Took: back - h.Ahead(at-back)}) // it is of its arrival, at the first
	}
	return ways
}

// Take is how long packets take at a time: there, and back.
func (h *Hosts) Take(r *rand.Rand, at float64) (there, back float64) {
	jitter := func() float64 { return r.ExpFloat64() * 20e-6 }
	there, back = h.There+jitter(), h.Back+jitter()
	if h.Queue != nil {
		there += h.Queue(at)
	}
	return there, back
}

// Ahead is by how much the second host's clock is ahead at a time of the first one's.
func (h *Hosts) Ahead(at float64) float64 { return h.Offset + h.Drift*at }
