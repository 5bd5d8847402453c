package graph

// Of says which numbers of a node or an edge are meant.
type Of string

// The numbers of a node are its usage, what it serves and what it calls; those of an edge what each end counted, or
// Edge.Best.
const (
	OfUsage  Of = "usage"
	OfServed Of = "served"
	OfCalled Of = "called"
	OfClient Of = "client_side"
	OfServer Of = "server_side"
	OfBest   Of = "best"
)

// Number is a number of the node or edge with an ID, by its key in the registry. ok is false where there is none.
func (g *Graph) Number(id string, of Of, key string) (v float64, ok bool) {
	switch of {
	case OfClient, OfServer, OfBest:
		for _, e := range g.Edges {
			if e.ID == id {
				return map[Of]*Side{OfClient: e.ClientSide, OfServer: e.ServerSide, OfBest: e.Best()}[of].Number(key)
			}
		}
		return 0, false
	}
	n := g.Node(id)
	switch {
	case n == nil:
		return 0, false
	case of == OfServed:
		return n.Served.Number(key)
	case of == OfCalled:
		return n.Called.Number(key)
	}
	return n.Usage.Number(key)
}

// Number is one of the registry's numbers of containers, by its key.
func (u *Usage) Number(key string) (v float64, ok bool) {
	if u == nil {
		return 0, false
	}
	for i := range usageNumbers {
		if usageNumbers[i].Key == key {
			return u.numbers[i], u.known>>i&1 == 1
		}
	}
	return 0, false
}

// Number is one of the registry's numbers of edges, by its key.
func (s *Side) Number(key string) (v float64, ok bool) {
	if s == nil {
		return 0, false
	}
	for i := range sideNumbers {
		if sideNumbers[i].Key == key {
			return sideNumbers[i].of(s)
		}
	}
	return 0, false
}

// Number is one of the registry's numbers of endpoints, by its key.
func (e *Endpoint) Number(key string) (v float64, ok bool) {
	pointer := map[string]*float64{"requests_per_second": e.RequestsPerSecond, "errors_per_second": e.ErrorsPerSecond,
		"p50": (*float64)(e.P50), "p99": (*float64)(e.P99)}[key]
	if pointer == nil {
		return 0, false
	}
	return *pointer, true
}
