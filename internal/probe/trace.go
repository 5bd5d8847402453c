package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/stamp"
)

const (
	// maxHops bounds a path, hopTries the packets for each hop.
	maxHops  = 30
	hopTries = 3
	// tracePort is where packets of UDP traceroute go: each to a port of its own.
	tracePort = 33434
	// traceGap is between two packets: routers answer few of them in a second.
	traceGap = 20 * time.Millisecond
	// traceSilence is how long late answers are waited for.
	traceSilence = time.Second
	// traceBytes is what a packet has behind its header.
	traceBytes = 32
)

// trace finds the path: by UDP, and where that does not reach the other place, by ICMP echo as well.
func (m *measurement) trace(ctx context.Context) {
	for _, by := range []string{"udp", "icmp"} {
		path, err := m.traceBy(ctx, by)
		if err != nil {
			if ctx.Err() == nil {
				m.note("path by "+by, err)
			}
			continue
		}
		m.mu.Lock()
		m.result.Paths = append(m.result.Paths, path)
		m.mu.Unlock()
		if path.Reached {
			return
		}
	}
}

// traceBy finds the path by "udp" or "icmp".
func (m *measurement) traceBy(ctx context.Context, by string) (Path, error) {
	t := tracer{by: by, to: m.destination, sent: map[uint16]tried{}, id: uint16(os.Getpid()), echo: echoReply4}
	if t.to.Is6() {
		t.echo = echoReply6
	}
	if err := t.open(m.from); err != nil {
		return Path{}, fmt.Errorf("making a socket at %s: %w", m.from.Name, err)
	}
	defer t.conn.Close()
	if err := options(t.conn, t.to, true); err != nil {
		return Path{}, err
	}
	if err := t.run(ctx); err != nil {
		return Path{}, err
	}
	return t.path(), nil
}

// tracer looks for one path. Packets are known by numbers, of which each is used once.
type tracer struct {
	by   string
	to   netip.Addr
	conn packetConn
	id   uint16
	echo byte
	sent map[uint16]tried
	hops [maxHops]Hop
	// end is the hop that is the destination, 0 until that is known.
	end int
}

type tried struct {
	hop int
	at  time.Time
}

func (t *tracer) open(from *Place) error {
	if t.by == "icmp" {
		c, err := from.listenICMP(t.to)
		t.conn = ipConn{c}
		return err
	}
	any := netip.IPv4Unspecified()
	if t.to.Is6() {
		any = netip.IPv6Unspecified()
	}
	c, err := from.listenUDP(netip.AddrPortFrom(any, 0))
	t.conn = udpConn{c}
	return err
}

// run tries each hop once, up to the destination, and then those again.
func (t *tracer) run(ctx context.Context) error {
	for i := range t.hops {
		t.hops[i].TTL, t.hops[i].Addresses, t.hops[i].RoundTrips = i+1, []netip.Addr{}, []float64{}
	}
	last := maxHops
	for range hopTries {
		for hop := 1; hop <= last && (t.end == 0 || hop <= t.end); hop++ {
			if err := t.send(hop); err != nil {
				return err
			}
			t.listen(ctx, traceGap, false)
			if ctx.Err() != nil {
				return nil
			}
		}
		if t.end == 0 {
			t.listen(ctx, traceSilence, true)
		}
		// Behind a hop that answers there is one that does not: it is tried again, and no other.
		if last = t.end; last == 0 {
			last = min(t.answering()+1, maxHops)
		}
	}
	t.listen(ctx, traceSilence, true)
	return nil
}

// answering is the last hop that answered.
func (t *tracer) answering() (last int) {
	for i := range t.hops {
		if len(t.hops[i].RoundTrips) > 0 {
			last = i + 1
		}
	}
	return last
}

