package place

import (
	"cmp"
	"slices"
)

// bound is a cost that no placement that keeps the rules can be below: of links, for each unit what cannot be on its host
// with it; the fewest hosts that hold all; and the power of the best of them.
func (c *compiled) bound() float64 {
	return c.boundOfLinks() + c.boundOfHosts() + c.boundOfLoad()
}

// boundOfLinks is half of what each unit's links cost at least: the host with the most room takes the neighbours with the
// most cost for their size, the last of them in part.
func (c *compiled) boundOfLinks() float64 {
	cores, memory := slices.Max(c.peakCores), slices.Max(c.memory)
	sum := 0.0
	type item struct{ cost, size float64 }
	for n := range c.units {
		u := &c.units[n]
		best := func(room float64, size func(*unit) float64) float64 {
			kept := 0.0
			var items []item
			for _, l := range u.links {
				v := &c.units[l.to]
				if !c.together(u, v) || u.peak+v.peak > cores*(1+tolerance) || u.memory+v.memory > memory*(1+tolerance) {
					continue
				}
				if size(v) <= 0 {
					kept += l.cost
				} else {
					items = append(items, item{l.cost, size(v)})
				}
			}
			slices.SortFunc(items, func(a, b item) int { return cmp.Compare(b.cost/b.size, a.cost/a.size) })
			for _, i := range items {
				part := min(1, max(0, room)/i.size)
				kept += part * i.cost
				room -= i.size * part
			}
			return kept
		}
		all := 0.0
		for _, l := range u.links {
			all += l.cost
		}
		sum += max(0, all-min(best(cores*(1+tolerance)-u.peak, func(v *unit) float64 { return v.peak }),
			best(memory*(1+tolerance)-u.memory, func(v *unit) float64 { return v.memory })))
	}
	return sum / 2
}

// together reports whether two units may be on one host.
func (c *compiled) together(u, v *unit) bool {
	for _, g := range u.apart {
		if slices.Contains(v.apart, g) {
			return false
		}
	}
	if u.allowed == nil || v.allowed == nil {
		return true
	}
	for h := range u.allowed {
		if u.allowed[h] && v.allowed[h] {
			return true
		}
	}
	return false
}

// boundOfHosts is what the fewest hosts that hold all units cost. Those that something is fixed to are among them.
func (c *compiled) boundOfHosts() float64 {
	must := make([]bool, len(c.Hosts))
	peak, memory := 0.0, 0.0
	for n := range c.units {
		u := &c.units[n]
		if !u.counts {
			continue
		}
		peak, memory = peak+u.peak, memory+u.memory
		if u.allowed != nil && count(u.allowed) == 1 {
			must[slices.Index(u.allowed, true)] = true
		}
	}
	cost, hosts := 0.0, 0
	var rest []float64
	for h := range c.Hosts {
		if must[h] {
			cost += c.use[h]
			hosts++
		} else {
			rest = append(rest, c.use[h])
		}
	}
	slices.Sort(rest)
	need := max(fewest(c.peakCores, peak), fewest(c.memory, memory))
	for _, apart := range c.Apart {
		need = max(need, len(apart))
	}
	for _, use := range rest[:min(len(rest), max(0, need-hosts))] {
		cost += use
	}
	return cost
}

// fewest is how many of the largest rooms hold what is needed.
func fewest(rooms []float64, need float64) int {
	sorted := slices.Clone(rooms)
	slices.Sort(sorted)
	slices.Reverse(sorted)
	n := 0
	for n < len(sorted) && need > tolerance {
		need -= sorted[n]
		n++
	}
	return n
}

// boundOfLoad is what the used cores cost where they cost least.
func (c *compiled) boundOfLoad() float64 {
	least := slices.Min(c.perCore)
	return least * c.sum(func(u *unit) float64 { return u.cpu })
}
