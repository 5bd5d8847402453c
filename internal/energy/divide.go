package energy

import (
	"cmp"
	"math/bits"
	"slices"

	"outsight/internal/model"
)

// interval is the time between two updates, in one package or (-1) in all of them.
type interval struct {
	packageID     int
	before, after []model.PackageTime
}

// concerns reports whether the package at an index is of the interval's.
func (in *interval) concerns(i int) bool {
	return in.packageID < 0 || i < len(in.after) && in.after[i].ID == in.packageID
}

// times are how long the CPUs were busy and idle, and whether all of them had counters.
func (in *interval) times() (busyNS, idleNS uint64, counted bool) {
	counted = true
	for i, p := range in.after {
		if !in.concerns(i) {
			continue
		}
		var before model.PackageTime
		if i < len(in.before) {
			before = in.before[i]
		}
		busyNS += less(p.BusyNS, before.BusyNS)
		idleNS += less(p.IdleNS, before.IdleNS)
		counted = counted && p.Counted
	}
	return busyNS, idleNS, counted
}

// weights are what each consumer did: weighted cycles, or CPU time where not all CPUs count cycles.
func (in *interval) weights(before map[string]Consumer, consumers []Consumer) []uint64 {
	_, _, counted := in.times()
	weights := make([]uint64, len(consumers))
	if counted {
		var sum uint64
		for i, c := range consumers {
			weights[i] = in.gained(c.Work, before[c.ID].Work)
			sum += weights[i]
		}
		if sum > 0 {
			return weights
		}
	}
	for i, c := range consumers {
		weights[i] = in.gained(c.WorkNS, before[c.ID].WorkNS)
	}
	return weights
}

func (in *interval) gained(after, before []uint64) (sum uint64) {
	for i, n := range after {
		if !in.concerns(i) {
			continue
		}
		var b uint64
		if i < len(before) {
			b = before[i]
		}
		sum += less(n, b)
	}
	return sum
}

// idle is the part of the energy that would have been drawn without any work. Cores that do nothing are
// switched off: by equation 2 all of their energy is of who ran. Of the rest it is what the
// coefficients of the CPU's family say.
func (in *interval) idle(g gain, c coefficients) uint64 {
	if g.domain == Core {
		return 0
	}
	busyNS, idleNS, _ := in.times()
	drawnIdle := float64(c.minMicroWatts) * float64(busyNS+idleNS)
	drawn := drawnIdle + float64(c.maxMicroWatts-c.minMicroWatts)*float64(busyNS)
	if drawn <= 0 {
		return 0
	}
	return min(uint64(float64(g.microJoules)*(drawnIdle/drawn)), g.microJoules)
}

// less is a-b, or 0 where a counter began anew.
func less(a, b uint64) uint64 {
	if a < b {
		return 0
	}
	return a - b
}

// apportion divides whole in the proportion of the weights, by largest remainders: the shares add up
// to whole. Without any weight all of them are 0.
func apportion(whole uint64, weights []uint64) []uint64 {
	shares := make([]uint64, len(weights))
	var sum uint64
	for _, w := range weights {
		sum += w
	}
	if sum == 0 {
		return shares
	}
	left := whole
	remainders := make([]uint64, len(weights))
	order := make([]int, 0, len(weights))
	for i, w := range weights {
		high, low := bits.Mul64(whole, w)
		shares[i], remainders[i] = bits.Div64(high, low, sum)
		left -= shares[i]
		if remainders[i] > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(remainders[b], remainders[a]) })
	for _, i := range order[:left] {
		shares[i]++
	}
	return shares
}

// still reports whether no CPU was busy or idle: nobody counted.
func (in *interval) still() bool {
	busyNS, idleNS, _ := in.times()
	return busyNS+idleNS == 0
}
