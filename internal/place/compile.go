package place

// unit are containers that move together: one, or those that a rule keeps on one host.
type unit struct {
	containers []int
	cpu, peak  float64 // cores
	memory     float64 // bytes, the highest
	counts     bool    // a host with it is in use
	fixed      bool
	home       int // the host of most of its containers
	allowed    []bool
	apart      []int32   // groups of which a host has one
	away       []float64 // what moving it to a host costs, by host, if its containers run on several; else nil
	moving     float64   // what moving it anywhere costs
	links      []link
}

// link is a cost that is paid while two units run on different hosts.
type link struct {
	to   int32
	cost float64
	// bytes are a share of all; they count for uplinks alone.
	bytes float64
}

// compiled is a problem with its weights, in the form in which placements are tried.
type compiled struct {
	*Problem
	weights  Weights
	headroom float64
	units    []unit
	unitOf   []int // by container
	groups   int
	// use is what a host in use costs, perCore what a used core costs on it.
	use, perCore []float64
	balance      float64 // weight of Σ load²/cores
	cores        []float64
	// memory and peakCores are what a host has for containers: less the headroom, but what may not move stays.
	memory    []float64
	peakCores []float64
	pairs     []Traffic
	whole     totals
}

// totals are what shares are of.
type totals struct{ bytes, requests, cores, watts float64 }

func compile(p *Problem, o Options) *compiled {
	c := &compiled{Problem: p, weights: o.Weights, headroom: o.Headroom, groups: len(p.Apart)}
	cpu, peak, memory := p.averageUse()
	c.pairs = p.averageTraffic()
	for _, t := range c.pairs {
		c.whole.bytes += t.Bytes
		c.whole.requests += t.Requests
	}
	for _, h := range p.Hosts {
		c.whole.cores += h.Cores
		c.whole.watts += h.IdleWatts + h.Cores*h.WattsPerCore
	}
	c.compileHosts()
	c.compileUnits(cpu, peak, memory)
	c.compileLinks()
	c.raiseLimits(func(u *unit) bool { return u.fixed })
	return c
}

// raiseLimits lets hosts be as full as some of the units that run there make them.
func (c *compiled) raiseLimits(of func(*unit) bool) {
	peak, memory := make([]float64, len(c.Hosts)), make([]float64, len(c.Hosts))
	for n := range c.units {
		if u := &c.units[n]; of(u) {
			peak[u.home] += u.peak
			memory[u.home] += u.memory
		}
	}
	for h := range c.Hosts {
		c.peakCores[h] = max(c.peakCores[h], peak[h])
		c.memory[h] = max(c.memory[h], memory[h])
	}
}

func share(weight, v, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return weight * v / whole
}

func (c *compiled) compileHosts() {
	for _, h := range c.Hosts {
		c.use = append(c.use, c.weights.Hosts/float64(len(c.Hosts))+share(c.weights.Energy, h.IdleWatts, c.whole.watts))
		c.perCore = append(c.perCore, share(c.weights.Energy, h.WattsPerCore, c.whole.watts))
		c.cores = append(c.cores, h.Cores)
		c.peakCores = append(c.peakCores, h.Cores*(1-c.headroom))
		c.memory = append(c.memory, h.MemoryBytes*(1-c.headroom))
	}
	c.balance = c.weights.Balance / c.whole.cores
}

// compileUnits makes a unit of each set of containers that rules keep together.
func (c *compiled) compileUnits(cpu, peak, memory []float64) {
	sets := newSets(len(c.Containers))
	for _, together := range c.Together {
		for _, i := range together[min(1, len(together)):] {
			sets.join(together[0], i)
		}
	}
	c.unitOf = make([]int, len(c.Containers))
	byRoot := map[int]int{}
	for i := range c.Containers {
		root := sets.of(i)
		n, ok := byRoot[root]
		if !ok {
			n = len(c.units)
			byRoot[root] = n
			c.units = append(c.units, unit{})
		}
		c.unitOf[i] = n
		u := &c.units[n]
		u.containers = append(u.containers, i)
		u.cpu, u.peak, u.memory = u.cpu+cpu[i], u.peak+peak[i], u.memory+memory[i]
		u.counts = u.counts || !c.Containers[i].OfHost
		if c.Containers[i].Pinned != "" {
			u.fixed = true
		}
		if i < len(c.Allowed) && c.Allowed[i] != nil {
			u.allow(c.Allowed[i])
		}
	}
	for g, apart := range c.Apart {
		for _, i := range apart {
			u := &c.units[c.unitOf[i]]
			u.apart = append(u.apart, int32(g))
		}
	}
	for n := range c.units {
		c.settleHome(&c.units[n])
	}
}

// allow leaves the hosts that were allowed and are here.
func (u *unit) allow(allowed []bool) {
	if u.allowed == nil {
		u.allowed = append([]bool(nil), allowed...)
		return
	}
	for h := range u.allowed {
		u.allowed[h] = u.allowed[h] && allowed[h]
	}
}

// settleHome says where a unit is and what it costs to be elsewhere. One that is fixed may only be where it is.
func (c *compiled) settleHome(u *unit) {
	on := map[int]int{}
	for _, i := range u.containers {
		host := c.Containers[i].Host
		on[host]++
		if on[host] > on[u.home] || len(on) == 1 {
			u.home = host
		}
	}
	each := c.weights.Moves / float64(max(1, len(c.Containers)))
	u.moving = each * float64(len(u.containers))
	if len(on) > 1 {
		u.away = make([]float64, len(c.Hosts))
		for h := range u.away {
			u.away[h] = each * float64(len(u.containers)-on[h])
		}
	}
	for _, i := range u.containers {
		if c.Containers[i].Pinned != "" {
			only := make([]bool, len(c.Hosts))
			only[c.Containers[i].Host] = true
			u.allow(only)
			u.home = c.Containers[i].Host
		}
	}
}

// moved is what it costs that the unit is on a host.
func (u *unit) moved(host int) float64 {
	switch {
	case u.away != nil:
		return u.away[host]
	case host == u.home:
		return 0
	}
	return u.moving
}

func (c *compiled) compileLinks() {
	between := map[[2]int]link{}
	var order [][2]int
	for _, t := range c.pairs {
		a, b := c.unitOf[t.A], c.unitOf[t.B]
		cost := share(c.weights.Traffic, t.Bytes, c.whole.bytes) + share(c.weights.Requests, t.Requests, c.whole.requests)
		bytes := share(1, t.Bytes, c.whole.bytes)
		if a == b || cost == 0 && (c.weights.Uplink == 0 || bytes == 0) {
			continue
		}
		key := [2]int{min(a, b), max(a, b)}
		if _, ok := between[key]; !ok {
			order = append(order, key)
		}
		l := between[key]
		l.cost, l.bytes = l.cost+cost, l.bytes+bytes
		between[key] = l
	}
	for _, key := range order {
		a, b, l := key[0], key[1], between[key]
		c.units[a].links = append(c.units[a].links, link{int32(b), l.cost, l.bytes})
		c.units[b].links = append(c.units[b].links, link{int32(a), l.cost, l.bytes})
	}
}

// sets are sets of numbers that are joined.
type sets []int

func newSets(n int) sets {
	s := make(sets, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func (s sets) of(i int) int {
	for s[i] != i {
		s[i] = s[s[i]]
		i = s[i]
	}
	return i
}

func (s sets) join(a, b int) { s[s.of(b)] = s.of(a) }
