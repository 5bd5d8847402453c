package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"outsight/internal/container"
	"outsight/internal/control"
	"outsight/internal/model"
	"outsight/internal/stamp"
)

// OpenProcess opens a process in the network namespace of a container of this host, by the container's ID, as a
// non-blocking pidfd. The error is container.ErrEnded where it runs no more, and container.ErrNoNamespace where it has no
// network namespace of its own, or none is known.
type OpenProcess func(container string) (*os.File, error)

// place is a container of this host.
func (s *Sessions) place(c control.Container) (*Place, error) {
	s.mu.Lock()
	open := s.process
	s.mu.Unlock()
	if open == nil {
		return nil, errors.New("this agent makes no sockets in containers")
	}
	process, err := open(c.ID)
	if err != nil {
		return nil, err
	}
	return At(c.Name, process), nil
}

// listenIn makes a socket at a place, which it takes over. The socket's context ends with the place.
func listenIn(ctx context.Context, place *Place, at netip.AddrPort) (*sessionSocket, error) {
	conn, err := place.listenUDP(at)
	if err != nil {
		place.Close()
		return nil, err
	}
	ctx, cancel := place.WithEnd(ctx)
	return &sessionSocket{conn, ctx, func() { cancel(); place.Close() }}, nil
}

// socketFailures count why there is no socket in a container.
type socketFailures struct{ ended, unknown, failed atomic.Uint64 }

func (f *socketFailures) count(err error) {
	switch {
	case errors.Is(err, ErrEnded), errors.Is(err, container.ErrEnded):
		f.ended.Add(1)
	case errors.Is(err, container.ErrNoNamespace):
		f.unknown.Add(1)
	default:
		f.failed.Add(1)
	}
}

func (f *socketFailures) read() model.SocketFailures {
	return model.SocketFailures{Ended: f.ended.Load(), Unknown: f.unknown.Load(), Failed: f.failed.Load()}
}

// containerReflector answers in a container.
type containerReflector struct {
	container control.Container
	at        netip.AddrPort
	peers     atomic.Pointer[peers]
	stop      context.CancelFunc
	ended     chan struct{}
	// mu guards the rest.
	mu sync.Mutex
	// running is nil while there is no socket; before counted those that were.
	running *stamp.Reflector
	before  model.ReflectorCounters
}

// applyReflectors makes the reflectors in containers those that peers ask. s.mu must be held.
func (s *Sessions) applyReflectors(all []control.ContainerPeer) {
	wanted, of := map[netip.AddrPort][]control.Peer{}, map[netip.AddrPort]control.Container{}
	for _, p := range all {
		if len(wanted[p.At]) == 0 {
			of[p.At] = p.Server // containers that share an address share its namespace: any will do
		}
		wanted[p.At] = append(wanted[p.At], p.Peer)
	}
	var ending []*containerReflector
	for at, r := range s.reflectors {
		if of[at] != r.container {
			r.stop()
			delete(s.reflectors, at)
			ending = append(ending, r)
		}
	}
	for at, peers := range wanted {
		if r := s.reflectors[at]; r != nil {
			r.peers.Store(peersOf(peers))
			continue
		}
		next := &containerReflector{container: of[at], at: at, ended: make(chan struct{})}
		next.peers.Store(peersOf(peers))
		var ctx context.Context
		ctx, next.stop = context.WithCancel(s.ctx)
		s.reflectors[at] = next
		before := slices.IndexFunc(ending, func(r *containerReflector) bool { return r.at == at })
		s.ending.Go(func() {
			defer close(next.ended)
			if before >= 0 {
				<-ending[before].ended
			}
			s.holdReflector(ctx, next)
		})
	}
	for _, r := range ending {
		r.addTo(&s.answeredBefore)
	}
}

// holdReflector answers until ctx ends. What goes wrong is tried again.
func (s *Sessions) holdReflector(ctx context.Context, r *containerReflector) {
	for failing := false; ; failing = true {
		err := s.reflect(ctx, r)
		if ctx.Err() != nil {
			return
		}
		s.failures.reflectors.count(err)
		if !failing {
			s.options.Logger.Warn("a container cannot answer measurements", "container", r.container.Name, "at", r.at,
				"error", err)
		}
		if !sleep(ctx, retryContainer) {
			return
		}
	}
}

// reflect answers until ctx ends, or the container.
func (s *Sessions) reflect(ctx context.Context, r *containerReflector) error {
	place, err := s.place(r.container)
	if err != nil {
		return err
	}
	conn, err := listenIn(ctx, place, r.at)
	if err != nil {
		return fmt.Errorf("making a reflector: %w", err)
	}
	defer conn.Close()
	reflector, err := stamp.NewReflector(conn.UDPConn, stamp.ReflectorOptions{
		Peer:         func(from netip.Addr, number uint16) (stamp.Key, bool) { return r.peers.Load().key(from, number) },
		MaxPerSecond: answersPerSecond, Clock: HostClock(s.options.Clock),
	})
	if err != nil {
		return fmt.Errorf("making a reflector: %w", err)
	}
	r.mu.Lock()
	r.running = reflector
	r.mu.Unlock()
	err = reflector.Run(conn.ctx)
	r.mu.Lock()
	addReflector(&r.before, reflector)
	r.running = nil
	r.mu.Unlock()
	if err == nil {
		err = context.Cause(conn.ctx)
	}
	return err
}

// addTo adds what was answered so far.
func (r *containerReflector) addTo(to *model.ReflectorCounters) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to.Add(&r.before)
	if r.running != nil {
		addReflector(to, r.running)
	}
}
