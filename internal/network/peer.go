package network

import (
	"net/netip"
	"slices"

	"outsight/internal/model"
)

// sighting is a kernel edge with what is known of its ends.
type sighting struct {
	edge    *model.KernelEdge
	owner   *model.Container
	service netip.AddrPort
	client  netip.Addr
	// peer is the end that did not count.
	peer model.Peer
}

func (s *sighting) server() bool { return s.edge.Key.Role == model.RoleServer }

// ends are client and server of the edge.
func (s *sighting) ends() (client, server model.Peer) {
	own := model.Peer{Container: s.owner}
	if s.server() {
		own.Address = s.service.Addr()
		return s.peer, own
	}
	return own, s.peer
}

// listener is a listening socket with its container.
type listener struct {
	netns   uint32
	address netip.AddrPort
	owner   *model.Container
}

// place is a service where it means one socket: a loopback address is another one in each
// namespace; the namespace is 0 with all other addresses.
type place struct {
	service netip.AddrPort
	netns   uint32
}

func (s *sighting) place() place {
	if s.service.Addr().IsLoopback() {
		return place{s.service, s.edge.Key.NetNS}
	}
	return place{service: s.service}
}

// dialler is a container that dials a place, from a namespace.
type dialler struct {
	at    place
	netns uint32
	owner *model.Container
}

type relation struct {
	at     place
	client string
}

// peers finds the other ends of the edges of one view.
type peers struct {
	addresses *addresses
	listeners map[uint16][]listener
	container func(model.CgroupID) *model.Container

	// dialled has the clients that counted connections to a place; each namespace once.
	dialled map[place][]dialler
	// served has the servers that counted connections at a place; relations the one of them
	// that saw a certain client.
	served    map[place][]*model.Container
	relations map[relation]*model.Container
}

// findPeers sets the peer of each sighting.
func findPeers(seen []sighting, a *addresses, listening []listener, container func(model.CgroupID) *model.Container) {
	p := &peers{
		addresses: a,
		listeners: make(map[uint16][]listener),
		container: container,
		dialled:   make(map[place][]dialler),
		served:    make(map[place][]*model.Container),
		relations: make(map[relation]*model.Container),
	}
	for _, l := range listening {
		p.listeners[l.address.Port()] = append(p.listeners[l.address.Port()], l)
	}
	p.collectDiallers(seen)
	// Clients first: a server is best known by the clients that it saw.
	for i := range seen {
		if s := &seen[i]; s.server() {
			s.peer = model.Peer{Container: p.client(s), Address: s.client}
			p.collectServer(s)
		}
	}
	for i := range seen {
		if s := &seen[i]; !s.server() {
			s.peer = model.Peer{Container: p.serverOf(s), Address: s.service.Addr()}
		}
	}
}

func (p *peers) collectDiallers(seen []sighting) {
	known := make(map[dialler]bool)
	for i := range seen {
		s := &seen[i]
		if d := (dialler{s.place(), s.edge.Key.NetNS, s.owner}); !s.server() && !known[d] {
			known[d] = true
			p.dialled[d.at] = append(p.dialled[d.at], d)
		}
	}
}

func (p *peers) collectServer(s *sighting) {
	at := s.place()
	if !slices.ContainsFunc(p.served[at], func(c *model.Container) bool { return c.ID == s.owner.ID }) {
		p.served[at] = append(p.served[at], s.owner)
	}
	if s.peer.Container == nil {
		return
	}
	// Several containers may serve one address (SO_REUSEPORT in a shared namespace). The client
	// cannot tell them apart, so the choice need only be a stable one.
	r := relation{at, s.peer.Container.ID}
	if before := p.relations[r]; before == nil || s.owner.ID < before.ID {
		p.relations[r] = s.owner
	}
}

// client finds who dialled an edge that its server counted.
func (p *peers) client(s *sighting) *model.Container {
	if c := p.container(s.edge.Key.Peer); c != nil {
		return c
	}
	if !s.client.IsValid() {
		return nil
	}
	netns := s.edge.Key.NetNS
	if c := only(p.dialled[s.place()], func(d dialler) (*model.Container, bool) {
		return d.owner, p.addresses.in(d.netns, s.client, netns)
	}); c != nil {
		return c
	}
	if s.client.IsLoopback() {
		return p.addresses.alone(netns)
	}
	return p.addresses.owner(s.client)
}

// serverOf finds who serves an edge that its client counted.
func (p *peers) serverOf(s *sighting) *model.Container {
	at := s.place()
	if c := p.relations[relation{at, s.owner.ID}]; c != nil {
		return c
	}
	if c := only(p.served[at], func(c *model.Container) (*model.Container, bool) { return c, true }); c != nil {
		return c
	}
	if c := p.listening(s, s.service.Addr()); c != nil {
		return c
	}
	if c := p.listening(s, netip.Addr{}); c != nil {
		return c
	}
	return p.addresses.owner(s.service.Addr())
}

// listening finds the one container that listens at a service: on bind, or where that is the
// zero Addr on a wildcard address, in a namespace that has the service's address.
func (p *peers) listening(s *sighting, bind netip.Addr) *model.Container {
	return only(p.listeners[s.service.Port()], func(l listener) (*model.Container, bool) {
		at := l.address.Addr()
		if bind.IsValid() && at != bind || !bind.IsValid() && !at.IsUnspecified() {
			return nil, false
		}
		// The IPv6 wildcard accepts IPv4 too, the IPv4 wildcard nothing but its own.
		if at == netip.IPv4Unspecified() && s.service.Addr().Is6() {
			return nil, false
		}
		return l.owner, p.addresses.in(l.netns, s.service.Addr(), s.edge.Key.NetNS)
	})
}

// only is the one container that match finds in all; nil where it finds none or several.
func only[T any](all []T, match func(T) (*model.Container, bool)) *model.Container {
	var found *model.Container
	for _, t := range all {
		c, ok := match(t)
		if !ok || found != nil && found.ID == c.ID {
			continue
		}
		if found != nil {
			return nil
		}
		found = c
	}
	return found
}
