package graph

import (
	"cmp"
	"net/netip"
	"slices"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// HostPair are two hosts of which processes talked; A is before B.
type HostPair struct {
	A, B string
	// Bytes are those that the two counted in the window, each for itself.
	Bytes uint64
}

// ContainerPair are containers on two hosts of which the client reaches the server at one of the server's own addresses:
// nothing translates it to another host's on the way, and both have network namespaces of their own.
type ContainerPair struct {
	Client, Server ContainerEnd
	// Bytes are those that the client's host counted in the window.
	Bytes uint64
}

// ContainerEnd is one of them.
type ContainerEnd struct {
	// Host is where it runs, ID its own there, and Name what people call it, as frame.ContainerTitle does.
	Host, ID, Name string
	// Addresses are those that its host does not have; of a server the one that the client reaches.
	Addresses []netip.Addr
}

// talk are the columns of edges that grow while two ends talk, the first two in bytes.
var talk = []string{"request_bytes", "response_bytes", "connections_opened", "failures_refused", "failures_timed_out"}

var talked = func() (columns []int) {
	for _, name := range talk {
		columns = append(columns, frame.Column(frame.Edges, name))
	}
	return columns
}()

// HostPairColumns are what HostPairs reads of frames: those of talk, and the tables by which the ends of edges on two
// hosts are found.
var HostPairColumns = frame.NewProjection(map[frame.TableID][]string{
	frame.Containers: {}, frame.Addresses: nil, frame.Listeners: nil, frame.Translations: nil, frame.Connections: nil,
	frame.Edges: talk,
})

// HostPairs are the pairs of hosts of which processes talked in a window, or tried to, in order of their names, and the
// pairs of containers among them, in order of the ends' hosts and names. What is sent by UDP to services for which ignore
// says so does not count: an agent's own measurements. nil ignores none.
func HostPairs(w *frame.Window, ignore func(service netip.AddrPort) bool) ([]HostPair, []ContainerPair) {
	type half struct {
		host, span, edge int
		bytes            uint64
	}
	var talks []half
	for h := range w.Hosts {
		for s := range w.Hosts[h].Spans {
			span := &w.Hosts[h].Spans[s]
			if span.After == nil {
				continue
			}
			before := span.Before
			if before == nil && s == 0 {
				before = span.After // the start of its counters is not in the window
			}
			d := frame.Since(frame.Edges, before, span.After)
			for row := range d.After.IDs {
				// Both ends of an edge within the host are known.
				client, server := d.After.Attribute(frame.EdgeClient, row), d.After.Attribute(frame.EdgeServer, row)
				if client != 0 && server != 0 {
					continue
				}
				gained, bytes := uint64(0), uint64(0)
				for i, column := range talked {
					n, _ := d.Gain(column, row)
					if gained += n; i < 2 {
						bytes += n
					}
				}
				if gained > 0 && !(ignore != nil && ignores(span.After, row, ignore)) {
					talks = append(talks, half{h, s, row, bytes})
				}
			}
		}
	}
	if len(talks) == 0 {
		return nil, nil
	}
	ends := pairHosts(w)
	defer ends.release()
	pairs := map[[2]string]uint64{}
	direct := map[directPair]uint64{}
	for _, t := range talks {
		end, ok := ends.end(t.host, t.span, t.edge)
		if !ok || end.Host == t.host {
			continue
		}
		names := [2]string{w.Hosts[t.host].Host, w.Hosts[end.Host].Host}
		if names[0] > names[1] {
			names[0], names[1] = names[1], names[0]
		}
		pairs[names] += t.bytes
		if between, ok := ends.direct(t.host, t.span, t.edge); ok {
			direct[between] += t.bytes
		}
	}
	all := make([]HostPair, 0, len(pairs))
	for names, bytes := range pairs {
		all = append(all, HostPair{names[0], names[1], bytes})
	}
	slices.SortFunc(all, func(x, y HostPair) int { return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B)) })
	return all, ends.containerPairs(w, direct)
}

