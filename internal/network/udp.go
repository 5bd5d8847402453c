package network

import (
	"net/netip"
	"slices"

	"outsight/internal/model"
)

// dialledOver is a UDP service as a client in a namespace sees it.
type dialledOver struct {
	service netip.Addr
	netns   uint32
}

// settleUDP gives UDP edges the addresses that their sockets do not have: a server that is bound
// to all addresses does not know which one its client asked.
func settleUDP(seen []sighting, a *addresses) {
	dialled := make(map[uint16][]dialledOver)
	for i := range seen {
		s := &seen[i]
		if s.edge.Key.Transport != model.UDP || s.server() {
			continue
		}
		if s.service.Port() == 0 {
			// It received from somebody, and did not ask from whom.
			s.service = netip.AddrPort{}
			continue
		}
		d := dialledOver{s.service.Addr(), s.edge.Key.NetNS}
		dialled[s.service.Port()] = append(dialled[s.service.Port()], d)
	}
	for i := range seen {
		s := &seen[i]
		if s.edge.Key.Transport != model.UDP || !s.server() || !s.service.Addr().IsUnspecified() {
			continue
		}
		if at := a.reachedAt(s, dialled[s.service.Port()]); at.IsValid() {
			s.service = netip.AddrPortFrom(at, s.service.Port())
		}
	}
	settleRedirected(seen)
}

// settleRedirected gives servers on a loopback address the port that their namespace dials, where
// another one is dialled and nothing else can be meant: Docker's resolver is asked at 127.0.0.11:53,
// and a rule within the container's namespace leads to the port that it is bound to.
func settleRedirected(seen []sighting) {
	dialled, served := make(map[dialledOver][]netip.AddrPort), make(map[dialledOver][]netip.AddrPort)
	for i := range seen {
		s := &seen[i]
		if s.edge.Key.Transport != model.UDP || !s.service.Addr().IsLoopback() || s.stale {
			continue
		}
		all, at := dialled, dialledOver{s.service.Addr(), s.edge.Key.NetNS}
		if s.server() {
			all = served
		}
		if !slices.Contains(all[at], s.service) {
			all[at] = append(all[at], s.service)
		}
	}
	for i := range seen {
		s := &seen[i]
		at := dialledOver{s.service.Addr(), s.edge.Key.NetNS}
		if s.edge.Key.Transport == model.UDP && s.server() && !s.stale && len(served[at]) == 1 && len(dialled[at]) == 1 {
			s.service = dialled[at][0]
		}
	}
}

// reachedAt is the address of a server's namespace that its client asked, as far as it can be
// known: the one that clients in the client's namespace were seen to ask, else the only one.
func (a *addresses) reachedAt(s *sighting, dialled []dialledOver) netip.Addr {
	var found netip.Addr
	netns := s.edge.Key.NetNS
	for _, d := range dialled {
		switch {
		case d.service == found, !a.in(netns, d.service, d.netns):
			continue
		case s.client.IsValid() && (d.service.Is4() != s.client.Is4() || !a.in(d.netns, s.client, netns)):
			continue
		case found.IsValid():
			return netip.Addr{}
		}
		found = d.service
	}
	switch {
	case found.IsValid() || !s.client.IsValid():
		return found
	case s.client == netip.IPv6Loopback():
		return s.client
	case s.client.IsLoopback():
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	for _, c := range a.inNamespace[netns] {
		for _, addr := range c.Addresses {
			addr = plainAddr(addr)
			if addr.Is4() != s.client.Is4() || addr == found || addr.IsLinkLocalUnicast() {
				continue
			}
			if found.IsValid() {
				return netip.Addr{}
			}
			found = addr
		}
	}
	return found
}

// settledLater reports whether a service that had no address before has one now.
func settledLater(before, now netip.AddrPort) bool {
	return before.Addr().IsUnspecified() && !now.Addr().IsUnspecified()
}
