package network

import (
	"maps"
	"net/netip"

	"outsight/internal/model"
)

// addresses knows which containers have an address, and in which network namespaces it is.
type addresses struct {
	containers map[netip.Addr][]*model.Container
	// inNamespace lists the containers of a network namespace.
	inNamespace map[uint32][]*model.Container
	host        uint32
}

func newAddresses(containers []*model.Container) *addresses {
	a := &addresses{
		containers:  make(map[netip.Addr][]*model.Container),
		inNamespace: make(map[uint32][]*model.Container),
	}
	for _, c := range containers {
		if c.Runtime == model.HostRuntime {
			a.host = c.NetNS
		}
		if c.Ended.IsZero() {
			a.add(c, func(netip.Addr) bool { return true })
		}
	}
	// An ended container has given its address back; another may have it already.
	live := maps.Clone(a.containers)
	for _, c := range containers {
		if !c.Ended.IsZero() {
			a.add(c, func(addr netip.Addr) bool { return live[addr] == nil })
		}
	}
	return a
}

func (a *addresses) add(c *model.Container, has func(netip.Addr) bool) {
	if c.NetNS != 0 {
		a.inNamespace[c.NetNS] = append(a.inNamespace[c.NetNS], c)
	}
	for _, addr := range c.Addresses {
		if addr = plainAddr(addr); has(addr) {
			a.containers[addr] = append(a.containers[addr], c)
		}
	}
}

// owner is the one container that has an address; nil where several have it, and for the
// addresses of the host: what comes from those may have been forwarded by it.
func (a *addresses) owner(addr netip.Addr) *model.Container {
	if owners := a.containers[addr]; len(owners) == 1 && !addr.IsLoopback() {
		if c := owners[0]; c.Runtime != model.HostRuntime && (a.host == 0 || c.NetNS != a.host) {
			return c
		}
	}
	return nil
}

// in reports whether an address, as seen from namespace from, is one of namespace netns.
func (a *addresses) in(netns uint32, addr netip.Addr, from uint32) bool {
	if addr.IsLoopback() {
		return netns == from
	}
	for _, c := range a.containers[addr] {
		if c.NetNS == netns {
			return true
		}
	}
	return false
}

// alone is the container that has a namespace for itself, or nil.
func (a *addresses) alone(netns uint32) *model.Container {
	if all := a.inNamespace[netns]; len(all) == 1 {
		return all[0]
	}
	return nil
}

// holder is whose a socket is that owner holds in a namespace: the one container's whose namespace that is, where
// owner is a process of the host that works there on the container's behalf, as dockerd's resolver does.
func (a *addresses) holder(owner *model.Container, netns uint32) (c *model.Container, onBehalf bool) {
	if !ofHost(owner) || netns == 0 || netns == a.host || a.host == 0 || netns == owner.NetNS {
		return owner, false
	}
	if c := a.alone(netns); c != nil && !ofHost(c) {
		return c, true
	}
	return owner, false
}

func ofHost(c *model.Container) bool {
	return c != nil && (c.Runtime == model.HostRuntime || c.Runtime == model.Systemd)
}

// plainAddr removes what makes equal addresses differ: the IPv6 form of an IPv4 address, as a
// socket that accepts both has it, and the zone.
func plainAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(plainAddr(a.Addr()), a.Port())
}
