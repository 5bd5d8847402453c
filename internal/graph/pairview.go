package graph

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"slices"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// pairView is what one span of a host says about ends.
type pairView struct {
	host int32
	span int
	frame.Span
	// residents are the numbers of the rows of containers.
	residents []int32
	// places are what the texts of After mean as addresses.
	places []place
	owned  []ownedAddress
	listen []listening
	// translations in the order of what is dialled.
	translations []translation
	halves       []half
	// halfOf is the index in halves by the index of an edge, -1 for none.
	halfOf []int32
}

// place is an address, and where it has one a port, as integers: those of IPv4 are exact, those of IPv6 hashes under a
// seed of the process. All are 0 for a text that is none.
type place struct {
	address, spot uint64
	// network is that of the address and its neighbours: 24 bits of IPv4, 64 of IPv6.
	network                         uint64
	port                            uint16
	read, loopback, unspecified, v6 bool
}

const (
	isIPv4 = 1 << 62
	isIPv6 = 1 << 63
	// The transport of a spot is in these bits.
	transportShift = 60
)

var placeSeed = maphash.MakeSeed()

func placeOf(a netip.AddrPort) place {
	addr := a.Addr().Unmap().WithZone("")
	if !addr.IsValid() {
		return place{read: true}
	}
	p := place{read: true, port: a.Port(), loopback: addr.IsLoopback(), unspecified: addr.IsUnspecified(), v6: addr.Is6()}
	if addr.Is4() {
		bytes := addr.As4()
		n := uint64(binary.BigEndian.Uint32(bytes[:]))
		p.address, p.network, p.spot = n|isIPv4, n>>8|isIPv4, n<<16|uint64(p.port)|isIPv4
		return p
	}
	bytes := addr.As16()
	hash := func(v any) uint64 { return isIPv6 | maphash.Comparable(placeSeed, v)>>4 }
	p.address, p.network = hash(bytes), hash([8]byte(bytes[:8]))
	p.spot = hash(netip.AddrPortFrom(addr, p.port))
	return p
}

// place reads a text of After, once.
func (v *pairView) place(text uint64) *place {
	p := &v.places[text]
	if !p.read {
		*p = parsePlace(v.After.Strings[text])
	}
	return p
}

func parsePlace(text string) place {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return placeOf(at)
	}
	addr, _ := netip.ParseAddr(text)
	return placeOf(netip.AddrPortFrom(addr, 0))
}

// ownedAddress is an address that a container has; ended is of one that has ended in the span.
type ownedAddress struct {
	place
	resident int32
	ended    bool
}

type listening struct {
	place
	resident int32
}

// translation is what the conntrack table of a host says: what is dialled is reached elsewhere.
type translation struct {
	client  uint64
	dialled uint64
	reached place
}

// half is an edge of which its host knows one end.
type half struct {
	edge   int32
	host   int32
	side   model.Role
	paired bool
	// known is the end that counted, found the other one, -1 while that is not known.
	known, found int32
	// client is the address of a client that is not known.
	client place
	// spots are the addresses of the server: as dialled, as translated on the way, as the server sees it.
	spots      [maxSpots]reached
	count      uint8
	confidence model.Confidence
	// process is that of the known end, foundProcess that of the other one.
	process, foundProcess string
	// connections are hashes of some of the connections that it counted.
	connections []uint64
}

const maxSpots = 6

// reached is where a client's connections arrive.
type reached struct {
	spot, address, network uint64
	port                   uint16
	// host is where the address means anything, -1 for everywhere.
	host int32
}

func (h *half) add(p *place, transport model.Transport, host int32) {
	if p.spot == 0 || p.loopback || h.count == maxSpots {
		return
	}
	at := reached{p.spot | uint64(transport)<<transportShift, p.address, p.network, p.port, host}
	if !slices.Contains(h.spots[:h.count], at) {
		h.spots[h.count] = at
		h.count++
	}
}

// read reads what the span says about containers, translations and edges.
func (v *pairView) read() {
	if v.After == nil {
		return
	}
	v.places = make([]place, len(v.After.Strings))
	v.readContainers()
	v.readTranslations(v.After)
	if v.Before != nil {
		v.readTranslations(v.Before)
	}
	slices.SortFunc(v.translations, func(a, b translation) int { return cmp.Compare(a.dialled, b.dialled) })
	v.readEdges()
	v.readConnections()
}

