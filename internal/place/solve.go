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
	// Chosen is that nothing was searched: the moves were given.
	Chosen Search = "chosen"
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
	// Broken says what the present placement breaks of the rules, empty for nothing, BrokenAfter what the one after all
	// moves breaks.
	Broken      []string `json:"broken,omitempty"`
	BrokenAfter []string `json:"broken_after,omitempty"`
	// Full says why the headroom is not kept: each host may stay as full as it is. It is empty where it is kept.
	Full string `json:"full,omitempty"`
	// Kept are containers that rules keep where they are although another host would be better, KeptOmitted how many
	// more there are.
	Kept        []Kept `json:"kept,omitempty"`
	KeptOmitted int    `json:"kept_omitted,omitempty"`
	// Placement is the host of each container after all moves, as an index.
	Placement []int `json:"placement"`
	// HostsBefore and HostsAfter are what each host has, in the order of the problem's.
	HostsBefore []HostUse `json:"hosts_before"`
	HostsAfter  []HostUse `json:"hosts_after"`
}

// Solve finds a placement. The error is an *Infeasible where none keeps the rules, and that of the context where it ends
// before the search does.
func Solve(ctx context.Context, p *Problem, o Options) (*Result, error) {
	if err := p.ready(o); err != nil {
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
	r := &Result{Search: found, Full: full, Bound: c.bound()}
	r.from(newPlan(c, p.Present()), func(present *plan) { r.Moves = present.steps(ctx, target, o.MaxMoves) })
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if found == Exact && o.MaxMoves == 0 {
		r.Bound = r.After.Cost
	}
	r.Gap = r.After.Cost - r.Bound
	return r, nil
}

// from says what the present placement is like, and what it is like after the moves.
func (r *Result) from(present *plan, move func(*plan)) {
	r.Before, r.Broken, r.HostsBefore = present.figures(), present.problems(), present.hostUses()
	move(present)
	present.sumAnew()
	if r.Full != "" { // each host may stay as full as it is
		present.raiseLimits(func(*unit) bool { return true })
	}
	r.After, r.BrokenAfter, r.HostsAfter = present.figures(), present.problems(), present.hostUses()
	r.Placement = present.containers
	r.Kept, r.KeptOmitted = present.kept()
}

// Assignment is a container and the host that it is to run on, both by index.
type Assignment struct{ Container, Host int }

// Try says what steps lead to that somebody chose, with each step's figures, in their order. They may break rules, which
// BrokenAfter tells, and need not gain anything.
func Try(p *Problem, steps [][]Assignment, o Options) (*Result, error) {
	if err := p.ready(o); err != nil {
		return nil, err
	}
	c := compile(p, o)
	r := &Result{Search: Chosen, Bound: c.bound(), Moves: []Step{}}
	var none *Infeasible
	var err error
	if _, r.Full, err = c.start(o.Seed); err != nil && !errors.As(err, &none) {
		return nil, err
	}
	r.from(newPlan(c, p.Present()), func(present *plan) {
		for n, step := range steps {
			r.Moves = append(r.Moves, present.step(step, n < maxFigures))
		}
	})
	r.Gap = max(0, r.After.Cost-r.Bound) // what breaks rules may cost less than what keeps them
	return r, nil
}

// ready refuses what is no problem, and weights that cannot be had.
func (p *Problem) ready(o Options) error {
	if err := p.check(); err != nil {
		return err
	}
	if err := o.Weights.check(); err != nil {
		return err
	}
	return p.checkPower(o.Weights)
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
