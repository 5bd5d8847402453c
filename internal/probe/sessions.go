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
	"outsight/internal/hostclock"
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
	// Clock is this host's; nil for one without a device.
	Clock  *hostclock.Clock
	Logger *slog.Logger
}

// Sessions measure the network to the hosts that a state names, and between containers, again and again, and answer those
// that it names.
type Sessions struct {
	options   SessionOptions
	reflector *stamp.Reflector
	at        netip.AddrPort
	// peers are who is answered.
	peers atomic.Pointer[peers]
	// failures count the sockets in containers that could not be made or ended with the container.
	failures struct{ senders, reflectors socketFailures }
	// mu guards the rest.
	mu sync.Mutex
	// ctx is that of Run, nil before and after it.
	ctx     context.Context
	state   control.State
	running map[sessionName]*running
	// reflectors are those in containers, by where they answer; answeredBefore counted those that are no more.
	reflectors     map[netip.AddrPort]*containerReflector
	answeredBefore model.ReflectorCounters
	// process opens a process of a container; nil where that is not possible.
	process OpenProcess
	ending  sync.WaitGroup
}

type sessionName struct {
	peer           string
	dscp           uint8
	client, server string
}

// running is a session and its sender. One between hosts has no Client and no Server.
type running struct {
	control.ContainerSession
	*tally
	stop  context.CancelFunc
	ended chan struct{}
	// held says that the sender has its socket.
	held atomic.Bool
}

