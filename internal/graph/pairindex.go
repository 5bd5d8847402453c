package graph

import (
	"cmp"
	"slices"
	"sort"
	"sync"

	"outsight/internal/model"
)

// maxOwners is how many containers may have an address of which one is looked for: beyond that it tells nothing.
const maxOwners = 64

// pairIndex finds containers by their addresses, and halves by what they have in common. Addresses, and addresses with
// ports (spots), have numbers.
type pairIndex struct {
	addresses []numberedAddress // by number
	ports     []uint16
	owners    lists[addressOwner] // by address, in the order of hosts
	listening lists[int32]        // by spot
	wildcards lists[wildcard]     // by container
	// bridges are networks of a host that others have as well.
	bridges map[networkHost]struct{}
	hostOf  []int32 // by container
	// serving and dialling are halves by the server's spot and transport, in the order of hosts; servingFor are those of
	// long lists in the order of the client's address.
	serving, dialling lists[indexedHalf]
	servingFor        map[int32]*byClient
	// same are the halves of other hosts that have connections of a half, by its index.
	same   lists[sameHalf]
	halves int
}

type numberedAddress struct {
	network uint64
	v4      bool
}

type networkHost struct {
	network uint64
	host    int32
}

type addressOwner struct {
	resident, host int32
	isHost, ended  bool
}

// wildcard is a port that is listened at on all addresses, or on all of IPv4.
type wildcard struct {
	port uint16
	ipv4 bool
}

// indexedHalf is a half that can be reached at a spot, which means something on host only, if that is not -1. What a
// half is found by stands here again: halves are far apart in memory.
type indexedHalf struct {
	*half
	only, host, client, known int32
}

// byClient is a long list in the order of the client's address, which is made when it is first needed.
type byClient struct {
	once sync.Once
	list []indexedHalf
}

func (b *byClient) of(all []indexedHalf) []indexedHalf {
	b.once.Do(func() {
		b.list = slices.Clone(all)
		slices.SortStableFunc(b.list, func(x, y indexedHalf) int { return cmp.Compare(x.client, y.client) })
	})
	return b.list
}

type sameHalf struct {
	*half
	hash uint64
}

// number gives places their numbers.
func (x *pairIndex) number(all []*pairView) {
	used := 0
	for _, v := range all {
		used += len(v.used)
	}
	both(func() {
		addresses := newNumbers(used)
		x.addresses = make([]numberedAddress, 0, used/4)
		for _, v := range all {
			for _, p := range v.used {
				number, added := addresses.of(p.addressKey)
				if p.address = number; added {
					x.addresses = append(x.addresses, numberedAddress{p.network, p.v4})
				}
			}
		}
	}, func() {
		spots := newNumbers(used)
		x.ports = make([]uint16, 0, used)
		for _, v := range all {
			for _, p := range v.used {
				if p.spotKey == 0 {
					continue
				}
				number, added := spots.of(p.spotKey)
				if p.spot = number; added {
					x.ports = append(x.ports, p.port)
				}
			}
		}
	})
}

func (x *pairIndex) addResidents(all []*pairView, residents []resident) {
	x.owners = newLists(len(x.addresses), func(add func(int32, addressOwner)) {
		for _, v := range all {
			for _, o := range v.owned {
				if r := &residents[o.resident]; o.at.addressKey != 0 && !o.at.loopback {
					add(o.at.address, addressOwner{o.resident, r.host, r.isHost, o.ended})
				}
			}
		}
	})
	x.listening = newLists(len(x.ports), func(add func(int32, int32)) {
		for _, v := range all {
			for _, l := range v.listen {
				if l.at.spot >= 0 && !l.at.loopback && !l.at.unspecified {
					add(l.at.spot, l.resident)
				}
			}
		}
	})
	x.wildcards = newLists(len(residents), func(add func(int32, wildcard)) {
		for _, v := range all {
			for _, l := range v.listen {
				if l.at.unspecified {
					add(l.resident, wildcard{l.at.port, l.at.v4})
				}
			}
		}
	})
	x.hostOf = make([]int32, len(residents))
	for i := range residents {
		x.hostOf[i] = residents[i].host
	}
	x.findBridges(all, residents)
}

// findBridges finds the networks of which a host has only addresses that others have as well. These are the gateways of
// bridges: what else is there is on the same host, whoever has the same address elsewhere.
func (x *pairIndex) findBridges(all []*pairView, residents []resident) {
	x.bridges = map[networkHost]struct{}{}
	own := map[uint64]bool{} // whether an address is the host's alone, by networks
	for _, v := range all {
		clear(own)
		for _, o := range v.owned {
			if residents[o.resident].isHost && o.at.addressKey != 0 {
				own[o.at.network] = own[o.at.network] || !x.shared(o.at.address, v.host)
			}
		}
		for network, alone := range own {
			if !alone {
				x.bridges[networkHost{network, v.host}] = struct{}{}
			}
		}
	}
}

