package predict

import (
	"cmp"
	"math"
	"slices"

	"outsight/internal/graph"
)

// poolQueue is a pool of connections that requests wait for, where one is needed for each request at the entries.
type poolQueue struct {
	holder
	// client is the node whose requests wait, for connections to server; takes is for how long one is over a connection,
	// in seconds.
	client, server string
	takes          float64
	// holds is how many times as long as that a connection is taken, as the client's waits tell it; the estimate is 1.
	holds Interval
	// seen is that the client waited in the past as it would for such a pool. Where it is false, it is not known whether it
	// does. possible is that it is not known either whether there would be more connections when they are needed.
	seen, possible bool
}

const (
	// poolsMost is how many pools are looked at, poolVisits how many more or less requests than one at the entries there
	// may be over a pool's connections.
	poolsMost, poolVisits = 8, 1.25
	// holdsMost is how many times as long as a request takes a connection may be taken, in holdsSteps steps from a
	// holdsMost-th of it on.
	holdsMost, holdsSteps = 3, 40
	// modelOff is what holds may be off because neither are requests quite at random, nor is how long they take quite
	// gamma distributed.
	modelOff = 1.05
	// unlikely is how many standard deviations less the client waited than for a pool where there is none.
	unlikely = 3
)

// connectionsPast is what connections did in the past.
type connectionsPast struct {
	graph.Connections // the newest
	all               []connectionsObserved
}

// connectionsObserved is a stretch of time: rate is of requests at the entries. waited is for how long, in seconds, the
// client had each of the requests over the connections, less what it waited for CPUs and those whom it calls; NaN where that
// is not known.
type connectionsObserved struct {
	rate float64
	graph.Connections
	waited float64
}

func (h *History) addConnections(a *graph.Analysis) {
	if h.connections == nil {
		h.connections = map[[2]string]*connectionsPast{}
	}
	// Of all requests, by node. With CPU time that is not for requests, waits would seem to be shorter at low rates.
	waits := map[string]float64{}
	for i := range a.Resources {
		if r := &a.Resources[i]; r.Waits != nil {
			waits[r.Node] = float64(*r.Waits)**r.ArrivalRate + r.CPUCores
		}
	}
	for _, c := range a.Connections {
		if c.Open <= 0 || c.Requests <= 0 {
			continue
		}
		key := [2]string{c.Client, c.Server}
		p := h.connections[key]
		if p == nil {
			p = &connectionsPast{}
			h.connections[key] = p
		}
		p.Connections = c
		waited, ok := waits[c.Client]
		if !ok {
			waited = math.NaN()
		}
		p.all = append(p.all, connectionsObserved{a.ArrivalRate, c, waited / c.Rate})
	}
}

// busy is how many connections are under way, over the rate at the entries.
func (p *connectionsPast) busy() []Observation {
	all := make([]Observation, len(p.all))
	for i := range p.all {
		all[i] = Observation{p.all[i].rate, p.all[i].Busy}
	}
	return all
}

// poolStations are the pools for which requests may wait, as they were: no more than poolsMost, the fullest first.
func (h *History) poolStations() (all []station) {
	for _, p := range h.connections {
		if s := p.station(); s != nil {
			all = append(all, *s)
		}
	}
	full := func(s *station) float64 { return s.demand.Cores(s.demand.mean).Value / s.parallel }
	slices.SortFunc(all, func(a, b station) int {
		return cmp.Or(cmp.Compare(full(&b), full(&a)), cmp.Compare(a.pool.client, b.pool.client),
			cmp.Compare(a.pool.server, b.pool.server))
	})
	return all[:min(len(all), poolsMost)]
}

