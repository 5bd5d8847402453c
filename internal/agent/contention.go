package agent

import (
	"cmp"
	"maps"
	"slices"

	"outsight/internal/model"
)

const (
	// maxContenders bounds the pairs of containers of a host with counters of their own, and maxContendersOf those of one
	// that waits. What is past them is among what it waited for waits.
	maxContenders   = 512
	maxContendersOf = 32
	// leastContention is what a container must wait behind another within one reading for the two to be distinguished from
	// then on, in ns.
	leastContention = 1_000_000
)

// contention sums who disturbed whom from control groups to containers.
type contention struct {
	// read and waits are the kernel's counters at the last reading. Pairs are mostly in the same places of the next one.
	read  []model.CgroupPair
	waits map[model.CgroupID]model.ContentionRest
	// victims by the ID of the container that waited.
	victims map[string]*victim
	// pairsKept is how many pairs of containers have counters of their own, refused how often there was no room for one
	// more.
	pairsKept int
	refused   uint64
	// known says that it was read. Where it cannot be read later, what was counted last holds: else its rows in frames
	// would end, and what they counted would be there twice when it comes again after they were summed.
	known bool
	// present, before, sums and active are memory of update.
	present map[string]*model.Container
	before  map[model.CgroupID]model.ContentionRest
	sums    map[[2]string]gain
	active  map[[2]string]bool
}

type groupPair struct{ victim, culprit model.CgroupID }

type victim struct {
	waits model.ContentionRest
	by    map[string]*model.Contender
}

// gain is what one container did to another since the last reading.
type gain struct {
	victim, culprit     string
	waitNS, preemptions uint64
}

func newContention() *contention {
	return &contention{waits: make(map[model.CgroupID]model.ContentionRest), victims: make(map[string]*victim),
		present: make(map[string]*model.Container), before: make(map[model.CgroupID]model.ContentionRest),
		sums: make(map[[2]string]gain), active: make(map[[2]string]bool)}
}

// update adds a reading. owner is the ID of the container of a control group; containers are those of the
// snapshot.
func (c *contention) update(read *model.KernelContention, owner func(model.CgroupID) string,
	containers []*model.Container) {
	present, waits := c.present, c.before
	clear(present)
	for _, one := range containers {
		present[one.ID] = one
	}
	clear(waits)
	for i := range read.Groups {
		g := &read.Groups[i]
		if g.ID == 0 {
			continue // groups for which there was no room: of which container is not known
		}
		gained, before := g.ContentionRest, c.waits[g.ID]
		if before.WaitNS() <= gained.WaitNS() {
			gained = gained.Since(&before)
		}
		waits[g.ID] = g.ContentionRest
		c.victim(owner(g.ID)).waits.Add(&gained)
	}
	c.waits, c.before = waits, c.waits
	gains := c.gains(read.Pairs, owner)
	for i := range gains {
		c.count(&gains[i], present)
	}
	c.forget(present, gains)
}

// gains is what each pair of containers gained, the largest first; what is between groups of one container is its own.
func (c *contention) gains(read []model.CgroupPair, owner func(model.CgroupID) string) []gain {
	clear(c.sums)
	var last map[groupPair]model.CgroupPair // of c.read, once a pair has another place
	for i, p := range read {
		gained, before, key := p, model.CgroupPair{}, groupPair{p.Victim, p.Culprit}
		if i < len(c.read) && key == (groupPair{c.read[i].Victim, c.read[i].Culprit}) {
			before = c.read[i]
		} else {
			if last == nil {
				last = make(map[groupPair]model.CgroupPair, len(c.read))
				for _, r := range c.read {
					last[groupPair{r.Victim, r.Culprit}] = r
				}
			}
			before = last[key]
		}
		if before == p {
			continue
		}
		if before.WaitNS <= p.WaitNS && before.Preemptions <= p.Preemptions {
			gained.WaitNS -= before.WaitNS
			gained.Preemptions -= before.Preemptions
		}
		if gained.WaitNS == 0 && gained.Preemptions == 0 {
			continue
		}
		of, by := owner(p.Victim), owner(p.Culprit)
		if of == by {
			own := c.victim(of)
			own.waits.OwnNS += gained.WaitNS
			own.waits.OwnPreemptions += gained.Preemptions
			continue
		}
		sum := c.sums[[2]string{of, by}]
		c.sums[[2]string{of, by}] = gain{of, by, sum.waitNS + gained.WaitNS, sum.preemptions + gained.Preemptions}
	}
	c.read = append(c.read[:0], read...)
	all := slices.Collect(maps.Values(c.sums))
	slices.SortFunc(all, func(a, b gain) int {
		return cmp.Or(cmp.Compare(b.waitNS, a.waitNS), cmp.Compare(a.victim, b.victim), cmp.Compare(a.culprit, b.culprit))
	})
	return all
}

// count adds to the counters of a pair, creates them where there is room, or adds to those of all other pairs.
func (c *contention) count(g *gain, present map[string]*model.Container) {
	v := c.victim(g.victim)
	contender := v.by[g.culprit]
	if contender == nil && g.waitNS >= leastContention && present[g.culprit] != nil {
		if c.pairsKept < maxContenders && len(v.by) < maxContendersOf {
			contender = &model.Contender{ID: g.culprit}
			v.by[g.culprit] = contender
			c.pairsKept++
		} else {
			c.refused++
		}
	}
	if contender == nil {
		v.waits.OtherNS += g.waitNS
		v.waits.OtherPreemptions += g.preemptions
		return
	}
	if now := present[g.culprit]; now != nil {
		contender.Name = now.Name
	}
	contender.WaitNS += g.waitNS
	contender.Preemptions += g.preemptions
}

// forget removes victims that are gone, and contenders that are gone and did nothing more.
func (c *contention) forget(present map[string]*model.Container, gains []gain) {
	clear(c.active)
	for i := range gains {
		c.active[[2]string{gains[i].victim, gains[i].culprit}] = true
	}
	for id, v := range c.victims {
		for by := range v.by {
			if present[id] == nil || present[by] == nil && !c.active[[2]string{id, by}] {
				delete(v.by, by)
				c.pairsKept--
			}
		}
		if present[id] == nil {
			delete(c.victims, id)
		}
	}
}

func (c *contention) victim(id string) *victim {
	v := c.victims[id]
	if v == nil {
		v = &victim{by: make(map[string]*model.Contender)}
		c.victims[id] = v
	}
	return v
}

// of is what a container waited for, a copy.
func (c *contention) of(id string) *model.Contention {
	v := c.victims[id]
	if v == nil {
		return &model.Contention{}
	}
	all := &model.Contention{ContentionRest: v.waits, By: make([]model.Contender, 0, len(v.by))}
	for _, contender := range v.by {
		all.By = append(all.By, *contender)
	}
	slices.SortFunc(all.By, func(a, b model.Contender) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

func (c *contention) drop() model.Drop {
	return model.Drop{Name: "contending_containers", Count: c.refused, Capacity: maxContenders, Used: uint64(c.pairsKept)}
}

// readContention adds who disturbed whom.
func (a *Agent) readContention(containers []*model.Container) {
	if a.sources.Contention == nil {
		return
	}
	defer a.spent.on(partContention)()
	read, err := a.sources.Contention.ReadContention()
	a.failures.note("who disturbs whom", err)
	if err != nil {
		return
	}
	a.contention.update(read, func(id model.CgroupID) string { return a.groups.owner(id, a.sources.Registry.Lookup) },
		containers)
	a.contention.known = true
}
