package stamp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// SenderOptions of a Sender. The zero value sends ten open packets a second.
type SenderOptions struct {
	// Interval between packets (100 ms), Timeout after which one that was not answered is lost (1 s).
	Interval, Timeout time.Duration
	// Count of packets; 0 is no end.
	Count   uint32
	Session uint16
	Key     Key
	// Format of times, and how far this host's clock is off; nil for a clock that is not synchronized.
	Format ClockFormat
	Clock  func() ErrorEstimate
	// DSCP with which packets are sent, and which the reflector is asked to use.
	DSCP uint8
	// Direct asks for the reflector's counters, Clocks for how it keeps time. Padding makes packets longer.
	Direct, Clocks bool
	Padding        int
	// TWAMP is for reflectors that know no extensions.
	TWAMP bool
}

// Sample is what became of one packet. Times are of the clock of the end that took them.
type Sample struct {
	Number uint32
	Sent   time.Time
	// Lost packets were not answered within the timeout; the rest is zero then.
	Lost bool
	// ReflectorReceived, ReflectorSent and Received are the other times of the way.
	ReflectorReceived, ReflectorSent, Received time.Time
	// ReflectorNumber counts the reflector's replies, Error is of its clock.
	ReflectorNumber uint32
	Error           ErrorEstimate
	// TTL with which the request arrived, and DSCP with which the answer did.
	TTL, DSCP uint8
	// Counters, Service and Clocks are what the reflector filled in; nil where it did not.
	Counters *Counters
	Service  *Service
	Clocks   *Clocks
	// KernelSent and KernelReceived are whether the sender's times are the kernel's.
	KernelSent, KernelReceived bool
}

// RoundTrip is the time on the way there and back, without the reflector's own.
func (s *Sample) RoundTrip() time.Duration {
	return s.Received.Sub(s.Sent) - s.ReflectorSent.Sub(s.ReflectorReceived)
}

// Offset is by how much the reflector's clock is ahead of the sender's if both ways take equally long. It is off by at
// most half of RoundTrip.
func (s *Sample) Offset() time.Duration {
	return (s.ReflectorReceived.Sub(s.Sent) + s.ReflectorSent.Sub(s.Received)) / 2
}

// SenderStats count what a Sender received that was no answer.
type SenderStats struct {
	// Malformed and Forged packets, those that were answered twice, and answers that came after the timeout or to no
	// request of this sender.
	Malformed, Forged, Duplicate, Unexpected uint64
	// DuplicateThere are those of Duplicate that the reflector itself answered twice: the request was doubled on the way.
	DuplicateThere uint64
}

// Sender measures the way to one reflector.
type Sender struct {
	options SenderOptions
	to      netip.AddrPort
	socket  *socket
	counts  struct{ malformed, forged, duplicate, unexpected, duplicateThere atomic.Uint64 }
	sent    uint32
	// waiting has the packets that are not answered, by their numbers; ids their numbers by the kernel's identification.
	waiting map[uint32]*Sample
	ids     map[uint32]uint32
	// answers has the reflector's numbers of the last answers, by the sender's.
	answers map[uint32]uint32
}

// NewSender makes a sender to a reflector. Nothing is sent before Run.
func NewSender(conn *net.UDPConn, to netip.AddrPort, o SenderOptions) (*Sender, error) {
	if o.Interval == 0 {
		o.Interval = 100 * time.Millisecond
	}
	if o.Timeout == 0 {
		o.Timeout = time.Second
	}
	if o.Clock == nil {
		o.Clock = func() ErrorEstimate { return ErrorEstimate{Error: time.Second} }
	}
	s, err := newSocket(conn)
	if err != nil {
		return nil, err
	}
	return &Sender{options: o, to: to, socket: s, waiting: map[uint32]*Sample{}, ids: map[uint32]uint32{},
		answers: map[uint32]uint32{}}, nil
}

// Stats count what was received so far and was no answer.
func (s *Sender) Stats() SenderStats {
	c := &s.counts
	return SenderStats{c.malformed.Load(), c.forged.Load(), c.duplicate.Load(), c.unexpected.Load(),
		c.duplicateThere.Load()}
}

// Run sends until ctx ends or all are sent and answered or lost, and closes the socket. Each packet becomes one sample,
// given to f when its answer comes or its timeout has passed.
func (s *Sender) Run(ctx context.Context, f func(Sample)) error {
	stop := context.AfterFunc(ctx, func() { s.socket.conn.Close() })
	defer stop()
	defer s.socket.conn.Close()
	next := time.Now()
	buffer := make([]byte, MaxLength)
	for {
		now := time.Now()
		s.expire(now, f)
		done := s.options.Count > 0 && s.sent >= s.options.Count
		if done && len(s.waiting) == 0 {
			return nil
		}
		if !done && !now.Before(next) {
			if err := s.sendOne(); err != nil && ctx.Err() == nil {
				return fmt.Errorf("sending to the reflector at %s: %w", s.to, err)
			}
			if next = next.Add(s.options.Interval); next.Before(now) {
				next = now.Add(s.options.Interval) // the host was suspended: no burst
			}
		}
		wake := s.wake(next, done)
		if err := s.socket.conn.SetReadDeadline(wake); err != nil && ctx.Err() == nil {
			return fmt.Errorf("waiting for answers: %w", err)
		}
		n, a, err := s.socket.receive(buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			s.received(buffer[:n], a, f)
		case !Transient(err):
			return fmt.Errorf("reading answers: %w", err)
		}
	}
}

