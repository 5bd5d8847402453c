package predict

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"outsight/internal/graph"
)

const (
	// cutOffLeast is in how many stretches as many requests were in flight as ever, at least, where more are not let through, and
	// cutOffReached which share of those in which as many would have been by chance.
	cutOffLeast, cutOffReached = 3, 0.8
	// inCrowd is how many of the requests that find many in flight are taken to be there by one and the same chance.
	inCrowd = 4
	// permitsMost is how many permits are tried at most, permitsTried how many times as many as requests were under way:
	// nobody waits where there are more (of 3 servers for 1 request under way one in eleven finds all busy, of 4 one in fifty).
	permitsMost, permitsTried = 64, 4
)

// clientWaits are what a client waited in stretches of time, in seconds for each request over some connections: all that is
// neither its own wait for a CPU nor for others whom it calls.
type clientWaits struct {
	// rates are of requests at the entries; requests is how many there were over the connections.
	rates, requests, waited []float64
}

// waitsOver is of the stretches in which it is known.
func waitsOver(all []connectionsObserved) (w clientWaits) {
	// Of how many requests one is over the connections is that of all stretches: in a short one, those that begin before it
	// and end in it are many, and are not the same at both ends.
	served, over := 0.0, 0.0
	for i := range all {
		if o := &all[i]; !math.IsNaN(o.took) {
			served, over = served+o.served, over+o.Rate
		}
	}
	for i := range all {
		if o := &all[i]; !math.IsNaN(o.took) {
			w.rates, w.requests = append(w.rates, o.rate), append(w.requests, o.Requests)
			w.waited = append(w.waited, o.took*served/over-o.Busy/o.Rate)
		}
	}
	return w
}

// squares is the sum of those of what is left of the waits, besides a part that is always there, and of how many stretches it is.
// of is how long they would be, in seconds; load is the share of what serves them that is busy. Stretches count by their requests,
// and less the fuller it was: waits, and for how long they are alike, grow with the load, so that by chance the mean of one varies
// by as much as 1 / (1 - load)². Where a few of them still have most of what the waits vary by, as those at the highest loads of
// short stretches do, there is as little known as of so few. always is the part that is always there, in seconds.
func (w *clientWaits) squares(of, load func(i int) float64) (all, stretches, always float64) {
	weights, left, sum, weight := make([]float64, len(w.waited)), make([]float64, len(w.waited)), 0.0, 0.0
	for i := range w.waited {
		weights[i] = w.requests[i] * math.Pow(max(1-load(i), 1.0/heldLoads), 4)
		left[i] = w.waited[i] - of(i)
		sum, weight = sum+weights[i]*left[i], weight+weights[i]
	}
	always = sum / weight
	fourth := 0.0
	for i, l := range left {
		square := weights[i] * math.Pow(l-always, 2)
		all, fourth = all+square, fourth+square*square
	}
	// If all vary alike, and are normally distributed, the mean fourth power is three times the square of the variance.
	return all, min(3*all*all/max(fourth, math.SmallestNonzeroFloat64), float64(len(left))), always
}

// permitStations are the queues of clients that wait as for permits, no more than poolsMost. Those with a pool are left out.
func (h *History) permitStations(pools []station) (all []station) {
	for _, p := range h.connections {
		if h.ended() {
			return nil
		}
		if slices.ContainsFunc(pools, func(s station) bool { return s.pool.client == p.Client }) {
			continue
		}
		if s := p.permits(); s != nil {
			all = append(all, *s)
		}
	}
	slices.SortFunc(all, func(a, b station) int {
		return cmp.Or(cmp.Compare(b.pool.fixed, a.pool.fixed), cmp.Compare(a.pool.client, b.pool.client),
			cmp.Compare(a.pool.server, b.pool.server))
	})
	return all[:min(len(all), poolsMost)]
}

// cutOff is how many requests the client lets through to the server at a time, by that there were never more in flight although
// more were in the client. known is the chance that it is so: 1 where crowds of those that it sent would have found as many in
// flight if more were let through, and else by how many would have, inCrowd of them at a time. Where so many were in flight less
// often than they would be, as if the number changed, nothing is known and most is 0. So it is where fewer than by chance were in
// the client as well: they did not come at random then (one after the other, or each of a few clients waits for its own).
func (p *connectionsPast) cutOff(busy *Demand) (most, known float64) {
	if _, _, ok := p.takes(); !ok {
		return 0, 0
	}
	var all []*connectionsObserved
	var sent, received, under, inside, mostReceived float64
	for i := range p.all {
		// The most of several parts were not there at the same moment.
		o := &p.all[i]
		if o.Sent.Parts != 1 || o.Received.Parts == 0 || math.IsNaN(o.inside) {
			continue
		}
		all = append(all, o)
		seconds := o.seconds()
		sent, under = sent+seconds*o.Sent.Mean, under+seconds*o.Busy
		received, inside = received+seconds*o.Received.Mean, inside+seconds*o.inside
		most, mostReceived = max(most, o.Sent.Most), max(mostReceived, o.Received.Most)
	}
	if most < 1 || under <= 0 || inside <= 0 {
		return 0, 0
	}
	var reached, expected, found, foundReceived float64
	for _, o := range all {
		if o.Sent.Most == most {
			reached++
		}
		// Requests are in flight until their reply begins, and under way until it ends.
		f := o.Sent.Requests * o.lookedAt(&o.Sent) * findAsMany(busy.Cores(o.rate).Value*min(sent/under, 1), most)
		found, expected = found+f, expected+1-math.Exp(-f)
		foundReceived += o.Received.Requests * o.lookedAt(&o.Received) * findAsMany(o.inside*min(received/inside, 1), mostReceived)
	}
	if reached < max(cutOffLeast, cutOffReached*expected) {
		return 0, 0
	}
	switch {
	case mostReceived <= most || foundReceived > crowds/2:
		return most, 0
	case found >= crowds:
		return most, 1
	}
	return most, 1 - math.Exp(-found/inCrowd)
}

