package graph

import (
	"slices"

	"outsight/internal/model"
)

// maxOwners is how many containers may have an address of which one is looked for: beyond that it tells nothing.
const maxOwners = 64

// pairIndex finds containers by their addresses, and halves by what they have in common.
type pairIndex struct {
	// owners are of an address, owns says whether a container, or any container of the host (^host) that is the host
	// itself, has one.
	owners    chains[uint64, addressOwner]
	owns      map[residentAddress]struct{}
	listening chains[uint64, int32]
	// wildcard has ports that are listened at on all addresses; the value says that those of IPv4 are meant alone.
	wildcard map[residentPort]bool
	// bridges are networks of a host that others have as well.
	bridges map[residentAddress]struct{}
	// serving and dialling are halves by the server's address. Those of long lists are found by the host, and by the
	// client's address, too.
	serving, dialling     chains[uint64, indexedHalf]
	servingOn, diallingOn chains[spotHost, indexedHalf]
	servingFor            chains[spotClient, indexedHalf]
	// clientsOf and serversOf are halves by the connections that they counted.
	clientsOf, serversOf chains[uint64, *half]
	halves               int
}

type spotHost struct {
	spot uint64
	host int32
}

type spotClient struct{ spot, client uint64 }

type residentAddress struct {
	address  uint64
	resident int32
}

type residentPort struct {
	resident int32
	port     uint16
}

type addressOwner struct {
	resident, host int32
	isHost, ended  bool
}

// indexedHalf is a half that can be reached at an address, which means something on host alone, if that is not -1.
type indexedHalf struct {
	*half
	only int32
}

// chains are lists by a key, in the order in which they were added.
type chains[K comparable, V any] struct {
	heads map[K]chain
	links []chained[V]
}

type chain struct{ first, last, count int32 }

type chained[V any] struct {
	value V
	next  int32
}

func newChains[K comparable, V any](size int) chains[K, V] {
	return chains[K, V]{make(map[K]chain, size), make([]chained[V], 0, size)}
}

func (c *chains[K, V]) add(key K, value V) {
	at := int32(len(c.links))
	c.links = append(c.links, chained[V]{value, -1})
	list, ok := c.heads[key]
	if !ok {
		c.heads[key] = chain{at, at, 1}
		return
	}
	c.links[list.last].next = at
	c.heads[key] = chain{list.first, at, list.count + 1}
}

// all calls f for the values of a key until it answers false.
func (c *chains[K, V]) all(key K, f func(value *V) bool) {
	if list, ok := c.heads[key]; ok {
		for at := list.first; at >= 0; at = c.links[at].next {
			if !f(&c.links[at].value) {
				return
			}
		}
	}
}

func (x *pairIndex) addResidents(all []*pairView, residents []resident) {
	owned, listens := 0, 0
	for _, v := range all {
		owned += len(v.owned)
		listens += len(v.listen)
	}
	x.owners, x.listening = newChains[uint64, addressOwner](owned), newChains[uint64, int32](listens)
	x.owns, x.wildcard = make(map[residentAddress]struct{}, owned), make(map[residentPort]bool, listens)
	for _, v := range all {
		for i := range v.owned {
			x.addOwner(&v.owned[i], residents)
		}
		for i := range v.listen {
			switch l := &v.listen[i]; {
			case l.loopback:
			case l.unspecified:
				// The IPv6 wildcard accepts IPv4 too.
				key := residentPort{l.resident, l.port}
				only, known := x.wildcard[key]
				x.wildcard[key] = !l.v6 && (only || !known)
			default:
				x.listening.add(l.spot, l.resident)
			}
		}
	}
	x.findBridges(all, residents)
}

func (x *pairIndex) addOwner(o *ownedAddress, residents []resident) {
	key := residentAddress{o.address, o.resident}
	if _, known := x.owns[key]; known || o.address == 0 || o.loopback {
		return
	}
	r := &residents[o.resident]
	x.owns[key] = struct{}{}
	if r.isHost {
		x.owns[residentAddress{o.address, ^r.host}] = struct{}{}
	}
	x.owners.add(o.address, addressOwner{o.resident, r.host, r.isHost, o.ended})
}