func (v *pairView) readContainers() {
	containers := &v.After.Tables[frame.Containers]
	t := &v.After.Tables[frame.Addresses]
	for row := range t.IDs {
		if at, ok := containers.Find(uint32(t.Attribute(frame.AddressOf, row))); ok {
			v.owned = append(v.owned, ownedAddress{*v.place(t.Attribute(frame.Address, row)), v.residents[at], false})
		}
	}
	t = &v.After.Tables[frame.Listeners]
	for row := range t.IDs {
		if at, ok := containers.Find(uint32(t.Attribute(frame.AddressOf, row))); ok {
			v.listen = append(v.listen, listening{*v.place(t.Attribute(frame.Address, row)), v.residents[at]})
		}
	}
	if v.Before == nil {
		return
	}
	// A container that has ended since had its addresses then.
	t = &v.Before.Tables[frame.Addresses]
	for row := range t.IDs {
		at, ok := containers.Find(uint32(t.Attribute(frame.AddressOf, row)))
		if ok && containers.Attribute(frame.State, at) != frame.Live {
			v.owned = append(v.owned, ownedAddress{parsePlace(v.Before.Text(frame.Addresses, frame.Address, row)),
				v.residents[at], true})
		}
	}
}

func (v *pairView) readTranslations(f *frame.Frame) {
	t := &f.Tables[frame.Translations]
	for row := range t.IDs {
		text := func(a frame.Attribute) place { return parsePlace(f.Text(frame.Translations, a, row)) }
		client, dialled := text(frame.TranslationClient), text(frame.TranslationDialled)
		v.translations = append(v.translations, translation{client.address, dialled.spot, text(frame.TranslationReached)})
	}
}

// target is where all translated connections to what is dialled go to; ok is false where they go to several. from says
// which clients are meant.
func (v *pairView) target(dialled uint64, from func(client uint64) bool) (found place, ok bool) {
	i, _ := slices.BinarySearchFunc(v.translations, dialled,
		func(t translation, spot uint64) int { return cmp.Compare(t.dialled, spot) })
	for ; i < len(v.translations) && v.translations[i].dialled == dialled; i++ {
		t := &v.translations[i]
		switch {
		case !from(t.client):
		case ok && found.spot != t.reached.spot:
			return place{}, false
		default:
			found, ok = t.reached, true
		}
	}
	return found, ok
}

func (v *pairView) readEdges() {
	t := &v.After.Tables[frame.Edges]
	if len(t.IDs) == 0 {
		return
	}
	containers := &v.After.Tables[frame.Containers]
	v.halfOf = make([]int32, len(t.IDs))
	halves := 0
	clients, servers, sides := t.Attributes[frame.EdgeClient], t.Attributes[frame.EdgeServer], t.Attributes[frame.EdgeSide]
	for row := range t.IDs {
		v.halfOf[row] = -1
		known, other := clients[row], servers[row]
		if model.Role(sides[row]) == model.RoleServer {
			known, other = other, known
		}
		if known != 0 && other == 0 && t.Attributes[frame.EdgeService][row] != 0 {
			v.halfOf[row] = int32(halves)
			halves++
		}
	}
	v.halves = make([]half, 0, halves)
	for row, i := range v.halfOf {
		if i < 0 {
			continue
		}
		h := half{edge: int32(row), host: v.host, side: model.Role(sides[row]), found: -1}
		known, process := clients[row], frame.EdgeClientProcess
		if h.side == model.RoleServer {
			known, process = servers[row], frame.EdgeServerProcess
			h.client = *v.place(t.Attribute(frame.EdgeClientAddress, row))
		}
		at, ok := containers.Find(uint32(known))
		if !ok {
			v.halfOf[row] = -1
			continue
		}
		h.known, h.process = v.residents[at], v.After.Text(frame.Edges, process, row)
		transport := model.Transport(t.Attribute(frame.EdgeTransport, row))
		service := v.place(t.Attribute(frame.EdgeService, row))
		h.add(service, transport, -1)
		h.add(v.place(t.Attribute(frame.EdgeBackend, row)), transport, -1)
		if h.side == model.RoleClient {
			if to, ok := v.target(service.spot, func(client uint64) bool { return v.has(h.known, client) }); ok {
				h.add(&to, transport, -1)
			}
		}
		v.halfOf[row] = int32(len(v.halves))
		v.halves = append(v.halves, h)
	}
}

// has reports whether a container of the view has an address.
func (v *pairView) has(resident int32, address uint64) bool {
	return slices.ContainsFunc(v.owned, func(o ownedAddress) bool { return o.resident == resident && o.address == address })
}

func (v *pairView) readConnections() {
	t, edges := &v.After.Tables[frame.Connections], &v.After.Tables[frame.Edges]
	for row := range t.IDs {
		edge, ok := edges.Find(uint32(t.Attribute(frame.ConnectionEdge, row)))
		if ok && v.halfOf[edge] >= 0 {
			h := &v.halves[v.halfOf[edge]]
			h.connections = append(h.connections, t.Attribute(frame.ConnectionHash, row))
		}
	}
}
