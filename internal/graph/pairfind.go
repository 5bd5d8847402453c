package graph

import "outsight/internal/model"

// candidate is who may be at the other end: none, one, or several of which nobody says which.
type candidate struct {
	resident   int32 // -1 for none
	several    bool
	process    string
	confidence model.Confidence
}

func nobody() candidate { return candidate{resident: -1} }

// add adds another one. Where it is the same, what they differ in is left out.
func (c *candidate) add(resident int32, process string) {
	switch {
	case c.resident < 0:
		c.resident, c.process = resident, process
	case c.resident != resident:
		c.several = true
	case c.process != process:
		c.process = ""
	}
}

func (c *candidate) one() bool { return c.resident >= 0 && !c.several }

// follow adds to what a client dials where the host that has the address translates it to.
func (v *pairView) follow(x *pairIndex, views [][]pairView) {
	for i := range v.halves {
		h := &v.halves[i]
		if h.side != model.RoleClient {
			continue
		}
		for _, at := range h.spots[:h.count] {
			if at.spot>>transportShift&3 != uint64(model.TCP) || x.local(at.address, at.network, v.host) {
				continue
			}
			host := x.hostWith(at.address, v.host)
			if host < 0 {
				continue
			}
			for s := range views[host] {
				if to, ok := views[host][s].translated(at.spot, func(client uint64) bool {
					return x.sends(h.known, v.host, client)
				}); ok {
					h.add(&to, model.TCP, host)
				}
			}
		}
	}
}

// translated is where the connections of a client go to, or where the host says nothing of it those of all clients.
func (v *pairView) translated(dialled uint64, from func(client uint64) bool) (place, bool) {
	if to, ok := v.target(dialled, from); ok {
		return to, true
	}
	return v.target(dialled, func(uint64) bool { return true })
}

// hostWith is the only other host that has an address, -1 where there is none or several.
func (x *pairIndex) hostWith(address uint64, host int32) int32 {
	found := int32(-1)
	x.owners.all(address, func(o *addressOwner) bool {
		switch {
		case !o.isHost || o.host == host || o.ended || o.host == found:
		case found >= 0:
			found = -1
			return false
		default:
			found = o.host
		}
		return true
	})
	return found
}

// find finds the other ends of all halves.
func (v *pairView) find(p *pairing) {
	x := &p.index
	for i := range v.halves {
		h := &v.halves[i]
		var byAddress candidate
		others := &x.serversOf
		if h.side == model.RoleClient {
			byAddress = v.server(x, p.residents, h)
		} else {
			byAddress, others = v.client(x, h), &x.clientsOf
		}
		found := h.sameConnections(others, byAddress)
		if found.one() {
			h.found, h.foundProcess, h.confidence = found.resident, found.process, found.confidence
		}
	}
}

// sameConnections is who counted the same connections at the other end: exactly so where nobody else can be meant, which
// is where addresses say nothing else, or where all connections of the sample are that one's.
func (h *half) sameConnections(others *chains[uint64, *half], byAddress candidate) candidate {
	same, explained := nobody(), 0
	for _, connection := range h.connections {
		before := explained
		others.all(connection, func(other **half) bool {
			if o := *other; o.host != h.host {
				same.add(o.known, o.process)
				explained = before + 1
			}
			return true
		})
	}
	same.confidence = model.Exact
	switch {
	case same.resident < 0:
		return byAddress
	case same.several || byAddress.several:
		return candidate{resident: -1, several: true}
	case byAddress.resident == same.resident || explained == len(h.connections):
		return same
	case byAddress.resident < 0:
		return nobody()
	}
	return candidate{resident: -1, several: true}
}

// server is who serves what a client dials, as addresses say.
func (v *pairView) server(x *pairIndex, residents []resident, h *half) candidate {
	counted := nobody()
	for _, at := range h.spots[:h.count] {
		if at.host < 0 && x.local(at.address, at.network, v.host) {
			continue
		}
		if counted = v.counted(x, residents, h, &at); counted.one() {
			counted.confidence = model.ByListener
			return counted
		}
	}
	several := counted.several
	// The last one first: what was dialled may be translated behind a host's own listener.
	for i := int(h.count) - 1; i >= 0; i-- {
		at := &h.spots[i]
		if at.spot>>transportShift&3 != uint64(model.TCP) || at.host < 0 && x.local(at.address, at.network, v.host) {
			continue
		}
		c := x.listens(at, v.host)
		if several = several || c.several; c.one() {
			c.confidence = model.ByListener
			return c
		}
	}
	for i := int(h.count) - 1; i >= 0; i-- {
		at := &h.spots[i]
		if at.host < 0 && x.local(at.address, at.network, v.host) {
			continue
		}
		c := x.owner(at.address, v.host, at.host)
		if several = several || c.several; c.one() {
			c.confidence = model.ByAddress
			return c
		}
	}
	return candidate{resident: -1, several: several}
}

