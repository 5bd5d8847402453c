package predict

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// bend is how much less CPU time a request may take at the limit than the line of the loads below says, since a thread that
// is busy is woken up for fewer of them. It is the most that was measured (docs/analysis.md): at 18 % to 69 % of the limit of
// a quota the line said 17 to 28 % too little, and much of that came at the limit itself.
const bend = 0.25

// change makes the scenario of what is.
type change struct {
	*Scenario
	prediction *Prediction
	// names is how many containers have each name, cores how many CPUs each host, host the resource of its CPUs.
	names map[string]int
	cores map[string]float64
	host  map[string]*Resource
}

func (c *change) apply() {
	resources := c.prediction.Resources
	for i := range resources {
		r := &resources[i]
		if r.demand != nil {
			then := *r.demand
			r.then = &then
			line, parallel := r.used(r.demand)
			before := line.Utilisation(c.prediction.MeanRate, parallel)
			r.Before = &before
		}
		if r.isHost() {
			c.host[r.Host] = r
		}
	}
	for i := range resources {
		if r := &resources[i]; !r.isHost() {
			c.replicate(r)
			c.limit(r)
			if to, ok := c.Move[r.Name]; ok {
				c.move(r, to)
			}
		}
	}
	c.leave()
	findHosts(c.prediction.Resources, c.cores, func(r *Resource) *Demand { return r.then })
	for i := range c.prediction.Resources {
		c.prediction.Resources[i].finish(c.prediction.Rate)
	}
}

// replicate lets replicas share the requests. New ones are on the same hosts; what each takes without requests stays.
func (c *change) replicate(r *Resource) {
	n, ok := c.Replicas[r.Name]
	if !ok {
		return
	}
	r.share = float64(c.names[r.Name]) / float64(n)
	if r.demand != nil {
		c.add(r.Host, float64(n-c.names[r.Name])/float64(c.names[r.Name]), 0, r)
	}
}

// limit puts another CPU quota in the place of what a container has.
func (c *change) limit(r *Resource) {
	quota, ok := c.Quota[r.Name]
	if !ok {
		return
	}
	if r.ParallelBy == "quota" {
		r.Parallel, r.ParallelBy = c.cores[r.Host], "cores"
	}
	if quota < r.Parallel || r.Parallel == 0 {
		r.Parallel, r.ParallelBy = quota, "quota"
	}
}

// move takes a container from its host to another one.
func (c *change) move(r *Resource, to string) {
	if r.Host == to {
		return
	}
	c.add(r.Host, -1, -1, r)
	c.add(to, 1, 1, r)
	r.MovedFrom, r.Host = r.Host, to
	if r.ParallelBy == "cores" {
		r.Parallel, r.cpus = c.cores[to], c.cores[to]
	}
	if there := c.cores[to]; there > 0 {
		r.cpus = min(r.cpus, there)
	}
}

// add adds a part of what a container takes, without requests and for each, to a host.
func (c *change) add(host string, base, perRequest float64, r *Resource) {
	switch h := c.host[host]; {
	case h == nil || h.then == nil:
	case r.demand == nil:
		h.then, h.Unknown = nil, "it is not known what "+r.Name+" takes, which is not where it was"
	default:
		then := h.then.plus(base, perRequest, r.demand)
		h.then = &then
	}
}

// leave takes away what is on hosts that are down.
func (c *change) leave() {
	resources := c.prediction.Resources
	down := func(r *Resource) bool { return slices.Contains(c.Down, r.Host) }
	var alone []*Resource
	for i := range resources {
		r := &resources[i]
		if !down(r) || r.isHost() {
			continue
		}
		var others []*Resource
		for j := range resources {
			if o := &resources[j]; !o.isHost() && o.Name == r.Name && !down(o) {
				others = append(others, o)
			}
		}
		for _, o := range others {
			// All of the dead ones' requests go to the others.
			o.share += r.share / float64(len(others))
			c.add(o.Host, 0, 1/float64(len(others)), r)
		}
		if len(others) == 0 {
			alone = append(alone, r)
		}
	}
	c.restart(alone)
	c.prediction.Resources = slices.DeleteFunc(resources, func(r Resource) bool { return down(&r) })
}

// restart starts containers of hosts that are down again, the largest first, each where most cores are left. Those of
// which it is not known what they take come last.
func (c *change) restart(all []*Resource) {
	rate := c.prediction.Rate
	takes := func(r *Resource) float64 {
		if r.demand == nil {
			return 0
		}
		return r.demand.Cores(rate).Value
	}
	slices.SortStableFunc(all, func(a, b *Resource) int { return cmp.Compare(takes(b), takes(a)) })
	left := func(host string) float64 {
		if h := c.host[host]; h != nil && h.then != nil {
			return h.Parallel - h.then.Cores(rate).Value
		}
		return math.Inf(-1)
	}
	var up []string
	for _, host := range slices.Sorted(maps.Keys(c.cores)) {
		if !slices.Contains(c.Down, host) {
			up = append(up, host)
		}
	}
	for _, r := range all {
		c.move(r, slices.MaxFunc(up, func(a, b string) int { return cmp.Compare(left(a), left(b)) }))
	}
}

// finish finds how full the resource is, and when it is used up.
func (r *Resource) finish(rate float64) {
	if r.then == nil || r.Parallel <= 0 {
		return
	}
	line, parallel := r.used(r.then)
	after := line.Utilisation(rate*r.share, parallel)
	r.Utilisation = &after
	limit, ok := line.Rate(parallel)
	if !ok {
		return
	}
	if r.leastLeft > 0 {
		r.leave(&limit)
	}
	if limit.High != nil {
		high := *limit.High / (1 - bend)
		limit.High = &high
	}
	if full, ok := line.full(parallel); ok {
		limit.Value = full
		if busy, _ := line.whenBusy().Rate(parallel); limit.High != nil && (busy.High == nil || *busy.High > *limit.High) {
			limit.High = busy.High
		}
	}
	alone := limit.Value
	limit.Value = r.slowed(limit.Value, func(rate float64) float64 { return line.Utilisation(rate, parallel).Value })
	limit.Low = min(r.slowed(limit.Low, func(rate float64) float64 { return *line.Utilisation(rate, parallel).High }), limit.Value)
	if limit.Value < alone {
		alone /= r.share
		r.Alone = &alone
	}
	limit = limit.Over(r.share)
	r.Limit = &limit
}

// leave widens the bounds of a host's limit by what others left of it at times.
func (r *Resource) leave(limit *Interval) {
	if least, ok := r.then.Rate(r.leastLeft); ok {
		limit.Low = min(limit.Low, least.Low)
	} else {
		limit.Low = 0
	}
	if most, ok := r.then.Rate(r.mostLeft); ok && limit.High != nil {
		limit.High = most.High
	}
}