// wake is when there is something to do without an answer: the next packet is due, or one that waits is lost.
func (s *Sender) wake(next time.Time, done bool) time.Time {
	wake := next
	if done {
		wake = time.Now().Add(s.options.Timeout)
	}
	for _, w := range s.waiting {
		if expires := w.Sent.Add(s.options.Timeout); expires.Before(wake) {
			wake = expires
		}
	}
	return wake
}

func (s *Sender) sendOne() error {
	r := Request{Sequence: s.sent, Error: s.options.Clock(), Session: s.options.Session}
	r.Error.Format = s.options.Format
	if !s.options.TWAMP {
		r.Extensions = s.extensions()
	}
	r.Sent = time.Now()
	id, err := s.socket.send(r.Append(nil, s.options.Key), arrival{from: s.to}, s.options.DSCP<<2)
	number := s.sent
	s.sent++
	if err != nil && Transient(err) {
		err = nil // the packet counts as lost
	} else if err == nil {
		s.ids[id] = number
	}
	s.waiting[number] = &Sample{Number: number, Sent: r.Sent}
	return err
}

func (s *Sender) extensions() (all Extensions) {
	if s.options.Direct {
		all = append(all, Counters{SenderSent: s.sent + 1}.Extension())
	}
	if s.options.DSCP != 0 {
		all = append(all, Service{Wanted: s.options.DSCP}.Extension())
	}
	if s.options.Clocks {
		all = append(all, Clocks{}.Extension())
	}
	if s.options.Padding > 0 {
		all = append(all, Extension{Flags: Unrecognized, Type: ExtraPadding, Value: make([]byte, s.options.Padding)})
	}
	return all
}

// received takes a packet for the answer of its own request, whatever came before it.
func (s *Sender) received(b []byte, a arrival, f func(Sample)) {
	s.socket.departures(s.departed)
	if a.from.Addr() != s.to.Addr().Unmap() || a.from.Port() != s.to.Port() {
		s.counts.unexpected.Add(1)
		return
	}
	reply, err := ParseReply(b, s.options.Key, a.at)
	if errors.Is(err, ErrHMAC) {
		s.counts.forged.Add(1)
		return
	}
	if err != nil && (len(b) < leastReply || !s.options.TWAMP) {
		s.counts.malformed.Add(1)
		return
	}
	number := reply.Request.Sequence
	sample := s.waiting[number]
	if sample == nil {
		if answer, ok := s.answers[number]; !ok {
			s.counts.unexpected.Add(1)
		} else {
			s.counts.duplicate.Add(1)
			if answer != reply.Sequence {
				s.counts.duplicateThere.Add(1)
			}
		}
		return
	}
	delete(s.waiting, number)
	s.remember(number, reply.Sequence)
	sample.ReflectorReceived, sample.ReflectorSent = reply.Received, reply.Sent
	sample.ReflectorNumber, sample.Error, sample.TTL = reply.Sequence, reply.Error, reply.TTL
	sample.Received, sample.KernelReceived, sample.DSCP = a.at, a.stamped, a.tos>>2
	if c, ok := reply.Extensions.Counters(); ok {
		sample.Counters = &c
	}
	if c, ok := reply.Extensions.Service(); ok {
		sample.Service = &c
	}
	if c, ok := reply.Extensions.Clocks(); ok {
		sample.Clocks = &c
	}
	f(*sample)
}

// remembered bounds the numbers that are known to be answered, so that a second answer is told from a late one.
const remembered = 4096

func (s *Sender) remember(number, answer uint32) {
	s.answers[number] = answer
	delete(s.answers, number-remembered)
}

// departed puts the kernel's time of sending in place of the program's.
func (s *Sender) departed(id uint32, at time.Time) {
	number, ok := s.ids[id]
	if !ok {
		return
	}
	delete(s.ids, id)
	if sample := s.waiting[number]; sample != nil {
		sample.Sent, sample.KernelSent = at, true
	}
}

// expire gives up packets that were not answered.
func (s *Sender) expire(now time.Time, f func(Sample)) {
	s.socket.departures(s.departed)
	for number, sample := range s.waiting {
		if now.Sub(sample.Sent) >= s.options.Timeout {
			delete(s.waiting, number)
			f(Sample{Number: number, Sent: sample.Sent, Lost: true})
		}
	}
	for id, number := range s.ids {
		if s.sent-number > remembered {
			delete(s.ids, id)
		}
	}
}
