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
	// does.
	seen bool
	// fixed is how well it is known that there would be no more connections when they are needed: from 0 to 1, which is that
	// it is known: connectionsPast.fixed of connections, and of permits the chance that there are any (connectionsPast.permits).
	fixed float64
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

// connectionsObserved is a stretch of time: rate is of requests at the entries. served is of those that the client serves,
// and took for how long, in seconds, it has each of them, less what it waits for CPUs and for others whom it calls; NaN where
// that is not known.
type connectionsObserved struct {
	rate float64
	graph.Connections
	served, took float64
	// inside is how many requests are in the client on average, and waiting how many of them neither run nor wait for a CPU or
	// for those whom it calls; NaN where that is not known. used is its utilisation.
	inside, waiting, used float64
	// left is what others leave of the CPUs of the client's host and of the server's, as a share of them.
	left map[string]float64
}

func (h *History) addConnections(a *graph.Analysis) {
	if h.connections == nil {
		h.connections = map[[2]string]*connectionsPast{}
	}
	clients, called, utilised := map[string]*graph.Resource{}, map[string]float64{}, map[string]float64{}
	left, hosts := h.leftOf(a), map[string]string{}
	for i := range a.Resources {
		hosts[a.Resources[i].Node] = a.Resources[i].Host
		if r := &a.Resources[i]; r.Parallel > 0 {
			utilised[r.Node] = r.CPUCores / r.Parallel
		}
		if r := &a.Resources[i]; r.Latency != nil && r.ArrivalRate != nil && *r.ArrivalRate > 0 {
			clients[r.Node] = r
		}
	}
	for _, c := range a.Connections {
		called[c.Client] += c.Busy
	}
	for _, c := range a.Connections {
		if c.Requests <= 0 {
			continue
		}
		key := [2]string{c.Client, c.Server}
		p := h.connections[key]
		if p == nil {
			p = &connectionsPast{}
			h.connections[key] = p
		}
		open := p.Open
		if p.Connections = c; c.Open <= 0 { // none is open just now
			p.Open = open
		}
		o := connectionsObserved{rate: a.ArrivalRate, Connections: c, served: math.NaN(), took: math.NaN(),
			inside: math.NaN(), waiting: math.NaN(), left: map[string]float64{}}
		for _, node := range []string{c.Client, c.Server} {
			if share, ok := left[hosts[node]]; ok {
				o.left[hosts[node]] = share
			}
		}
		if r := clients[c.Client]; r != nil {
			// With CPU time that is not for requests, which stays in it, waits would seem to be shorter at low rates.
			o.served, o.inside, o.used = *r.ArrivalRate, float64(*r.Latency)**r.ArrivalRate, utilised[r.Node]
			o.used = max(o.used, utilised[graph.CPUsOf(r.Host)])
			if r.Waits != nil {
				o.waiting = float64(*r.Waits) * o.served
			}
			o.took = float64(*r.Latency) - (r.Queued+called[c.Client]-c.Busy)/o.served
		}
		p.all = append(p.all, o)
	}
}

// calm are the stretches in which nobody disturbed the hosts of both ends.
func (p *connectionsPast) calm() []connectionsObserved {
	return calm(p.all, func(o *connectionsObserved) map[string]float64 { return o.left })
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
		if h.ended() {
			return nil
		}
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
	takes, spread, ok := p.takes()
	if !ok {
		return nil
	}
	s := &station{demand: &d, parallel: p.Open, share: 1, visits: 1, arrivals: atRandom(), pool: &poolQueue{holder: poolOf(p.Open, spread),
		client: p.Client, server: p.Server, takes: takes}, waitedFor: (&Pool{Open: p.Open, Name: p.Name}).name()}
	if !s.wasWaitedFor(p.all) {
		return nil
	}
	s.pool.fixed = p.fixed(&d)
	return s
}

// takes is how long a request over the connections takes, in seconds, and its spread as a share of that. ok is false where that is
// not known, or one request at the entries does not make one over the connections, give or take poolVisits.
func (p *connectionsPast) takes() (seconds, spread float64, ok bool) {
	var rate, over float64
	for i := range p.all {
		o := &p.all[i]
		rate, over, spread = rate+o.rate, over+o.Rate, spread+o.Rate*o.Spread
	}
	spread /= over
	seconds = takes(p.all)
	return seconds, spread, over <= rate*poolVisits && rate <= over*poolVisits && seconds > 0 && spread >= 0 && !math.IsInf(spread, 0)
}

// wasWaitedFor finds holds and seen, by least squares of what the client waited in the past less what it would for the
// pool. It is false where the client waited less than for a pool.
func (s *station) wasWaitedFor(all []connectionsObserved) bool {
	w := waitsOver(all)
	s.pool.holds = Interval{Value: 1, High: new(float64)}
	*s.pool.holds.High = holdsMost
	if len(w.waited) < minObservations {
		return true
	}
	load := func(i int) float64 { return s.demand.Cores(w.rates[i]).Value / s.parallel }
	squares := func(times float64) (all, stretches float64) {
		all, stretches, _ = w.squares(func(i int) float64 { return s.pool.at(min(load(i)*times, 1))[0] * s.pool.takes * times }, load)
		return all, stretches
	}
	none, stretches := squares(0)
	least := none
	var steps, found []float64
	for i := range holdsSteps + 1 {
		times := math.Pow(holdsMost, 2*float64(i)/holdsSteps-1)
		all, of := squares(times)
		steps, found = append(steps, times), append(found, all)
		if all < least {
			least, stretches = all, of
		}
	}
	freedom := max(stretches-2, 1)
	// within is the greatest sum of squares of what is so many standard deviations off.
	within := func(deviations float64) float64 {
		return least * (1 + deviations*deviations/freedom)
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
	*s.pool.holds.High = max(high*modelOff, 1)
	if low/modelOff <= 1 && 1 <= high*modelOff && none > most {
		s.pool.seen = true
		s.pool.holds.Low = min(low/modelOff, 1)
		return true
	}
	return highest*modelOff >= 1
}

// change makes the pool that of a scenario: each of a client's replicas has as many connections. With other replicas it is
// not known whether there are as many. It is false where there is no client any more.
func (s *station) change(p *Prediction, scenario *Scenario) bool {
	if !scenario.hasOthers() {
		return true
	}
	unsure := *s.pool
	unsure.seen, unsure.holds.Low = false, 0
	s.share, s.pool = p.share(s.pool.client), &unsure
	return s.share > 0
}

// hasOthers is that there are more or fewer containers, which may have other connections.
func (s *Scenario) hasOthers() bool { return len(s.Replicas)+len(s.Down) > 0 }

// share is what a node gets of the requests that it got; 0 where it is no more.
func (p *Prediction) share(node string) float64 {
	at := slices.IndexFunc(p.Resources, func(r Resource) bool { return r.Node == node })
	if at < 0 {
		return 0
	}
	return p.Resources[at].share
}
