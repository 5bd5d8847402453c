package probe

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"outsight/internal/stamp"
)

// pair runs a session to a reflector of its own at the other place.
func (m *measurement) pair(ctx context.Context) (*Session, error) {
	conn, err := m.to.listenUDP(netip.AddrPortFrom(m.destination, m.o.Port))
	if err != nil {
		return nil, fmt.Errorf("making a reflector at %s: %w", m.to.Name, err)
	}
	// The sender is known by the key and not by its address, which may be translated on the way.
	key := make(stamp.Key, 32)
	rand.Read(key) // never fails
	far := &farEnd{answers: map[uint32]stamp.Answer{}}
	reflector, err := stamp.NewReflector(conn, stamp.ReflectorOptions{
		Peer:         func(netip.Addr, uint16) (stamp.Key, bool) { return key, true },
		MaxPerSecond: 10 * float64(time.Second/m.o.Interval), Answered: far.answered, Clock: HostClock(m.o.Clock),
	})
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("making a reflector at %s: %w", m.to.Name, err)
	}
	far.stats = reflector.Stats
	reflecting, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- reflector.Run(reflecting) }()
	at := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	s, err := m.session(ctx, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), far, stamp.SenderOptions{Key: key})
	stop()
	return s, errors.Join(err, <-ended)
}

// farEnd is what a reflector of its own saw.
type farEnd struct {
	stats func() stamp.ReflectorStats
	// mu guards answers, by the sender's numbers.
	mu      sync.Mutex
	answers map[uint32]stamp.Answer
}

func (f *farEnd) answered(a stamp.Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[a.Number] = a
}

const (
	// sessionNumber is that of the session, helloNumber that of the first tries.
	sessionNumber = 1
	helloNumber   = 2
)

// hello finds out whether a reflector answers, and whether it knows TWAMP-Light alone.
func (m *measurement) hello(ctx context.Context, at netip.AddrPort) (twamp, found bool, err error) {
	for _, twamp := range []bool{false, true} {
		conn, err := m.from.listenUDP(netip.AddrPortFrom(m.source, 0))
		if err != nil {
			return false, false, fmt.Errorf("making a socket at %s: %w", m.from.Name, err)
		}
		s, err := stamp.NewSender(conn, at, stamp.SenderOptions{Interval: 100 * time.Millisecond, Count: 3, Session: helloNumber,
			Timeout: min(m.o.Timeout, time.Second/2), Key: m.o.Key, TWAMP: twamp, Clock: HostClock(m.o.Clock), Direct: !twamp})
		if err != nil {
			conn.Close()
			return false, false, err
		}
		err = s.Run(ctx, func(one stamp.Sample) { found = found || !one.Lost })
		if err != nil || found || ctx.Err() != nil {
			return twamp, found, err
		}
	}
	return false, false, nil
}

// packet is one of a session.
type packet struct {
	stamp.Sample
	// kernel is whether all times are the kernel's, as far as a reply says so.
	kernel bool
}

func (p *packet) there() time.Duration { return p.ReflectorReceived.Sub(p.Sent) }
func (p *packet) back() time.Duration  { return p.Received.Sub(p.ReflectorSent) }

// session sends, and says what became of the packets. far is nil where the reflector is another's.
func (m *measurement) session(ctx context.Context, at netip.AddrPort, far *farEnd, o stamp.SenderOptions) (*Session, error) {
	conn, err := m.from.listenUDP(netip.AddrPortFrom(m.source, 0))
	if err != nil {
		return nil, fmt.Errorf("making a sender at %s: %w", m.from.Name, err)
	}
	o.Interval, o.Timeout, o.Count, o.Session = m.o.Interval, m.o.Timeout, m.o.packets(), sessionNumber
	o.Direct, o.Clocks, o.DSCP = !o.TWAMP, !o.TWAMP, m.o.DSCP
	// Delays of all packets are told with one bound: the worst that was known while they were sent, and after that.
	clock, here := HostClock(m.o.Clock), ClockBound{Source: ByKernel}
	o.Clock = func() stamp.ErrorEstimate {
		e := clock()
		here = worse(here, BoundHere(e))
		return e
	}
	sender, err := stamp.NewSender(conn, at, o)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("making a sender at %s: %w", m.from.Name, err)
	}
	var packets []packet
	progress := Progress{Step: "stamp"}
	err = sender.Run(ctx, func(s stamp.Sample) {
		p := packet{Sample: s}
		p.kernel = s.KernelSent && s.KernelReceived && (s.Clocks == nil || s.Clocks.ReceivedBy != stamp.StampProgram)
		packets = append(packets, p)
		progress.Sent++
		if s.Lost {
			progress.Lost++
		} else {
			progress.Received++
			progress.RoundTrip = p.RoundTrip()
			if far != nil {
				progress.There, progress.Back = p.there(), p.back()
			}
		}
		m.tell(progress)
	})
	if err != nil {
		return nil, err
	}
	s := &Session{Reflector: at}
	s.count(packets, sender.Stats(), far)
	o.Clock()
	s.time(packets, far, here)
	if o.DSCP != 0 {
		s.Service = serviceOf(packets, o.DSCP)
	}
	return s, nil
}

