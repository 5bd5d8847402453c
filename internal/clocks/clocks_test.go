package clocks_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"outsight/internal/clocks"
	"outsight/internal/clocks/simulated"
)

// TestClocksOfPackets: whatever the offset, the drift and the asymmetry, the truth is within the bound, and the bound is
// little more than half of the round trip.
func TestClocksOfPackets(t *testing.T) {
	for _, c := range []simulated.Hosts{
		{There: 100e-6, Back: 100e-6},
		{Offset: 0.25, There: 100e-6, Back: 100e-6},
		{Offset: -3600, Drift: 50e-6, There: 200e-6, Back: 100e-6},
		{Offset: 1e-3, Drift: -50e-6, There: 1e-3, Back: 5e-3},
		{Offset: 1e-3, Drift: 50e-6, There: 10e-3, Back: 200e-6},
		{Drift: 33e-6, There: 1e-3, Back: 1e-3, Queue: func(at float64) float64 { return max(0, at-5) * 1e-3 }},
		{There: 1e-3, Back: 1e-3, Queue: func(at float64) float64 { return 3e-3 * math.Floor(at/5) }},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		for range 50 {
			ways := c.Packets(r, 100)
			got := clocks.Of(ways[0], ways[1], 0)
			for at := 0.0; at <= 10; at++ {
				if off := math.Abs(got.Ahead(at) - c.Ahead(at)); off > got.Bound {
					t.Fatalf("%+v: at %v s %v s ahead, want %v within %v", c, at, got.Ahead(at), c.Ahead(at), got.Bound)
				}
			}
			if half := (c.There + c.Back) / 2; c.Queue == nil && got.Bound > 1.5*half+200e-6 {
				t.Fatalf("%+v: the bound is %v, half of the round trip %v", c, got.Bound, half)
			}
			if math.Abs(got.Drift-c.Drift) > 5e-6 {
				t.Fatalf("%+v: a drift of %v", c, got.Drift)
			}
		}
	}
}

// TestKeptClocks: of the packets and what the kernels say of their clocks the tighter bound counts, unless packets would
// arrive before they are sent. Without packets one way only the kernels say anything; a clock that was set meanwhile
// leaves nothing but that, either.
func TestKeptClocks(t *testing.T) {
	c := simulated.Hosts{Offset: 10e-6, There: 1e-3, Back: 5e-3}
	ways := c.Packets(rand.New(rand.NewPCG(1, 2)), 100)
	f := func(name string, there, back []clocks.Point, kept time.Duration, offset, bound float64) {
		t.Helper()
		got := clocks.Of(there, back, kept.Seconds())
		if math.Abs(got.Offset-offset) > 0.3e-3 || got.Bound != bound && !(math.Abs(got.Bound-bound) < 0.3e-3) {
			t.Errorf("%s: %v ahead within %v, want %v within %v", name, got.Offset, got.Bound, offset, bound)
		}
	}
	f("packets alone", ways[0], ways[1], 0, -2e-3, 3e-3)
	f("kept well", ways[0], ways[1], 50*time.Microsecond, 0, 50e-6)
	f("kept badly", ways[0], ways[1], time.Second, -2e-3, 3e-3)
	f("one way alone", ways[0], nil, 0, 0, math.Inf(1))
	f("one way, kept", nil, ways[1], time.Millisecond, 0, 1e-3)
	c.Offset = 1
	far := c.Packets(rand.New(rand.NewPCG(1, 2)), 100)
	f("said to be kept", far[0], far[1], time.Millisecond, 1-2e-3, 3e-3)
	set := [2][]clocks.Point{}
	for way := range set {
		set[way] = append(append(set[way], ways[way][:50]...), far[way][50:]...)
	}
	f("set meanwhile", set[0], set[1], 0, 0, math.Inf(1))
}
