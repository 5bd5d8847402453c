package stamp

import (
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// TestAnswered: who runs both ends knows all four times of each packet, and one clock orders them.
func TestAnswered(t *testing.T) {
	var mu sync.Mutex
	answers := map[uint32]Answer{}
	_, at := runReflector(t, ReflectorOptions{Peer: anybody(nil), MaxPerSecond: 1e6, Answered: func(a Answer) {
		mu.Lock()
		defer mu.Unlock()
		if _, twice := answers[a.Number]; twice || a.Session != 7 {
			t.Errorf("%+v", a)
		}
		answers[a.Number] = a
	}})
	samples, _ := send(t, at, SenderOptions{Interval: time.Millisecond, Count: 100, Session: 7})
	mu.Lock()
	defer mu.Unlock()
	byKernel := 0
	for _, s := range samples {
		a, ok := answers[s.Number]
		if !ok && s.Number == 99 {
			continue // the kernel's time of the last one may be read later
		}
		if !ok || s.Lost || !s.ReflectorReceived.Truncate(time.Microsecond).Equal(a.Received.Truncate(time.Microsecond)) {
			t.Fatalf("packet %d: %+v, %+v", s.Number, s, a)
		}
		if a.KernelReceived && a.KernelSent && s.KernelReceived && s.KernelSent {
			byKernel++
			for _, step := range []time.Duration{a.Received.Sub(s.Sent), a.Sent.Sub(a.Received), s.Received.Sub(a.Sent)} {
				if step < 0 {
					t.Errorf("packet %d goes back in time by %v: %+v %+v", s.Number, step, s, a)
				}
			}
		}
	}
	if byKernel < 80 {
		t.Errorf("of %d packets all times are the kernel's, want 80 at least", byKernel)
	}
}

// TestReplyLeavesFromWhereItWasAsked: a reflector that listens on every address answers from the one that was asked.
func TestReplyLeavesFromWhereItWasAsked(t *testing.T) {
	conn, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.Fatal(err)
	}
	port := conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	runOn(t, conn, ReflectorOptions{Peer: anybody(nil)})
	for _, to := range []string{"127.0.0.1", "127.0.0.9", "::1"} {
		from, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv6loopback})
		if netip.MustParseAddr(to).Is4() {
			from.Close()
			from = listen(t)
		}
		if err != nil {
			t.Fatal(err)
		}
		samples, stats := sendFrom(t, from, netip.AddrPortFrom(netip.MustParseAddr(to), port), SenderOptions{Count: 2,
			Interval: time.Millisecond, DSCP: 10})
		if len(samples) != 2 || samples[0].Lost || samples[1].Lost || stats != (SenderStats{}) || samples[1].TTL != 64 {
			t.Errorf("to %s: %+v, %+v", to, samples, stats)
		}
	}
}

// TestDoubledOnTheWay tells a request that arrived twice from a reply that did.
func TestDoubledOnTheWay(t *testing.T) {
	conn := listen(t)
	defer conn.Close()
	go func() { // answers as a reflector that counts does: packet 1 came twice, and the reply to 2 arrives twice
		b, next := make([]byte, MaxLength), uint32(0)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			request, err := ParseRequest(b[:n], nil, time.Now())
			if err != nil {
				continue
			}
			reply := Reply{Sequence: next, Request: request, Received: time.Now(), Sent: time.Now()}
			next++
			_, _ = conn.WriteToUDPAddrPort(reply.Append(nil, nil), from)
			if request.Sequence == 1 {
				reply.Sequence = next
				next++
			}
			if request.Sequence == 1 || request.Sequence == 2 {
				_, _ = conn.WriteToUDPAddrPort(reply.Append(nil, nil), from)
			}
		}
	}()
	_, stats := send(t, conn.LocalAddr().(*net.UDPAddr).AddrPort(), SenderOptions{Interval: time.Millisecond, Count: 50})
	if want := (SenderStats{Duplicate: 2, DuplicateThere: 1}); stats != want {
		t.Errorf("%+v, want %+v", stats, want)
	}
}

// TestReplayWindow: each number is taken once, also when it comes late, and none that is too old to tell.
func TestReplayWindow(t *testing.T) {
	s := &session{}
	take := func(number uint32, want bool) {
		t.Helper()
		if got := s.first(number); got != want {
			t.Errorf("number %d is the first: %v, want %v", number, got, want)
		}
		s.received++
	}
	begin := ^uint32(499) // numbers wrap
	for i := range uint32(5000) {
		if i%7 != 3 {
			take(begin+i, true)
			take(begin+i, false)
		}
		if i > 900 && (i-900)%7 == 3 {
			take(begin+i-900, true) // late
			take(begin+i-900, false)
		}
	}
	take(begin+4999-replayWindow, false)
	take(begin+4999+10*replayWindow, true)
	take(begin+4999+9*replayWindow, false)
	take(begin+4999+10*replayWindow-1, true)
}
