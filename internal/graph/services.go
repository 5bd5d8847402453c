package graph

import (
	"cmp"
	"slices"

	"outsight/internal/model"
)

// Service is a node with how near it is to its limit and how it answers: a row of the table of
// operational analysis (paper 000, table 4).
type Service struct {
	Resource
	Kind Kind   `json:"kind"`
	Host string `json:"host,omitempty"`
	// Reached reports whether requests at the entries lead here; Demand is nil where they do not.
	Reached bool `json:"reached"`
	// TCP is of all transactions that the node serves, whatever their protocol, HTTP of those that
	// were recognised as HTTP/1, HTTP/2 or gRPC. Nil where there were none.
	TCP  *Timing `json:"tcp,omitempty"`
	HTTP *Timing `json:"http,omitempty"`
	// Failed replies say that the server failed (model.FailedStatuses), Aborted requests ended
	// without a reply; counts in the window. ErrorShare is both over all requests, nil without any.
	Failed          float64  `json:"failed"`
	Aborted         float64  `json:"aborted"`
	ErrorsPerSecond *float64 `json:"errors_per_second,omitempty"`
	ErrorShare      *float64 `json:"error_share,omitempty"`
}

// Timing is how often and how fast something is answered.
type Timing struct {
	Requests          float64  `json:"requests"`
	RequestsPerSecond *float64 `json:"requests_per_second,omitempty"`
	P50               *Seconds `json:"p50,omitempty"`
	P99               *Seconds `json:"p99,omitempty"`
	Mean              *Seconds `json:"mean,omitempty"`
}

// isHTTP are the protocols whose requests count as HTTP.
var isHTTP = map[model.Protocol]bool{model.HTTP: true, model.HTTP2: true, model.GRPC: true}

// KindCPUs is the kind of a row that is the CPUs of a host, and no node.
const KindCPUs Kind = "cpus"

// Services are all nodes that are watched, and the CPUs of hosts that requests use, the nearest to its
// limit first, beside the analysis of what requests at the entries come to. cores is how many
// CPUs each host has.
func (g *Graph) Services(cores map[string]float64) (*Analysis, []Service) {
	a, reached, _ := g.analyse(cores)
	asked := g.asked()
	list := []Service{}
	for i, n := range g.Nodes {
		if n.Kind == KindOutside || n.Usage == nil && n.Served == nil {
			continue
		}
		s := Service{Kind: n.Kind, Host: n.Host, Reached: reached[i]}
		if n.Usage != nil && n.Usage.CPUCores != nil {
			s.Resource = resourceOf(n, cores[n.Host])
		} else {
			s.Resource = Resource{Node: n.ID, Name: n.Name}
		}
		if s.Reached {
			s.finish(a.ArrivalRate)
		} else {
			s.finish(0)
		}
		s.serve(n.Served, asked[n.ID], g.CoveredSeconds)
		list = append(list, s)
	}
	hosts := make(map[string]string, len(cores))
	for host := range cores {
		hosts[CPUsOf(host)] = host
	}
	for _, r := range a.Resources {
		if host, ok := hosts[r.Node]; ok {
			list = append(list, Service{Resource: r, Kind: KindCPUs, Host: host, Reached: true})
		}
	}
	slices.SortFunc(list, func(x, y Service) int {
		return cmp.Or(cmp.Compare(y.Utilisation, x.Utilisation), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Node, y.Node))
	})
	return a, list
}

// asked are the endpoints of each node as its server's side counted them, or else its clients'.
func (g *Graph) asked() map[string]endpoints {
	all := map[string]endpoints{}
	for _, e := range g.Edges {
		side := e.ServerSide
		if side == nil {
			side = e.ClientSide
		}
		if side == nil {
			continue
		}
		for name, from := range side.endpoints {
			if all[e.Server] == nil {
				all[e.Server] = endpoints{}
			}
			to := all[e.Server][name]
			if to == nil {
				to = &Endpoint{Protocol: from.Protocol, Name: from.Name, Statuses: map[string]float64{}}
				all[e.Server][name] = to
			}
			to.merge(from)
		}
	}
	return all
}

// serve fills in how requests are answered.
func (s *Service) serve(served *Side, asked endpoints, seconds float64) {
	if served == nil {
		return
	}
	if served.Of(Transactions) > 0 {
		s.TCP = &Timing{served.Of(Transactions), served.TransactionsPerSecond, served.P50, served.P99, served.Mean}
	}
	var http Endpoint
	http.Statuses = map[string]float64{}
	for _, e := range asked.sorted() {
		s.Failed += e.failed
		if isHTTP[model.Protocol(e.Protocol)] {
			http.merge(e)
		}
	}
	if http.Requests > 0 {
		http.finish(seconds)
		s.HTTP = &Timing{http.Requests, http.RequestsPerSecond, http.P50, http.P99, http.Mean}
	}
	s.Aborted = served.Of(Aborted)
	if all := served.Of(Transactions) + served.Of(Aborted); all > 0 {
		// The status of a reply may be known where its time is not.
		share := min((s.Failed+s.Aborted)/all, 1)
		s.ErrorsPerSecond, s.ErrorShare = per(s.Failed+s.Aborted, seconds), &share
	}
}