// station is nil where it is not known that there is a pool, where one request at the entries does not take one
// connection, or where the client did not wait although it would have for a pool.
func (p *connectionsPast) station() *station {
	d, err := FitDemand(p.busy())
	if err != nil || !p.oneAtATime() {
		return nil
	}
	var rate, busy, over, spread float64
	for i := range p.all {
		o := &p.all[i]
		rate, busy, over, spread = rate+o.rate, busy+o.Busy, over+o.Rate, spread+o.Rate*o.Spread
	}
	takes := busy / over
	spread /= over
	if over > rate*poolVisits || rate > over*poolVisits || !(takes > 0) || !(spread >= 0) || math.IsInf(spread, 0) {
		return nil
	}
	s := &station{demand: &d, parallel: p.Open, share: 1, visits: 1, pool: &poolQueue{holder: poolOf(p.Open, spread),
		client: p.Client, server: p.Server, takes: takes}}
	if !s.wasWaitedFor(p.all) {
		return nil
	}
	s.pool.possible = !p.fixed(&d)
	return s
}

// wasWaitedFor finds holds and seen, by least squares of what the client waited in the past less what it would for the
// pool. It is false where the client waited less than for a pool. Stretches count by their requests, and less the fuller
// the pool was: by chance the mean wait of one is as much longer or shorter as the queue grows with the load.
func (s *station) wasWaitedFor(all []connectionsObserved) bool {
	known := slices.DeleteFunc(slices.Clone(all), func(o connectionsObserved) bool { return math.IsNaN(o.waited) })
	s.pool.holds = Interval{Value: 1, High: new(float64)}
	*s.pool.holds.High = 1
	if len(known) < minObservations {
		return true
	}
	loads, weights := make([]float64, len(known)), make([]float64, len(known))
	for i := range known {
		loads[i] = s.demand.Cores(known[i].rate).Value / s.parallel
		free := max(1-loads[i], 1.0/heldLoads)
		weights[i] = known[i].Requests * free * free
	}
	squares := func(times float64) float64 {
		var left []float64
		sum, weight := 0.0, 0.0
		for i := range known {
			load := loads[i] * times
			if load >= 1 {
				return math.Inf(1)
			}
			left = append(left, known[i].waited-s.pool.at(load)[0]*s.pool.takes*times)
			sum, weight = sum+weights[i]*left[i], weight+weights[i]
		}
		all := 0.0
		for i, l := range left {
			all += weights[i] * math.Pow(l-sum/weight, 2)
		}
		return all
	}
	none, least := squares(0), math.Inf(1)
	var steps, found []float64
	for i := range holdsSteps + 1 {
		times := math.Pow(holdsMost, 2*float64(i)/holdsSteps-1)
		steps, found = append(steps, times), append(found, squares(times))
		least = min(least, found[i])
	}
	freedom := float64(len(known) - 2)
	// within is the greatest sum of squares of what is so many standard deviations off.
	within := func(deviations float64) float64 {
		return min(least, none) * (1 + deviations*deviations/freedom)
	}
	most, possible := within(student(freedom)), within(unlikely)
	low, high, highest := math.Inf(1), 0.0, 0.0
	for i, times := range steps {
		if found[i] <= possible {
			highest = max(highest, times)
		}
		if found[i] <= most {
			low, high = min(low, times), max(high, times)
		}
	}
	if low/modelOff <= 1 && 1 <= high*modelOff && none > most {
		s.pool.seen = true
		*s.pool.holds.High = max(high*modelOff, 1)
		s.pool.holds.Low = min(low/modelOff, 1)
		return true
	}
	return highest*modelOff >= 1
}

// change makes the pool that of a scenario: each of a client's replicas has as many connections. With other replicas it is
// not known whether there are as many. It is false where there is no client any more.
func (s *station) change(p *Prediction, scenario *Scenario) bool {
	if len(scenario.Replicas)+len(scenario.Down) == 0 {
		return true
	}
	at := slices.IndexFunc(p.Resources, func(r Resource) bool { return r.Node == s.pool.client })
	if at < 0 {
		return false
	}
	unsure := *s.pool
	unsure.seen, unsure.holds.Low = false, 0
	s.share, s.pool = p.Resources[at].share, &unsure
	return true
}
