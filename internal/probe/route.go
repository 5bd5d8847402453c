package probe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"outsight/internal/model"
)

const (
	// sessionTTL is the TTL, or hop limit, with which a session's packets leave. The reflector tells what is left of it where
	// they arrive (RFC 8762, Session-Sender TTL).
	sessionTTL = 64
	// routePackets is after how many packets of the session its route is looked for again, but not sooner than after
	// leastRouteInterval, unless the number of hops changes.
	routePackets       = 600
	leastRouteInterval = time.Minute
	// hopTimeout is how long a router's answer is waited for.
	hopTimeout = time.Second
)

// hopsOf is how many hops a packet took that arrived with a TTL, the last of them the reflector; 0 where the reflector does
// not tell.
func hopsOf(arrived uint8) int {
	if arrived == 0 || arrived > sessionTTL {
		return 0
	}
	return sessionTTL - int(arrived) + 1
}

// routeFinder finds the routers between this host and a reflector. All its packets have the same addresses and ports, so
// that routers which spread connections over several paths have one for all of them. It must be closed.
type routeFinder struct {
	conn packetConn
	to   netip.AddrPort
}

// newRouteFinder takes over the socket.
func newRouteFinder(conn *net.UDPConn, to netip.AddrPort) (*routeFinder, error) {
	if err := options(conn, to.Addr(), true); err != nil {
		conn.Close()
		return nil, err
	}
	return &routeFinder{udpConn{conn}, to}, nil
}

// find is the route, of so many hops with the reflector. Each packet ends at a router: none reaches the reflector.
func (f *routeFinder) find(ctx context.Context, hops int) (model.Route, error) {
	route := make(model.Route, 0, hops-1)
	for hop := 1; hop < hops && hop <= maxHops; hop++ {
		var router netip.Addr
		for try := 0; try < hopTries && !router.IsValid() && ctx.Err() == nil; try++ {
			var err error
			if router, err = f.ask(ctx, hop); err != nil {
				return nil, fmt.Errorf("looking for hop %d: %w", hop, err)
			}
			sleep(ctx, traceGap)
		}
		route = append(route, router)
	}
	return route, ctx.Err()
}

// ask is the router at a hop; the zero Addr where none answers.
func (f *routeFinder) ask(ctx context.Context, hop int) (router netip.Addr, err error) {
	if err := setTTL(f.conn, f.to.Addr(), hop); err != nil {
		return router, err
	}
	packet := make([]byte, traceBytes)
	packet[0] = byte(hop)
	if _, err := f.conn.WriteTo(packet, net.UDPAddrFromAddrPort(f.to)); err != nil && !onTheWay(err) {
		return router, err
	}
	err = await(ctx, f.conn, time.Now().Add(hopTimeout), func() bool { return router.IsValid() }, func(e wayError) {
		// Routers send back at least the header of UDP, which all packets have in common, and most of them what is behind it.
		if e.exceeded && (len(e.payload) == 0 || int(e.payload[0]) == hop) {
			router = e.from
		}
	}, nil)
	return router, err
}

func (f *routeFinder) Close() error { return f.conn.Close() }

// holdRoute follows the route until ctx ends. What goes wrong is tried again.
func (s *Sessions) holdRoute(ctx context.Context, r *running) {
	interval := s.options.RouteInterval
	if interval == 0 {
		interval = max(routePackets*r.Interval(), leastRouteInterval)
	}
	for {
		err := s.followRoute(ctx, r, interval)
		if ctx.Err() != nil {
			return
		}
		s.options.Logger.Debug("the route to a host cannot be found", append(r.about(), "error", err)...)
		if !sleep(ctx, retryEvery) {
			return
		}
	}
}

// followRoute finds the route of a session: when the number of hops changes, and each interval.
func (s *Sessions) followRoute(ctx context.Context, r *running, interval time.Duration) error {
	conn, err := s.listen(ctx, &r.ContainerSession)
	if err != nil {
		return err
	}
	defer conn.Close()
	finder, err := newRouteFinder(conn.UDPConn, r.Reflector)
	if err != nil {
		return err
	}
	defer finder.Close()
	ctx = conn.ctx
	again := time.NewTicker(interval)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again.C:
		case <-r.hopsChanged:
		}
		hops := r.hops()
		if hops == 0 {
			continue
		}
		route, err := finder.find(ctx, hops)
		if err != nil {
			return err
		}
		if known := r.route(); known != nil && !known.Same(route) {
			// Routers that spread packets, not connections, have another route for each: it counts when it is found twice.
			second, err := finder.find(ctx, hops)
			if err != nil {
				return err
			}
			if !second.Same(route) {
				continue
			}
			route = route.Merge(second)
			s.options.Logger.Info("the route to a host changed", append(r.about(), "before", known, "now", route)...)
		}
		r.found(route)
	}
}
