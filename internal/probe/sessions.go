package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"outsight/internal/control"
	"outsight/internal/model"
	"outsight/internal/stamp"
)

// tripTimeout is after how long a packet of a session is lost.
const tripTimeout = time.Second

// answersPerSecond bounds the packets of one sender that the reflector of Sessions answers: twice what one sends.
const answersPerSecond = 2 * float64(time.Second/control.MinInterval)

// SessionOptions of OpenSessions. The zero value listens at a port that the kernel chooses.
type SessionOptions struct {
	// Listen is the UDP address of the reflector; where its port cannot be had, it is one that the kernel chooses.
	Listen string
	// Static is what is held beside what a server says.
	Static control.State
	// RouteInterval is how often the route of a session is looked for while the number of its hops stays; by default that
	// depends on the session's own interval.
	RouteInterval time.Duration
	Logger        *slog.Logger
}

// Sessions measure the network to the hosts that a state names, again and again, and answer those that it names.
type Sessions struct {
	options   SessionOptions
	reflector *stamp.Reflector
	at        netip.AddrPort
	// peers are who is answered.
	peers atomic.Pointer[peers]
	// mu guards the rest.
	mu sync.Mutex
	// ctx is that of Run, nil before and after it.
	ctx     context.Context
	state   control.State
	running map[sessionName]*running
	ending  sync.WaitGroup
}

type sessionName struct {
	peer string
	dscp uint8
}

// running is a session and its sender.
type running struct {
	control.Session
	*tally
	stop  context.CancelFunc
	ended chan struct{}
}

// peers are by the numbers of their sessions; those without a number by their addresses.
type peers struct {
	byNumber  map[uint16]*control.Peer
	byAddress map[netip.Addr]*control.Peer
}

func (p *peers) key(from netip.Addr, session uint16) (stamp.Key, bool) {
	if p == nil {
		return nil, false
	}
	one := p.byNumber[session]
	if session == 0 || one == nil {
		one = p.byAddress[from]
	}
	if one == nil || !slices.Contains(one.Addresses, from) {
		return nil, false
	}
	return one.Key, true
}

func peersOf(all ...[]control.Peer) *peers {
	p := &peers{map[uint16]*control.Peer{}, map[netip.Addr]*control.Peer{}}
	for _, some := range all {
		for i := range some {
			if one := &some[i]; one.Number != 0 {
				p.byNumber[one.Number] = one
			} else {
				for _, a := range one.Addresses {
					p.byAddress[a] = one
				}
			}
		}
	}
	return p
}

// OpenSessions opens the reflector's port. Nothing is sent or answered before Run.
func OpenSessions(o SessionOptions) (*Sessions, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Sessions{options: o, running: map[sessionName]*running{}}
	at, err := net.ResolveUDPAddr("udp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("opening the reflector at %q: %w", o.Listen, err)
	}
	conn, err := net.ListenUDP("udp", at)
	if (errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES)) && at.Port != 0 {
		other := *at
		other.Port = 0
		if conn, err = net.ListenUDP("udp", &other); err == nil {
			o.Logger.Info("the reflector answers at another port, for this one cannot be had", "wanted", o.Listen,
				"port", conn.LocalAddr().(*net.UDPAddr).Port)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening the reflector at %q: %w", o.Listen, err)
	}
	bound := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	s.at = netip.AddrPortFrom(bound.Addr().Unmap(), bound.Port())
	s.reflector, err = stamp.NewReflector(conn, stamp.ReflectorOptions{
		Peer:         func(from netip.Addr, number uint16) (stamp.Key, bool) { return s.peers.Load().key(from, number) },
		MaxPerSecond: answersPerSecond, Clock: stamp.KernelClock,
	})
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("opening the reflector at %q: %w", o.Listen, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply(nil)
	return s, nil
}

// Port is that of the reflector.
func (s *Sessions) Port() uint16 { return s.at.Port() }

// Addresses are those at which other hosts may reach the reflector: first, if it is one, and those of the interfaces.
func (s *Sessions) Addresses(first netip.Addr) (all []netip.Addr) {
	add := func(a netip.Addr) {
		if a = a.Unmap(); a.IsGlobalUnicast() && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	if bound := s.at.Addr(); bound.IsValid() && !bound.IsUnspecified() {
		add(bound)
		return all
	}
	add(first)
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		s.options.Logger.Debug("the addresses of interfaces cannot be read", "error", err)
		return all
	}
	for _, one := range interfaces {
		if network, ok := one.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(network.IP); ok {
				add(a)
			}
		}
	}
	return all[:min(len(all), maxTold)]
}

// maxTold bounds the addresses that a server is told.
const maxTold = 32

// Apply makes the sessions those of a state, beside the static ones; nil for none.
func (s *Sessions) Apply(state *control.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply(state)
}

