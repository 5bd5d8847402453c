package stamp

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

func listen(t *testing.T) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// runReflector runs a reflector for the test.
func runReflector(t *testing.T, o ReflectorOptions) (*Reflector, netip.AddrPort) {
	t.Helper()
	conn := listen(t)
	at := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	return runOn(t, conn, o), at
}

// runOn runs a reflector on a socket for the test.
func runOn(t *testing.T, conn *net.UDPConn, o ReflectorOptions) *Reflector {
	t.Helper()
	r, err := NewReflector(conn, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

func send(t *testing.T, to netip.AddrPort, o SenderOptions) (all []Sample, stats SenderStats) {
	t.Helper()
	return sendFrom(t, listen(t), to, o)
}

func sendFrom(t *testing.T, conn *net.UDPConn, to netip.AddrPort, o SenderOptions) (all []Sample, stats SenderStats) {
	t.Helper()
	s, err := NewSender(conn, to, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Run(ctx, func(one Sample) { all = append(all, one) }); err != nil {
		t.Fatal(err)
	}
	return all, s.Stats()
}

func anybody(key Key) func(netip.Addr, uint16) (Key, bool) {
	return func(netip.Addr, uint16) (Key, bool) { return key, true }
}

// stampByKernel has the kernel take times until the test ends: it begins to do so a moment after the first socket asks
// for them, which is longer on a busy host.
func stampByKernel(t *testing.T) {
	t.Helper()
	s, err := NewSender(listen(t), netip.MustParseAddrPort("127.0.0.1:9"), SenderOptions{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.socket.conn.Close() })
	_, at := runReflector(t, ReflectorOptions{Peer: anybody(nil)})
	for range 100 {
		samples, _ := send(t, at, SenderOptions{Interval: 10 * time.Millisecond, Count: 10, Clocks: true})
		last := samples[len(samples)-1]
		if last.KernelReceived && last.KernelSent && last.Clocks != nil && last.Clocks.ReceivedBy == StampKernel {
			return
		}
	}
	t.Fatal("the kernel takes no times")
}

func TestSession(t *testing.T) {
	stampByKernel(t)
	for _, key := range []Key{nil, testKey} {
		for _, format := range []ClockFormat{NTP, PTP} {
			r, at := runReflector(t, ReflectorOptions{Peer: anybody(key)})
			samples, stats := send(t, at, SenderOptions{Interval: time.Millisecond, Count: 50, Key: key, Session: 9,
				Format: format, Direct: true, Clocks: true, DSCP: 46, Padding: 20})
			// An answer is counted after it was sent.
			for deadline := time.Now().Add(10 * time.Second); r.Stats().Answered < 50 && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			if len(samples) != 50 || stats != (SenderStats{}) || r.Stats() != (ReflectorStats{Answered: 50}) {
				t.Fatalf("%d samples, %+v, %+v; want 50 answers and nothing else", len(samples), stats, r.Stats())
			}
			for i, s := range samples {
				if s.Lost || s.Number != uint32(i) || s.ReflectorNumber != uint32(i) || s.TTL != 64 ||
					!s.KernelReceived || !s.KernelSent ||
					s.Counters == nil || *s.Counters != (Counters{uint32(i + 1), uint32(i + 1), uint32(i)}) ||
					s.Service == nil || *s.Service != (Service{Wanted: 46, Received: 46}) ||
					s.Clocks == nil || s.Clocks.ReceivedBy != StampKernel {
					t.Fatalf("sample %d: %+v %+v %+v %+v", i, s, s.Counters, s.Service, s.Clocks)
				}
				// One clock: the times are in order.
				for _, step := range []time.Duration{s.ReflectorReceived.Sub(s.Sent), s.ReflectorSent.Sub(s.ReflectorReceived),
					s.Received.Sub(s.ReflectorSent)} {
					if step < 0 {
						t.Fatalf("sample %d goes back in time by %v: %+v", i, step, s)
					}
				}
			}
		}
	}
}

// TestReflectorAnswersOnlyItsOwn: strangers, forged, short, replayed and too many packets get no answer.
func TestReflectorAnswersOnlyItsOwn(t *testing.T) {
	now := time.Now()
	signed := (&Request{Sequence: 5, Sent: now}).Append(nil, testKey)
	forged := append([]byte(nil), signed...)
	forged[3]++
	r, at := runReflector(t, ReflectorOptions{MaxPerSecond: 20, Peer: func(a netip.Addr, _ uint16) (Key, bool) {
		return testKey, a == netip.MustParseAddr("127.0.0.1")
	}})
	conn := listen(t)
	defer conn.Close()
	stranger, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.2:0")))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	write := func(from *net.UDPConn, b []byte) {
		t.Helper()
		if _, err := from.WriteToUDPAddrPort(b, at); err != nil {
			t.Fatal(err)
		}
	}
	write(stranger, signed)
	write(conn, signed[:60])
	write(conn, forged)
	write(conn, signed)
	write(conn, signed) // replayed
	for i := range 40 {
		write(conn, (&Request{Sequence: uint32(100 + i), Sent: now}).Append(nil, testKey))
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		s := r.Stats()
		if s.Answered+s.Strangers+s.Malformed+s.Forged+s.Replayed+s.Limited == 45 {
			if s.Strangers != 1 || s.Malformed != 1 || s.Forged != 1 || s.Replayed != 1 || s.Limited < 25 || s.Answered < 9 {
				t.Errorf("%+v", s)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not all packets arrived: %+v", s)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestRepliesAreNoLongerThanRequests, so that a forged sender's address gains nothing.
func TestRepliesAreNoLongerThanRequests(t *testing.T) {
	r, err := NewReflector(listen(t), ReflectorOptions{Peer: anybody(nil), MaxPerSecond: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	defer r.socket.conn.Close()
	from := arrival{from: netip.MustParseAddrPort("192.0.2.1:1"), at: time.Now()}
	for length := range 400 {
		packet := make([]byte, length)
		if reply := r.answer(packet, from); reply != nil && len(reply.bytes) != length {
			t.Errorf("%d bytes are answered by %d", length, len(reply.bytes))
		}
	}
	if r.counts.malformed.Load() != openLength {
		t.Errorf("%d requests were too short to be answered, want %d", r.counts.malformed.Load(), openLength)
	}
}

func TestLostAndLate(t *testing.T) {
	conn := listen(t)
	defer conn.Close()
	to := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	go func() { // answers the odd ones, the fifth twice, and 3 too late
		b := make([]byte, MaxLength)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			request, err := ParseRequest(b[:n], nil, time.Now())
			if err != nil || request.Sequence%2 == 0 {
				continue
			}
			reply := (&Reply{Request: request, Received: time.Now(), Sent: time.Now()}).Append(nil, nil)
			if request.Sequence == 3 {
				time.AfterFunc(300*time.Millisecond, func() { _, _ = conn.WriteToUDPAddrPort(reply, from) })
				continue
			}
			for range 1 + request.Sequence/5%2 {
				_, _ = conn.WriteToUDPAddrPort(reply, from)
			}
		}
	}()
	samples, stats := send(t, to, SenderOptions{Interval: 60 * time.Millisecond, Timeout: 200 * time.Millisecond, Count: 10})
	lost := map[uint32]bool{}
	for _, s := range samples {
		lost[s.Number] = s.Lost
	}
	for i := range uint32(10) {
		if want := i%2 == 0 || i == 3; lost[i] != want {
			t.Errorf("packet %d: lost is %v, want %v", i, lost[i], want)
		}
	}
	if len(samples) != 10 || stats.Unexpected != 1 || stats.Duplicate != 3 {
		t.Errorf("%d samples and %+v; want 10, one late answer and three second ones", len(samples), stats)
	}
}
