package place

import (
	"context"
	"iter"
	"math"
	"math/rand/v2"
	"sync"
)

// How long is searched: steps for each unit and chain, and at least leastSteps.
const (
	stepsPerUnit = 2000
	leastSteps   = 100000
)

// Temperatures of a chain, in mean changes of the cost by a move. A chain that begins cold looks for what is near the
// present placement, which takes few moves.
const (
	hotStart  = 1.0
	coldStart = 0.05
	end       = 0.0005
)

// fewUnits is up to how many units more chains are tried.
const fewUnits = 100

// checkEvery is after how many steps of a search it is looked whether the answer is still wanted.
const checkEvery = 4096

// anneal searches from a placement that keeps the rules for one that costs less: simulated annealing, with several
// chains that do not depend on one another. Every second chain may overload hosts on the way, which gets dearer: where
// hosts are nearly full, there is often no way around it. It ends early with the context.
func anneal(ctx context.Context, from *state, seed uint64, effort float64) *state {
	chains := 4
	if len(from.units) <= fewUnits {
		chains = 12
	}
	steps := int(effort * float64(max(leastSteps, stepsPerUnit*len(from.units))))
	results := make([]*state, chains)
	var wait sync.WaitGroup
	for k := range chains {
		wait.Go(func() {
			c := chain{state: newState(from.compiled, from.at), random: rand.New(rand.NewPCG(seed, uint64(k))), soft: k%2 == 1}
			start := hotStart
			if k%4 == 2 {
				start = coldStart
			}
			c.run(ctx, steps, start)
			results[k] = c.state
		})
	}
	wait.Wait()
	best, least := from, from.cost()
	for _, s := range results {
		if cost := s.cost(); cost < least-1e-12 && s.broken() == 0 {
			best, least = s, cost
		}
	}
	return best
}

// chain is one search.
type chain struct {
	*state
	random *rand.Rand
	free   []int // units that may move
	// soft says that hosts may be overloaded; penalty is what that costs now, for a whole host.
	soft    bool
	penalty float64
	// cost is that of the placement, less what it was at the beginning; least and best are of the best one that keeps the
	// rules. They are kept of few units alone: of many, the last placement is the best but for a little.
	cost, least float64
	best        []int32
}

// penaltyStart is the first penalty in mean changes of the cost; it grows as the temperature falls.
const penaltyStart = 5

func (c *chain) run(ctx context.Context, steps int, start float64) {
	for n := range c.units {
		if u := &c.units[n]; u.allowed == nil || count(u.allowed) > 1 {
			c.free = append(c.free, n)
		}
	}
	if len(c.free) == 0 || len(c.Hosts) < 2 {
		return
	}
	mean := c.meanChange()
	if mean == 0 {
		return
	}
	temperature, cooling := mean*start, math.Pow(end/start, 1/float64(steps))
	c.penalty = penaltyStart * mean
	harder := math.Pow(1000, 1/float64(steps))
	few := len(c.units) <= fewUnits
	for n := range steps {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return
		}
		c.step(temperature)
		temperature *= cooling
		c.penalty *= harder
		if few && c.cost < c.least-1e-12 && (!c.soft || c.broken() == 0) {
			c.least, c.best = c.cost, append(c.best[:0], c.at...)
		}
	}
	if c.best != nil {
		c.state = newState(c.compiled, c.best)
	}
	if c.soft && c.broken() > 0 {
		c.repair()
	}
	c.soft = false
	c.descend(ctx)
}

// exchanges is in one of how many steps two units change places although there is room.
const exchanges = 8

