package probe

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"outsight/internal/stamp"
)

// TestTrace: the hops of a path are those of the topology, by both ways and in both families.
// traced is the path from a place to another.
func traced(from, to *Place, by string) (Path, error) {
	m := measurement{from: from, to: to}
	var err error
	if m.source, m.destination, err = way(from, to); err != nil {
		return Path{}, err
	}
	return m.traceBy(context.Background(), by)
}

func TestTrace(t *testing.T) {
	t.Parallel()
	a, _, b := routed(t)
	for _, family := range []struct{ to, router string }{{"198.51.100.2", "192.0.2.1"}, {"2001:db8:2::2", "2001:db8:1::1"}} {
		for _, by := range []string{"udp", "icmp"} {
			to := &Place{Name: "b", Addresses: []netip.Addr{netip.MustParseAddr(family.to)}}
			path, err := traced(a.Place, to, by)
			if err != nil {
				t.Fatal(err)
			}
			var hops []string
			for _, h := range path.Hops {
				if len(h.RoundTrips) == 0 || h.Sent != hopTries {
					t.Errorf("%s to %s: hop %+v", by, family.to, h)
				}
				hops = append(hops, fmt.Sprint(h.Addresses))
			}
			want := []string{"[" + family.router + "]", "[" + family.to + "]"}
			if !path.Reached || !slices.Equal(hops, want) {
				t.Errorf("%s to %s: %v, reached %v, want %v", by, family.to, hops, path.Reached, want)
			}
		}
	}
	b.run(t, "iptables -A INPUT -p udp -j DROP")
	path, err := traced(a.Place, &Place{Addresses: b.Addresses[:1]}, "udp")
	if err != nil || path.Reached || len(path.Hops) != 2 || len(path.Hops[1].Addresses) != 0 {
		t.Errorf("to a place that is silent: %+v, %v", path, err)
	}
}

// TestBetweenPlaces measures through a router in both families, with a burst each way.
func TestBetweenPlaces(t *testing.T) {
	t.Parallel()
	a, _, b := routed(t)
	for i, wanted := range b.Addresses {
		r, err := Measure(context.Background(), a.Place, At("b", dup(t, b.Place), wanted), Options{
			Duration: time.Second, Interval: 5 * time.Millisecond, Capacity: DefaultCapacity})
		if err != nil {
			t.Fatal(err)
		}
		s := r.STAMP
		if !r.Measured() || s == nil || s.There.Sent != 200 || s.There.Received != 200 || s.Back.Received != 200 || s.Lost() != 0 ||
			s.There.Reordered+s.Back.Reordered+s.There.Duplicates+s.Back.Duplicates != 0 || s.Clocks != OneClock ||
			s.There.Delay == nil || s.Back.Delay == nil || s.RoundTrip.Count < 150 || s.There.Delay.Min <= 0 {
			t.Fatalf("%+v", s)
		}
		if r.From.Address != a.Addresses[i] || r.To.Address != wanted {
			t.Errorf("from %v to %v, want %v and %v", r.From.Address, r.To.Address, a.Addresses[i], wanted)
		}
		for _, c := range []*Capacity{r.There, r.Back} {
			if c == nil || c.Bytes != DefaultCapacity || c.Wanted != DefaultCapacity || c.BitsPerSecond <= 0 {
				t.Errorf("capacity %+v, not measured %v", c, r.Missing)
			}
		}
		if len(r.Paths) != 1 || len(r.Paths[0].Hops) != 2 || !r.Paths[0].Reached {
			t.Errorf("paths %+v", r.Paths)
		}
	}
}

