package predict

import (
	"math"
	"slices"
)

// How the kernel hands a CPU quota out (kernel/sched/fair.c), in periods.
const (
	// bandwidthSlice is what a CPU gets at a time (sched_cfs_bandwidth_slice_us, 5 ms), and bandwidthKept what it keeps of that when
	// it has nothing to run (min_cfs_rq_runtime, 1 ms): it gives the rest back, and is not taken away at the end of the period.
	bandwidthSlice, bandwidthKept = 0.005 / quotaPeriod, 0.001 / quotaPeriod
	// bandwidthTick is how often it is looked whether one that runs has used up its slice, besides when it stops by itself: what
	// runs longer is owed in the next period. It is that of CONFIG_HZ=250, the kernel's own default.
	bandwidthTick = 0.004 / quotaPeriod
	// bandwidthSame is within how many periods two times are the same.
	bandwidthSame = 1e-9
)

// bandwidth is a container with a CPU quota of so many cores, whose threads run on so many CPUs.
type bandwidth struct {
	cores float64
	cpus  []bandwidthCPU
	// left is what no CPU has got of the quota of the period.
	left, period float64
}

// bandwidthCPU is what a CPU does for the container: job is what it runs, -1 nothing, of which work is left. local is what it has of
// the quota, below 0 what it owes. held is that it has to wait for the next period.
type bandwidthCPU struct {
	job         int
	work, local float64
	held        bool
}

// ends are when requests are done that come at times, in order, the first of which is served first. One takes as much CPU time as
// work, and idle times that if it does not follow another one at once.
func (b *bandwidth) ends(comes []float64, work, idle float64) (ends []float64) {
	ends = make([]float64, len(comes))
	for i := range b.cpus {
		b.cpus[i] = bandwidthCPU{job: -1}
	}
	b.left, b.period = b.cores, 0
	var waiting []int
	next, done := 0, 0
	for now := 0.0; done < len(comes); {
		at := math.Inf(1)
		if next < len(comes) {
			at = comes[next]
		}
		for i := range b.cpus {
			at = min(at, b.cpus[i].next(now))
		}
		for i := range b.cpus {
			if c := &b.cpus[i]; c.job >= 0 && !c.held {
				c.work, c.local = c.work-(at-now), c.local-(at-now)
			}
		}
		now = at
		b.begin(now)
		for i := range b.cpus {
			c := &b.cpus[i]
			switch {
			case c.job < 0 || c.held:
			case c.work > bandwidthSame:
				if c.local <= bandwidthSame && math.Abs(math.Remainder(now, bandwidthTick)) < bandwidthSame {
					b.give(c)
				}
			case len(waiting) > 0:
				ends[c.job], done = now, done+1
				c.job, c.work, waiting = waiting[0], work, waiting[1:]
				b.give(c)
			default:
				ends[c.job], done = now, done+1
				c.job = -1
				if back := c.local - bandwidthKept; back > 0 {
					c.local, b.left = bandwidthKept, b.left+back
				}
			}
		}
		for ; next < len(comes) && comes[next] <= now; next++ {
			if c := b.free(); c == nil {
				waiting = append(waiting, next)
			} else {
				c.job, c.work = next, work*idle
				b.give(c)
			}
		}
	}
	return ends
}

// next is when something happens to a CPU: what it runs is done, it is looked whether its slice is used up, or a period begins.
func (c *bandwidthCPU) next(now float64) float64 {
	switch {
	case c.job < 0:
		return math.Inf(1)
	case c.held:
		return math.Floor(now+bandwidthSame) + 1
	case c.work <= c.local:
		return now + c.work
	}
	tick := math.Ceil((now+max(c.local, 0)-bandwidthSame)/bandwidthTick) * bandwidthTick
	if tick <= now+bandwidthSame {
		tick += bandwidthTick
	}
	return min(now+c.work, tick)
}

// begin begins the period of a time, if it is another one: what was not used of the last one is lost, as without burst
// (__refill_cfs_bandwidth_runtime), but for what CPUs have.
func (b *bandwidth) begin(now float64) {
	period := math.Floor(now + bandwidthSame)
	if period <= b.period {
		return
	}
	b.period, b.left = period, b.cores
	for i := range b.cpus {
		if b.cpus[i].held {
			b.give(&b.cpus[i])
		}
	}
}

// give gives a slice to a CPU that has none, if there is any left (__assign_cfs_rq_runtime); else it is held.
func (b *bandwidth) give(c *bandwidthCPU) {
	if c.local <= bandwidthSame {
		got := min(b.left, bandwidthSlice-c.local)
		b.left, c.local = b.left-got, c.local+got
	}
	c.held = c.local <= bandwidthSame
}

// free is a CPU that has nothing to run; nil where all have.
func (b *bandwidth) free() *bandwidthCPU {
	if i := slices.IndexFunc(b.cpus, func(c bandwidthCPU) bool { return c.job < 0 }); i >= 0 {
		return &b.cpus[i]
	}
	return nil
}
