package network

import (
	"net/netip"
	"slices"

	"outsight/internal/model"
)

// sighting is a kernel edge with what is known of its ends.
type sighting struct {
	edge  *model.KernelEdge
	owner *model.Container
	// process at the end that counted.
	process string
	// service is the server's address as the client sees it, backend as the server sees it
	// where that is another one and known.
	service, backend netip.AddrPort
	client           netip.Addr
	via              string
	// stale: it has counted nothing since its namespace, or the number of that, was another container's.
	stale bool
	// peer is the end that did not count.
	peer       model.Peer
	confidence model.Confidence
}

func (s *sighting) server() bool { return s.edge.Key.Role == model.RoleServer }

// ends are client and server of the edge.
func (s *sighting) ends() (client, server model.Peer) {
	own := model.Peer{Container: s.owner, Process: s.process}
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
	process string
}

// serviceKey identifies the socket behind a dialled address: a loopback address is another one in each
// namespace; the namespace is 0 with all other addresses.
type serviceKey struct {
	service   netip.AddrPort
	transport model.Transport
	netns     uint32
}

func (s *sighting) at(service netip.AddrPort) serviceKey {
	p := serviceKey{service: service, transport: s.edge.Key.Transport}
	if service.Addr().IsLoopback() {
		p.netns = s.edge.Key.NetNS
	}
	return p
}

// key is of the address that the client dials.
func (s *sighting) key() serviceKey { return s.at(s.service) }

// dialler is a container that dials an address, from a namespace.
type dialler struct {
	at    serviceKey
	netns uint32
	owner *model.Container
}

type relation struct {
	at     serviceKey
	client string
}

// candidate is what the other end of an edge may be.
type candidate struct {
	container *model.Container
	process   string
	backend   netip.AddrPort
	// via is the process of the host that serves on the container's behalf.
	via string
}

// peers finds the other ends of the edges of one view.
type peers struct {
	addresses  *addresses
	listeners  map[uint16][]listener
	forwarders forwarders
	container  func(model.CgroupID) *model.Container
	process    func(id model.CgroupID, name string, pid int) string
	// translated has the translations by what was dialled.
	translated map[netip.AddrPort][]model.Translation

	// dialled has the clients that counted connections to an address; each namespace once.
	dialled map[serviceKey][]dialler
	// reached has the servers that a client is known to have reached at an address.
	reached map[relation][]candidate
	// served has the servers that counted connections at an address; relations the one of them
	// that saw a certain client.
	served    map[serviceKey][]candidate
	relations map[relation]candidate
	// known are the diallers that dialled has.
	known map[dialler]bool
}

// begin empties it for another view.
func (p *peers) begin() {
	if p.dialled == nil {
		*p = peers{forwarders: make(forwarders), dialled: make(map[serviceKey][]dialler),
			reached: make(map[relation][]candidate), served: make(map[serviceKey][]candidate),
			relations: make(map[relation]candidate), known: make(map[dialler]bool)}
	}
	clear(p.forwarders)
	clear(p.dialled)
	clear(p.reached)
	clear(p.served)
	clear(p.relations)
	clear(p.known)
}

// find sets the peer of each sighting.
func (p *peers) find(seen []sighting) {
	p.collectDiallers(seen)
	// Clients first: a server is best known by the clients that it saw.
	for i := range seen {
		if s := &seen[i]; s.server() {
			c, confidence := p.client(s)
			s.peer = model.Peer{Container: c.container, Process: c.process, Address: s.client}
			s.confidence = confidence
			p.collectServer(s)
		}
	}
	for i := range seen {
		if s := &seen[i]; !s.server() && s.edge.Key.Peer != 0 {
			if c := p.exact(s); c.container != nil {
				s.found(c, model.Exact)
				r := relation{s.key(), s.owner.ID}
				p.reached[r] = append(p.reached[r], c)
			}
		}
	}
	for i := range seen {
		if s := &seen[i]; !s.server() && s.confidence == model.NotFound {
			s.found(p.serverOf(s))
		}
	}
}

