package graph

import (
	"slices"
	"sort"

	"outsight/internal/model"
)

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
		if h.side != model.RoleClient || h.transport != model.TCP {
			continue
		}
		for _, at := range h.spots[:h.count] {
			if x.local(at.address, v.host) {
				continue
			}
			host := x.hostWith(at.address, v.host)
			if host < 0 {
				continue
			}
			for s := range views[host] {
				there := &views[host][s]
				to := there.target(at.spot, func(client int32) bool { return x.sends(h.known, v.host, client) })
				if to == nil {
					to = there.target(at.spot, func(int32) bool { return true })
				}
				if to != nil {
					h.add(to, host)
				}
			}
		}
	}
}

// hostWith is the only other host that has an address, -1 where there is none or several.
func (x *pairIndex) hostWith(address, host int32) int32 {
	found := int32(-1)
	for _, o := range x.owners.of(address) {
		switch {
		case !o.isHost || o.host == host || o.ended || o.host == found:
		case found >= 0:
			return -1
		default:
			found = o.host
		}
	}
	return found
}

// find finds the other ends of all halves.
func (v *pairView) find(p *pairing) {
	x := &p.index
	for i := range v.halves {
		h := &v.halves[i]
		var found candidate
		if h.side == model.RoleClient {
			found = v.server(x, p.residents, h)
		} else {
			found = v.client(x, h)
		}
		if found = x.sameConnections(h, found); found.one() {
			h.found, h.foundProcess, h.confidence = found.resident, found.process, found.confidence
		}
	}
}

// sameConnections is who counted the same connections at the other end: exactly so where nobody else can be meant,
// which is where addresses say nothing else, or where no connection of the sample is somebody else's.
func (x *pairIndex) sameConnections(h *half, byAddress candidate) candidate {
	same := nobody()
	matches := x.same.of(h.number())
	for _, m := range matches {
		same.add(m.known, m.process)
	}
	same.confidence = model.Exact
	switch {
	case same.resident < 0:
		return byAddress
	case same.several || byAddress.several:
		return candidate{resident: -1, several: true}
	case byAddress.resident == same.resident || h.isOnly(matches):
		return same
	}
	return nobody()
}

// isOnly reports whether no connection of a half's sample is one that none of its matches counted. Samples of two hosts
// differ, because their rounds do not begin at the same instant: what a match need not tell is not held against it.
// Nor is one of five connections that it must tell: frames of two hosts are not of the same instant either.
func (h *half) isOnly(matches []sameHalf) bool {
	known, foreign := 0, 0
	for _, hash := range h.sample {
		switch {
		case slices.ContainsFunc(matches, func(m sameHalf) bool { return m.hash == hash }):
			known++
		case !slices.ContainsFunc(matches, func(m sameHalf) bool { return !mustTell(m.sample, hash) }):
			foreign++
		}
	}
	return foreign <= known/sampleSize
}

