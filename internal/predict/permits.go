package predict

import (
	"cmp"
	"math"
	"slices"
)

const (
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

// permits is a queue for how many requests the client lets through to the server at a time, if its waits grew in the past as
// they do for one: those of M/M/c by Erlang's C for as many as are under way, times (1 + V²) / 2 where V is the spread of how long
// they take (Lee and Longton's M/G/c). How many permits there are is what fits best. That there are is known where it fits better than
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
	w := waitsOver(p.calm())
	if len(w.waited) < minObservations {
		return nil
	}
	busy := make([]float64, len(w.rates))
	for i, rate := range w.rates {
		busy[i] = line.Cores(rate).Value
	}
	most := slices.Max(busy)
	first, last := math.Floor(most)+1, min(math.Ceil(permitsTried*most)+1, permitsMost)
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
		return nil
	}
	// The Bayesian information criterion as the chance that there are permits, if there are any in every second client.
	fixed := 1 / (1 + math.Sqrt(stretches)*math.Pow(least/none, stretches/2))
	if fixed < 0.5 {
		return nil
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
	return &station{demand: &line, parallel: best, share: 1, visits: 1, arrivals: atRandom(), pool: &poolQueue{holder: poolOf(best, spread),
		client: p.Client, server: p.Server, takes: takes, holds: Interval{1, best / high / modelOff, &longer}, fixed: fixed},
		waitedFor: (&Pool{Open: best, Name: p.Name, Ceiling: true}).name()}
}