// TestClassesOfService: what a router makes of a class of service is told, by direction.
func TestClassesOfService(t *testing.T) {
	t.Parallel()
	a, router, b := routed(t)
	measure := func(to netip.Addr) (there, back []Class) {
		t.Helper()
		r, err := Measure(context.Background(), a.Place, At("b", dup(t, b.Place), to), Options{
			Duration: 200 * time.Millisecond, Interval: 10 * time.Millisecond, DSCP: 46})
		if err != nil {
			t.Fatal(err)
		}
		if r.STAMP == nil || r.STAMP.Service == nil || r.STAMP.Service.DSCP != 46 || r.STAMP.Back.Received != 20 {
			t.Fatalf("%+v", r.STAMP)
		}
		return r.STAMP.Service.There, r.STAMP.Service.Back
	}
	same := []Class{{46, 20}}
	for _, to := range b.Addresses {
		if there, back := measure(to); !slices.Equal(there, same) || !slices.Equal(back, same) {
			t.Errorf("%v: there %v, back %v, want %v both", to, there, back, same)
		}
	}
	router.run(t, "iptables -t mangle -A FORWARD -o left -p udp -j DSCP --set-dscp 8")
	router.run(t, "ip6tables -t mangle -A FORWARD -o right -p udp -j DSCP --set-dscp 0")
	if there, back := measure(b.Addresses[0]); !slices.Equal(there, same) || !slices.Equal(back, []Class{{8, 20}}) {
		t.Errorf("changed on the way back: there %v, back %v", there, back)
	}
	if there, back := measure(b.Addresses[1]); !slices.Equal(there, []Class{{0, 20}}) || !slices.Equal(back, same) {
		t.Errorf("changed on the way there: there %v, back %v", there, back)
	}
}

