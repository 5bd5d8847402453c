package place

import (
	"cmp"
	"context"
	"errors"
)

// DefaultHeadroom is the share of each host that is left free.
const DefaultHeadroom = 0.1

// Search says how a placement is looked for.
type Search string

// The ways to search. Auto is exact where that is quick.
const (
	Auto   Search = ""
	Exact  Search = "exact"
	Anneal Search = "annealing"
)

// Options are what is wanted of a placement.
type Options struct {
	Weights Weights
	// Headroom is the share of each host's cores and memory that containers may not have at their peaks.
	Headroom float64
	// Seed begins the search: the same problem and seed have the same answer.
	Seed uint64
	// MaxMoves is how many steps are told at most; 0 for all.
	MaxMoves int
	Search   Search
	// Effort is how long is searched, as a multiple; 0 for 1.
	Effort float64
}

// Result is a placement and how to get there.
type Result struct {
	// Before and After are the figures of the present placement and of the one that all Moves lead to.
	Before Figures `json:"before"`
	After  Figures `json:"after"`
	Moves  []Step  `json:"moves"`
	// Bound is a cost below which no placement can be, Gap how far After's is above it.
	Bound float64 `json:"bound"`
	Gap   float64 `json:"gap"`
	// Search is how it was found: by "exact" nothing better exists.
	Search Search `json:"search"`
	// Broken says what the present placement breaks of the rules, empty for nothing.
	Broken []string `json:"broken,omitempty"`
	// Full says why the headroom is not kept: each host may stay as full as it is. It is empty where it is kept.
	Full string `json:"full,omitempty"`
	// Placement is the host of each container after all moves, as an index.
	Placement []int `json:"placement"`
}

// Solve finds a placement. The error is an *Infeasible where none keeps the rules, and that of the context where it ends
// before the search does.
func Solve(ctx context.Context, p *Problem, o Options) (*Result, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if err := o.Weights.check(); err != nil {
		return nil, err
	}
	if err := p.checkPower(o.Weights); err != nil {
		return nil, err
	}
	c := compile(p, o)
	start, full, err := c.start(o.Seed)
	if err != nil {
		return nil, err
	}
	var best *state
	found := Exact
	if o.Search != Anneal {
		best = exact(ctx, start)
	}
	if best == nil {
		found, best = Anneal, anneal(ctx, start, o.Seed, cmp.Or(o.Effort, 1))
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	target := c.containersAt(best)
	c.fewestMoves(target)
	present := newPlan(c, p.Present())
	r := &Result{Search: found, Full: full, Before: present.figures(), Broken: present.problems()}
	r.Moves = present.steps(ctx, target, o.MaxMoves)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.After, r.Placement = present.figures(), present.containers
	r.Bound = c.bound()
	if found == Exact && o.MaxMoves == 0 {
		r.Bound = r.After.Cost
	}
	r.Gap = r.After.Cost - r.Bound
	return r, nil
}

// start is a placement that keeps the rules. Where that leaves no headroom each host may stay as full as it is, and full
// says why.
func (c *compiled) start(seed uint64) (s *state, full string, err error) {
	if s, err = c.feasible(seed); err == nil {
		return s, "", nil
	}
	var none *Infeasible
	if !errors.As(err, &none) {
		return nil, "", err
	}
	c.raiseLimits(func(*unit) bool { return true })
	if s, err := c.feasible(seed); err == nil {
		return s, none.Reason, nil
	}
	return nil, "", none
}

// containersAt is the host of each container.
func (c *compiled) containersAt(s *state) []int {
	at := make([]int, len(c.Containers))
	for i := range at {
		at[i] = int(s.at[c.unitOf[i]])
	}
	return at
}
