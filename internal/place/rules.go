package place

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Rules are what a user says of where containers may run. A container is named by its name, its pod's, its workload's or
// its ID, also as namespace/name; * stands for any part of it.
type Rules struct {
	// Together are on one host, Apart each on another.
	Together [][]string `json:"together,omitempty" yaml:"together"`
	Apart    [][]string `json:"apart,omitempty" yaml:"apart"`
	// On are the hosts that a container may be on, NotOn those that it may not be on.
	On    map[string][]string `json:"on,omitempty" yaml:"on"`
	NotOn map[string][]string `json:"not_on,omitempty" yaml:"not_on"`
	// Stay do not move.
	Stay []string `json:"stay,omitempty" yaml:"stay"`
}

// Named reports whether a container is called so.
func (c *Container) Named(pattern string) bool {
	for _, name := range []string{c.Name, c.Pod, c.Workload, c.ID} {
		if name == "" {
			continue
		}
		if ok, _ := path.Match(pattern, name); ok || pattern == name {
			return true
		}
		if c.Namespace != "" {
			if ok, _ := path.Match(pattern, c.Namespace+"/"+name); ok {
				return true
			}
		}
	}
	return false
}

// Apply adds rules to the problem. It fails where a name fits nothing.
func (p *Problem) Apply(r Rules) error {
	for _, names := range r.Together {
		some, err := p.containersNamed(names...)
		if err != nil {
			return err
		}
		p.Together = append(p.Together, some)
	}
	for _, names := range r.Apart {
		some, err := p.containersNamed(names...)
		if err != nil {
			return err
		}
		p.Apart = append(p.Apart, some)
	}
	for _, name := range r.Stay {
		some, err := p.containersNamed(name)
		if err != nil {
			return err
		}
		for _, i := range some {
			p.Containers[i].Pinned = "stays by a rule"
		}
	}
	for name, hosts := range sorted(r.On) {
		if err := p.restrict(name, hosts, true); err != nil {
			return err
		}
	}
	for name, hosts := range sorted(r.NotOn) {
		if err := p.restrict(name, hosts, false); err != nil {
			return err
		}
	}
	p.splitReplicas()
	return nil
}

// ParseMoves reads steps as "cart=host-2", or "cart=host-2,db=host-1" for containers that move at once. A name that fits
// several containers moves all of them.
func (p *Problem) ParseMoves(texts []string) (steps [][]Assignment, err error) {
	for _, text := range texts {
		var step []Assignment
		for move := range strings.SplitSeq(text, ",") {
			at := strings.LastIndexByte(move, '=')
			if at < 1 {
				return nil, fmt.Errorf("move %q, want a container and a host as in cart=host-2", move)
			}
			some, err := p.containersNamed(move[:at])
			if err != nil {
				return nil, err
			}
			host := slices.IndexFunc(p.Hosts, func(h Host) bool { return h.Name == move[at+1:] })
			if host < 0 {
				return nil, fmt.Errorf("a move is to host %q, and there is none", move[at+1:])
			}
			for _, i := range some {
				step = append(step, Assignment{i, host})
			}
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// sorted goes through a map in order of its keys.
func sorted(of map[string][]string) func(yield func(string, []string) bool) {
	return func(yield func(string, []string) bool) {
		names := make([]string, 0, len(of))
		for name := range of {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			if !yield(name, of[name]) {
				return
			}
		}
	}
}

func (p *Problem) containersNamed(names ...string) ([]int, error) {
	var some []int
	for _, name := range names {
		found := false
		for i := range p.Containers {
			if p.Containers[i].Named(name) {
				found = true
				if !slices.Contains(some, i) {
					some = append(some, i)
				}
			}
		}
		if !found {
			return nil, fmt.Errorf("a rule or a move names %q, and there is no such container", name)
		}
	}
	return some, nil
}

// restrict says on which hosts containers may be, or not.
func (p *Problem) restrict(name string, hosts []string, on bool) error {
	some, err := p.containersNamed(name)
	if err != nil {
		return err
	}
	named := make([]bool, len(p.Hosts))
	for _, pattern := range hosts {
		found := false
		for h := range p.Hosts {
			if ok, _ := path.Match(pattern, p.Hosts[h].Name); ok {
				named[h], found = true, true
			}
		}
		if !found {
			return fmt.Errorf("a rule names host %q, and there is none", pattern)
		}
	}
	if p.Allowed == nil {
		p.Allowed = make([][]bool, len(p.Containers))
	}
	for _, i := range some {
		allowed := make([]bool, len(p.Hosts))
		for h := range allowed {
			allowed[h] = named[h] == on && (p.Allowed[i] == nil || p.Allowed[i][h])
		}
		p.Allowed[i] = allowed
	}
	return nil
}

// splitReplicas leaves those as interchangeable to which the same rules apply.
func (p *Problem) splitReplicas() {
	rules := make([]strings.Builder, len(p.Containers))
	for kind, groups := range [][][]int{p.Together, p.Apart} {
		for g, some := range groups {
			for _, i := range some {
				fmt.Fprintf(&rules[i], "%d.%d ", kind, g)
			}
		}
	}
	for i := range p.Containers {
		if i < len(p.Allowed) && p.Allowed[i] != nil {
			fmt.Fprint(&rules[i], p.Allowed[i])
		}
	}
	var split [][]int
	for _, replicas := range p.Replicas {
		byRule := map[string]int{}
		for _, i := range replicas {
			rule := rules[i].String()
			if p.Containers[i].Pinned != "" || strings.Contains(rule, "0.") {
				continue
			}
			k, ok := byRule[rule]
			if !ok {
				k = len(split)
				byRule[rule] = k
				split = append(split, nil)
			}
			split[k] = append(split[k], i)
		}
	}
	p.Replicas = slices.DeleteFunc(split, func(some []int) bool { return len(some) < 2 })
}

// ParseRules reads flags: together and apart "a,b", on and notOn "a=host-1,host-2".
func ParseRules(together, apart, on, notOn, stay []string) (r Rules, err error) {
	for _, text := range together {
		r.Together = append(r.Together, strings.Split(text, ","))
	}
	for _, text := range apart {
		r.Apart = append(r.Apart, strings.Split(text, ","))
	}
	if r.On, err = parseOn(on); err != nil {
		return r, err
	}
	r.NotOn, err = parseOn(notOn)
	r.Stay = stay
	return r, err
}

func parseOn(texts []string) (map[string][]string, error) {
	of := map[string][]string{}
	for _, text := range texts {
		name, hosts, ok := strings.Cut(text, "=")
		if !ok || name == "" || hosts == "" {
			return nil, fmt.Errorf("rule %q, want a container and hosts as in cart=host-1,host-2", text)
		}
		of[name] = append(of[name], strings.Split(hosts, ",")...)
	}
	return of, nil
}

// Add adds the rules of another.
func (r *Rules) Add(other Rules) {
	r.Together = append(r.Together, other.Together...)
	r.Apart = append(r.Apart, other.Apart...)
	r.Stay = append(r.Stay, other.Stay...)
	for _, both := range []struct {
		to   *map[string][]string
		from map[string][]string
	}{{&r.On, other.On}, {&r.NotOn, other.NotOn}} {
		for name, hosts := range both.from {
			if *both.to == nil {
				*both.to = map[string][]string{}
			}
			(*both.to)[name] = append((*both.to)[name], hosts...)
		}
	}
}
