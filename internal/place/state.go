package place

import "slices"

// state is a placement of all units, with what each host has of them.
type state struct {
	*compiled
	at           []int32 // host by unit
	load         []float64
	peak, memory []float64
	count        []int32 // units that count, by host
	inGroup      []int16 // units of a group on a host, by group and host
	unitsOn      [][]int32
	position     []int32  // of a unit in unitsOn of its host
	uplinks      *uplinks // nil where they count nothing
}

func newState(c *compiled, at []int32) *state {
	s := &state{compiled: c, at: make([]int32, len(c.units)), load: make([]float64, len(c.Hosts)),
		peak: make([]float64, len(c.Hosts)), memory: make([]float64, len(c.Hosts)), count: make([]int32, len(c.Hosts)),
		inGroup: make([]int16, c.groups*len(c.Hosts)), unitsOn: make([][]int32, len(c.Hosts)),
		position: make([]int32, len(c.units))}
	if c.weights.Uplink > 0 {
		s.uplinks = &uplinks{of: make([]float64, len(c.Hosts))}
	}
	for n := range s.at {
		s.at[n] = nowhere
	}
	for n := range c.units {
		s.add(n, int(at[n]))
	}
	return s
}

// homes is where the units are now.
func (c *compiled) homes() []int32 {
	at := make([]int32, len(c.units))
	for n := range c.units {
		at[n] = int32(c.units[n].home)
	}
	return at
}

func (s *state) add(n, host int) {
	u := &s.units[n]
	s.at[n] = int32(host)
	s.load[host] += u.cpu
	s.peak[host] += u.peak
	s.memory[host] += u.memory
	if u.counts {
		s.count[host]++
	}
	for _, g := range u.apart {
		s.inGroup[int(g)*len(s.Hosts)+host]++
	}
	s.position[n] = int32(len(s.unitsOn[host]))
	s.unitsOn[host] = append(s.unitsOn[host], int32(n))
	s.cross(n, 1)
}

func (s *state) remove(n int) {
	u, host := &s.units[n], int(s.at[n])
	s.cross(n, -1)
	s.at[n] = nowhere
	s.load[host] -= u.cpu
	s.peak[host] -= u.peak
	s.memory[host] -= u.memory
	if u.counts {
		s.count[host]--
	}
	for _, g := range u.apart {
		s.inGroup[int(g)*len(s.Hosts)+host]--
	}
	on, k := s.unitsOn[host], s.position[n]
	last := on[len(on)-1]
	on[k], s.position[last] = last, k
	s.unitsOn[host] = on[:len(on)-1]
}

func (s *state) move(n, host int) {
	s.remove(n)
	s.add(n, host)
}

// tolerance is what sums of the same numbers in another order may differ by.
const tolerance = 1e-9

// room reports whether a unit may be on a host and finds room there, when the unit less has left it; -1 for none.
func (s *state) room(n, host int, less int) bool {
	return s.fits(n, host, less) && s.permitted(n, host, less)
}

// fits reports whether there are cores and memory for a unit on a host, when the unit less has left it.
func (s *state) fits(n, host, less int) bool {
	u := &s.units[n]
	peak, memory := s.peak[host]+u.peak, s.memory[host]+u.memory
	if less >= 0 {
		peak, memory = peak-s.units[less].peak, memory-s.units[less].memory
	}
	return peak <= s.peakCores[host]*(1+tolerance) && memory <= s.compiled.memory[host]*(1+tolerance)
}

// permitted reports whether rules let a unit be on a host, when the unit less has left it.
func (s *state) permitted(n, host, less int) bool {
	u := &s.units[n]
	if u.allowed != nil && !u.allowed[host] {
		return false
	}
	for _, g := range u.apart {
		others := s.inGroup[int(g)*len(s.Hosts)+host]
		if less >= 0 && slices.Contains(s.units[less].apart, g) {
			others--
		}
		if others > 0 {
			return false
		}
	}
	return true
}

// delta is what moving a unit adds to the cost.
func (s *state) delta(n, to int) float64 {
	u, from := &s.units[n], int(s.at[n])
	d := u.moved(to) - u.moved(from) + u.cpu*(s.perCore[to]-s.perCore[from]) + s.deltaUplinks(n, to)
	for _, l := range u.links {
		switch int(s.at[l.to]) {
		case from:
			d += l.cost
		case to:
			d -= l.cost
		}
	}
	if u.counts {
		if s.count[from] == 1 {
			d -= s.use[from]
		}
		if s.count[to] == 0 {
			d += s.use[to]
		}
	}
	if s.balance > 0 && u.cpu > 0 {
		d += s.balance * u.cpu * ((2*s.load[to]+u.cpu)/s.cores[to] - (2*s.load[from]-u.cpu)/s.cores[from])
	}
	return d
}

// cost is the whole cost of the placement.
func (s *state) cost() float64 {
	cost, load := 0.0, 0.0
	for n := range s.units {
		u := &s.units[n]
		at := s.at[n]
		cost += u.moved(int(at)) + u.cpu*s.perCore[at]
		for _, l := range u.links {
			if int(l.to) > n && s.at[l.to] != at {
				cost += l.cost
			}
		}
	}
	for h := range s.Hosts {
		if s.count[h] > 0 {
			cost += s.use[h]
		}
		cost += s.balance * s.load[h] * s.load[h] / s.cores[h]
		load += s.load[h]
	}
	if s.uplinks != nil {
		cost += s.weights.Uplink * norm(s.uplinks.sum)
	}
	return cost - s.weights.Balance*(load/s.whole.cores)*(load/s.whole.cores)
}

// broken sums how far the placement breaks what is ruled, in shares of hosts and units that are where they may not be.
func (s *state) broken() float64 {
	sum := 0.0
	for h := range s.Hosts {
		sum += s.over(h)
	}
	for n := range s.units {
		if u := &s.units[n]; u.allowed != nil && !u.allowed[s.at[n]] {
			sum++
		}
	}
	return sum
}

// over is how far a host has more than it may have.
func (s *state) over(h int) float64 {
	sum := max(0, s.peak[h]/s.peakCores[h]-1-tolerance) + max(0, s.memory[h]/s.compiled.memory[h]-1-tolerance)
	for g := range s.groups {
		sum += float64(max(0, s.inGroup[g*len(s.Hosts)+h]-1))
	}
	return sum
}
