package graph

import (
	"fmt"
	"math"
	"testing"
	"time"

	"outsight/internal/clocks/simulated"
)

// TestStacksAndWire: what packets waited for in the stack of a host is told exactly with any clocks, and apart from what
// they waited for on the wire.
func TestStacksAndWire(t *testing.T) {
	const sender, receiver = 20 * time.Microsecond, 30 * time.Microsecond
	late := func(at float64) float64 { // in the last three of ten seconds
		if at < 7 {
			return 0
		}
		return 8e-3
	}
	idle := func(_ float64, sending bool) time.Duration {
		if sending {
			return sender
		}
		return receiver
	}
	for _, c := range []struct {
		name   string
		clocks simulated.Hosts
		kept   time.Duration
		stack  func(at float64, sender bool) time.Duration
		// p50 and p99 of the sender's stack and of the receiver's in µs; p50 of the wire and its p99 above the least in ms.
		there, back string
	}{
		{"kept clocks", simulated.Hosts{There: 1e-3, Back: 5e-3}, 100 * time.Microsecond, idle,
			"20 20, 30 30; 1.0 0.1", "20 20, 30 30; 5.0 0.1"},
		{"free clocks", simulated.Hosts{Offset: 0.2, Drift: 50e-6, There: 1e-3, Back: 1e-3}, 0, idle,
			"20 20, 30 30; - 0.1", "20 20, 30 30; - 0.1"},
		{"a queue on the wire", simulated.Hosts{Offset: 0.2, There: 1e-3, Back: 1e-3, Queue: late}, 0, idle,
			"20 20, 30 30; - 8.1", "20 20, 30 30; - 0.1"},
		{"a queue in the sender's stack", simulated.Hosts{Offset: 0.2, There: 1e-3, Back: 1e-3, Queue: late}, 0,
			func(at float64, sending bool) time.Duration {
				if sending {
					return sender + time.Duration(late(at)*1e9)
				}
				return receiver
			}, "20 8020, 30 30; - 0.1", "20 20, 30 30; - 0.1"},
		{"a queue in the receiver's stack", simulated.Hosts{There: 1e-3, Back: 1e-3, Queue: late}, 50 * time.Microsecond,
			func(at float64, sending bool) time.Duration {
				if sending {
					return sender
				}
				return receiver + time.Duration(late(at)*1e9)
			}, "20 20, 30 8030; 1.0 0.1", "20 20, 30 30; 1.0 0.1"},
	} {
		n := crossedEdge(t, crossedCards(&c.clocks, 60, c.kept, c.stack))
		if n.StacksThere == nil || n.StacksBack == nil || n.StacksThere.AtCards != 60 || n.StacksBack.AtCards != 60 {
			t.Errorf("%s: the parts are %+v and %+v, want those of 60 packets each way", c.name, n.StacksThere, n.StacksBack)
			continue
		}
		tell := func(s *StacksThere) string {
			micro := func(v *Seconds) float64 { return math.Round(float64(*v) * 1e6) }
			return fmt.Sprintf("%v %v, %v %v; %s %s", micro(s.SenderP50), micro(s.SenderP99), micro(s.ReceiverP50),
				micro(s.ReceiverP99), told(s.WireP50), told(s.WireAboveP99))
		}
		if there, back := tell(n.StacksThere), tell((*StacksThere)(n.StacksBack)); there != c.there || back != c.back {
			t.Errorf("%s: there %s, back %s, want %s and %s", c.name, there, back, c.there, c.back)
		}
	}
	// The stacks are not in what bounds the clocks.
	wide := simulated.Hosts{There: 1e-3, Back: 1e-3}
	both := func(float64, bool) time.Duration { return 450 * time.Microsecond }
	without, with := crossedEdge(t, crossedHosts(&wide, 60, 0)), crossedEdge(t, crossedCards(&wide, 60, 0, both))
	if without.DelayThereError != nil || with.DelayThereError == nil || float64(*with.DelayThereError) > 150e-6 {
		t.Errorf("with 0.9 of 1 ms in the stacks the delay is known to %s ms, want 0.1; without the stacks to %s ms",
			told(with.DelayThereError), told(without.DelayThereError))
	}
	// Of packets that were seen at one of the interfaces alone, nothing is told.
	half := crossedEdge(t, crossedCards(&wide, 60, 0, func(_ float64, sending bool) time.Duration {
		if sending {
			return sender
		}
		return 0
	}))
	if half.StacksThere != nil || half.StacksBack != nil || half.MatchedThere == nil {
		t.Errorf("with one interface the network is %+v", half)
	}
}
