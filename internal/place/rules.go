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
	// Require are labels that the host of a container has to have, as "disk=ssd,zone in (a,b)"; HostLabels are labels of
	// hosts, as "disk=ssd", besides those that are seen.
	Require    map[string][]string `json:"require,omitempty" yaml:"require"`
	HostLabels map[string][]string `json:"host_labels,omitempty" yaml:"host_labels"`
	// Stay do not move. Movable may, although they have volumes or bind mounts.
	Stay    []string `json:"stay,omitempty" yaml:"stay"`
	Movable []string `json:"movable,omitempty" yaml:"movable"`
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

// Apply adds rules to the problem: those of a user, and those that containers have with them. It fails where a name fits
// nothing.
func (p *Problem) Apply(r Rules) error {
	if err := p.labelHosts(r.HostLabels); err != nil {
		return err
	}
	for k, names := range slices.Concat(r.Together, r.Apart) {
		some, err := p.containersNamed(names...)
		if err != nil {
			return err
		}
		p.group(k < len(r.Together), some, strings.Join(names, ", "))
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
	for name, texts := range sorted(r.Require) {
		some, err := p.containersNamed(name)
		if err != nil {
			return err
		}
		for _, text := range texts {
			if err := p.require(some, text, false); err != nil {
				return err
			}
		}
	}
	movable, err := p.containersNamed(r.Movable...)
	if err != nil {
		return err
	}
	p.see(movable)
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
	rule := "is to be on " + strings.Join(hosts, " or ") + " by a rule"
	if !on {
		rule = "is not to be on " + strings.Join(hosts, " or ") + " by a rule"
	}
	for h := range named {
		named[h] = named[h] == on
	}
	for _, i := range some {
		p.limit(i, named, rule)
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

// ParseRules reads flags or a query by the names of Rules' JSON: together and apart "a,b", on and not_on
// "a=host-1,host-2", require "a=disk=ssd", host_label "host-1=disk=ssd", stay and movable "a".
func ParseRules(of map[string][]string) (r Rules, err error) {
	for _, text := range of["together"] {
		r.Together = append(r.Together, strings.Split(text, ","))
	}
	for _, text := range of["apart"] {
		r.Apart = append(r.Apart, strings.Split(text, ","))
	}
	r.Stay, r.Movable = of["stay"], of["movable"]
	for _, each := range []struct {
		name string
		into *map[string][]string
		list bool // of hosts
	}{{"on", &r.On, true}, {"not_on", &r.NotOn, true}, {"require", &r.Require, false}, {"host_label", &r.HostLabels, false}} {
		*each.into = map[string][]string{}
		for _, text := range of[each.name] {
			name, value, ok := strings.Cut(text, "=")
			if !ok || name == "" || value == "" {
				return r, fmt.Errorf("rule %s=%q, want a name and what it has, as in cart=host-1,host-2 or cart=disk=ssd", each.name, text)
			}
			values := []string{value}
			if each.list {
				values = strings.Split(value, ",")
			}
			(*each.into)[name] = append((*each.into)[name], values...)
		}
	}
	for _, texts := range r.Require {
		for _, text := range texts {
			if _, err := parseRequirement(text); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// Add adds the rules of another.
func (r *Rules) Add(other Rules) {
	r.Together = append(r.Together, other.Together...)
	r.Apart = append(r.Apart, other.Apart...)
	r.Stay = append(r.Stay, other.Stay...)
	r.Movable = append(r.Movable, other.Movable...)
	for _, both := range []struct {
		to   *map[string][]string
		from map[string][]string
	}{{&r.On, other.On}, {&r.NotOn, other.NotOn}, {&r.Require, other.Require}, {&r.HostLabels, other.HostLabels}} {
		for name, hosts := range both.from {
			if *both.to == nil {
				*both.to = map[string][]string{}
			}
			(*both.to)[name] = append((*both.to)[name], hosts...)
		}
	}
}