// count says what was lost, doubled and reordered.
func (s *Session) count(packets []packet, stats stamp.SenderStats, far *farEnd) {
	s.Malformed, s.Forged, s.Unexpected = stats.Malformed, stats.Forged, stats.Unexpected
	s.There.Sent = uint64(len(packets))
	answered := answeredOf(packets)
	s.Back.Received = uint64(len(answered))
	s.There.Duplicates, s.Back.Duplicates = stats.DuplicateThere, stats.Duplicate-stats.DuplicateThere
	// The reflector numbers its replies in the order in which requests came.
	numbers := make([]uint32, 0, len(answered))
	for _, p := range answered {
		numbers = append(numbers, p.ReflectorNumber)
	}
	s.Back.Reordered = reordered(numbers)
	slices.SortStableFunc(answered, func(a, b *packet) int { return cmp.Compare(a.ReflectorNumber, b.ReflectorNumber) })
	for i, p := range answered {
		numbers[i] = p.Number
	}
	s.There.Reordered = reordered(numbers)
	lost := s.There.Sent - s.Back.Received
	if far != nil {
		far.mu.Lock()
		defer far.mu.Unlock()
		s.There.Duplicates = far.stats().Replayed // what came twice is answered once
		for _, p := range packets {
			if _, arrived := far.answers[p.Number]; arrived || !p.Lost {
				s.There.Received++
			}
		}
		s.There.Lost = s.There.Sent - s.There.Received
	} else {
		s.There.Received, s.There.Lost = splitLoss(answered, stats.DuplicateThere)
		if s.There.Lost > lost {
			s.There.Lost = lost
		}
		s.There.Received = max(s.There.Received, s.Back.Received)
		known := s.There.Lost + s.There.Received
		s.LostSomewhere = s.There.Sent - min(known, s.There.Sent)
	}
	s.Back.Lost = lost - s.There.Lost - min(s.LostSomewhere, lost-s.There.Lost)
	s.Back.Sent = s.Back.Received + s.Back.Lost
}

// splitLoss says by the reflector's counters how many of the packets arrived there, up to the last that was answered.
func splitLoss(answered []*packet, doubled uint64) (received, lost uint64) {
	sent, counted := uint64(0), false
	for _, p := range answered {
		sent = max(sent, uint64(p.Number)+1)
		if p.Counters != nil {
			counted = true
			received = max(received, uint64(p.Counters.ReflectorReceived))
		} else {
			received = max(received, uint64(p.ReflectorNumber)+1)
		}
	}
	if received -= min(doubled, received); received > sent {
		received = sent
	}
	// Without counters, one that copies the sender's numbers looks like one to which nothing was lost.
	stateless := !counted && !slices.ContainsFunc(answered, func(p *packet) bool { return p.ReflectorNumber != p.Number })
	if stateless && uint64(len(answered)) < sent {
		return uint64(len(answered)), 0
	}
	return received, sent - received
}

func answeredOf(packets []packet) (answered []*packet) {
	for i := range packets {
		if !packets[i].Lost {
			answered = append(answered, &packets[i])
		}
	}
	return answered
}

// reordered counts what came after a greater number.
func reordered(numbers []uint32) (count uint64) {
	next := uint32(0)
	for _, n := range numbers {
		if n < next {
			count++
		} else {
			next = n + 1
		}
	}
	return count
}

// time says how long packets took, by this host's clock.
func (s *Session) time(packets []packet, far *farEnd, here ClockBound) {
	answered := answeredOf(packets)
	if far != nil {
		far.mu.Lock()
		defer far.mu.Unlock()
	}
	byKernel := 0
	for _, p := range answered {
		if far != nil {
			a := far.answers[p.Number]
			p.kernel = p.KernelSent && p.KernelReceived && a.KernelReceived && a.KernelSent
			if !a.Sent.IsZero() {
				p.ReflectorReceived, p.ReflectorSent = a.Received, a.Sent
			}
		}
		if p.kernel {
			byKernel++
		}
	}
	// The kernel begins to take times a moment after it is asked to.
	if byKernel > 0 {
		answered = slices.DeleteFunc(answered, func(p *packet) bool { return !p.kernel })
		s.KernelTimes = float64(byKernel) / float64(s.Back.Received)
	}
	if len(answered) == 0 {
		return
	}
	var trips, there, back []time.Duration
	fastest := answered[0]
	for _, p := range answered {
		trips, there, back = append(trips, p.RoundTrip()), append(there, p.there()), append(back, p.back())
		if p.RoundTrip() < fastest.RoundTrip() {
			fastest = p
		}
	}
	s.RoundTrip, s.There.Delay, s.Back.Delay = delaysOf(trips), delaysOf(there), delaysOf(back)
	if far != nil {
		s.Clocks = OneClock
		return
	}
	its := boundOf(fastest.Error, fastest.Sample.Clocks)
	for _, p := range answered {
		its = worse(its, boundOf(p.Error, p.Sample.Clocks))
	}
	s.ClockHere, s.ClockThere = &here, &its
	if here.Source != NotKept && its.Source != NotKept {
		s.Clocks, s.ClockError = KeptClocks, here.Error+its.Error
	} else {
		s.Clocks, s.ClockError = FreeClocks, fastest.RoundTrip().Seconds()/2
	}
	s.ClockOffset = fastest.Offset().Seconds()
	s.There.Above, s.Back.Above = s.There.Delay.aboveMinimum(), s.Back.Delay.aboveMinimum()
	// Where the bound is greater than the delay, only the part above the least is told.
	for _, w := range []*Way{&s.There, &s.Back} {
		if s.Clocks == FreeClocks || w.Delay.P50 < s.ClockError {
			w.Delay = nil
		}
	}
}