// server is who serves what a client dials, as addresses say.
func (v *pairView) server(x *pairIndex, residents []resident, h *half) candidate {
	var spots [maxSpots]reached
	count := 0
	for _, at := range h.spots[:h.count] {
		if at.host >= 0 || !x.local(at.address, v.host) {
			spots[count] = at
			count++
		}
	}
	several := false
	for i := range spots[:count] {
		c := v.counted(x, residents, h, &spots[i])
		if several = several || c.several; c.one() {
			c.confidence = model.ByListener
			return c
		}
	}
	// The last one first: what was dialled may be translated behind a host's own listener.
	for i := count - 1; i >= 0 && h.transport == model.TCP; i-- {
		c := x.listens(&spots[i], v.host)
		if several = several || c.several; c.one() {
			c.confidence = model.ByListener
			return c
		}
	}
	for i := count - 1; i >= 0; i-- {
		c := x.owner(spots[i].address, v.host, spots[i].host)
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
	look := func(all []indexedHalf) {
		for _, s := range all {
			if s.host != v.host && (at.host < 0 || at.host == s.host) && x.sends(h.known, v.host, s.client) {
				found.add(s.known, s.process)
			}
		}
	}
	number := spotOf(at.spot, h.transport)
	list := x.serving.of(number)
	switch {
	case len(list) <= shortList:
		look(list)
	case at.host >= 0:
		look(onHost(list, at.host))
	default:
		list = x.servingFor[number].of(list)
		for i := range v.owned {
			if o := &v.owned[i]; o.resident == h.known || residents[o.resident].isHost {
				look(ofClient(list, o.at.address))
			}
		}
	}
	return found
}

// onHost are those of a host in a list that is in the order of hosts.
func onHost(all []indexedHalf, host int32) []indexedHalf {
	begin := sort.Search(len(all), func(i int) bool { return all[i].host >= host })
	end := begin
	for end < len(all) && all[end].host == host {
		end++
	}
	return all[begin:end]
}

// ofClient are those with a client's address in a list that is in the order of these.
func ofClient(all []indexedHalf, address int32) []indexedHalf {
	begin := sort.Search(len(all), func(i int) bool { return all[i].client >= address })
	end := begin
	for end < len(all) && all[end].client == address {
		end++
	}
	return all[begin:end]
}

// listens is who listens at an address on another host.
func (x *pairIndex) listens(at *reached, host int32) candidate {
	found := nobody()
	owners := x.owners.of(at.address)
	if at.host >= 0 {
		owners = x.ownersOn(at.address, at.host)
	}
	if len(owners) > maxOwners {
		return candidate{resident: -1, several: true}
	}
	for _, o := range owners {
		if o.host == host || o.ended {
			continue
		}
		listens := slices.Contains(x.listening.of(at.spot), o.resident)
		for _, w := range x.wildcards.of(o.resident) {
			// The IPv6 wildcard accepts IPv4 too.
			listens = listens || w.port == x.ports[at.spot] && (!w.ipv4 || x.addresses[at.address].v4)
		}
		if listens {
			found.add(o.resident, "")
		}
	}
	return found
}

// owner is the container that has an address on another host; only says on which, if it is not -1.
func (x *pairIndex) owner(address, host, only int32) candidate {
	found := nobody()
	for _, o := range x.owners.of(address) {
		if o.host != host && !o.isHost && !o.ended && (only < 0 || only == o.host) {
			if found.add(o.resident, ""); found.several {
				break
			}
		}
	}
	return found
}

// client is who dials a server and may be what it sees, as addresses say.
func (v *pairView) client(x *pairIndex, h *half) candidate {
	if h.client < 0 || x.local(h.client, v.host) {
		return nobody()
	}
	owners := x.owners.of(h.client)
	if len(owners) > maxOwners {
		return candidate{resident: -1, several: true}
	}
	// Who has the address itself, before whose host has it.
	itself, behind := nobody(), nobody()
	for i := range owners {
		o := &owners[i]
		if o.host == v.host {
			continue
		}
		x.diallers(h, o.host, func(c *half) {
			switch {
			case o.isHost:
				behind.add(c.known, c.process)
			case o.resident == c.known:
				itself.add(c.known, c.process)
			}
		})
	}
	itself.confidence, behind.confidence = model.ByAddress, model.ByAddress
	if itself.one() {
		return itself
	}
	if behind.one() {
		return behind
	}
	c := x.owner(h.client, v.host, -1)
	c.confidence = model.ByAddress
	c.several = c.several || !c.one() && (itself.several || behind.several)
	return c
}

// diallers calls f for the halves of a host whose clients dial a server.
func (x *pairIndex) diallers(h *half, host int32, f func(c *half)) {
	for _, at := range h.spots[:h.count] {
		list := x.dialling.of(spotOf(at.spot, h.transport))
		if len(list) > shortList {
			list = onHost(list, host)
		}
		for _, c := range list {
			if c.host == host && (c.only < 0 || c.only == h.view.host) {
				f(c.half)
			}
		}
	}
}

// mark marks the halves of which the other half is there too.
func (v *pairView) mark(x *pairIndex) {
	for i := range v.halves {
		h := &v.halves[i]
		if h.found < 0 {
			continue
		}
		for _, m := range x.same.of(h.number()) {
			h.paired = h.paired || m.known == h.found && m.found == h.known
		}
		others := &x.serving
		if h.side == model.RoleServer {
			others = &x.dialling
		}
		for _, at := range h.spots[:h.count] {
			list := others.of(spotOf(at.spot, h.transport))
			if len(list) > shortList {
				list = onHost(list, x.hostOf[h.found])
			}
			for _, o := range list {
				h.paired = h.paired || o.known == h.found && o.found == h.known
			}
		}
	}
}
