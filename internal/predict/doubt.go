package predict

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

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
	// did, or up to a quarter less (bend); nil where the line does not get there.
	Limit *Interval `json:"limit,omitempty"`
	// Fixed is that a client that could open more would have: so many requests came at random that there would have been
	// more at a time than there are connections. Where it is false there may be more when they are needed.
	Fixed bool `json:"fixed"`
	// Waited is that the client waited in the past as requests wait for a queue with so many servers: the durations at the
	// entries have it, and the bounds of Limit are those of how long connections are taken.
	Waited bool `json:"waited"`
	// Ceiling is that it is not known what it is: no more than Open requests were under way at a time while there were others in
	// the client. Where it was full, Limit is what was served.
	Ceiling bool `json:"ceiling,omitempty"`

	queued bool // the estimate of durations has all of its queue
	// otherwise is what the client of a Ceiling did while nothing waited for that.
	otherwise *nodePast
}

// id is what Prediction.LimitedBy has of it.
func (p *Pool) id() string { return p.Client + ">" + p.Server }

func (p *Pool) name() string {
	if p.Ceiling {
		if p.Number() == "1" {
			return "the 1 request at a time of " + p.Name
		}
		return fmt.Sprintf("the %s requests at a time of %s", p.Number(), p.Name)
	}
	if p.Open == 1 {
		return "the connection of " + p.Name
	}
	return fmt.Sprintf("the %.0f connections of %s", p.Open, p.Name)
}

// Number is Open for people: of a Ceiling it may be a mean.
func (p *Pool) Number() string {
	if p.Open >= 10 {
		return fmt.Sprintf("%.0f", p.Open)
	}
	return fmt.Sprintf("%.2g", p.Open)
}

// are is its name, as the subject of what all connections are.
func (p *Pool) are() string {
	if p.Number() == "1" {
		return p.name() + " is"
	}
	return p.name() + " are all"
}

// Doubt is what may be used up before the resources whose use is known. How much it can take is not known from outside.
type Doubt struct {
	// Node is that which waits.
	Node string `json:"node"`
	Text string `json:"text"`

	modelled bool // durations at the entries have it
}

// nodePast is what a container did in the past.
type nodePast struct {
	// waited is what it waited for what is not known, took the time in which it answered: seconds, of all requests.
	waited, took, requests float64
	// inside is how many requests were in it on average, over the rate at the entries. untimed is that requests came of
	// which it is not known how long they took.
	inside  []Observation
	untimed bool
}

const (
	// crowds is how many requests would have to have found all connections busy by chance for a pool to be fixed.
	crowds = 20
	// waitsMuch is the share of the time in which a node answers from which on its waits raise a doubt, waitsLong the
	// least that they take: shorter ones are those of the system.
	waitsMuch, waitsLong = 0.5, 1e-3
	// farTimes is from how many times the greatest rate on a limit is far off: from 15 % of it on, about 1 / 7, what is told was
	// held against what came, in simulations and with real applications (docs/analysis.md).
	farTimes = 7
)

func (h *History) addDoubts(a *graph.Analysis) {
	if h.nodes == nil {
		h.nodes = map[string]*nodePast{}
	}
	h.addConnections(a)
	for i := range a.Resources {
		if r := &a.Resources[i]; r.Node != graph.CPUsOf(r.Host) {
			h.addNode(r, a.ArrivalRate)
		}
	}
}

func (h *History) addNode(r *graph.Resource, rate float64) {
	p := h.nodes[r.Node]
	if p == nil {
		p = &nodePast{}
		h.nodes[r.Node] = p
	}
	if r.ArrivalRate == nil || *r.ArrivalRate <= 0 {
		return
	}
	if r.Latency == nil {
		p.untimed = true
		return
	}
	inside := float64(*r.Latency) * *r.ArrivalRate
	p.inside = append(p.inside, Observation{rate, inside})
	if r.Waits != nil {
		p.waited += float64(*r.Waits) * *r.ArrivalRate
		p.took += inside
		p.requests += *r.ArrivalRate
	}
}

