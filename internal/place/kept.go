package place

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
)

// restriction is why a container may be on some hosts alone.
type restriction struct {
	rule    string
	allowed []bool
}

// limit leaves the hosts on which a container may be, by a rule.
func (p *Problem) limit(i int, allowed []bool, rule string) {
	if p.Allowed == nil {
		p.Allowed = make([][]bool, len(p.Containers))
	}
	if p.restrictions == nil {
		p.restrictions = make([][]restriction, len(p.Containers))
	}
	left := slices.Clone(allowed)
	for h := range left {
		left[h] = left[h] && (p.Allowed[i] == nil || p.Allowed[i][h])
	}
	p.Allowed[i] = left
	p.restrictions[i] = append(p.restrictions[i], restriction{rule, allowed})
	p.Containers[i].Rules = append(p.Containers[i].Rules, rule)
}

// group keeps containers together, or apart, by a rule with a name.
func (p *Problem) group(together bool, some []int, name string) {
	rule := "is to be apart from others of " + name
	if together {
		p.Together = append(p.Together, some)
		rule = "is to be together with others of " + name
	} else {
		for len(p.apartRules) < len(p.Apart) {
			p.apartRules = append(p.apartRules, "")
		}
		p.Apart, p.apartRules = append(p.Apart, some), append(p.apartRules, rule)
	}
	for _, i := range some {
		p.Containers[i].Rules = append(p.Containers[i].Rules, rule)
	}
}

// Kept is a container that stays where it is because of a rule: on another host the placement would cost less.
type Kept struct {
	// Container is an index.
	Container int    `json:"container"`
	Name      string `json:"name"`
	Host      string `json:"host"`
	// To is the host on which the cost would be least, Gain by how much less it would be.
	To   string  `json:"to"`
	Gain float64 `json:"gain"`
	// Rule says why it is not to be there, as "has the volume data".
	Rule string `json:"rule"`
}

// kept are the containers that rules keep where they are, those with the most to gain first.
func (p *plan) kept() (all []Kept, omitted int) {
	at := make([]int32, len(p.together.units))
	for n := range at {
		at[n] = p.at[p.together.units[n].containers[0]]
	}
	s := newState(p.together, at)
	for n := range s.units {
		if u := &s.units[n]; !u.counts || slices.ContainsFunc(u.containers, func(i int) bool {
			return p.at[i] != at[n] || p.Containers[i].Host != int(at[n])
		}) {
			continue
		}
		best, least := -1, -1e-9
		for h := range s.others(n) {
			if h != int(at[n]) && s.fits(n, h, -1) {
				if d := s.delta(n, h); d < least {
					best, least = h, d
				}
			}
		}
		if best < 0 || s.permitted(n, best, -1) {
			continue
		}
		first := s.units[n].containers[0]
		all = append(all, Kept{first, p.Containers[first].Name, p.Hosts[at[n]].Name, p.Hosts[best].Name, -least,
			s.forbids(n, best)})
	}
	slices.SortStableFunc(all, func(a, b Kept) int { return cmp.Compare(b.Gain, a.Gain) })
	told := min(len(all), maxProblems)
	return all[:told], len(all) - told
}

// others are the hosts that may be better for a unit: all, or of many those of units that it talks to.
func (s *state) others(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		if len(s.Hosts) <= manyHosts {
			for h := range s.Hosts {
				if !yield(h) {
					return
				}
			}
			return
		}
		for _, l := range s.units[n].links {
			if !yield(int(s.at[l.to])) {
				return
			}
		}
	}
}

// forbids says which rule keeps a unit from a host.
func (s *state) forbids(n, host int) string {
	u := &s.units[n]
	for _, i := range u.containers {
		rule := s.Containers[i].Pinned
		if rule == "" && i < len(s.restrictions) {
			for _, r := range s.restrictions[i] {
				if !r.allowed[host] {
					rule = r.rule
				}
			}
		}
		switch {
		case rule == "":
		case i == u.containers[0]:
			return rule
		default:
			return fmt.Sprintf("is to be together with %s, which %s", s.Containers[i].Name, rule)
		}
	}
	for _, g := range u.apart {
		if s.inGroup[int(g)*len(s.Hosts)+host] > 0 {
			if int(g) < len(s.apartRules) && s.apartRules[g] != "" {
				return s.apartRules[g]
			}
			break
		}
	}
	return "is to be apart from others there"
}