func (r *running) ofContainers() bool { return r.Client.ID != "" }

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
	s := &Sessions{options: o, running: map[sessionName]*running{}, reflectors: map[netip.AddrPort]*containerReflector{}}
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
		MaxPerSecond: answersPerSecond, Clock: HostClock(o.Clock),
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
	s.applyReflectors(state.ContainerPeers)
	wanted := map[sessionName]*control.ContainerSession{}
	for _, some := range [][]control.Session{state.Sessions, s.options.Static.Sessions} {
		for _, one := range some {
			wanted[sessionName{peer: one.Peer, dscp: one.DSCP}] = &control.ContainerSession{Session: one}
		}
	}
	for i := range state.ContainerSessions {
		one := &state.ContainerSessions[i]
		wanted[sessionName{one.Peer, one.DSCP, one.Client.Name, one.Server.Name}] = one
	}
	for name, r := range s.running {
		if wanted[name] == nil {
			r.stop()
			delete(s.running, name)
			s.options.Logger.Info("a host is measured no more", r.about()...)
		}
	}
	for name, w := range wanted {
		old := s.running[name]
		if old != nil && sameSession(&old.ContainerSession, w) {
			continue
		}
		next := &running{ContainerSession: *w, tally: newTally(HostClock(s.options.Clock)), ended: make(chan struct{})}
		var before <-chan struct{}
		if old != nil {
			old.stop()
			next.tally, before = old.tally, old.ended
		} else {
			s.options.Logger.Info("a host is measured", append(next.about(), "reflector", w.Reflector, "every", w.Interval())...)
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

// about says in the log which session it is.
func (r *running) about() []any {
	if r.ofContainers() {
		return []any{"peer", r.Peer, "client", r.Client.Name, "server", r.Server.Name}
	}
	if r.DSCP != 0 {
		return []any{"peer", r.Peer, "dscp", r.DSCP}
	}
	return []any{"peer", r.Peer}
}

func sameSession(x, y *control.ContainerSession) bool {
	return x.Reflector == y.Reflector && x.Number == y.Number && x.IntervalSeconds == y.IntervalSeconds &&
		slices.Equal(x.Key, y.Key) && x.Client == y.Client && x.Server == y.Server
}

// hold sends until ctx ends. What goes wrong is tried again.
func (s *Sessions) hold(ctx context.Context, r *running) {
	// Sessions that begin at once do not send at once.
	if !sleep(ctx, rand.N(control.MinInterval/2)) {
		return
	}
	retry, failing := retryEvery, false
	if r.ofContainers() {
		retry = retryContainer
	}
	for {
		err := s.send(ctx, r)
		if r.held.Swap(false) {
			failing = false
		}
		if ctx.Err() != nil {
			return
		}
		if r.ofContainers() {
			s.failures.senders.count(err)
		}
		if !failing {
			s.options.Logger.Warn("a host cannot be measured", append(r.about(), "reflector", r.Reflector, "error", err)...)
		}
		failing = true
		if !sleep(ctx, retry) {
			return
		}
	}
}

// retryEvery is how often what goes wrong is tried again, retryContainer the same in a container: it may be known a moment
// later, or is wanted no more.
const (
	retryEvery     = 10 * time.Second
	retryContainer = time.Second
)

// sessionSocket is a socket for packets to a session's reflector. It must be closed.
type sessionSocket struct {
	*net.UDPConn
	// ctx ends with the container whose socket it is.
	ctx   context.Context
	leave func()
}

func (c *sessionSocket) Close() {
	c.UDPConn.Close()
	c.leave()
}

// listen makes a socket for packets to a session's reflector: in the network namespace of its client, or else of the host.
func (s *Sessions) listen(ctx context.Context, of *control.ContainerSession) (*sessionSocket, error) {
	network, any := "udp4", netip.IPv4Unspecified()
	if of.Reflector.Addr().Is6() {
		network, any = "udp6", netip.IPv6Unspecified()
	}
	if of.Client.ID != "" {
		place, err := s.place(of.Client)
		if err != nil {
			return nil, err
		}
		return listenIn(ctx, place, netip.AddrPortFrom(any, 0))
	}
	// From where the reflector answers, if that is one address.
	var from *net.UDPAddr
	if at := s.at.Addr(); !at.IsUnspecified() && at.Is4() == of.Reflector.Addr().Is4() {
		from = &net.UDPAddr{IP: at.AsSlice(), Zone: at.Zone()}
	}
	conn, err := net.ListenUDP(network, from)
	return &sessionSocket{conn, ctx, func() {}}, err
}

// send sends until ctx ends, or the socket's container.
func (s *Sessions) send(ctx context.Context, r *running) error {
	conn, err := s.listen(ctx, &r.ContainerSession)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := setTTL(conn, r.Reflector.Addr(), sessionTTL); err != nil {
		return err
	}
	sender, err := stamp.NewSender(conn.UDPConn, r.Reflector, stamp.SenderOptions{Interval: r.Interval(), Timeout: tripTimeout,
		Session: r.Number, Key: r.Key, Clock: HostClock(s.options.Clock), DSCP: r.DSCP, Direct: true})
	if err != nil {
		return err
	}
	r.begin(time.Now())
	r.held.Store(true)
	lost := false
	err = sender.Run(conn.ctx, func(one stamp.Sample) {
		r.add(&one)
		r.sender(sender.Stats())
		if now := r.isLost(); now != lost {
			if lost = now; lost {
				s.options.Logger.Warn("a host does not answer any more", append(r.about(), "reflector", r.Reflector)...)
			} else {
				s.options.Logger.Info("a host answers again", r.about()...)
			}
		}
	})
	return cmp.Or(err, context.Cause(conn.ctx))
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Run answers and measures until ctx ends. process opens a process of a container; nil where that is not possible.
func (s *Sessions) Run(ctx context.Context, process OpenProcess) error {
	s.mu.Lock()
	s.ctx, s.process = ctx, process
	s.apply(&s.state)
	s.mu.Unlock()
	err := s.reflector.Run(ctx)
	s.mu.Lock()
	s.ctx = nil
	for name, r := range s.running {
		r.stop()
		delete(s.running, name)
	}
	s.applyReflectors(nil)
	s.mu.Unlock()
	s.ending.Wait()
	return err
}

// Close closes the port of sessions that were never run.
func (s *Sessions) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Run(ctx, nil)
}

// Sample is what was counted.
func (s *Sessions) Sample() *model.ProbeSample {
	sample := &model.ProbeSample{}
	s.mu.Lock()
	for _, r := range s.running {
		if r.ofContainers() && !r.held.Load() {
			continue // there is nothing in its container now
		}
		one := r.sample()
		one.Client, one.Server = r.Client.Name, r.Server.Name
		one.Peer, one.Reflector, one.DSCP, one.Interval = r.Peer, r.Reflector, r.DSCP, r.Interval()
		sample.Sessions = append(sample.Sessions, one)
	}
	sample.Reflector = s.answeredBefore
	for _, r := range s.reflectors {
		r.addTo(&sample.Reflector)
	}
	s.mu.Unlock()
	slices.SortFunc(sample.Sessions, func(x, y model.ProbeSession) int {
		return cmp.Or(cmp.Compare(x.Peer, y.Peer), cmp.Compare(x.DSCP, y.DSCP), cmp.Compare(x.Client, y.Client),
			cmp.Compare(x.Server, y.Server))
	})
	addReflector(&sample.Reflector, s.reflector)
	sample.Senders, sample.Reflectors = s.failures.senders.read(), s.failures.reflectors.read()
	return sample
}

func addReflector(to *model.ReflectorCounters, r *stamp.Reflector) {
	c := r.Stats()
	to.Add(&model.ReflectorCounters{Answered: c.Answered, Strangers: c.Strangers, Limited: c.Limited,
		Malformed: c.Malformed, Forged: c.Forged, Replayed: c.Replayed})
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
