package clocks

import (
	"cmp"
	"math"
	"slices"
)

const (
	// MaxDrift is by how much the clocks of two hosts go apart, at most, in seconds a second; driftStep is how finely it is
	// looked for.
	MaxDrift  = 200e-6
	driftStep = 2e-6
)

// Point is a packet between two hosts: when it was, by the clock of the first of them, and by how much its receiver's time
// is greater than its sender's, each by its own clock. In seconds.
type Point struct{ At, Took float64 }

// Pair is what is known of the clocks of two hosts: by how much that of the second is ahead, in seconds.
type Pair struct {
	// Drift is how fast it gains; Middle is the time, by the first clock, at which it is ahead by Offset.
	Drift, Middle, Offset float64
	// Bound is by how much Offset, and what Drift makes of it, may be wrong; +Inf where nothing bounds it.
	Bound float64
}

// Ahead is by how much the second clock is ahead at a time of the first one.
func (c *Pair) Ahead(at float64) float64 { return c.Offset + c.Drift*(at-c.Middle) }

// Of are the clocks of two hosts as the packets there (from the first to the second) and back tell. No packet is
// received before it was sent: so each one there says how far the second clock is ahead at most, and each one back, at
// least. keptWithin is how far both clocks together are off from the time at most, as their kernels say; 0 where one does
// not. The tighter of both counts.
func Of(there, back []Point, keptWithin float64) Pair {
	when := times(there, back)
	c := Pair{Middle: (when.least + when.most) / 2, Bound: math.Inf(1)}
	half := (when.most - when.least) / 2
	fastThere, fastBack := newEnvelope(there, c.Middle), newEnvelope(back, c.Middle)
	// What is above the least of all packets, added up, is least with the drift that there is. That of all drifts which
	// the packets allow bounds the clocks at both ends of the time.
	cost := math.Inf(1)
	var upper, lower float64
	begin, end := noRange(), noRange()
	for i := range 2*int(MaxDrift/driftStep) + 1 {
		drift := float64((i+1)/2) * driftStep // 0, 1, -1, 2, -2 ...
		if i%2 == 0 {
			drift = -drift
		}
		high, low := fastThere.least(drift), -fastBack.least(-drift)
		if sum := fastThere.mean(drift) - high + fastBack.mean(-drift) + low; cost-sum > 1e-12 {
			cost, c.Drift, upper, lower = sum, drift, high, low
		}
		if high >= low {
			begin.add(low-drift*half, high-drift*half)
			end.add(low+drift*half, high+drift*half)
		}
	}
	if len(there) > 0 && len(back) > 0 && upper >= lower {
		c.Offset = (upper + lower) / 2
		c.Bound = max(begin.farthest(c.Offset-c.Drift*half), end.farthest(c.Offset+c.Drift*half)) + driftStep*half
	}
	// A clock that is kept worse than its kernel says is found out by packets that arrive before they were sent.
	if keptWithin > 0 && keptWithin < c.Bound && (len(there) == 0 || -keptWithin <= upper) &&
		(len(back) == 0 || keptWithin >= lower) {
		c.Offset, c.Bound = 0, keptWithin
	}
	return c
}

// envelope is what of some points may be the least of them, whatever the drift is: their lower convex hull. Times are
// those since the middle.
type envelope struct {
	hull          []Point
	meanAt, meanT float64
}

func newEnvelope(points []Point, middle float64) (e envelope) {
	all := slices.Clone(points)
	slices.SortFunc(all, func(x, y Point) int { return cmp.Or(cmp.Compare(x.At, y.At), cmp.Compare(x.Took, y.Took)) })
	for _, p := range all {
		p.At -= middle
		e.meanAt += p.At / float64(len(all))
		e.meanT += p.Took / float64(len(all))
		for n := len(e.hull); n >= 2; n = len(e.hull) {
			a, b := e.hull[n-2], e.hull[n-1]
			if (b.Took-a.Took)*(p.At-a.At) < (p.Took-a.Took)*(b.At-a.At) {
				break
			}
			e.hull = e.hull[:n-1]
		}
		e.hull = append(e.hull, p)
	}
	return e
}

// least is the least of what packets took, without the drift; 0 of none.
func (e *envelope) least(drift float64) float64 {
	if len(e.hull) == 0 {
		return 0
	}
	least := math.Inf(1)
	for _, p := range e.hull {
		least = min(least, p.Took-drift*p.At)
	}
	return least
}

func (e *envelope) mean(drift float64) float64 { return e.meanT - drift*e.meanAt }

// valueRange is from the least to the greatest of some values.
type valueRange struct{ least, most float64 }

func noRange() valueRange { return valueRange{math.Inf(1), math.Inf(-1)} }

func (r *valueRange) add(least, most float64) {
	r.least, r.most = min(r.least, least), max(r.most, most)
}

// times is from the first to the last time of points.
func times(there, back []Point) valueRange {
	r := noRange()
	for _, some := range [][]Point{there, back} {
		for _, p := range some {
			r.add(p.At, p.At)
		}
	}
	return r
}

// farthest is how far the range goes from a value.
func (r *valueRange) farthest(v float64) float64 { return max(r.most-v, v-r.least) }

// Drift is how fast the second clock gains, as packets there and back tell: with it, what they take above the least of
// their direction is least in sum. before is what it was found to be earlier, 0 at first: where packets leave several
// drifts open, as when a queue fills all the time, the nearest to it counts. It needs packets of both directions.
func Drift(there, back []Point, before float64) float64 {
	if len(there) == 0 || len(back) == 0 {
		return before
	}
	when := times(there, back)
	middle := (when.least + when.most) / 2
	fastThere, fastBack := newEnvelope(there, middle), newEnvelope(back, middle)
	// A hundredth of what a drift makes in the time decides where nothing else does.
	cost := func(drift float64) float64 {
		return fastThere.mean(drift) - fastThere.least(drift) + fastBack.mean(-drift) - fastBack.least(-drift) +
			(when.most-when.least)/100*math.Abs(drift-before)
	}
	// It is convex: a straight line less the least of some, for each direction.
	low, high := -MaxDrift, MaxDrift
	for high-low > 1e-10 {
		third := (high - low) / 3
		if cost(low+third) <= cost(high-third) {
			high -= third
		} else {
			low += third
		}
	}
	return (low + high) / 2
}