// counted is who counted connections of a client at an address that it dials.
func (v *pairView) counted(x *pairIndex, residents []resident, h *half, at *reached) candidate {
	found := nobody()
	look := func(s *indexedHalf) bool {
		if s.host != v.host && (at.host < 0 || at.host == s.host) && x.sends(h.known, v.host, s.client.address) {
			found.add(s.known, s.process)
		}
		return true
	}
	switch list := x.serving.heads[at.spot]; {
	case list.count <= shortList:
		x.serving.all(at.spot, look)
	case at.host >= 0:
		x.servingOn.all(spotHost{at.spot, at.host}, look)
	default:
		for i := range v.owned {
			if o := &v.owned[i]; o.resident == h.known || residents[o.resident].isHost {
				x.servingFor.all(spotClient{at.spot, o.address}, look)
			}
		}
	}
	return found
}

// listens is who listens at an address on another host.
func (x *pairIndex) listens(at *reached, host int32) candidate {
	found := nobody()
	owners := 0
	x.owners.all(at.address, func(o *addressOwner) bool {
		if owners++; owners > maxOwners {
			found.several = true
			return false
		}
		if o.host == host || o.ended || at.host >= 0 && at.host != o.host {
			return true
		}
		ipv4Only, ok := x.wildcard[residentPort{o.resident, at.port}]
		if ok && (!ipv4Only || at.address&isIPv4 != 0) || x.listensAt(o.resident, at.spot) {
			found.add(o.resident, "")
		}
		return true
	})
	return found
}

func (x *pairIndex) listensAt(resident int32, spot uint64) (found bool) {
	x.listening.all(spot&^(3<<transportShift), func(r *int32) bool {
		found = *r == resident
		return !found
	})
	return found
}

// owner is the container that has an address on another host; only says on which, if it is not -1.
func (x *pairIndex) owner(address uint64, host, only int32) candidate {
	found := nobody()
	x.owners.all(address, func(o *addressOwner) bool {
		if o.host != host && !o.isHost && !o.ended && (only < 0 || only == o.host) {
			found.add(o.resident, "")
		}
		return !found.several
	})
	return found
}

// client is who dials a server and may be what it sees, as addresses say.
func (v *pairView) client(x *pairIndex, h *half) candidate {
	if h.client.address == 0 || x.local(h.client.address, h.client.network, v.host) {
		return nobody()
	}
	// Who has the address itself, before whose host has it.
	itself, behind, owners := nobody(), nobody(), 0
	x.owners.all(h.client.address, func(o *addressOwner) bool {
		if owners++; owners > maxOwners {
			itself.several, behind.several = true, true
			return false
		}
		if o.host == v.host {
			return true
		}
		x.diallers(h, o.host, func(c *half) {
			switch {
			case o.isHost:
				behind.add(c.known, c.process)
			case o.resident == c.known:
				itself.add(c.known, c.process)
			}
		})
		return true
	})
	itself.confidence, behind.confidence = model.ByAddress, model.ByAddress
	if itself.one() {
		return itself
	}
	if behind.one() {
		return behind
	}
	c := x.owner(h.client.address, v.host, -1)
	c.confidence = model.ByAddress
	if !c.one() && (itself.several || behind.several) {
		c.several = true
	}
	return c
}

// diallers calls f for the halves of a host whose clients dial a server.
func (x *pairIndex) diallers(h *half, host int32, f func(c *half)) {
	for _, at := range h.spots[:h.count] {
		look := func(c *indexedHalf) bool {
			if c.host == host && (c.only < 0 || c.only == h.host) {
				f(c.half)
			}
			return true
		}
		if x.dialling.heads[at.spot].count <= shortList {
			x.dialling.all(at.spot, look)
		} else {
			x.diallingOn.all(spotHost{at.spot, host}, look)
		}
	}
}
