package place

import (
	"fmt"
	"math"
	"slices"
)

// Figures are what a placement is like. Shares are 0 to 1.
type Figures struct {
	// Cost is what was to be made less: the weighted sum of the shares, with those of containers that moved.
	Cost float64 `json:"cost"`
	// CrossBytes are per second those that go from a container to one on another host, both ways.
	CrossBytes      float64 `json:"cross_bytes_per_second"`
	CrossBytesShare float64 `json:"cross_bytes_share"`
	// BusiestUplink are the bytes per second that one host exchanges with all others, both ways, the most of all hosts.
	BusiestUplink float64 `json:"busiest_uplink_bytes_per_second"`
	// CrossRequestsShare is of requests, weighted by how urgent they are.
	CrossRequestsShare float64 `json:"cross_requests_share"`
	HostsInUse         int     `json:"hosts_in_use"`
	// HighestCPU and HighestMemory are the most used host's, at the peaks of all that runs there.
	HighestCPU    float64 `json:"highest_cpu_share"`
	HighestMemory float64 `json:"highest_memory_share"`
	// CPUDeviation is the standard deviation of the hosts' CPU utilisation, by the mean use.
	CPUDeviation float64 `json:"cpu_deviation"`
	// Watts are what the hosts in use take; nil where no meter tells.
	Watts *float64 `json:"watts,omitempty"`
	Moved int      `json:"moved"`
}

// plan is a placement of single containers, which may break rules.
type plan struct {
	*state
	containers []int
	// together is the problem with its rules, in which containers that stay together are a unit.
	together *compiled
}

func newPlan(c *compiled, at []int) *plan {
	single := *c.Problem
	single.Together = nil
	each := compile(&single, Options{Weights: c.weights, Headroom: c.headroom})
	p := &plan{together: c, containers: at}
	hosts := make([]int32, len(at))
	for i, h := range at {
		hosts[i] = int32(h)
	}
	p.state = newState(each, hosts)
	return p
}

func (p *plan) figures() Figures {
	f := Figures{Cost: p.cost()}
	requests, uplinks := 0.0, make([]float64, len(p.Hosts))
	for _, t := range p.pairs {
		if p.at[t.A] != p.at[t.B] {
			f.CrossBytes += t.Bytes
			uplinks[p.at[t.A]] += t.Bytes
			uplinks[p.at[t.B]] += t.Bytes
			requests += t.Requests
		}
	}
	f.BusiestUplink = slices.Max(uplinks)
	f.CrossBytesShare = share(1, f.CrossBytes, p.whole.bytes)
	f.CrossRequestsShare = share(1, requests, p.whole.requests)
	watts, load, squares := 0.0, 0.0, 0.0
	for h, host := range p.Hosts {
		if p.count[h] > 0 {
			f.HostsInUse++
			watts += host.IdleWatts
		}
		watts += p.load[h] * host.WattsPerCore
		load += p.load[h]
		squares += p.load[h] * p.load[h] / host.Cores
		f.HighestCPU = max(f.HighestCPU, p.peak[h]/host.Cores)
		f.HighestMemory = max(f.HighestMemory, p.state.memory[h]/host.MemoryBytes)
	}
	mean := load / p.whole.cores
	f.CPUDeviation = math.Sqrt(max(0, squares/p.whole.cores-mean*mean))
	if p.whole.watts > 0 {
		f.Watts = &watts
	}
	for i, c := range p.Containers {
		if int(p.at[i]) != c.Host {
			f.Moved++
		}
	}
	return f
}

// HostUse is what a host has of a placement. CPU is in cores: the mean of what runs there, and the sum of its peaks; memory
// is in bytes, at the peaks. Containers are those that may be elsewhere or may not, without what belongs to the host.
type HostUse struct {
	CPU        Use     `json:"cpu_cores"`
	Memory     float64 `json:"memory_bytes"`
	Containers int     `json:"containers"`
}

func (p *plan) hostUses() []HostUse {
	uses := make([]HostUse, len(p.Hosts))
	for h := range uses {
		uses[h] = HostUse{Use{p.load[h], p.peak[h]}, p.state.memory[h], int(p.count[h])}
	}
	return uses
}

// maxProblems bounds how many broken rules are told.
const maxProblems = 20

// problems says what the placement breaks of the rules.
func (p *plan) problems() (told []string) {
	tell := func(format string, args ...any) {
		if len(told) < maxProblems {
			told = append(told, fmt.Sprintf(format, args...))
		}
	}
	for h, host := range p.Hosts {
		if p.peak[h] > p.peakCores[h]*(1+tolerance) {
			tell("%s: containers use %.2f cores at their peaks, %.2f are there less the headroom", host.Name, p.peak[h],
				p.peakCores[h])
		}
		if p.state.memory[h] > p.compiled.memory[h]*(1+tolerance) {
			tell("%s: containers use %.2f GiB of memory, %.2f are there less the headroom", host.Name,
				p.state.memory[h]/(1<<30), p.compiled.memory[h]/(1<<30))
		}
		for g := range p.groups {
			if n := p.inGroup[g*len(p.Hosts)+h]; n > 1 {
				tell("%s: %d containers that are to be apart, %s among them", host.Name, n,
					p.Containers[p.Apart[g][0]].Name)
			}
		}
	}
	for i := range p.units {
		if u := &p.units[i]; u.allowed != nil && !u.allowed[p.at[i]] {
			tell("%s is on %s, where it is not to be", p.Containers[i].Name, p.Hosts[p.at[i]].Name)
		}
	}
	for n := range p.together.units {
		u := &p.together.units[n]
		for _, i := range u.containers {
			if p.at[i] != p.at[u.containers[0]] {
				tell("%s are to be together", p.together.name(n))
				break
			}
		}
	}
	return told
}

// Measure is what a placement is like, host by container, and what it breaks of the rules.
func Measure(p *Problem, at []int, o Options) (f Figures, broken []string) {
	plan := newPlan(compile(p, o), at)
	return plan.figures(), plan.problems()
}
