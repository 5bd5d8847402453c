package network

import (
	"net/netip"

	"outsight/internal/model"
)

// HostEdge is an edge as one of several hosts counted it, with the hosts of its ends.
type HostEdge struct {
	model.Edge
	// Host is the one that counted. ClientHost and ServerHost are where the ends run; empty for
	// an end that was not found.
	Host, ClientHost, ServerHost string
}

// PairHosts puts the edges of several hosts together, in order of snapshots: an end that the host
// of the other end could not find is looked for on all others. A server is who counted connections
// from this client at the address that the client dials, or who listens there; what the address is
// translated to on the client's host, and then on the server's, is followed. A client is who dials
// the server and has the address that the server sees, or is the only one to dial it on the host
// that has this address (masquerading). An end that several could be is left as it is.
func PairHosts(snapshots []*model.Snapshot) []HostEdge {
	h := newHosts(snapshots)
	edges := make([]HostEdge, 0, len(h.edges))
	for i := range h.edges {
		e := h.edges[i]
		switch {
		case e.Side == model.RoleClient && e.Server.Container == nil:
			h.findServer(&e)
		case e.Side == model.RoleServer && e.Client.Container == nil:
			h.findClient(&e)
		}
		edges = append(edges, e)
	}
	h.pair(edges)
	return edges
}

// resident is a container on a host.
type resident struct {
	host      string
	container *model.Container
}

func (r resident) id() [2]string { return [2]string{r.host, r.container.ID} }

// spot is an address and port of a transport.
type spot struct {
	address   netip.AddrPort
	transport model.Transport
}

// hosts knows who is where.
type hosts struct {
	edges []HostEdge
	// listening has who listens at an address, living who has it, at who counted an edge there.
	listening map[spot][]resident
	living    map[netip.Addr][]resident
	serving   map[spot][]*HostEdge
	dialling  map[spot][]*HostEdge
	// translated is by host and dialled address.
	translated map[string]map[netip.AddrPort][]model.Translation
}

func newHosts(snapshots []*model.Snapshot) *hosts {
	h := &hosts{
		listening: make(map[spot][]resident), living: make(map[netip.Addr][]resident), serving: make(map[spot][]*HostEdge),
		dialling: make(map[spot][]*HostEdge), translated: make(map[string]map[netip.AddrPort][]model.Translation),
	}
	for _, s := range snapshots {
		for i := range s.Containers {
			h.addContainer(resident{s.Host.Name, s.Containers[i].Container})
		}
		h.translated[s.Host.Name] = byDialled(s.Translations)
		for i := range s.Edges {
			e := HostEdge{Edge: s.Edges[i], Host: s.Host.Name}
			if e.Client.Container != nil {
				e.ClientHost = e.Host
			}
			if e.Server.Container != nil {
				e.ServerHost = e.Host
			}
			h.edges = append(h.edges, e)
		}
	}
	for i := range h.edges {
		e := &h.edges[i]
		by := h.dialling
		if e.Side == model.RoleServer {
			by = h.serving
		}
		for _, at := range h.spots(e) {
			by[at] = append(by[at], e)
		}
	}
	return h
}

func (h *hosts) addContainer(r resident) {
	c := r.container
	if !c.Ended.IsZero() {
		return
	}
	for _, a := range c.Addresses {
		h.living[plainAddr(a)] = append(h.living[plainAddr(a)], r)
	}
	for _, l := range c.Listeners {
		at := plain(l)
		switch {
		case at.Addr().IsLoopback():
		case !at.Addr().IsUnspecified():
			h.listening[spot{address: at}] = append(h.listening[spot{address: at}], r)
		default:
			for _, a := range c.Addresses {
				// The IPv6 wildcard accepts IPv4 too.
				if a = plainAddr(a); at.Addr().Is6() || a.Is4() {
					at := spot{address: netip.AddrPortFrom(a, at.Port())}
					h.listening[at] = append(h.listening[at], r)
				}
			}
		}
	}
}

// spots are the addresses of an edge's server: as dialled, as translated on the way, as the server
// sees it. Loopback ones are nobody else's.
func (h *hosts) spots(e *HostEdge) []spot {
	var all []spot
	add := func(a netip.AddrPort) {
		at := spot{a, e.Transport}
		if a.IsValid() && !a.Addr().IsLoopback() && len(all) < 8 {
			for _, known := range all {
				if known == at {
					return
				}
			}
			all = append(all, at)
		}
	}
	add(e.Service)
	add(e.Backend)
	if e.Side == model.RoleClient {
		add(oneTarget(h.translated[e.Host][e.Service], e.Client.Container))
	}
	// What is dialled from elsewhere may be translated on the host that has the address.
	for _, at := range all {
		for _, r := range h.living[at.address.Addr()] {
			if r.host != e.Host && r.container.Runtime == model.HostRuntime {
				add(oneTarget(h.translated[r.host][at.address], nil))
			}
		}
	}
	return all
}

