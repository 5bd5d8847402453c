package graph

import (
	"slices"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// pairing knows who is at the other end of edges whose own host could not find it, because it is on another host.
type pairing struct {
	views     [][]pairView // by host, then by span
	residents []resident
	index     pairIndex
}

// pairedEnd is the end of an edge that is on another host than the one that counted.
type pairedEnd struct {
	// Host and Span are indexes into the window; Row is the index of the container in After of that span.
	Host, Span, Row int
	// Process at that end, empty where it may be one of several.
	Process    string
	Confidence model.Confidence
	// Paired says that the other half of the edge, which the other host counted, is there too.
	Paired bool
}

// pairHosts looks on all other hosts for the ends of edges that their own host could not find.
//
// Two halves of which the kernels saw the same connection (its initial sequence numbers) are one edge, whatever
// translates addresses in between. Otherwise a server is who counted connections from this client at the address that
// the client dials, or who listens there, or who has it; translations on the client's host and then on the server's are
// followed. A client is who dials the server and has the address that the server sees, or is the only one to dial it on
// the host that has this address (masquerading). An end that several could be is left as it is.
func pairHosts(w *frame.Window) *pairing {
	p := &pairing{views: make([][]pairView, len(w.Hosts))}
	var all []*pairView
	for h := range w.Hosts {
		p.views[h] = make([]pairView, len(w.Hosts[h].Spans))
		for s := range w.Hosts[h].Spans {
			v := &p.views[h][s]
			v.host, v.span, v.Span, v.pairMemory = int32(h), s, w.Hosts[h].Spans[s], pairMemories.Get().(*pairMemory)
			p.settleResidents(v)
			all = append(all, v)
		}
	}
	if !slices.ContainsFunc(all, (*pairView).hasHalves) {
		return p
	}
	halves := func(f func(v *pairView)) {
		both(func() { eachView(all[:len(all)/2], f) }, func() { eachView(all[len(all)/2:], f) })
	}
	halves((*pairView).collect)
	p.index.number(all)
	p.index.addResidents(all, p.residents)
	halves(func(v *pairView) { v.locate(&p.index) })
	halves(func(v *pairView) { v.follow(&p.index, p.views) })
	p.index.addHalves(all)
	halves(func(v *pairView) { v.find(p) })
	halves(func(v *pairView) { v.mark(&p.index) })
	return p
}

// release gives memory back. Nothing may be asked any more.
func (p *pairing) release() {
	for h := range p.views {
		for s := range p.views[h] {
			p.views[h][s].release()
		}
	}
}

func eachView(all []*pairView, f func(v *pairView)) {
	for _, v := range all {
		f(v)
	}
}

// end is the end of an edge that its own host does not know; host and span are indexes into the window, edge is the
// index of the edge in After of that span. ok is false where it is not known.
func (p *pairing) end(host, span, edge int) (end pairedEnd, ok bool) {
	v := &p.views[host][span]
	if edge >= len(v.halfOf) || v.halfOf[edge] < 0 {
		return pairedEnd{}, false
	}
	h := &v.halves[v.halfOf[edge]]
	if h.found < 0 {
		return pairedEnd{}, false
	}
	r := &p.residents[h.found]
	return pairedEnd{int(r.host), r.span, r.row, h.foundProcess, h.confidence, h.paired}, true
}

// resident is a container on a host.
type resident struct {
	host int32
	// span and row are where the newest frame has it.
	span, row int
	isHost    bool
}

// settleResidents gives each container of a span its number. A container that several spans of a host have is one.
func (p *pairing) settleResidents(v *pairView) {
	if v.After == nil {
		return
	}
	t := &v.After.Tables[frame.Containers]
	v.residents = make([]int32, len(t.IDs))
	known := map[string]int32{}
	for s := range v.span {
		earlier := &p.views[v.host][s]
		for row, number := range earlier.residents {
			if key := earlier.After.Text(frame.Containers, frame.ContainerKey, row); key != "" {
				known[key] = number
			}
		}
	}
	for row := range t.IDs {
		key := v.After.Text(frame.Containers, frame.ContainerKey, row)
		number, ok := known[key]
		if !ok {
			number = int32(len(p.residents))
			p.residents = append(p.residents, resident{})
		}
		v.residents[row] = number
		runtime := v.After.Text(frame.Containers, frame.ContainerRuntime, row)
		p.residents[number] = resident{v.host, v.span, row, runtime == string(model.HostRuntime)}
	}
}