// seconds is how long the stretch is.
func (o *connectionsObserved) seconds() float64 { return o.Requests / o.Rate }

// lookedAt is the share of the stretch of which the most requests in flight are known.
func (o *connectionsObserved) lookedAt(f *graph.InFlightRequests) float64 {
	return min(f.Seconds/o.seconds(), 1)
}

// findAsMany is the share of requests that find as many in flight, or more, if they come at random: how many there are is Poisson
// distributed then, however long each takes.
func findAsMany(mean, many float64) float64 {
	if mean <= 0 {
		return 0
	}
	return 1 - distuv.Poisson{Lambda: mean}.CDF(many-1)
}

// permitPool is the pool of which it is known that it lets only so many requests through at a time, before any has to wait for
// long; nil is that it is not, or that the client waited as for another number.
func (p *connectionsPast) permitPool(mean, rate float64) *Pool {
	d, err := FitDemand(p.busy())
	if err != nil {
		return nil
	}
	most, known := p.cutOff(&d)
	limit, ok := d.Rate(most)
	if known < 1 || !ok {
		return nil
	}
	if limit.High != nil {
		*limit.High /= 1 - bend
	}
	pool := &Pool{Client: p.Client, Server: p.Server, Name: p.Name, Open: most, Before: d.Cores(mean), Busy: d.Cores(rate),
		Limit: &limit, Fixed: true, Ceiling: true, otherwise: whileCalm(p.all)}
	s := p.permits()
	if s == nil || s.parallel != most {
		return nil // the client did not wait as for so many
	}
	pool.queue(s.pool)
	if !pool.Waited { // for how much longer than a request each is held is not known
		limit.Low /= holdsMost
	}
	return pool
}

// whileCalm is what the client did in stretches, as nodePast.
func whileCalm(all []connectionsObserved) *nodePast {
	var n nodePast
	for i := range all {
		if o := &all[i]; !math.IsNaN(o.waiting) {
			n.waited, n.took, n.requests = n.waited+o.waiting, n.took+o.inside, n.requests+o.served
		}
	}
	return &n
}

// permits is a queue for how many requests the client lets through to the server at a time, if more were never in flight (cutOff),
// or its waits grew in the past as they do for one: those of M/M/c by Erlang's C for as many as are under way, times (1 + V²) / 2
// where V is the spread of how long they take (Lee and Longton's M/G/c). How many permits there are is what fits best. That there are is known where it fits better than
// none by unlikely standard deviations; nil is that there rather are none.
func (p *connectionsPast) permits() *station {
	line, err := FitDemand(p.busy())
	if err != nil || line.PerRequest <= 0 {
		return nil
	}
	takes, spread, ok := p.takes()
	if !ok {
		return nil
	}
	queue := func(permits, fixed float64, holds Interval) *station {
		return &station{demand: &line, parallel: permits, share: 1, visits: 1, arrivals: atRandom(), pool: &poolQueue{
			holder: poolOf(permits, spread), client: p.Client, server: p.Server, takes: takes, holds: holds, fixed: fixed},
			waitedFor: (&Pool{Open: permits, Name: p.Name, Ceiling: true}).name()}
	}
	never, known := p.cutOff(&line)
	var byNumber *station
	if known >= 0.5 {
		if byNumber = queue(never, known, Interval{}); !byNumber.wasWaitedFor(p.all) {
			byNumber = nil
		}
	}
	w := waitsOver(p.calm())
	if byNumber != nil && known == 1 || len(w.waited) < minObservations {
		return byNumber
	}
	busy := make([]float64, len(w.rates))
	for i, rate := range w.rates {
		busy[i] = line.Cores(rate).Value
	}
	most := slices.Max(busy)
	first := max(math.Floor(most)+1, never)
	last := min(max(math.Ceil(permitsTried*most)+1, first), permitsMost)
	best, squares := 0.0, []float64(nil)
	var none, least, stretches, always float64
	// The stretches weigh by the load, which is known when the number of permits is.
	for range 2 {
		load := func(i int) float64 { return busy[i] / max(best, first) }
		none, stretches, _ = w.squares(func(int) float64 { return 0 }, load)
		least, squares = none, nil
		for permits := first; permits <= last; permits++ {
			all, of, besides := w.squares(func(i int) float64 {
				return takes * erlangWait(int(permits), busy[i]/permits) / permits * (1 + spread*spread) / 2
			}, load)
			if squares = append(squares, all); all < least {
				best, least, stretches, always = permits, all, of, besides
			}
		}
	}
	freedom := max(stretches-2, 1)
	// Nobody waits for less than no time: what is less, by more than durations of the two ends may differ, are no waits.
	if best == 0 || always < (1-modelOff)*takes {
		return byNumber
	}
	// The Bayesian information criterion as the chance that there are permits, if there are any in every second client.
	fixed := 1 / (1 + math.Sqrt(stretches)*math.Pow(least/none, stretches/2))
	if fixed < max(known, 0.5) {
		return byNumber
	}
	if none > least*(1+unlikely*unlikely/freedom) {
		fixed = 1
	}
	low, high := best, best
	for i, all := range squares {
		if factor := student(freedom); all <= least*(1+factor*factor/freedom) {
			low, high = min(low, first+float64(i)), max(high, first+float64(i))
		}
	}
	// Fewer permits are as if each were taken for longer.
	longer := best / low * modelOff
	return queue(best, fixed, Interval{1, best / high / modelOff, &longer})
}
