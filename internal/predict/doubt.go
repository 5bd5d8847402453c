package predict

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"outsight/internal/graph"
)

// Pool is the connections of a client to a server, over each of which goes one request at a time, where there were as many
// all the time although the rate changed.
type Pool struct {
	Client string `json:"client"`
	Server string `json:"server"`
	Name   string `json:"name"`
	// Open is how many there are, Before how many of them are busy at the mean rate, Busy at that of the scenario.
	Open   float64  `json:"open"`
	Before Interval `json:"before"`
	Busy   Interval `json:"busy"`
	// Limit is the rate at the entries at which all are busy if there are never more, and requests take as long as they
	// did; nil where the line does not get there.
	Limit *Interval `json:"limit,omitempty"`
	// Fixed is that a client that could open more would have: so many requests came at random that there would have been
	// more at a time than there are connections. Where it is false there may be more when they are needed.
	Fixed bool `json:"fixed"`
}

// Doubt is what may be used up before the resources whose use is known. How much it can take is not known from outside.
type Doubt struct {
	// Node is that which waits.
	Node string `json:"node"`
	Text string `json:"text"`
}

// connectionsPast is what connections did in the past.
type connectionsPast struct {
	graph.Connections // the newest
	busy              []Observation
	requests          float64
	least, most       float64
}

// waitedPast is what a node waited for what is not known in the past: seconds, over requests.
type waitedPast struct{ waited, took, requests float64 }

const (
	// crowds is how many requests would have to have found all connections busy by chance for a pool to be fixed.
	crowds = 20
	// waitsMuch is the share of the time in which a node answers from which on its waits raise a doubt, waitsLong the
	// least that they take: shorter ones are those of the system.
	waitsMuch, waitsLong = 0.5, 1e-3
)

func (h *History) addDoubts(a *graph.Analysis) {
	if h.connections == nil {
		h.connections, h.waited = map[[2]string]*connectionsPast{}, map[string]*waitedPast{}
	}
	for _, c := range a.Connections {
		if c.Open <= 0 || c.Requests <= 0 {
			continue
		}
		key := [2]string{c.Client, c.Server}
		p := h.connections[key]
		if p == nil {
			p = &connectionsPast{least: c.Open, most: c.Open}
			h.connections[key] = p
		}
		p.Connections = c
		p.requests += c.Requests
		p.least, p.most = min(p.least, c.Open), max(p.most, c.Open)
		p.busy = append(p.busy, Observation{a.ArrivalRate, c.Busy})
	}
	for _, r := range a.Resources {
		if r.Waits == nil || r.Latency == nil || r.ArrivalRate == nil {
			continue
		}
		p := h.waited[r.Node]
		if p == nil {
			p = &waitedPast{}
			h.waited[r.Node] = p
		}
		p.waited += float64(*r.Waits) * *r.ArrivalRate
		p.took += float64(*r.Latency) * *r.ArrivalRate
		p.requests += *r.ArrivalRate
	}
}

// pool is what is known of connections, or nil: their number changed, or more requests were under way than there are
// connections, so that one takes several at a time.
func (p *connectionsPast) pool(mean, rate float64) *Pool {
	d, err := FitDemand(p.busy)
	if err != nil || p.least != p.most {
		return nil
	}
	busiest := 0.0
	for _, o := range p.busy {
		busiest = max(busiest, o.Cores)
	}
	if busiest >= p.Open {
		return nil
	}
	pool := &Pool{Client: p.Client, Server: p.Server, Name: p.Name, Open: p.Open, Before: d.Cores(mean), Busy: d.Cores(rate)}
	if limit, ok := d.Rate(p.Open); ok {
		pool.Limit = &limit
	}
	// Requests that come at random, and find as many under way as are usual, are Poisson distributed in number.
	average := d.Cores(d.mean).Value
	if average > 0 {
		pool.Fixed = p.requests*(1-distuv.Poisson{Lambda: average}.CDF(p.Open-1)) >= crowds
	}
	return pool
}

// predictDoubts adds the pools, and what may be the limit before that which is known.
func (h *History) predictDoubts(p *Prediction, s *Scenario) {
	p.Pools, p.Doubts = []Pool{}, []Doubt{}
	for _, past := range h.connections {
		// Other replicas have other connections.
		if pool := past.pool(p.MeanRate, p.Rate); pool != nil && len(s.Replicas)+len(s.Down) == 0 {
			p.Pools = append(p.Pools, *pool)
		}
	}
	limit := func(pool *Pool) float64 {
		if pool.Limit == nil {
			return math.Inf(1)
		}
		return pool.Limit.Value
	}
	slices.SortFunc(p.Pools, func(a, b Pool) int {
		return cmp.Or(cmp.Compare(limit(&a), limit(&b)), cmp.Compare(a.Client, b.Client), cmp.Compare(a.Server, b.Server))
	})
	for i := range p.Pools {
		if pool := &p.Pools[i]; pool.Limit != nil && (p.Limit == nil || pool.Limit.Low < p.Limit.Value) {
			p.Doubts = append(p.Doubts, Doubt{pool.Client, pool.doubt()})
		}
	}
	for i := range p.Resources {
		r := &p.Resources[i]
		w := h.waited[r.Node]
		if w == nil || w.waited < waitsMuch*w.took || w.waited < waitsLong*w.requests {
			continue
		}
		p.Doubts = append(p.Doubts, Doubt{r.Node, fmt.Sprintf("%s answers in %s, of which %s are neither CPU time nor waits for "+
			"a CPU or for others: a disk, a lock, a timer or a pool, and how much that can take is not known", r.Name,
			milliseconds(w.took/w.requests), milliseconds(w.waited/w.requests))})
	}
	// What may be before is no narrow interval.
	if len(p.Doubts) > 0 && p.Limit != nil {
		open := *p.Limit
		open.Low = min(open.Low, p.GreatestRate)
		p.Limit = &open
	}
}

func milliseconds(seconds float64) string { return fmt.Sprintf("%.3g ms", 1e3*seconds) }

func (p *Pool) doubt() string {
	if p.Fixed {
		return fmt.Sprintf("the %.0f connections of %s are all busy at %.4g/s if requests take as long as now: there were no more "+
			"when more were needed", p.Open, p.Name, p.Limit.Value)
	}
	return fmt.Sprintf("the %.0f connections of %s are all busy at %.4g/s if there are never more and requests take as long as "+
		"now, which is not known", p.Open, p.Name, p.Limit.Value)
}
