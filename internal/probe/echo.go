package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/stamp"
)

// echoBytes are behind the header of an ICMP echo, as ping sends them.
const echoBytes = 56

// minEcho is the least time between two of them: routers and hosts answer few.
const minEcho = 100 * time.Millisecond

// echo sends ICMP echo for the duration.
func (m *measurement) echo(ctx context.Context) error {
	c, err := m.from.listenICMP(m.destination)
	if err != nil {
		return fmt.Errorf("making an ICMP socket at %s: %w", m.from.Name, err)
	}
	conn := ipConn{c}
	defer conn.Close()
	if err := options(conn, m.destination, false); err != nil {
		return err
	}
	// Not that of the packets that look for the path meanwhile.
	e := echoes{m: m, conn: conn, id: uint16(os.Getpid()) ^ 0x8000, reply: echoReply4, sent: map[uint16]time.Time{}}
	if m.destination.Is6() {
		e.reply = echoReply6
	}
	if err := e.run(ctx); err != nil {
		return err
	}
	e.result.RoundTrip = delaysOf(e.trips)
	e.result.Lost = e.result.Sent - e.result.Received
	m.result.Echo = &e.result
	return nil
}

type echoes struct {
	m      *measurement
	conn   ipConn
	id     uint16
	reply  byte
	sent   map[uint16]time.Time
	trips  []time.Duration
	result Echo
	// waiting is how many are not answered.
	waiting uint64
}

func (e *echoes) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { e.conn.Close() })
	defer stop()
	interval := max(e.m.o.Interval, minEcho)
	count := uint64(max(e.m.o.Duration/interval, 1))
	to := &net.IPAddr{IP: e.m.destination.AsSlice(), Zone: e.m.destination.Zone()}
	next, begun := time.Now(), time.Now()
	for ctx.Err() == nil {
		now := time.Now()
		done := e.result.Sent == count
		wake := next
		if done {
			wake = begun.Add(time.Duration(count-1)*interval + e.m.o.Timeout)
			if e.waiting == 0 || !now.Before(wake) {
				return nil
			}
		} else if !now.Before(next) {
			number := uint16(e.result.Sent)
			e.sent[number] = time.Now()
			_, err := e.conn.WriteTo(echoRequest(e.m.destination, e.id, number, echoBytes), to)
			if err != nil && !stamp.Transient(err) && ctx.Err() == nil {
				return fmt.Errorf("sending ICMP echo to %s: %w", e.m.destination, err)
			}
			e.result.Sent++
			e.waiting++
			next = next.Add(interval)
			wake = next
		}
		if err := e.receive(wake); err != nil && ctx.Err() == nil {
			return fmt.Errorf("reading ICMP echo replies: %w", err)
		}
	}
	return nil
}

// receive takes one reply, or waits until the deadline.
func (e *echoes) receive(deadline time.Time) error {
	if err := e.conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	b, oob := make([]byte, 2048), make([]byte, 512)
	n, oobn, from, err := e.conn.ReadMsg(b, oob)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if err != nil {
		return err
	}
	number, ok := echoNumber(b[:n], e.reply, e.id)
	at, known := e.sent[number]
	if !ok || !known || from != e.m.destination.WithZone("") {
		return nil // of somebody else
	}
	if at.IsZero() {
		e.result.Duplicates++
		return nil
	}
	e.sent[number] = time.Time{}
	messages, _ := unix.ParseSocketControlMessage(oob[:oobn])
	trip := max(packetTime(messages).Sub(at.Round(0)), 0)
	e.trips = append(e.trips, trip)
	e.result.Received++
	e.waiting--
	e.m.tell(Progress{Step: "icmp echo", Sent: e.result.Sent, Received: e.result.Received, RoundTrip: trip})
	return nil
}