// findBridges finds the networks of which a host has only addresses that others have as well. These are the gateways of
// bridges: what else is there is on the same host, whoever has the same address elsewhere.
func (x *pairIndex) findBridges(all []*pairView, residents []resident) {
	x.bridges = map[residentAddress]struct{}{}
	for _, v := range all {
		own := map[uint64]bool{} // whether an address is the host's alone, by networks
		for i := range v.owned {
			if o := &v.owned[i]; residents[o.resident].isHost {
				own[o.network] = own[o.network] || !x.shared(o.address, v.host)
			}
		}
		for network, alone := range own {
			if !alone {
				x.bridges[residentAddress{network, v.host}] = struct{}{}
			}
		}
	}
}

// shared reports whether another host has an address of a host.
func (x *pairIndex) shared(address uint64, host int32) (found bool) {
	x.owners.all(address, func(o *addressOwner) bool {
		found = o.isHost && o.host != host
		return !found
	})
	return found
}

// local reports whether an address that is seen on a host means something there alone.
func (x *pairIndex) local(address, network uint64, host int32) bool {
	_, bridge := x.bridges[residentAddress{network, host}]
	if bridge {
		return true
	}
	found := false
	x.owners.all(address, func(o *addressOwner) bool {
		found = o.host == host && !o.ended
		return !found
	})
	return found
}

// sends reports whether a client on a host may be what is seen as address: its own, or its host's.
func (x *pairIndex) sends(client, host int32, address uint64) bool {
	if _, own := x.owns[residentAddress{address, client}]; own {
		return true
	}
	_, own := x.owns[residentAddress{address, ^host}]
	return own
}

// shortList is how long a list may be that is walked whole.
const shortList = 16

func (x *pairIndex) addHalves(all []*pairView) {
	for _, v := range all {
		x.halves += len(v.halves)
	}
	both(func() {
		x.serving, x.servingOn, x.servingFor = indexHalves(all, model.RoleServer, x.halves)
		x.serversOf = indexConnections(all, model.RoleServer)
	}, func() {
		x.dialling, x.diallingOn, _ = indexHalves(all, model.RoleClient, x.halves)
		x.clientsOf = indexConnections(all, model.RoleClient)
	})
}

func indexHalves(all []*pairView, side model.Role, size int) (by chains[uint64, indexedHalf],
	on chains[spotHost, indexedHalf], from chains[spotClient, indexedHalf]) {
	by = newChains[uint64, indexedHalf](size)
	each := func(f func(h *half, at *reached)) {
		for _, v := range all {
			for i := range v.halves {
				if h := &v.halves[i]; h.side == side {
					for j := range h.spots[:h.count] {
						f(h, &h.spots[j])
					}
				}
			}
		}
	}
	each(func(h *half, at *reached) { by.add(at.spot, indexedHalf{h, at.host}) })
	long := 0
	for _, list := range by.heads {
		if list.count > shortList {
			long += int(list.count)
		}
	}
	on, from = newChains[spotHost, indexedHalf](long), newChains[spotClient, indexedHalf](long)
	if long == 0 {
		return by, on, from
	}
	each(func(h *half, at *reached) {
		if by.heads[at.spot].count <= shortList {
			return
		}
		on.add(spotHost{at.spot, h.host}, indexedHalf{h, at.host})
		if side == model.RoleServer {
			from.add(spotClient{at.spot, h.client.address}, indexedHalf{h, at.host})
		}
	})
	return by, on, from
}

func indexConnections(all []*pairView, side model.Role) chains[uint64, *half] {
	by := newChains[uint64, *half](0)
	for _, v := range all {
		for i := range v.halves {
			h := &v.halves[i]
			if h.side != side {
				continue
			}
			slices.Sort(h.connections)
			h.connections = slices.Compact(h.connections)
			for _, connection := range h.connections {
				by.add(connection, h)
			}
		}
	}
	return by
}