// alone is the rate at the entries up to which nothing of the node that takes one request at a time can be used up, however
// long each holds it: no longer than it is in the node, of which takes is how long, in seconds for one request at the
// entries. It is that of the third of the time with the lowest rates, in which least of it is queueing, at its upper bound.
// 0 is that nothing is known.
func (p *nodePast) alone() (rate, takes float64) {
	if p.untimed || len(p.inside) < minObservations {
		return 0, 0
	}
	calm := slices.Clone(p.inside)
	slices.SortFunc(calm, func(a, b Observation) int { return cmp.Compare(a.Rate, b.Rate) })
	calm = calm[:max((len(calm)+2)/3, minObservations)]
	times := make([]float64, len(calm))
	for i, o := range calm {
		times[i] = o.Cores / o.Rate
	}
	mean, deviation := stat.MeanStdDev(times, nil)
	takes = mean + student(float64(len(times)-1))*deviation/math.Sqrt(float64(len(times)))
	return 1 / takes, takes
}

// pool is what is known of connections, or nil: their number changed, or more requests were under way than there are
// connections, so that one takes several at a time.
func (p *connectionsPast) pool(mean, rate float64) *Pool {
	d, err := FitDemand(p.busy())
	if err != nil || !p.oneAtATime() {
		return nil
	}
	pool := &Pool{Client: p.Client, Server: p.Server, Name: p.Name, Open: p.Open, Before: d.Cores(mean), Busy: d.Cores(rate),
		Fixed: p.fixed(&d) == 1}
	if limit, ok := d.Rate(p.Open); ok {
		if limit.High != nil { // a part of what a request takes is CPU time
			*limit.High /= 1 - bend
		}
		pool.Limit = &limit
	}
	return pool
}

// poolIn is the pool in a scenario. With more or fewer containers it is not known whether there are as many connections: a
// sign of that is only that there were no more when more were needed.
func (p *connectionsPast) poolIn(of *Prediction, s *Scenario) *Pool {
	share := 1.0
	if s.hasOthers() {
		share = of.share(p.Client)
	}
	pool := p.pool(of.MeanRate, of.Rate*share)
	if pool == nil {
		pool = p.ceiling(of.MeanRate, of.Rate*share)
	}
	if pool == nil {
		pool = p.permitPool(of.MeanRate, of.Rate*share)
	}
	if !s.hasOthers() {
		return pool
	}
	if pool == nil || !pool.Fixed || share <= 0 {
		return nil
	}
	pool.Fixed, pool.queued, pool.Waited = false, false, false
	if pool.Limit != nil {
		*pool.Limit = pool.Limit.Over(share)
	}
	return pool
}

// oneAtATime is that there were as many connections whenever any were open, and more than requests under way.
func (p *connectionsPast) oneAtATime() bool {
	return p.Open > 0 && !slices.ContainsFunc(p.all, func(o connectionsObserved) bool {
		return o.Open > 0 && o.Open != p.Open || o.Busy >= p.Open
	})
}

// fixed is how well it is known that a client that could open more connections would have (Pool.Fixed), from 0 to 1: how
// many requests would have found all busy by chance, as a share of crowds.
func (p *connectionsPast) fixed(busy *Demand) float64 {
	if !p.oneAtATime() {
		return 0
	}
	found := 0.0
	for i := range p.all {
		o := &p.all[i]
		found += o.Requests * findAsMany(busy.Cores(o.rate).Value, p.Open)
	}
	return min(found/crowds, 1)
}