// TestTowardsAnAddress: without a reflector there are echo and connections, and where all is dropped nothing is measured.
func TestTowardsAnAddress(t *testing.T) {
	t.Parallel()
	for i, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			a, _, b := routed(t)
			r, err := Measure(context.Background(), a.Place, Address(b.Addresses[i]), Options{Duration: time.Second, Capacity: 1000})
			if err != nil {
				t.Fatal(err)
			}
			if !r.Measured() || r.STAMP != nil || r.Echo == nil || r.Echo.Sent != 10 || r.Echo.Received != 10 || r.Echo.Lost != 0 ||
				r.Connect == nil || r.Connect.Refused != 10 || r.Connect.Accepted+r.Connect.Failed != 0 {
				t.Errorf("%+v %+v", r.Echo, r.Connect)
			}
			if len(r.Missing) != 2 || r.Missing[0].What != "stamp" || r.Missing[1].What != "capacity" {
				t.Errorf("not measured: %+v", r.Missing)
			}
		})
	}
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		a, _, b := routed(t)
		b.run(t, "iptables -A INPUT -j DROP")
		r, err := Measure(context.Background(), a.Place, Address(b.Addresses[0]), Options{Duration: time.Second,
			Timeout: 100 * time.Millisecond})
		if err != nil || r.Measured() || r.Echo.Lost != 10 || r.Connect.Failed != 10 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestOptionsAreBounded(t *testing.T) {
	for _, o := range []Options{{Interval: time.Microsecond}, {Duration: time.Millisecond}, {Duration: time.Hour,
		Interval: time.Millisecond}, {Capacity: MaxCapacity + 1}, {Capacity: -1},
		{DSCP: 64}} {
		if _, err := o.withDefaults(); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	if _, err := (Options{}).withDefaults(); err != nil {
		t.Error(err)
	}
	if _, err := Measure(context.Background(), Address(netip.MustParseAddr("192.0.2.1")), nil, Options{}); err == nil {
		t.Error("a measurement begins elsewhere")
	}
}

func TestDelays(t *testing.T) {
	var all []time.Duration
	for i := range 100 {
		all = append(all, time.Duration(i+1)*time.Millisecond)
	}
	d := delaysOf(all)
	near := func(got, want float64) bool { return got > want-1e-9 && got < want+1e-9 }
	if !near(d.Min, 0.001) || !near(d.P50, 0.05) || !near(d.P90, 0.09) || !near(d.P99, 0.099) || !near(d.Max, 0.1) ||
		!near(d.Spread, 0.098) || !near(d.Mean, 0.0505) || d.Jitter < 0.00099 || d.Jitter > 0.001 {
		t.Errorf("%+v", d)
	}
	if above := d.aboveMinimum(); !near(above.Min, 0) || !near(above.P50, 0.049) || !near(above.Spread, 0.098) {
		t.Errorf("%+v", above)
	}
	if delaysOf(nil) != nil {
		t.Error("nothing took a time")
	}
}

func TestRateIsOfTheSecondHalf(t *testing.T) {
	at := func(bytes int64, ms int) arrived { return arrived{bytes, time.UnixMilli(int64(ms))} }
	c, err := rate([]arrived{at(500, 0), at(1000, 1), at(1500, 11), at(2000, 21)}, 2000)
	if err != nil || c.BitsPerSecond != 8*1000/0.02 || c.Bytes != 2000 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, few := range [][]arrived{nil, {at(10, 0)}} {
		if _, err := rate(few, 2000); err == nil {
			t.Errorf("%v has a rate", few)
		}
	}
}

// TestWire measures over a wire that loses, doubles and reorders by a plan: every count is exact, and no delay is shorter
// than the wire's. Where the reflector is another's, loss is told apart by its counters.
func TestWire(t *testing.T) {
	t.Parallel()
	for _, remote := range []bool{false, true} {
		t.Run(fmt.Sprint("remote ", remote), func(t *testing.T) { overWire(t, remote) })
	}
}

func overWire(t *testing.T, remote bool) {
	t.Parallel()
	a, b := newSpace(t, "a", "192.0.2.1"), newSpace(t, "b", "192.0.2.2")
	w := newWire(t, a, b)
	w.there = direction{delay: time.Millisecond, lose: 10, loseAt: 4, double: 55, swap: 100}
	w.back = direction{delay: 5 * time.Millisecond, lose: 30, loseAt: 14, double: 40, swap: 60}
	to := b.Place
	if remote {
		w.skip = 3 // by which the reflector is found
		to = Address(b.Addresses[0])
		runReflector(t, b)
	}
	w.run(t)
	r, err := Measure(context.Background(), a.Place, to, Options{Duration: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s := r.STAMP
	if s == nil {
		t.Fatalf("%+v", r)
	}
	there, back := s.There, s.Back
	there.Delay, there.Above, back.Delay, back.Above = nil, nil, nil, nil
	if want := (Way{Sent: 300, Received: 270, Lost: 30, Duplicates: 1, Reordered: 1}); there != want {
		t.Errorf("there, remote is %v: %+v, want %+v", remote, there, want)
	}
	if want := (Way{Sent: 270, Received: 261, Lost: 9, Duplicates: 1, Reordered: 1}); back != want {
		t.Errorf("back, remote is %v: %+v, want %+v", remote, back, want)
	}
	if s.LostSomewhere != 0 || s.Unexpected+s.Malformed+s.Forged != 0 {
		t.Errorf("%+v", s)
	}
	if s.RoundTrip.Min < 0.006 {
		t.Errorf("the round trip took %v s on a wire of 6 ms", s.RoundTrip.Min)
	}
	if remote {
		if there := s.ClockThere; there == nil || there.Source != ByPTP || there.Error < 1e-3 || there.Error > 1.01e-3 {
			t.Errorf("the reflector's clock is off by %+v, want 1 ms by PTP", there)
		}
		if here := s.ClockHere; here == nil || (here.Source == NotKept) != (s.Clocks == FreeClocks) || here.Source == ByDevice {
			t.Errorf("this host's clock is off by %+v, and they are %s", here, s.Clocks)
		}
	} else if s.ClockHere != nil || s.ClockThere != nil {
		t.Errorf("one clock is off by %+v and %+v", s.ClockHere, s.ClockThere)
	}
	switch {
	case remote && s.Clocks == FreeClocks:
		if s.There.Delay != nil || s.There.Above == nil || s.There.Above.Min != 0 || s.ClockError < 0.003 {
			t.Errorf("%+v", s)
		}
	case !remote:
		if s.There.Delay.Min < 0.001 || s.Back.Delay.Min < 0.005 || s.There.Delay.Min > s.Back.Delay.Min {
			t.Errorf("there %+v, back %+v", s.There.Delay, s.Back.Delay)
		}
	}
}

// runReflector runs one that is not the measurement's own.
func runReflector(t *testing.T, at *space) {
	t.Helper()
	conn, err := at.listenUDP(netip.AddrPortFrom(at.Addresses[0], ReflectorPort))
	if err != nil {
		t.Fatal(err)
	}
	// Its clock is worse for a while: the worst that it said counts.
	asked := 0
	r, err := stamp.NewReflector(conn, stamp.ReflectorOptions{Peer: func(netip.Addr, uint16) (stamp.Key, bool) { return nil, true },
		Clock: func() stamp.ErrorEstimate {
			if asked++; asked >= 100 && asked < 150 {
				return stamp.ErrorEstimate{Synchronized: true, Error: time.Millisecond, Source: stamp.ClockPTP}
			}
			return stamp.ErrorEstimate{Synchronized: true, Error: time.Microsecond, Source: stamp.ClockPTP}
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
