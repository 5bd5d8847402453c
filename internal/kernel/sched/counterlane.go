package sched

import (
	"math/bits"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

const (
	// DefaultHTRatio is what paper and measurements give for Sandy Bridge and Ivy Bridge.
	DefaultHTRatio = 1.1
	// maxExtrapolation is how many times as much as was counted may be taken for what happened while
	// others had the hardware.
	maxExtrapolation = 1000
)

// threadWeights are the weights of a cycle, in thousandths, by how many threads of the core were busy.
// Two busy threads draw ratio times the power of one, and each further one as much more; each of n
// threads has the n-th part of it.
func threadWeights(ratio float64) (weights [counterEvents]uint64) {
	for i := range weights {
		weights[i] = uint64((1000+(ratio-1)*1000*float64(i))/float64(i+1) + 0.5)
	}
	return weights
}

// laneSum is what one lane has counted, extrapolated.
type laneSum struct {
	last   countersCounterLane
	counts [counterEvents]uint64
	shared [counterEvents]uint64
	// work is the weighted cycles; rest is what is left of them, in thousandths.
	work, rest uint64
	// lost is how often there was too little to extrapolate from.
	lost uint64
}

// update takes a later state of the lane in. The sums never go down.
func (s *laneSum) update(now *countersCounterLane, weights *[counterEvents]uint64) {
	enabled, running := now.EnabledNs-s.last.EnabledNs, now.RunningNs-s.last.RunningNs
	if running == 0 && enabled > 0 {
		// Nothing was counted. If the hardware comes back, what it counts then stands for this time too.
		return
	}
	if running > enabled {
		enabled = running
	}
	if running > 0 && enabled/running >= maxExtrapolation {
		enabled = running
		s.lost++
	}
	for i := range s.counts {
		s.counts[i] += extrapolate(now.Values[i]-s.last.Values[i], enabled, running)
	}
	var raw, given uint64
	for i := range s.shared {
		raw += now.With[i] - s.last.With[i]
		upto := extrapolate(raw, enabled, running)
		s.shared[i] += upto - given
		s.rest += (upto - given) * weights[i]
		given = upto
	}
	s.work += s.rest / 1000
	s.rest %= 1000
	s.last = *now
}

// extrapolate is floor(n * enabled / running) for enabled ≥ running.
func extrapolate(n, enabled, running uint64) uint64 {
	if running == 0 || enabled == running {
		return n
	}
	high, low := bits.Mul64(n, enabled)
	if high >= running {
		return n // over 64 bits: no counter gets there
	}
	scaled, _ := bits.Div64(high, low, running)
	return scaled
}

// readLane reads a lane of one moment; false if its CPU switched all the time.
func (r *counterReader) readLane(lane, cpu int) (now countersCounterLane, ok bool) {
	from, c := &r.lanes.Entries[lane], &r.states.Entries[cpu]
	for range 100 {
		before := host.Load(&c.Sequence)
		if before%2 == 1 {
			continue
		}
		for i := range now.Values {
			now.Values[i], now.With[i] = host.Load(&from.Values[i]), host.Load(&from.With[i])
		}
		now.EnabledNs, now.RunningNs, now.Slices = host.Load(&from.EnabledNs), host.Load(&from.RunningNs),
			host.Load(&from.Slices)
		if host.Load(&c.Sequence) == before {
			return now, true
		}
	}
	return now, false
}

// readSlot sums a slot's lanes.
func (r *counterReader) readSlot(slot int, c *model.CgroupCounters) {
	c.Perf = make([]model.PerfCounters, len(r.pmus))
	for i := range c.Perf {
		c.Perf[i].PMU, c.Perf[i].Known = r.pmus[i].name, r.known
	}
	for cpu := range r.cpus {
		lane := slot*r.cpus + cpu
		slices := host.Load(&r.lanes.Entries[lane].Slices)
		pmu := pmuOf(r.pmus, cpu)
		if slices == 0 || pmu < 0 {
			continue
		}
		sum := r.sums[lane]
		if sum == nil {
			sum = &laneSum{}
			r.sums[lane] = sum
		}
		if sum.last.Slices != slices {
			if now, ok := r.readLane(lane, cpu); ok {
				lost := sum.lost
				sum.update(&now, &r.weights)
				r.lost.Add(sum.lost - lost)
			}
		}
		to := &c.Perf[pmu]
		for i := range to.Counts {
			to.Counts[i] += sum.counts[i]
			to.Shared[i] += sum.shared[i]
		}
		to.EnabledNS += host.Load(&r.lanes.Entries[lane].EnabledNs)
		to.RunningNS += host.Load(&r.lanes.Entries[lane].RunningNs)
		if at := r.machine.CPUs[cpu].Package; at >= 0 && at < len(c.Work) {
			c.Work[at] += sum.work
		}
	}
}

// release empties the lanes of a slot that is released.
func (r *counterReader) release(slot int) {
	if r == nil || r.lanes == nil {
		return
	}
	for cpu := range r.cpus {
		lane := slot*r.cpus + cpu
		r.lanes.Entries[lane] = countersCounterLane{}
		delete(r.sums, lane)
	}
}