// predictDoubts adds the pools, one of which may be the limit, and what may be the limit before that which is known.
func (h *History) predictDoubts(p *Prediction, s *Scenario, queues []station) {
	p.Pools, p.Doubts = []Pool{}, []Doubt{}
	for _, past := range h.connections {
		if h.ended() {
			return
		}
		pool := past.poolIn(p, s)
		if pool == nil {
			continue
		}
		for i := range queues {
			if !s.hasOthers() {
				pool.queue(queues[i].pool)
			}
		}
		p.Pools = append(p.Pools, *pool)
	}
	p.Pools = onlyCeilings(p.Pools)
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
		switch pool := &p.Pools[i]; {
		case pool.Limit == nil:
		case pool.queued && (p.Limit == nil || pool.Limit.Value < p.Limit.Value):
			p.limitBy(pool)
		case p.Limit == nil || pool.Limit.Low < p.Limit.Value:
			p.Doubts = append(p.Doubts, Doubt{pool.Client, pool.doubt(), pool.Waited})
		}
	}
	for i := range p.Resources {
		r := &p.Resources[i]
		n := h.nodes[r.Node]
		if first := p.LimitingPool(); n != nil && first != nil && first.Ceiling && first.Client == r.Node {
			rest := *n // it is known for what it waits in the rest of the time
			rest.waited, rest.took, rest.requests = first.otherwise.waited, first.otherwise.took, first.otherwise.requests
			n = &rest
		}
		if n == nil || n.requests <= 0 || n.waited < waitsMuch*n.took || n.waited < waitsLong*n.requests {
			continue
		}
		if alone, _ := n.alone(); p.Limit != nil && alone/r.share >= p.Limit.Value {
			continue // it may wait so long each time
		}
		p.Doubts = append(p.Doubts, Doubt{Node: r.Node, Text: fmt.Sprintf("%s answers in %s, of which %s are neither CPU time nor waits for "+
			"a CPU or for others: a disk, a lock, a timer or a pool, and how much that can take is not known", r.Name,
			milliseconds(n.took/n.requests), milliseconds(n.waited/n.requests))})
	}
	h.boundByWhatIsKnown(p)
}

// limitBy makes a pool the limit. Where nobody was seen to wait for it, it may be none: the upper bound stays that of what
// else there is, which is a doubt.
func (p *Prediction) limitBy(pool *Pool) {
	limit, others := *pool.Limit, Interval{Value: math.Inf(1), Low: math.Inf(1)}
	if p.Limit != nil {
		others = *p.Limit
	}
	limit.Low = min(limit.Low, others.Low)
	if !pool.Waited && !pool.Ceiling || limit.High == nil || others.High != nil && *others.High < *limit.High {
		limit.High = others.High
	}
	if !pool.Waited {
		p.Doubts = append(p.Doubts, Doubt{Node: pool.Client, Text: pool.notSeen(p)})
	}
	p.Limit, p.LimitedBy = &limit, pool.id()
}

// boundByWhatIsKnown lowers the lower bound of the limit to the rate up to which nothing else than what is known can be used
// up: the greatest that there was, or that of the container in which requests could least all be one at a time.
func (h *History) boundByWhatIsKnown(p *Prediction) {
	if p.Limit == nil {
		return
	}
	far, why := h.farOff(p)
	known, least := math.Inf(1), (*Resource)(nil)
	for i := range p.Resources {
		r := &p.Resources[i]
		n := h.nodes[r.Node]
		if n == nil || len(n.inside) == 0 && !n.untimed {
			continue // the CPUs of a host, or no request gets there
		}
		alone, _ := n.alone()
		if why != "" {
			alone = 0
		}
		if rate := max(alone, p.GreatestRate) / r.share; rate < known {
			known, least = rate, r
		}
	}
	if least == nil {
		known = min(p.GreatestRate, p.Limit.Low)
	}
	// Where the line itself is not sure of the lower bound, the estimate is the most that it can be all the same: of one core,
	// known is as large a part of the estimate as CPU time is of a request, and half is enough, as for waits. Where the limit is
	// far off, it has to be all of it.
	enough := max(p.Limit.Low, (1-waitsMuch)*p.Limit.Value)
	if far {
		enough = p.Limit.Value
	}
	if known >= enough {
		return
	}
	open := *p.Limit
	open.Low = min(known, open.Low)
	p.Limit = &open
	p.AtMost = "how long requests take is not known"
	if why != "" {
		p.AtMost = why
		return
	}
	if least == nil {
		return
	}
	if _, takes := h.nodes[least.Node].alone(); takes > 0 {
		p.AtMost = fmt.Sprintf("a request takes %s in %s, so that several have to be there at a time: a lock, a pool or a disk that "+
			"gives no sign yet may be used up before", milliseconds(takes*least.share), least.Name)
	} else {
		p.AtMost = fmt.Sprintf("how long requests take in %s is not known", least.Name)
	}
}

