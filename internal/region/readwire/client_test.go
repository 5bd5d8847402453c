package readwire

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// host answers requests for memory at a socket, and lets a test lose, repeat and forge packets. What hosts do is in the
// kernel (internal/kernel/region); this is for what networks do.
type host struct {
	conn   *net.UDPConn
	memory []byte
	// answers are what is sent for a request, in this order; the request's first answer is the right one.
	answers func(request []byte, right []byte) [][]byte
}

func newHost(t *testing.T, memory []byte, answers func(request, right []byte) [][]byte) *host {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{conn: conn, memory: memory, answers: answers}
	var serving sync.WaitGroup
	serving.Go(h.serve)
	t.Cleanup(func() {
		conn.Close()
		serving.Wait()
	})
	return h
}

func (h *host) serve() {
	packet := make([]byte, 65536)
	for {
		n, from, err := h.conn.ReadFromUDPAddrPort(packet)
		if err != nil {
			return
		}
		request := bytes.Clone(packet[:n])
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		var asked Request
		if r, err := DecodeReply(reply(request, Done, request[HeaderBytes:])); err == nil {
			asked = r.Request
		}
		status, data := Done, make([]byte, asked.Length)
		if end := asked.Offset + uint64(asked.Length); end > uint64(len(h.memory)) {
			status = OutOfBounds
		} else {
			copy(data, h.memory[asked.Offset:end])
		}
		for _, answer := range h.answers(request, reply(request, status, data)) {
			h.conn.WriteToUDPAddrPort(answer, from)
		}
	}
}

func dial(t *testing.T, h *host, o Options) *Client {
	t.Helper()
	c, err := Dial(h.conn.LocalAddr().String(), sequence(7), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func counting(length int) []byte {
	memory := make([]byte, length)
	for i := range memory {
		memory[i] = byte(i / 3)
	}
	return memory
}

// Every piece is read once though packets are lost, come twice, late, in another order and from nobody who was asked.
func TestReadsInABadNetwork(t *testing.T) {
	memory := counting(64 << 10)
	seen := 0
	var late [][]byte
	h := newHost(t, memory, func(request, right []byte) (answers [][]byte) {
		seen++
		forged := bytes.Clone(right)
		for i := HeaderBytes; i < len(forged); i++ {
			forged[i] = 0xee
		}
		forged[24] ^= 1 // another nonce
		elsewhere := bytes.Clone(right)
		elsewhere[17] ^= 4 // another offset
		answers = append(answers, forged, elsewhere, []byte("stray"), request)
		switch seen % 4 {
		case 0: // lost
		case 1: // late: with the next one
			late = append(late, right)
		case 2: // twice, and what is late after it
			answers = append(append(answers, right, right), late...)
			late = nil
		default:
			answers = append(answers, right)
		}
		return answers
	})
	for _, window := range []int{1, 4, 16} {
		c := dial(t, h, Options{Window: window, Timeout: 5 * time.Millisecond, Attempts: 12})
		for _, piece := range []struct{ offset, length int }{{0, len(memory)}, {8, 8}, {1016, 1024}, {776, 776 * 3}} {
			got := make([]byte, piece.length)
			if err := c.Read(t.Context(), 0, uint64(piece.offset), got); err != nil {
				t.Fatalf("window %d: %v", window, err)
			}
			if !bytes.Equal(got, memory[piece.offset:piece.offset+piece.length]) {
				t.Errorf("window %d: %d bytes at %d are not the memory's", window, piece.length, piece.offset)
			}
		}
		n := c.Counters()
		if n.Lost != 0 || n.Resent == 0 || n.Strays == 0 || n.Sent != n.Answered+n.Resent {
			t.Errorf("window %d: it counted %+v, want no loss, and each request answered or sent again", window, n)
		}
	}
}

// A host that does not answer costs the attempts, and the rest is read.
func TestLostRequestsAreCounted(t *testing.T) {
	memory := counting(8192)
	h := newHost(t, memory, func(request, right []byte) [][]byte {
		if request[17] == 4 { // offset 1024
			return nil
		}
		return [][]byte{right}
	})
	c := dial(t, h, Options{Timeout: time.Millisecond, Attempts: 3})
	got := make([]byte, len(memory))
	if err := c.Read(t.Context(), 0, 0, got); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got %v, want %v", err, ErrNoAnswer)
	}
	want := bytes.Clone(memory)
	clear(want[1024:2048])
	if !bytes.Equal(got, want) {
		t.Error("the other pieces are not the memory's")
	}
	if n := c.Counters(); n.Lost != 1 {
		t.Errorf("it counted %+v, want one lost", n)
	}
}

func TestRefusalsOfAHost(t *testing.T) {
	h := newHost(t, counting(1024), func(_, right []byte) [][]byte { return [][]byte{right} })
	c := dial(t, h, Options{})
	var status *StatusError
	err := c.Read(t.Context(), 5, 1024, make([]byte, 8))
	if !errors.As(err, &status) || *status != (StatusError{Region: 5, Offset: 1024, Status: OutOfBounds}) {
		t.Errorf("got %v", err)
	}
	for _, r := range []Read{{Data: nil}, {Data: make([]byte, 4)}, {Data: make([]byte, 1032)},
		{Offset: 4, Data: make([]byte, 8)}, {Offset: 8, Data: make([]byte, 1024)}} {
		before := c.Counters()
		if err := c.ReadAll(t.Context(), []Read{r}); err == nil || c.Counters() != before {
			t.Errorf("%d bytes at %d: got %v, want a refusal before anything is sent", len(r.Data), r.Offset, err)
		}
	}
}

// A reading ends with its context, and the next one works.
func TestReadingEndsWithItsContext(t *testing.T) {
	asked := make(chan struct{}, 2)
	h := newHost(t, counting(1024), func(_, right []byte) [][]byte {
		asked <- struct{}{}
		if len(asked) == 1 {
			return nil // the first
		}
		return [][]byte{right}
	})
	c := dial(t, h, Options{Timeout: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for len(asked) == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if err := c.Read(ctx, 0, 0, make([]byte, 8)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if err := c.Read(t.Context(), 0, 0, make([]byte, 8)); err != nil {
		t.Error(err)
	}
}

// Nobody listens: the kernel says so, which ends nothing at once, since a host may be starting.
func TestNobodyListens(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	address := conn.LocalAddr().String()
	conn.Close()
	c, err := Dial(address, sequence(7), Options{Timeout: time.Millisecond, Attempts: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Read(t.Context(), 0, 0, make([]byte, 8)); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got %v, want %v", err, ErrNoAnswer)
	}
	if n := c.Counters(); n.Sent != 3 || n.Lost != 1 {
		t.Errorf("it counted %+v, want 3 sent and one lost", n)
	}
}