// shared reports whether another host has an address of a host.
func (x *pairIndex) shared(address, host int32) bool {
	for _, o := range x.owners.of(address) {
		if o.isHost && o.host != host {
			return true
		}
	}
	return false
}

// ownersOn are those of an address on a host.
func (x *pairIndex) ownersOn(address, host int32) []addressOwner {
	all := x.owners.of(address)
	begin := sort.Search(len(all), func(i int) bool { return all[i].host >= host })
	end := begin
	for end < len(all) && all[end].host == host {
		end++
	}
	return all[begin:end]
}

// has reports whether a container has an address.
func (x *pairIndex) has(resident, address int32) bool {
	for _, o := range x.owners.of(address) {
		if o.resident == resident {
			return true
		}
	}
	return false
}

// local reports whether an address that is seen on a host means something there alone.
func (x *pairIndex) local(address, host int32) bool {
	for _, o := range x.ownersOn(address, host) {
		if !o.ended {
			return true
		}
	}
	_, bridge := x.bridges[networkHost{x.addresses[address].network, host}]
	return bridge
}

// sends reports whether a client on a host may be what is seen as address: its own, or its host's.
func (x *pairIndex) sends(client, host, address int32) bool {
	if address < 0 {
		return false
	}
	for _, o := range x.ownersOn(address, host) {
		if o.resident == client || o.isHost {
			return true
		}
	}
	return false
}

// shortList is how long a list may be that is walked whole.
const shortList = 16

func spotOf(spot int32, transport model.Transport) int32 { return spot<<1 | int32(transport)&1 }

func (x *pairIndex) addHalves(all []*pairView) {
	for _, v := range all {
		v.first = int32(x.halves)
		x.halves += len(v.halves)
	}
	both(func() {
		x.serving = x.indexHalves(all, model.RoleServer)
		x.servingFor = map[int32]*byClient{}
		for at := range int32(2 * len(x.ports)) {
			if len(x.serving.of(at)) > shortList {
				x.servingFor[at] = &byClient{}
			}
		}
		x.dialling = x.indexHalves(all, model.RoleClient)
	}, func() { x.matchConnections(all) })
}

func (x *pairIndex) indexHalves(all []*pairView, side model.Role) lists[indexedHalf] {
	return newLists(2*len(x.ports), func(add func(int32, indexedHalf)) {
		for _, v := range all {
			for i := range v.halves {
				if h := &v.halves[i]; h.side == side {
					for _, at := range h.spots[:h.count] {
						add(spotOf(at.spot, h.transport), indexedHalf{h, at.host, v.host, h.client, h.known})
					}
				}
			}
		}
	})
}

// matchConnections finds the halves of different hosts that have the same connections.
func (x *pairIndex) matchConnections(all []*pairView) {
	count := 0
	for _, v := range all {
		count += len(v.hashes)
	}
	if count == 0 {
		return
	}
	hashes := newNumbers(count)
	type link struct {
		half *half
		next int32
	}
	servers := make([]link, 1, count/2+1) // 0 ends a list
	first := make([]int32, count)
	x.eachConnection(all, model.RoleServer, func(h *half, hash uint64) {
		number, _ := hashes.of(hash | isIPv6)
		servers = append(servers, link{h, first[number]})
		first[number] = int32(len(servers) - 1)
	})
	type match struct {
		client, server *half
		hash           uint64
	}
	matches := make([]match, 0, count/2)
	x.eachConnection(all, model.RoleClient, func(h *half, hash uint64) {
		number, ok := hashes.find(hash | isIPv6)
		if !ok {
			return
		}
		for at := first[number]; at > 0; at = servers[at].next {
			if server := servers[at].half; server.view.host != h.view.host {
				matches = append(matches, match{h, server, hash})
			}
		}
	})
	x.same = newLists(x.halves, func(add func(int32, sameHalf)) {
		for _, m := range matches {
			add(m.client.number(), sameHalf{m.server, m.hash})
			add(m.server.number(), sameHalf{m.client, m.hash})
		}
	})
}

// eachConnection calls f for the sampled connections of the halves of one side.
func (x *pairIndex) eachConnection(all []*pairView, side model.Role, f func(h *half, hash uint64)) {
	for _, v := range all {
		if len(v.hashes) == 0 {
			continue
		}
		for i := range v.halves {
			if h := &v.halves[i]; h.side == side {
				for _, hash := range h.sample {
					f(h, hash)
				}
			}
		}
	}
}

// number is the half's index among all halves.
func (h *half) number() int32 { return h.view.first + h.view.halfOf[h.edge] }