// farOff is that the limit is far above all rates that there were. why is that something else may be used up before then, however
// short a time each request takes there, as a disk that was fast since little was asked of it: of the time of a request less than
// half is CPU time of what is used up. Empty is that it is not so.
func (h *History) farOff(p *Prediction) (far bool, why string) {
	at := slices.IndexFunc(p.Resources, func(r Resource) bool { return r.Node == p.LimitedBy })
	if at < 0 || p.Resources[at].demand == nil {
		return false, "" // a pool, or a host that was not used
	}
	first := &p.Resources[at]
	times := p.Limit.Value * first.share / p.GreatestRate
	if times <= farTimes {
		return false, ""
	}
	takes, own := map[string]float64{}, 0.0 // by all replicas of a name
	for i := range p.Resources {
		r := &p.Resources[i]
		if n := h.nodes[r.Node]; n != nil {
			_, alone := n.alone()
			takes[r.Name] += alone
		}
		if r.Name == first.Name && r.demand != nil {
			own += r.demand.whenBusy().PerRequest
		}
	}
	longest, in := 0.0, ""
	for _, name := range slices.Sorted(maps.Keys(takes)) {
		if takes[name] > longest {
			longest, in = takes[name], name
		}
	}
	if longest-own <= waitsMuch*longest {
		return true, ""
	}
	return true, fmt.Sprintf("of the %s that a request takes in %s, %s are CPU time (%s), and whether the rest takes as long at %.0f times "+
		"the greatest rate is not known", milliseconds(longest), in, milliseconds(own), first.Name, times)
}

func milliseconds(seconds float64) string { return fmt.Sprintf("%.3g ms", 1e3*seconds) }

// queue takes over what is known of the queue for the pool.
func (p *Pool) queue(q *poolQueue) {
	if p.Client != q.client || p.Server != q.server || p.Limit == nil {
		return
	}
	p.queued = q.fixed == 1
	if !q.seen {
		return
	}
	p.Waited = true
	p.Limit.Low /= *q.holds.High
	if p.Limit.High != nil && q.holds.Low > 0 {
		*p.Limit.High /= q.holds.Low
	}
}

func (p *Pool) doubt() string {
	if p.Waited {
		most := "or more"
		if p.Limit.High != nil {
			most = fmt.Sprintf("to %.4g", *p.Limit.High)
		}
		return fmt.Sprintf("%s busy at %.4g/s (%.4g %s) if requests take as long as now: requests waited for them", p.are(),
			p.Limit.Value, p.Limit.Low, most)
	}
	if p.Fixed {
		return fmt.Sprintf("%s busy at %.4g/s if requests take as long as now: there were no more when more were needed", p.are(),
			p.Limit.Value)
	}
	return fmt.Sprintf("%s busy at %.4g/s if there are never more and requests take as long as now, which is not known", p.are(),
		p.Limit.Value)
}

// notSeen is why a pool may be none that is the limit in the place of what is.
func (p *Pool) notSeen(of *Prediction) string {
	if p.Ceiling {
		return fmt.Sprintf("nobody was seen to wait for %s: if each is held for longer than its request takes, the limit is lower", p.name())
	}
	text := fmt.Sprintf("nobody was seen to wait for %s: if there are more when they are needed, ", p.name())
	if of.Limit == nil {
		return text + "the limit is not known"
	}
	return text + fmt.Sprintf("%s is used up first, at %.4g/s", of.LimitName(), of.Limit.Value)
}