// step tries a move, or to exchange the unit with one that is there.
func (c *chain) step(temperature float64) {
	n, to := c.pick()
	from := int(c.at[n])
	if to == from {
		return
	}
	on := c.unitsOn[to]
	if len(on) > 0 && c.random.IntN(exchanges) == 0 {
		c.exchange(n, int(on[c.random.IntN(len(on))]), temperature)
		return
	}
	roomy := c.room(n, to, -1)
	switch {
	case roomy || c.soft && c.permitted(n, to, -1):
		penalty := 0.0
		if c.soft {
			penalty = c.penalty * (c.excess(from, n, -1) - c.excess(from, -1, -1) + c.excess(to, -1, n) - c.excess(to, -1, -1))
		}
		if d := c.delta(n, to); c.accepts(d+penalty, temperature) {
			c.move(n, to)
			c.cost += d
		}
	case len(on) > 0:
		c.exchange(n, int(on[c.random.IntN(len(on))]), temperature)
	}
}

// excess is how far a host has more than it may have, less a unit and more another; -1 for none.
func (c *chain) excess(host, less, more int) float64 {
	peak, memory := c.peak[host], c.state.memory[host]
	if less >= 0 {
		peak, memory = peak-c.units[less].peak, memory-c.units[less].memory
	}
	if more >= 0 {
		peak, memory = peak+c.units[more].peak, memory+c.units[more].memory
	}
	return max(0, peak/c.peakCores[host]-1-tolerance) + max(0, memory/c.compiled.memory[host]-1-tolerance)
}

// exchange lets two units change places, if the rules and the temperature allow it.
func (c *chain) exchange(n, other int, temperature float64) {
	from, to := int(c.at[n]), int(c.at[other])
	penalty := 0.0
	switch {
	case !c.soft && (!c.room(n, to, other) || !c.room(other, from, n)):
		return
	case c.soft && (!c.permitted(n, to, other) || !c.permitted(other, from, n)):
		return
	case c.soft:
		penalty = c.penalty * (c.excess(from, n, other) - c.excess(from, -1, -1) +
			c.excess(to, other, n) - c.excess(to, -1, -1))
	}
	d := c.delta(n, to)
	c.move(n, to)
	if d += c.delta(other, from); c.accepts(d+penalty, temperature) {
		c.move(other, from)
		c.cost += d
	} else {
		c.move(n, from)
	}
}

func (c *chain) accepts(d, temperature float64) bool {
	return d <= 0 || c.random.Float64() < math.Exp(-d/temperature)
}

// descend moves units while that makes the cost less.
func (c *chain) descend(ctx context.Context) {
	for moved := true; moved && ctx.Err() == nil; {
		moved = false
		for _, n := range c.free {
			best, least := -1, -1e-12
			for to := range c.promising(n) {
				if to != int(c.at[n]) && c.room(n, to, -1) {
					if d := c.delta(n, to); d < least {
						best, least = to, d
					}
				}
			}
			if best >= 0 {
				c.move(n, best)
				moved = true
			}
		}
	}
}

// manyHosts is from how many hosts on not all of them are tried for each unit.
const manyHosts = 50

// promising are the hosts that may be better for a unit: all, or of many those of units that it talks to, and its home.
func (c *chain) promising(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		if len(c.Hosts) <= manyHosts {
			for h := range c.Hosts {
				if !yield(h) {
					return
				}
			}
			return
		}
		if !yield(c.units[n].home) {
			return
		}
		for _, l := range c.units[n].links {
			if !yield(int(c.at[l.to])) {
				return
			}
		}
	}
}

// meanChange samples how much moves change the cost.
func (c *chain) meanChange() float64 {
	sum, n := 0.0, 0
	for range 1000 {
		if d := math.Abs(c.delta(c.pick())); d > 0 {
			sum, n = sum+d, n+1
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

// pick proposes a unit and another host for it: mostly one on which something runs that it talks to.
func (c *chain) pick() (n, to int) {
	n = c.free[c.random.IntN(len(c.free))]
	links := c.units[n].links
	if len(links) > 0 && c.random.IntN(4) > 0 {
		to = int(c.at[links[c.random.IntN(len(links))].to])
	} else {
		to = c.random.IntN(len(c.Hosts))
	}
	return n, to
}
