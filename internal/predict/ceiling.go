package predict

import (
	"cmp"
	"math"
	"slices"
)

const (
	// crowdedLeast is how many stretches have to be crowded for a ceiling to be told, crowdedWaits the least number of requests
	// that wait in one, also as a share of those that are under way: of requests that come at random and wait for n at a time
	// half as many wait where n are busy for six tenths of the time (of 1), three quarters (4) or nine tenths (10), by M/M/n.
	crowdedLeast, crowdedWaits, crowdedShare = 3, 1, 0.5
	// ceilingSpread is how many times the least number of requests under way the greatest may be, of crowded stretches: it may be
	// 1 / ceilingFull, and of a thousand requests, as a short stretch has, another 3 % by chance. So those in which many wait
	// although not all are busy, as crowdedShare alone allows, tell none.
	ceilingSpread = 1.15
	// ceilingSlower is how many times as long each may take as in stretches that are not crowded. Where the server is itself what
	// is full, requests wait there, and take 1 / (1 - ρ) times as long (M/M/1): half as long again is a server of which a third
	// is used, which could serve three times as many.
	ceilingSlower = 1.5
	// ceilingUsed is the share of its CPU time from which on a client has another reason to let no more through: by CPU time it
	// could serve a quarter more, which is how much the line may be off there (bend).
	ceilingUsed = 1 / (1 + bend)
	// ceilingFull is how much of a whole number of requests is under way, at least, where as many are let through and others
	// wait: whoever is done is followed by the next one. Of 4, 3.8 were (docs/analysis.md).
	ceilingFull = 0.9
)

// ceiling is the pool of which nothing tells how many requests it lets through at a time, if the past shows it: in crowded
// stretches more and more requests wait in the client, as many as ever are under way to the server, nearly a whole number, and
// the server takes as long for each as before. What could be served then is the limit. nil is that nothing is seen of one: as
// long as fewer come than it lets through, there is no sign of it.
func (p *connectionsPast) ceiling(mean, rate float64) *Pool {
	var crowded, calm []connectionsObserved
	for _, o := range p.all {
		switch {
		case math.IsNaN(o.waiting):
		case o.waiting >= crowdedWaits && o.waiting >= crowdedShare*o.Busy:
			crowded = append(crowded, o)
		default:
			calm = append(calm, o)
		}
	}
	if len(crowded) < crowdedLeast || len(calm) < crowdedLeast {
		return nil
	}
	byBusy := func(a, b connectionsObserved) int { return cmp.Compare(a.Busy, b.Busy) }
	least, most := slices.MinFunc(crowded, byBusy).Busy, slices.MaxFunc(crowded, byBusy).Busy
	if most > ceilingSpread*least || slices.MaxFunc(calm, byBusy).Busy > most ||
		takes(crowded) > ceilingSlower*takes(calm) || slices.ContainsFunc(crowded, func(o connectionsObserved) bool { return o.used > ceilingUsed }) {
		return nil
	}
	d, err := FitDemand(p.busy())
	if err != nil {
		return nil
	}
	var limit, open float64
	low, high := math.Inf(1), 0.0
	for _, o := range crowded {
		limit, open = limit+o.rate/float64(len(crowded)), open+o.Busy/float64(len(crowded))
		low, high = min(low, o.rate), max(high, o.rate)
	}
	if whole := math.Round(open); whole < 1 || math.Abs(open-whole) > (1-ceilingFull)*whole {
		return nil // nothing lets a part of a request through
	}
	// As far off as the stretches are from each other, on either side.
	low, high = max(low-(high-low), 0), high+(high-low)
	return &Pool{Client: p.Client, Server: p.Server, Name: p.Name, Open: open, Before: d.Cores(mean), Busy: d.Cores(rate),
		Limit: &Interval{limit, low, &high}, Fixed: true, Waited: true, Ceiling: true, queued: true,
		otherwise: whileCalm(calm)}
}

// takes is how long a request over the connections takes, in seconds.
func takes(all []connectionsObserved) float64 {
	busy, rate := 0.0, 0.0
	for _, o := range all {
		busy, rate = busy+o.Busy, rate+o.Rate
	}
	return busy / rate
}

// onlyCeilings leaves no ceiling to a client that has several: it is not known for which of them its requests wait.
func onlyCeilings(pools []Pool) []Pool {
	of := map[string]int{}
	for i := range pools {
		if pools[i].Ceiling {
			of[pools[i].Client]++
		}
	}
	return slices.DeleteFunc(pools, func(p Pool) bool { return p.Ceiling && of[p.Client] > 1 })
}