func (s *Sessions) apply(state *control.State) {
	if state == nil {
		state = &control.State{}
	}
	s.state = *state
	s.peers.Store(peersOf(s.options.Static.Peers, state.Peers))
	if s.ctx == nil {
		return
	}
	wanted := map[sessionName]*control.Session{}
	for _, some := range [][]control.Session{state.Sessions, s.options.Static.Sessions} {
		for i := range some {
			wanted[sessionName{some[i].Peer, some[i].DSCP}] = &some[i]
		}
	}
	for name, r := range s.running {
		if wanted[name] == nil {
			r.stop()
			delete(s.running, name)
			s.options.Logger.Info("a host is measured no more", "peer", name.peer)
		}
	}
	for name, w := range wanted {
		old := s.running[name]
		if old != nil && sameSession(&old.Session, w) {
			continue
		}
		next := &running{Session: *w, tally: newTally(), ended: make(chan struct{})}
		var before <-chan struct{}
		if old != nil {
			old.stop()
			next.tally, before = old.tally, old.ended
		} else {
			s.options.Logger.Info("a host is measured", "peer", name.peer, "reflector", w.Reflector, "every", w.Interval())
		}
		var ctx context.Context
		ctx, next.stop = context.WithCancel(s.ctx)
		s.running[name] = next
		s.ending.Go(func() {
			defer close(next.ended)
			if before != nil {
				<-before
			}
			var both sync.WaitGroup
			both.Go(func() { s.hold(ctx, next) })
			both.Go(func() { s.holdRoute(ctx, next) })
			both.Wait()
		})
	}
}

func sameSession(x, y *control.Session) bool {
	return x.Reflector == y.Reflector && x.Number == y.Number && x.IntervalSeconds == y.IntervalSeconds &&
		slices.Equal(x.Key, y.Key)
}

// hold sends until ctx ends. What goes wrong is tried again.
func (s *Sessions) hold(ctx context.Context, r *running) {
	// Sessions that begin at once do not send at once.
	if !sleep(ctx, rand.N(control.MinInterval)) {
		return
	}
	for {
		err := s.send(ctx, r)
		if ctx.Err() != nil {
			return
		}
		s.options.Logger.Warn("a host cannot be measured", "peer", r.Peer, "reflector", r.Reflector, "error", err)
		if !sleep(ctx, retryEvery) {
			return
		}
	}
}

// retryEvery is how often what goes wrong is tried again.
const retryEvery = 10 * time.Second

// listen is a socket for packets to a session's reflector.
func (s *Sessions) listen(of *control.Session) (*net.UDPConn, error) {
	network := "udp4"
	if of.Reflector.Addr().Is6() {
		network = "udp6"
	}
	// From where the reflector answers, if that is one address.
	var from *net.UDPAddr
	if at := s.at.Addr(); !at.IsUnspecified() && at.Is4() == of.Reflector.Addr().Is4() {
		from = &net.UDPAddr{IP: at.AsSlice(), Zone: at.Zone()}
	}
	return net.ListenUDP(network, from)
}

func (s *Sessions) send(ctx context.Context, r *running) error {
	conn, err := s.listen(&r.Session)
	if err != nil {
		return err
	}
	if err := setTTL(conn, r.Reflector.Addr(), sessionTTL); err != nil {
		conn.Close()
		return err
	}
	sender, err := stamp.NewSender(conn, r.Reflector, stamp.SenderOptions{Interval: r.Interval(), Timeout: tripTimeout,
		Session: r.Number, Key: r.Key, Clock: stamp.KernelClock, DSCP: r.DSCP, Direct: true})
	if err != nil {
		conn.Close()
		return err
	}
	r.begin()
	lost := false
	return sender.Run(ctx, func(one stamp.Sample) {
		r.add(&one)
		r.sender(sender.Stats())
		if now := r.isLost(); now != lost {
			if lost = now; lost {
				s.options.Logger.Warn("a host does not answer any more", "peer", r.Peer, "reflector", r.Reflector)
			} else {
				s.options.Logger.Info("a host answers again", "peer", r.Peer)
			}
		}
	})
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Run answers and measures until ctx ends.
func (s *Sessions) Run(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	s.apply(&s.state)
	s.mu.Unlock()
	err := s.reflector.Run(ctx)
	s.mu.Lock()
	s.ctx = nil
	for name, r := range s.running {
		r.stop()
		delete(s.running, name)
	}
	s.mu.Unlock()
	s.ending.Wait()
	return err
}

// Close closes the port of sessions that were never run.
func (s *Sessions) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Run(ctx)
}

// Sample is what was counted.
func (s *Sessions) Sample() *model.ProbeSample {
	sample := &model.ProbeSample{}
	s.mu.Lock()
	for _, r := range s.running {
		one := r.sample()
		one.Peer, one.Reflector, one.DSCP, one.Interval = r.Peer, r.Reflector, r.DSCP, r.Interval()
		sample.Sessions = append(sample.Sessions, one)
	}
	s.mu.Unlock()
	slices.SortFunc(sample.Sessions, func(x, y model.ProbeSession) int {
		return cmp.Or(cmp.Compare(x.Peer, y.Peer), cmp.Compare(x.DSCP, y.DSCP))
	})
	c := s.reflector.Stats()
	sample.Reflector = model.ReflectorCounters{Answered: c.Answered, Strangers: c.Strangers, Limited: c.Limited,
		Malformed: c.Malformed, Forged: c.Forged, Replayed: c.Replayed}
	return sample
}

// Session is the number of the session in which a peer may ask the reflector; 0 where it has none.
func (s *Sessions) Session(peer string) uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.state.Peers {
		if s.state.Peers[i].Name == peer {
			return s.state.Peers[i].Number
		}
	}
	return 0
}