// oneTarget is where all translated connections go to, of a client if it is given; the zero
// AddrPort where they go to several.
func oneTarget(all []model.Translation, client *model.Container) netip.AddrPort {
	var found netip.AddrPort
	for _, t := range all {
		switch {
		case client != nil && !has(client, t.Client):
		case found.IsValid() && found != t.Reached:
			return netip.AddrPort{}
		default:
			found = t.Reached
		}
	}
	return found
}

func has(c *model.Container, a netip.Addr) bool {
	for _, own := range c.Addresses {
		if plainAddr(own) == plainAddr(a) {
			return true
		}
	}
	return false
}

// sends reports whether a client on a host may be what is seen as address: its own, or its host's.
func (h *hosts) sends(client resident, address netip.Addr) bool {
	if has(client.container, address) {
		return true
	}
	for _, r := range h.living[plainAddr(address)] {
		if r.host == client.host && r.container.Runtime == model.HostRuntime {
			return true
		}
	}
	return false
}

// onlyResident is the one among all on other hosts that match accepts.
func onlyResident(host string, all []resident, accepts func(resident) bool) (resident, bool) {
	var found resident
	for _, r := range all {
		switch {
		case r.host == host || !accepts(r):
		case found.container != nil && found.id() != r.id():
			return resident{}, false
		default:
			found = r
		}
	}
	return found, found.container != nil
}

func anyResident(resident) bool { return true }

func (h *hosts) findServer(e *HostEdge) {
	client := resident{e.Host, e.Client.Container}
	found := func(r resident, process string, confidence model.Confidence) {
		e.Server.Container, e.Server.Process, e.ServerHost, e.Confidence = r.container, process, r.host, confidence
	}
	spots := h.spots(e)
	for _, at := range spots {
		var servers []resident
		process := ""
		for _, s := range h.serving[at] {
			if s.Host == e.Host || client.container == nil || !h.sends(client, s.Client.Address) {
				continue
			}
			if len(servers) == 0 {
				process = s.Server.Process
			} else if process != s.Server.Process {
				process = "" // one of several
			}
			servers = append(servers, resident{s.Host, s.Server.Container})
		}
		if r, ok := onlyResident(e.Host, servers, anyResident); ok {
			found(r, process, model.ByListener)
			return
		}
	}
	// The last one first: what was dialled may be translated behind a host's own listener.
	for i := len(spots) - 1; i >= 0; i-- {
		at := spots[i]
		if r, ok := onlyResident(e.Host, h.listening[spot{address: at.address}], anyResident); ok &&
			at.transport == model.TCP {
			found(r, "", model.ByListener)
			return
		}
	}
	for i := len(spots) - 1; i >= 0; i-- {
		if r, ok := onlyResident(e.Host, h.living[spots[i].address.Addr()], isContainer); ok {
			found(r, "", model.ByAddress)
			return
		}
	}
}

func isContainer(r resident) bool { return r.container.Runtime != model.HostRuntime }

func (h *hosts) findClient(e *HostEdge) {
	if !e.Client.Address.IsValid() {
		return
	}
	found := func(r resident) {
		e.Client.Container, e.ClientHost, e.Confidence = r.container, r.host, model.ByAddress
	}
	var clients []resident
	for _, at := range h.spots(e) {
		for _, c := range h.dialling[at] {
			if c.Client.Container != nil {
				clients = append(clients, resident{c.Host, c.Client.Container})
			}
		}
	}
	// Who has the address itself, before whose host has it.
	if r, ok := onlyResident(e.Host, clients, func(r resident) bool {
		return has(r.container, e.Client.Address) &&
			isContainer(r)
	}); ok {
		found(r)
		return
	}
	if r, ok := onlyResident(e.Host, clients, func(r resident) bool { return h.sends(r, e.Client.Address) }); ok {
		found(r)
		return
	}
	if r, ok := onlyResident(e.Host, h.living[plainAddr(e.Client.Address)], isContainer); ok {
		found(r)
	}
}

// pair marks edges of which the other end, on another host, is there too.
func (h *hosts) pair(edges []HostEdge) {
	type side struct {
		role                                   model.Role
		client, clientHost, server, serverHost string
		at                                     spot
	}
	there := make(map[side]bool)
	of := func(e *HostEdge, role model.Role, at spot) side {
		return side{role, e.Client.ID(), e.ClientHost, e.Server.ID(), e.ServerHost, at}
	}
	for i := range edges {
		for _, at := range h.spots(&edges[i]) {
			there[of(&edges[i], edges[i].Side, at)] = true
		}
	}
	for i := range edges {
		e := &edges[i]
		if e.ClientHost == "" || e.ServerHost == "" || e.ClientHost == e.ServerHost {
			continue
		}
		for _, at := range h.spots(e) {
			e.Paired = e.Paired || there[of(e, model.RoleClient+model.RoleServer-e.Side, at)]
		}
	}
}
