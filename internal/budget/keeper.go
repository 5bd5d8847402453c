package budget

import (
	"slices"
	"time"
)

const (
	// overFor is how many measurements in a row must be over the limit before something is given up:
	// one may be an accident.
	overFor = 2
	// target is the share of the limit that giving up aims at, and calm the one below which something
	// is taken up again.
	target, calm = 0.9, 0.7
	// worthwhile is the share of the limit that a part must cost for its loss to be of use.
	worthwhile = 0.01
	// Hold is how long nothing changes before something is taken up again. A part that had to be given up
	// again soon afterwards waits twice as long each time, up to MaxHold.
	Hold, MaxHold = 30 * time.Second, 10 * time.Minute
)

// Cost is what was measured: shares of the host's CPU time, all CPUs together being 1.
type Cost struct {
	// Total is everything, Parts that which each part costs by itself, by name.
	Total float64
	Parts map[string]float64
}

// Change is one decision.
type Change struct {
	Part string
	// Shed is true where the part is given up, false where it is taken up again.
	Shed bool
}

// Keeper keeps a budget. It is for one goroutine.
type Keeper struct {
	limit float64
	parts []state
	over  int
	// changed is when something was given up or taken up last.
	changed time.Time
}

type state struct {
	name     string
	shed     bool
	hold     time.Duration
	restored time.Time
}

// New makes a Keeper of a limit, which is a share of the host's CPU time. The parts are given up in
// their order, and taken up again in the reverse one.
func New(limit float64, parts []string) *Keeper {
	k := &Keeper{limit: limit}
	for _, name := range parts {
		k.parts = append(k.parts, state{name: name, hold: Hold})
	}
	return k
}

// Limit is that of New.
func (k *Keeper) Limit() float64 { return k.limit }

// Shed reports whether a part is given up.
func (k *Keeper) Shed(part string) bool {
	i := slices.IndexFunc(k.parts, func(s state) bool { return s.name == part })
	return i >= 0 && k.parts[i].shed
}

// Observe takes a measurement and answers what is to change.
func (k *Keeper) Observe(now time.Time, c Cost) []Change {
	if c.Total <= k.limit {
		k.over = 0
		return k.restore(now, c)
	}
	if k.over++; k.over < overFor {
		return nil
	}
	return k.shed(now, c)
}

// shed gives up as many parts at once as it takes: their costs are known.
func (k *Keeper) shed(now time.Time, c Cost) (changes []Change) {
	excess := c.Total - target*k.limit
	for i := range k.parts {
		s := &k.parts[i]
		cost := c.Parts[s.name]
		if s.shed || cost < worthwhile*k.limit {
			continue
		}
		s.shed = true
		if !s.restored.IsZero() && now.Sub(s.restored) < s.hold {
			s.hold = min(2*s.hold, MaxHold)
		}
		changes = append(changes, Change{Part: s.name, Shed: true})
		if excess -= cost; excess <= 0 {
			break
		}
	}
	if changes != nil {
		k.over, k.changed = 0, now
	}
	return changes
}

func (k *Keeper) restore(now time.Time, c Cost) []Change {
	for i := range k.parts {
		if s := &k.parts[i]; !s.shed && s.hold > Hold && now.Sub(s.restored) >= s.hold {
			s.hold = Hold // it went well
		}
	}
	if c.Total > calm*k.limit {
		return nil
	}
	for i := len(k.parts) - 1; i >= 0; i-- {
		s := &k.parts[i]
		if !s.shed {
			continue
		}
		if now.Sub(k.changed) < s.hold {
			return nil
		}
		s.shed, s.restored, k.changed = false, now, now
		return []Change{{Part: s.name}}
	}
	return nil
}