// directPair are the containers of an edge, and the server's address that the client reaches, by their numbers.
type directPair struct{ client, server, address int32 }

// direct is the pair of an edge that a client counted; ok is false where it is not one of two containers of which the
// client reaches the server at its own address.
func (p *pairing) direct(host, span, edge int) (d directPair, ok bool) {
	v := &p.views[host][span]
	h := &v.halves[v.halfOf[edge]]
	if h.side != model.RoleClient || p.residents[h.known].isHost || p.residents[h.found].isHost {
		return d, false
	}
	for _, at := range h.spots[:h.count] {
		// What the server's host translates is not what the client's packets are sent to.
		if at.host < 0 && !p.index.local(at.address, v.host) && p.index.has(h.found, at.address) &&
			!p.index.ofHost(at.address, p.residents[h.found].host) {
			return directPair{h.known, h.found, at.address}, true
		}
	}
	return d, false
}

// ofHost reports whether an address is a host's own.
func (x *pairIndex) ofHost(address, host int32) bool {
	return slices.ContainsFunc(x.ownersOn(address, host), func(o addressOwner) bool { return o.isHost })
}

// containerPairs says what the pairs are. One of which an end runs no more, or has no address of its own, is none.
func (p *pairing) containerPairs(w *frame.Window, direct map[directPair]uint64) (all []ContainerPair) {
	for d, bytes := range direct {
		client, ok := p.containerEnd(w, d.client, func(int32) bool { return true })
		server, ok2 := p.containerEnd(w, d.server, func(address int32) bool { return address == d.address })
		if ok && ok2 {
			all = append(all, ContainerPair{client, server, bytes})
		}
	}
	slices.SortFunc(all, func(x, y ContainerPair) int {
		return cmp.Or(x.Client.compare(y.Client), x.Server.compare(y.Server))
	})
	return all
}

func (e ContainerEnd) compare(other ContainerEnd) int {
	return cmp.Or(cmp.Compare(e.Host, other.Host), cmp.Compare(e.Name, other.Name), cmp.Compare(e.ID, other.ID),
		slices.CompareFunc(e.Addresses, other.Addresses, netip.Addr.Compare))
}

// containerEnd is a container with those of its addresses that are wanted and not its host's.
func (p *pairing) containerEnd(w *frame.Window, number int32, wanted func(address int32) bool) (e ContainerEnd, ok bool) {
	r := &p.residents[number]
	v := &p.views[r.host][r.span]
	containers, addresses := &v.After.Tables[frame.Containers], &v.After.Tables[frame.Addresses]
	if containers.Attribute(frame.State, r.row) != frame.Live {
		return e, false
	}
	e = ContainerEnd{Host: w.Hosts[r.host].Host, ID: v.After.Text(frame.Containers, frame.ContainerKey, r.row),
		Name: v.After.ContainerTitle(r.row)}
	for row := range addresses.IDs {
		at := v.place(addresses.Attribute(frame.Address, row))
		if uint32(addresses.Attribute(frame.AddressOf, row)) != containers.IDs[r.row] || at.addressKey == 0 || at.loopback ||
			!wanted(at.address) || p.index.ofHost(at.address, r.host) {
			continue
		}
		if a, err := netip.ParseAddr(v.After.Text(frame.Addresses, frame.Address, row)); err == nil {
			e.Addresses = append(e.Addresses, a.Unmap())
		}
	}
	slices.SortFunc(e.Addresses, netip.Addr.Compare)
	return e, len(e.Addresses) > 0
}

// ignores reports whether the service of an edge is one of UDP that is ignored.
func ignores(f *frame.Frame, row int, ignore func(netip.AddrPort) bool) bool {
	if model.Transport(f.Tables[frame.Edges].Attribute(frame.EdgeTransport, row)) != model.UDP {
		return false
	}
	at, err := netip.ParseAddrPort(f.Text(frame.Edges, frame.EdgeService, row))
	return err == nil && ignore(netip.AddrPortFrom(at.Addr().Unmap(), at.Port()))
}