// found sets the server's end.
func (s *sighting) found(c candidate, confidence model.Confidence) {
	s.peer = model.Peer{Container: c.container, Process: c.process, Address: s.service.Addr()}
	s.confidence = confidence
	if c.via != "" {
		s.via = c.via
	}
	if s.backend = c.backend; s.backend == s.service {
		s.backend = netip.AddrPort{}
	}
}

func (p *peers) collectDiallers(seen []sighting) {
	for i := range seen {
		s := &seen[i]
		if d := (dialler{s.key(), s.edge.Key.NetNS, s.owner}); !s.server() && !p.known[d] {
			p.known[d] = true
			p.dialled[d.at] = append(p.dialled[d.at], d)
		}
	}
}

func (p *peers) collectServer(s *sighting) {
	c := candidate{container: s.owner, process: s.process, backend: s.backend}
	if s.via != forwarderName {
		c.via = s.via
	}
	at := s.key()
	if s.backend.IsValid() {
		// What a translated loopback address means, only its client's namespace tells.
		if !p.knows(s.at(s.backend), c) {
			p.served[s.at(s.backend)] = append(p.served[s.at(s.backend)],
				candidate{container: s.owner, process: s.process, via: c.via})
		}
		if s.service.Addr().IsLoopback() {
			return
		}
	}
	if !p.knows(at, c) {
		p.served[at] = append(p.served[at], c)
	}
	if s.peer.Container == nil {
		return
	}
	// Several containers may serve one address (SO_REUSEPORT in a shared namespace). The client
	// cannot tell them apart, so the choice need only be a stable one.
	r := relation{at, s.peer.Container.ID}
	if before := p.relations[r]; before.container == nil || s.owner.ID < before.container.ID {
		p.relations[r] = c
	}
}

func (p *peers) knows(at serviceKey, c candidate) bool {
	return slices.ContainsFunc(p.served[at], func(k candidate) bool {
		return k.container.ID == c.container.ID && k.process == c.process
	})
}

// client finds who dialled an edge that its server counted.
func (p *peers) client(s *sighting) (candidate, model.Confidence) {
	key := &s.edge.Key
	if c := p.container(key.Peer); c != nil {
		return candidate{container: c, process: p.process(key.Peer, key.PeerProcess, 0)}, model.Exact
	}
	if !s.client.IsValid() {
		return candidate{}, model.NotFound
	}
	c := only(p.dialled[s.key()], func(d dialler) (candidate, bool) {
		return candidate{container: d.owner}, p.addresses.in(d.netns, s.client, key.NetNS)
	})
	switch {
	case c.container != nil:
	case s.client.IsLoopback():
		c.container = p.addresses.alone(key.NetNS)
	default:
		c.container = p.addresses.owner(s.client)
	}
	if c.container == nil {
		return candidate{}, model.NotFound
	}
	return c, model.ByAddress
}

// exact is the server that the kernel knows, or the one behind it where it is a forwarder.
func (p *peers) exact(s *sighting) candidate {
	key := &s.edge.Key
	at := s.service
	if key.Far.IsValid() {
		at = plain(key.Far)
	}
	if c, ok := p.forwarders[dialledAt{key.Peer, at}]; ok {
		s.via = forwarderName
		return p.withProcess(s, c)
	}
	c := candidate{container: p.container(key.Peer), process: p.process(key.Peer, key.PeerProcess, 0), backend: at}
	if at.Addr().IsLoopback() { // in the client's own namespace
		var onBehalf bool
		if c.container, onBehalf = p.addresses.holder(c.container, key.NetNS); onBehalf {
			c.via = c.process
		}
	}
	return p.withProcess(s, c)
}

