package demo

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
)

// Truth is what the parts of the shop themselves know of what they did.
type Truth struct {
	// Edges in order of client and server. Clients that are no part of the shop (a user who
	// looked at /stalls) appear with their address and port 0.
	Edges   []EdgeTruth
	Load    LoadReport
	Payment PaymentReport
	Stalls  StallReport
	// Orders that the worker has taken.
	Orders uint64
}

// EdgeTruth holds the counts of both ends of an edge. An end that is not a Go service of the
// shop (nginx, Redis) does not count, and is nil.
type EdgeTruth struct {
	Edge
	ClientSide, ServerSide *Counts
}

// Truth asks all services for their counts. They are of one and the same moment only while the
// shop is paused; after Pause they are exact and both sides of an edge agree.
func (s *Shop) Truth(ctx context.Context) (Truth, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.control.Revision++
	var mu sync.Mutex
	statuses := map[string]Status{}
	err := s.each(func(p *part) error {
		if !p.ours() {
			return nil
		}
		st, err := s.send(ctx, p, s.control)
		mu.Lock()
		defer mu.Unlock()
		statuses[p.Name] = st
		return err
	})
	if err != nil {
		return Truth{}, err
	}
	return s.truth(statuses), nil
}

// truth joins the two sides of each edge.
func (s *Shop) truth(statuses map[string]Status) Truth {
	var t Truth
	found := map[[2]string]*EdgeTruth{}
	for _, e := range s.Edges() {
		found[[2]string{e.Client, e.Server}] = &EdgeTruth{Edge: e}
	}
	at := func(client, server string) *EdgeTruth {
		key := [2]string{client, server}
		if found[key] == nil {
			found[key] = &EdgeTruth{Edge: Edge{Client: client, Server: server}}
		}
		return found[key]
	}
	for name, st := range statuses {
		for role, c := range st.Calls {
			at(name, s.serverOf(role)).ClientSide = &c
		}
		for address, c := range st.Callers {
			at(s.clientAt(address), name).ServerSide = &c
		}
		t.add(st)
	}
	for _, e := range found {
		t.Edges = append(t.Edges, *e)
	}
	slices.SortFunc(t.Edges, func(a, b EdgeTruth) int {
		return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Server, b.Server))
	})
	return t
}

func (t *Truth) add(s Status) {
	if s.Load != nil {
		t.Load = *s.Load
		t.Load.Paths = maps.Clone(s.Load.Paths)
	}
	if s.Payment != nil {
		t.Payment = *s.Payment
	}
	if s.Stalls != nil {
		t.Stalls = *s.Stalls
	}
	t.Orders += s.Orders
}

// serverOf is the container that a service calls by a role's name; the load calls "door".
func (s *Shop) serverOf(role string) string {
	if role == "door" {
		role = "nginx"
		if slices.Contains(s.without, role) {
			role = "gateway"
		}
	}
	return partName(s.options.Instance, role)
}

func (s *Shop) clientAt(address string) string {
	for _, p := range s.parts {
		if p.Address.IsValid() && p.Address.String() == address {
			return p.Name
		}
	}
	return address
}
