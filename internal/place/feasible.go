package place

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Infeasible says that no placement keeps what is ruled.
type Infeasible struct{ Reason string }

func (e *Infeasible) Error() string { return "no placement keeps the rules: " + e.Reason }

// maxFills bounds how often the hosts are filled anew to find a placement that keeps the rules.
const maxFills = 20

// feasible is a placement that keeps the rules, as near to the present one as it easily gets.
func (c *compiled) feasible(seed uint64) (*state, error) {
	if err := c.impossible(); err != nil {
		return nil, err
	}
	s := newState(c, c.homes())
	if s.repair(); s.broken() == 0 {
		return s, nil
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for try := range maxFills {
		if s := c.fill(try, random); s != nil {
			return s, nil
		}
	}
	return nil, &Infeasible{fmt.Sprintf("none was found; the containers' peaks are %.0f %% of the hosts' cores and %.0f %% of "+
		"their memory, less the headroom", 100*c.sum(func(u *unit) float64 { return u.peak })/total(c.peakCores),
		100*c.sum(func(u *unit) float64 { return u.memory })/total(c.memory))}
}

func (c *compiled) sum(of func(*unit) float64) (sum float64) {
	for n := range c.units {
		sum += of(&c.units[n])
	}
	return sum
}

func total(of []float64) (sum float64) {
	for _, v := range of {
		sum += v
	}
	return sum
}

// impossible finds the reasons for which there is no placement that can be told at once.
func (c *compiled) impossible() error {
	if used, has := c.sum(func(u *unit) float64 { return u.memory }), total(c.memory); used > has*(1+tolerance) {
		return &Infeasible{fmt.Sprintf("the containers use %.1f GiB of memory, the hosts have %.1f GiB less the headroom",
			used/(1<<30), has/(1<<30))}
	}
	if used, has := c.sum(func(u *unit) float64 { return u.peak }), total(c.peakCores); used > has*(1+tolerance) {
		return &Infeasible{fmt.Sprintf("the containers use %.1f cores at their peaks, the hosts have %.1f less the headroom",
			used, has)}
	}
	empty := newState(c, c.homes())
	for n := range c.units {
		empty.remove(n)
	}
	for n := range c.units {
		possible := false
		for h := range c.Hosts {
			possible = possible || empty.room(n, h, -1)
		}
		if u := &c.units[n]; u.allowed != nil && count(u.allowed) == 0 {
			return &Infeasible{fmt.Sprintf("no host may have %s: %s", c.name(n), c.rulesOf(u))}
		}
		if !possible {
			return &Infeasible{fmt.Sprintf("no host may have %s and has room for its %.1f cores and %.1f GiB", c.name(n),
				c.units[n].peak, c.units[n].memory/(1<<30))}
		}
		if own := slices.Clone(c.units[n].apart); len(own) > 0 {
			slices.Sort(own)
			if len(slices.Compact(own)) < len(c.units[n].apart) {
				return &Infeasible{fmt.Sprintf("%s is to be together and apart", c.name(n))}
			}
		}
	}
	for _, apart := range c.Apart {
		if len(apart) > len(c.Hosts) {
			return &Infeasible{fmt.Sprintf("%d containers, %q among them, are to be on a host each, and there are %d hosts",
				len(apart), c.Containers[apart[0]].Name, len(c.Hosts))}
		}
	}
	return nil
}

// rulesOf are the rules for where a unit may be, in words.
func (c *compiled) rulesOf(u *unit) string {
	var all []string
	for _, i := range u.containers {
		rules := c.Containers[i].Rules
		if pinned := c.Containers[i].Pinned; pinned != "" {
			rules = append(rules[:len(rules):len(rules)], fmt.Sprintf("%s, on %s", pinned, c.Hosts[c.Containers[i].Host].Name))
		}
		if len(rules) > 0 {
			all = append(all, fmt.Sprintf("%q %s", c.Containers[i].Name, strings.Join(rules, " and ")))
		}
	}
	return strings.Join(all[:min(len(all), 5)], "; ")
}

// name is what people call the containers of a unit.
func (c *compiled) name(n int) string {
	var names []string
	for _, i := range c.units[n].containers {
		names = append(names, fmt.Sprintf("%q", c.Containers[i].Name))
	}
	if more := len(names) - 5; more > 0 {
		names = append(names[:5], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// repair moves units away from hosts that have what they may not have: the one that leaves least broken first.
func (s *state) repair() {
	for n := range s.units {
		if u := &s.units[n]; u.allowed != nil && !u.allowed[s.at[n]] {
			s.moveOut(n)
		}
	}
	for h := range s.Hosts {
		for s.over(h) > 0 {
			before := s.over(h)
			candidates := slices.Clone(s.unitsOn[h])
			slices.SortFunc(candidates, func(a, b int32) int {
				ua, ub := &s.units[a], &s.units[b]
				return cmp.Or(cmp.Compare(s.size(ub), s.size(ua)), cmp.Compare(a, b))
			})
			for _, n := range candidates {
				if s.moveOut(int(n)) && s.over(h) < before {
					break
				}
			}
			if s.over(h) >= before {
				return
			}
		}
	}
}

// size is the share of an average host that a unit takes.
func (c *compiled) size(u *unit) float64 {
	n := float64(len(c.Hosts))
	return max(u.peak*n/total(c.peakCores), u.memory*n/total(c.memory))
}

// moveOut moves a unit to the host with room for it where it costs least.
func (s *state) moveOut(n int) bool {
	best, least := -1, 0.0
	for h := range s.Hosts {
		if h == int(s.at[n]) || !s.room(n, h, -1) {
			continue
		}
		if d := s.delta(n, h); best < 0 || d < least {
			best, least = h, d
		}
	}
	if best >= 0 {
		s.move(n, best)
	}
	return best >= 0
}

// fill places the units that have the fewest hosts and the largest size first, each on the host that it fills most, or
// where the hosts are taken in another order than by that at further tries. It is nil where one finds no room.
func (c *compiled) fill(try int, random *rand.Rand) *state {
	s := newState(c, c.homes())
	key := make([]float64, len(c.units))
	order := make([]int, len(c.units))
	for n := range c.units {
		u := &c.units[n]
		order[n] = n
		key[n] = c.size(u) * (1 + float64(try)/10*random.Float64())
		if u.allowed != nil {
			key[n] += float64(len(c.Hosts)) / float64(1+count(u.allowed))
		}
		key[n] += float64(len(u.apart)) / 10
		s.remove(n)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(key[b], key[a]) })
	for _, n := range order {
		best, most := -1, 0.0
		for h := range c.Hosts {
			if !s.room(n, h, -1) {
				continue
			}
			filled := s.peak[h]/c.peakCores[h] + s.memory[h]/c.memory[h] + float64(try)/10*random.Float64()
			if best < 0 || filled > most {
				best, most = h, filled
			}
		}
		if best < 0 {
			return nil
		}
		s.add(n, best)
	}
	return s
}

func count(of []bool) (n int) {
	for _, v := range of {
		if v {
			n++
		}
	}
	return n
}
