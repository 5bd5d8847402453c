package graph

import (
	"cmp"
	"slices"
	"sort"
	"sync"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// pairView is what one span of a host says about ends.
type pairView struct {
	host int32
	span int
	frame.Span
	*pairMemory
	// residents are the numbers of the rows of containers.
	residents []int32
	// earlier are what the texts of Before mean as addresses; nil where it is not asked for any.
	earlier []place
	owned   []ownedAddress
	listen  []listening
	// translations are in the order of what is dialled, once the places have their numbers.
	translations []translation
	// first is the index of the first of halves among all halves of a window.
	first int32
	// hashes are those of the sampled connections of all halves.
	hashes []uint64
}

// pairMemory is what is used again for another window.
type pairMemory struct {
	// places are what the texts of After mean as addresses; used are those of them, and of earlier, that matter.
	places []place
	used   []*place
	halves []half
	// halfOf is the index in halves by the index of an edge, -1 for none.
	halfOf []int32
}

var pairMemories = sync.Pool{New: func() any { return &pairMemory{} }}

// release gives memory back. Nothing of the view may be read any more.
func (v *pairView) release() {
	m := v.pairMemory
	clear(m.places)
	clear(m.used)
	clear(m.halves)
	m.places, m.used, m.halves, m.halfOf = m.places[:0], m.used[:0], m.halves[:0], m.halfOf[:0]
	v.pairMemory = nil
	pairMemories.Put(m)
}

// ownedAddress is an address that a container has; ended is of one that has ended in the span.
type ownedAddress struct {
	at       *place
	resident int32
	ended    bool
}

type listening struct {
	at       *place
	resident int32
}

// translation is what the conntrack table of a host says: what is dialled is reached elsewhere.
type translation struct {
	client, dialled, reached *place
	spot                     int32 // of what is dialled, once it has its number
}

// half is an edge of which its host knows one end.
type half struct {
	view *pairView
	edge int32
	// known is the end that counted, found the other one, -1 while that is not known.
	known, found int32
	// client is the number of the address of a client that is not known.
	client int32
	// process is the process of the known end, foundProcess that of the other one; empty where it may be several.
	process, foundProcess string
	// texts are the indexes of the service and the backend.
	texts [2]uint32
	// sample are hashes of some of its connections, the least first; part of hashes of the view.
	sample []uint64
	// spots are the addresses of the server: as dialled, as translated on the way, as the server sees it.
	spots      [maxSpots]reached
	count      uint8
	transport  model.Transport
	side       model.Role
	paired     bool
	confidence model.Confidence
}

const maxSpots = 5

// reached is where a client's connections arrive.
type reached struct {
	spot, address int32
	// host is where the address means anything, -1 for everywhere.
	host int32
}

func (h *half) add(p *place, host int32) {
	if p.spot < 0 || p.loopback || h.count == maxSpots {
		return
	}
	at := reached{p.spot, p.address, host}
	if !slices.Contains(h.spots[:h.count], at) {
		h.spots[h.count] = at
		h.count++
	}
}

// place reads a text of After, once.
func (v *pairView) place(text uint64) *place { return v.read(v.places, v.After, text) }

func (v *pairView) read(places []place, f *frame.Frame, text uint64) *place {
	p := &places[text]
	if !p.read {
		*p = parsePlace(f.Strings[text])
		if p.addressKey != 0 {
			v.used = append(v.used, p)
		}
	}
	return p
}

// placeBefore reads a text of Before, once.
func (v *pairView) placeBefore(text uint64) *place {
	if v.earlier == nil {
		v.earlier = make([]place, len(v.Before.Strings))
	}
	return v.read(v.earlier, v.Before, text)
}

// collect reads what the span says about containers, translations and edges.
func (v *pairView) collect() {
	if v.After == nil {
		return
	}
	v.places = slices.Grow(v.places, len(v.After.Strings))[:len(v.After.Strings)]
	v.collectContainers()
	v.collectTranslations(v.After, v.place)
	if v.Before != nil {
		v.collectTranslations(v.Before, v.placeBefore)
	}
	v.collectEdges()
	v.collectConnections()
}

func (v *pairView) collectContainers() {
	containers := &v.After.Tables[frame.Containers]
	t := &v.After.Tables[frame.Addresses]
	v.owned = make([]ownedAddress, 0, len(t.IDs))
	for row := range t.IDs {
		if at, ok := containers.Find(uint32(t.Attribute(frame.AddressOf, row))); ok {
			v.owned = append(v.owned, ownedAddress{v.place(t.Attribute(frame.Address, row)), v.residents[at], false})
		}
	}
	t = &v.After.Tables[frame.Listeners]
	v.listen = make([]listening, 0, len(t.IDs))
	for row := range t.IDs {
		if at, ok := containers.Find(uint32(t.Attribute(frame.AddressOf, row))); ok {
			v.listen = append(v.listen, listening{v.place(t.Attribute(frame.Address, row)), v.residents[at]})
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
			v.owned = append(v.owned,
				ownedAddress{v.placeBefore(t.Attribute(frame.Address, row)), v.residents[at], true})
		}
	}
}

func (v *pairView) collectTranslations(f *frame.Frame, read func(text uint64) *place) {
	t := &f.Tables[frame.Translations]
	for row := range t.IDs {
		at := func(a frame.Attribute) *place { return read(t.Attribute(a, row)) }
		v.translations = append(v.translations,
			translation{at(frame.TranslationClient), at(frame.TranslationDialled), at(frame.TranslationReached), -1})
	}
}

func (v *pairView) collectEdges() {
	t := &v.After.Tables[frame.Edges]
	if len(t.IDs) == 0 {
		return
	}
	containers := &v.After.Tables[frame.Containers]
	v.halfOf = slices.Grow(v.halfOf, len(t.IDs))[:len(t.IDs)]
	v.halves = slices.Grow(v.halves, v.countHalves())
	for row := range t.IDs {
		v.halfOf[row] = -1
		known, process, isHalf := v.knownEnd(row)
		if !isHalf {
			continue
		}
		at, ok := containers.Find(known)
		if !ok {
			continue
		}
		v.halfOf[row] = int32(len(v.halves))
		v.halves = append(v.halves, half{view: v, edge: int32(row), known: v.residents[at], found: -1, client: -1,
			process: v.After.Text(frame.Edges, process, row), side: model.Role(t.Attribute(frame.EdgeSide, row)),
			transport: model.Transport(t.Attribute(frame.EdgeTransport, row)),
			texts:     [2]uint32{uint32(t.Attribute(frame.EdgeService, row)), uint32(t.Attribute(frame.EdgeBackend, row))}})
		for _, text := range v.halves[len(v.halves)-1].texts {
			v.place(uint64(text))
		}
		v.place(t.Attribute(frame.EdgeClientAddress, row))
	}
}

// hasHalves reports whether the host knows only one end of some edge.
func (v *pairView) hasHalves() bool { return v.After != nil && v.countHalves() > 0 }

func (v *pairView) countHalves() (n int) {
	for row := range v.After.Tables[frame.Edges].IDs {
		if _, _, ok := v.knownEnd(row); ok {
			n++
		}
	}
	return n
}

// knownEnd is the container of the end that counted an edge of which the other end is in none of this host.
func (v *pairView) knownEnd(row int) (container uint32, process frame.Attribute, isHalf bool) {
	t := &v.After.Tables[frame.Edges]
	known, other := t.Attribute(frame.EdgeClient, row), t.Attribute(frame.EdgeServer, row)
	process = frame.EdgeClientProcess
	if model.Role(t.Attribute(frame.EdgeSide, row)) == model.RoleServer {
		known, other, process = other, known, frame.EdgeServerProcess
	}
	return uint32(known), process, known != 0 && other == 0 && t.Attribute(frame.EdgeService, row) != 0
}

// sampleSize is how many connections of a round are in a half's sample, if there were as many (SAMPLES of edges.h).
const sampleSize = 4

func (v *pairView) collectConnections() {
	t, edges := &v.After.Tables[frame.Connections], &v.After.Tables[frame.Edges]
	v.hashes = make([]uint64, 0, len(t.IDs))
	for row := 0; row < len(t.IDs); {
		id, first := t.Attribute(frame.ConnectionEdge, row), len(v.hashes)
		for ; row < len(t.IDs) && t.Attribute(frame.ConnectionEdge, row) == id; row++ {
			hash := t.Attribute(frame.ConnectionHash, row) | t.Attribute(frame.ConnectionHashHigh, row)<<32
			v.hashes = append(v.hashes, hash)
		}
		if edge, ok := edges.Find(uint32(id)); ok && v.halfOf[edge] >= 0 {
			sample := v.hashes[first:]
			slices.Sort(sample)
			v.halves[v.halfOf[edge]].sample = sample
		}
	}
}

// mustTell reports whether a sample has a connection's hash if its half counted the connection. A sample has the
// least hashes of each of its rounds: so at least sampleSize of them are below a hash that is not in it.
func mustTell(sample []uint64, hash uint64) bool {
	return len(sample) < sampleSize || hash <= sample[sampleSize-1]
}

// locate gives the halves the numbers of their addresses.
func (v *pairView) locate(x *pairIndex) {
	if v.After == nil {
		return
	}
	for i := range v.translations {
		v.translations[i].spot = v.translations[i].dialled.spot
	}
	slices.SortFunc(v.translations, func(a, b translation) int { return cmp.Compare(a.spot, b.spot) })
	t := &v.After.Tables[frame.Edges]
	for i := range v.halves {
		h := &v.halves[i]
		if h.side == model.RoleServer {
			if client := v.place(t.Attribute(frame.EdgeClientAddress, int(h.edge))); client.addressKey != 0 {
				h.client = client.address
			}
		}
		service := v.place(uint64(h.texts[0]))
		h.add(service, -1)
		h.add(v.place(uint64(h.texts[1])), -1)
		if h.side == model.RoleClient && h.transport == model.TCP && service.spot >= 0 {
			if to := v.target(service.spot, func(client int32) bool { return x.has(h.known, client) }); to != nil {
				h.add(to, -1)
			}
		}
	}
}

// target is where all translated connections to what is dialled go to, nil where they go to several. from says which
// clients are meant.
func (v *pairView) target(dialled int32, from func(client int32) bool) (found *place) {
	i := sort.Search(len(v.translations), func(i int) bool { return v.translations[i].spot >= dialled })
	for ; i < len(v.translations) && v.translations[i].spot == dialled; i++ {
		t := &v.translations[i]
		switch {
		case t.client.addressKey == 0 || !from(t.client.address):
		case found != nil && found.spot != t.reached.spot:
			return nil
		default:
			found = t.reached
		}
	}
	return found
}