// withProcess names the process that listens at the backend where the kernel leaves out the name of the one that
// accepts: it does so for an owner that has half of its quota of edges, see new_edge in bpf/net/edge_table.h.
func (p *peers) withProcess(s *sighting, c candidate) candidate {
	if c.process != "" || c.container == nil || s.edge.Key.Transport != model.TCP {
		return c
	}
	c.process = only(p.listeners[c.backend.Port()], func(l listener) (candidate, bool) {
		at := l.address.Addr()
		return candidate{container: l.owner, process: l.process},
			l.owner.ID == c.container.ID && (at == c.backend.Addr() || at.IsUnspecified())
	}).process
	return c
}

// serverOf finds who serves an edge that its client counted, and whose server the kernel has
// not seen with it: connections that failed, or that are older than the agent.
func (p *peers) serverOf(s *sighting) (candidate, model.Confidence) {
	at := s.key()
	r := relation{at, s.owner.ID}
	if all := p.reached[r]; len(all) > 0 {
		// Several: it is one of those and no other.
		if c := only(all, itself); c.container != nil {
			return c, model.ByListener
		}
		return candidate{}, model.NotFound
	}
	if c := p.relations[r]; c.container != nil {
		return c, model.ByListener
	}
	if c := only(p.served[at], itself); c.container != nil {
		return c, model.ByListener
	}
	if c := p.listening(s, s.service.Addr()); c.container != nil {
		return c, model.ByListener
	}
	if c := p.listening(s, netip.Addr{}); c.container != nil {
		return c, model.ByListener
	}
	if c := p.addresses.owner(s.service.Addr()); c != nil {
		return candidate{container: c}, model.ByAddress
	}
	if at := p.backend(s); at.IsValid() && at != s.service {
		behind := *s
		behind.service = at
		c, confidence := p.translatedServer(&behind)
		c.backend = at
		return c, confidence
	}
	return candidate{}, model.NotFound
}

// translatedServer finds who serves the backend of a translated address.
func (p *peers) translatedServer(s *sighting) (candidate, model.Confidence) {
	if c := only(p.served[s.key()], itself); c.container != nil {
		return c, model.ByListener
	}
	for _, bind := range []netip.Addr{s.service.Addr(), {}} {
		if c := p.listening(s, bind); c.container != nil {
			return c, model.ByListener
		}
	}
	if c := p.addresses.owner(s.service.Addr()); c != nil {
		return candidate{container: c}, model.ByAddress
	}
	return candidate{}, model.NotFound
}

func itself(c candidate) (candidate, bool) { return c, true }

// listening finds the one container that listens at a service: on bind, or where that is the
// zero Addr on a wildcard address, in a namespace that has the service's address.
func (p *peers) listening(s *sighting, bind netip.Addr) candidate {
	if s.edge.Key.Transport != model.TCP {
		return candidate{}
	}
	return only(p.listeners[s.service.Port()], func(l listener) (candidate, bool) {
		at := l.address.Addr()
		if bind.IsValid() && at != bind || !bind.IsValid() && !at.IsUnspecified() {
			return candidate{}, false
		}
		// The IPv6 wildcard accepts IPv4 too, the IPv4 wildcard nothing but its own.
		if at == netip.IPv4Unspecified() && s.service.Addr().Is6() {
			return candidate{}, false
		}
		return candidate{container: l.owner, process: l.process}, p.addresses.in(l.netns, s.service.Addr(), s.edge.Key.NetNS)
	})
}

// only is the one container that match finds in all; none where it finds none or several. What
// several candidates of one container differ in is left out.
func only[T any](all []T, match func(T) (candidate, bool)) candidate {
	var found candidate
	for _, t := range all {
		c, ok := match(t)
		switch {
		case !ok || c.container == nil:
		case found.container == nil:
			found = c
		case found.container.ID != c.container.ID:
			return candidate{}
		default:
			if found.process != c.process {
				found.process = ""
			}
			if found.backend != c.backend {
				found.backend = netip.AddrPort{}
			}
			if found.via != c.via {
				found.via = ""
			}
		}
	}
	return found
}
