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

// HostPairs are the pairs of hosts of which processes talked in a window, or tried to, in order of their names. What is
// sent by UDP to services for which ignore says so does not count: an agent's own measurements. nil ignores none.
func HostPairs(w *frame.Window, ignore func(service netip.AddrPort) bool) []HostPair {
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
		return nil
	}
	ends := pairHosts(w)
	pairs := map[[2]string]uint64{}
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
	}
	all := make([]HostPair, 0, len(pairs))
	for names, bytes := range pairs {
		all = append(all, HostPair{names[0], names[1], bytes})
	}
	slices.SortFunc(all, func(x, y HostPair) int { return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B)) })
	return all
}

// ignores reports whether the service of an edge is one of UDP that is ignored.
func ignores(f *frame.Frame, row int, ignore func(netip.AddrPort) bool) bool {
	if model.Transport(f.Tables[frame.Edges].Attribute(frame.EdgeTransport, row)) != model.UDP {
		return false
	}
	at, err := netip.ParseAddrPort(f.Text(frame.Edges, frame.EdgeService, row))
	return err == nil && ignore(netip.AddrPortFrom(at.Addr().Unmap(), at.Port()))
}
