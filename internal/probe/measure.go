package probe

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"outsight/internal/hostclock"
	"outsight/internal/stamp"
)

// Options of a measurement. The zero value measures for ten seconds, each 10 ms, and no capacity.
type Options struct {
	// Duration of the session (10 s) and Interval between its packets (10 ms): MaxPackets at most.
	Duration, Interval time.Duration
	// Timeout after which a packet is lost (1 s).
	Timeout time.Duration
	// Port on which a reflector is made, any by default, or on which one of another host answers (862); TCPPort to which
	// connections are timed where none answers (80).
	Port, TCPPort uint16
	// DSCP with which packets of the session are sent there and, where the reflector can, back (0 to MaxDSCP).
	DSCP uint8
	// Key of the reflector of another host; nil for open packets.
	Key stamp.Key
	// Clock is this host's; nil for one without a device.
	Clock *hostclock.Clock
	// Capacity is how many bytes a burst may have, in each direction; 0 measures none.
	Capacity int64
	// Progress is told some times a second how far it is; nil for nobody.
	Progress func(Progress)
}

const (
	// MaxPackets bounds a session.
	MaxPackets = 100_000
	// MinInterval between two packets.
	MinInterval = time.Millisecond
	// MaxDSCP is the greatest: a DSCP has six bits.
	MaxDSCP = 63
	// MaxCapacity bounds the bytes of a burst, DefaultCapacity is what one has that somebody asks for.
	MaxCapacity     = 1 << 30
	DefaultCapacity = 2_000_000
	// ReflectorPort is that of STAMP and TWAMP-Light (RFC 8762 section 4.1).
	ReflectorPort = 862
)

func (o Options) withDefaults() (Options, error) {
	for _, d := range []struct {
		value *time.Duration
		usual time.Duration
	}{{&o.Duration, 10 * time.Second}, {&o.Interval, 10 * time.Millisecond}, {&o.Timeout, time.Second}} {
		if *d.value == 0 {
			*d.value = d.usual
		}
	}
	if o.TCPPort == 0 {
		o.TCPPort = 80
	}
	return o, o.Check()
}

// Check says what is out of bounds.
func (o *Options) Check() error {
	switch {
	case o.Interval < MinInterval:
		return fmt.Errorf("the interval is %v, want %v at least", o.Interval, MinInterval)
	case o.Duration < o.Interval:
		return fmt.Errorf("the duration is %v, want an interval (%v) at least", o.Duration, o.Interval)
	case o.Duration/o.Interval > MaxPackets:
		return fmt.Errorf("%v with an interval of %v are %d packets, want %d at most", o.Duration, o.Interval,
			o.Duration/o.Interval, MaxPackets)
	case o.DSCP > MaxDSCP:
		return fmt.Errorf("the DSCP is %d, want 0 to %d", o.DSCP, MaxDSCP)
	case o.Capacity < 0 || o.Capacity > MaxCapacity:
		return fmt.Errorf("a burst of %d bytes, want 0 to %d", o.Capacity, MaxCapacity)
	}
	return nil
}

func (o *Options) packets() uint32 { return uint32(o.Duration / o.Interval) }

// Measure measures from one place, which is on this host, to another. Where ctx ends early, the result has what was
// measured until then. The error is ErrEnded where a container ended meanwhile.
func Measure(ctx context.Context, from, to *Place, o Options) (*Result, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if !from.Here() {
		return nil, fmt.Errorf("%s is not on this host: a measurement begins at a container or at an address of it", from.Name)
	}
	ctx, stop := from.WithEnd(ctx)
	defer stop()
	ctx, stopTo := to.WithEnd(ctx)
	defer stopTo()
	m := measurement{from: from, to: to, o: o, begun: time.Now()}
	if m.source, m.destination, err = way(from, to); err != nil {
		return nil, err
	}
	m.result = &Result{From: End{from.Name, from.ID, m.source}, To: End{to.Name, to.ID, m.destination}, Begun: m.begun}
	m.run(ctx)
	// What failed because a container ended failed for this reason.
	for _, place := range []*Place{from, to} {
		if place.hasEnded() {
			return nil, place.ended(nil)
		}
	}
	if m.fatal != nil {
		return nil, m.fatal
	}
	m.result.Seconds = time.Since(m.begun).Seconds()
	return m.result, nil
}

// measurement is one that runs.
type measurement struct {
	from, to            *Place
	source, destination netip.Addr
	o                   Options
	begun               time.Time
	result              *Result
	// fatal is why nothing could be measured.
	fatal error
	// mu guards told, result.Paths and result.Missing while the path is looked for.
	mu   sync.Mutex
	told time.Time
}

func (m *measurement) run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { m.trace(ctx) })
	var err error
	if m.to.Here() {
		err = m.between(ctx)
	} else {
		err = m.towards(ctx)
	}
	if err != nil {
		m.fatal = err
		return
	}
	beside.Wait()
	m.capacity(ctx)
}

// between measures with a reflector of its own.
func (m *measurement) between(ctx context.Context) error {
	s, err := m.pair(ctx)
	if err != nil {
		return err
	}
	m.result.STAMP = s
	return nil
}

// towards measures to a reflector, or where none answers, by what every host does.
func (m *measurement) towards(ctx context.Context) error {
	port := m.o.Port
	if port == 0 {
		port = ReflectorPort
	}
	at := netip.AddrPortFrom(m.destination, port)
	twamp, found, err := m.hello(ctx, at)
	if err != nil {
		return err
	}
	if found {
		s, err := m.session(ctx, at, nil, stamp.SenderOptions{Key: m.o.Key, TWAMP: twamp})
		m.result.STAMP = s
		return err
	}
	if ctx.Err() == nil {
		m.note("stamp", fmt.Errorf("no reflector answers at %s", at))
	}
	var connecting sync.WaitGroup
	defer connecting.Wait()
	connecting.Go(func() { m.connect(ctx) })
	return m.echo(ctx)
}

func (m *measurement) note(what string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.result.missing(what, err)
}

// tellEvery is the least time between two reports of progress.
const tellEvery = 200 * time.Millisecond

func (m *measurement) tell(p Progress) {
	if m.o.Progress == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.told) >= tellEvery {
		m.told = now
		p.Elapsed = now.Sub(m.begun)
		m.o.Progress(p)
	}
}
