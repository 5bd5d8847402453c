package graph

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// twoClocks are hosts of which the second's clock is ahead by offset at the first's time 0, and gains drift.
type twoClocks struct {
	offset, drift float64
	// there and back are the least that packets take; queue is what those there wait besides, at a time.
	there, back float64
	queue       func(at float64) float64
}

// packets are some that go both ways in ten seconds.
func (c *twoClocks) packets(r *rand.Rand, count int) (ways [2][]delayPoint) {
	for i := range count {
		at := 10 * (float64(i) + r.Float64()) / float64(count)
		jitter := func() float64 { return r.ExpFloat64() * 20e-6 }
		there, back := c.there+jitter(), c.back+jitter()
		if c.queue != nil {
			there += c.queue(at)
		}
		ways[0] = append(ways[0], delayPoint{at, there + c.ahead(at+there)})
		ways[1] = append(ways[1], delayPoint{at, back - c.ahead(at-back)}) // it is of its arrival, at the first
	}
	return ways
}

func (c *twoClocks) ahead(at float64) float64 { return c.offset + c.drift*at }

// TestClocksOfPackets: whatever the offset, the drift and the asymmetry, the truth is within the bound, and the bound is
// little more than half of the round trip.
func TestClocksOfPackets(t *testing.T) {
	for _, c := range []twoClocks{
		{0, 0, 100e-6, 100e-6, nil},
		{0.25, 0, 100e-6, 100e-6, nil},
		{-3600, 50e-6, 200e-6, 100e-6, nil},
		{1e-3, -50e-6, 1e-3, 5e-3, nil},
		{1e-3, 50e-6, 10e-3, 200e-6, nil},
		{0, 33e-6, 1e-3, 1e-3, func(at float64) float64 { return max(0, at-5) * 1e-3 }},
		{0, 0, 1e-3, 1e-3, func(at float64) float64 { return 3e-3 * math.Floor(at/5) }},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		for range 50 {
			ways := c.packets(r, 100)
			got := clocksOf(ways[0], ways[1], 0)
			for at := 0.0; at <= 10; at++ {
				if off := math.Abs(got.ahead(at) - c.ahead(at)); off > got.bound {
					t.Fatalf("%+v: at %v s %v s ahead, want %v within %v", c, at, got.ahead(at), c.ahead(at), got.bound)
				}
			}
			if half := (c.there + c.back) / 2; c.queue == nil && got.bound > 1.5*half+200e-6 {
				t.Fatalf("%+v: the bound is %v, half of the round trip %v", c, got.bound, half)
			}
			if math.Abs(got.drift-c.drift) > 5e-6 {
				t.Fatalf("%+v: a drift of %v", c, got.drift)
			}
		}
	}
}

// TestKeptClocks: of the packets and what the kernels say of their clocks the tighter bound counts, unless packets would
// arrive before they are sent. Without packets one way only the kernels say anything; a clock that was set meanwhile
// leaves nothing but that, either.
func TestKeptClocks(t *testing.T) {
	c := twoClocks{offset: 10e-6, there: 1e-3, back: 5e-3}
	ways := c.packets(rand.New(rand.NewPCG(1, 2)), 100)
	f := func(name string, there, back []delayPoint, kept time.Duration, offset, bound float64) {
		t.Helper()
		got := clocksOf(there, back, kept.Seconds())
		if math.Abs(got.offset-offset) > 0.3e-3 || got.bound != bound && !(math.Abs(got.bound-bound) < 0.3e-3) {
			t.Errorf("%s: %v ahead within %v, want %v within %v", name, got.offset, got.bound, offset, bound)
		}
	}
	f("packets alone", ways[0], ways[1], 0, -2e-3, 3e-3)
	f("kept well", ways[0], ways[1], 50*time.Microsecond, 0, 50e-6)
	f("kept badly", ways[0], ways[1], time.Second, -2e-3, 3e-3)
	f("one way alone", ways[0], nil, 0, 0, math.Inf(1))
	f("one way, kept", nil, ways[1], time.Millisecond, 0, 1e-3)
	c.offset = 1
	far := c.packets(rand.New(rand.NewPCG(1, 2)), 100)
	f("said to be kept", far[0], far[1], time.Millisecond, 1-2e-3, 3e-3)
	set := [2][]delayPoint{}
	for way := range set {
		set[way] = append(append(set[way], ways[way][:50]...), far[way][50:]...)
	}
	f("set meanwhile", set[0], set[1], 0, 0, math.Inf(1))
}