func (t *tracer) send(hop int) error {
	number := uint16(len(t.sent))
	if err := setTTL(t.conn, t.to, hop); err != nil {
		return err
	}
	t.sent[number] = tried{hop, time.Now()}
	t.hops[hop-1].Sent++
	var err error
	if t.by == "icmp" {
		_, err = t.conn.WriteTo(echoRequest(t.to, t.id, number, traceBytes), &net.IPAddr{IP: t.to.AsSlice(), Zone: t.to.Zone()})
	} else {
		_, err = t.conn.WriteTo(make([]byte, traceBytes), net.UDPAddrFromAddrPort(netip.AddrPortFrom(t.to, tracePort+number)))
	}
	if onTheWay(err) {
		return nil
	}
	return err
}

// onTheWay reports whether sending failed by an error of a packet before: it is told at the next one, and also in the queue
// of errors.
func onTheWay(err error) bool { return stamp.Transient(err) || errors.Is(err, syscall.EACCES) }

// listen takes answers for a while, with enough until each packet is answered.
func (t *tracer) listen(ctx context.Context, while time.Duration, enough bool) {
	// Where the socket fails there are no more answers.
	_ = await(ctx, t.conn, time.Now().Add(while), func() bool { return enough && len(t.sent) == t.answered() }, t.failed,
		func(b []byte, from netip.Addr, at time.Time) {
			if t.by != "icmp" || from != t.to.WithZone("") {
				return
			}
			if number, ok := echoNumber(b, t.echo, t.id); ok {
				t.answer(number, from, at, true)
			}
		})
}

// await takes errors of the way and packets until the deadline, until ctx ends, or until enough reports true. Its error is
// one of the socket.
func await(ctx context.Context, c packetConn, deadline time.Time, enough func() bool, failed func(wayError),
	arrived func(b []byte, from netip.Addr, at time.Time)) error {
	b, oob := make([]byte, 2048), make([]byte, 512)
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.SetReadDeadline(deadline); err != nil {
		return err
	}
	for time.Now().Before(deadline) && ctx.Err() == nil && !enough() {
		n, oobn, from, err := c.ReadMsg(b, oob)
		if e := readErrors(c, failed); e != nil {
			return e
		}
		if err == nil && arrived != nil {
			messages, _ := unix.ParseSocketControlMessage(oob[:oobn])
			arrived(b[:n], from, packetTime(messages))
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	return nil
}

func (t *tracer) answered() (count int) {
	for _, h := range t.hops {
		count += len(h.RoundTrips)
	}
	return count
}

// failed takes an error that a packet met.
func (t *tracer) failed(e wayError) {
	number := e.to.Port() - tracePort
	if t.by == "icmp" {
		if len(e.payload) < icmpHeader || binary.BigEndian.Uint16(e.payload[4:]) != t.id {
			return
		}
		number = binary.BigEndian.Uint16(e.payload[6:])
	}
	t.answer(number, e.from, e.at, !e.exceeded && e.from == t.to.WithZone(""))
}

// answer takes the first answer to a packet.
func (t *tracer) answer(number uint16, from netip.Addr, at time.Time, end bool) {
	s, ok := t.sent[number]
	if !ok || s.at.IsZero() {
		return
	}
	t.sent[number] = tried{hop: s.hop} // answered
	h := &t.hops[s.hop-1]
	if !slices.Contains(h.Addresses, from) {
		h.Addresses = append(h.Addresses, from)
	}
	h.RoundTrips = append(h.RoundTrips, max(at.Sub(s.at.Round(0)), 0).Seconds())
	if end && (t.end == 0 || s.hop < t.end) {
		t.end = s.hop
	}
}

// path is what was found: up to the destination, or one hop behind the last that answered.
func (t *tracer) path() Path {
	p := Path{By: t.by, Reached: t.end > 0}
	last := t.end
	if last == 0 {
		last = min(t.answering()+1, maxHops)
	}
	for _, h := range t.hops[:last] {
		if h.Sent > 0 {
			p.Hops = append(p.Hops, h)
		}
	}
	return p
}
