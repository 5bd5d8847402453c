package predict

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"outsight/internal/graph"
)

// Scenario is what is to be different.
type Scenario struct {
	// Rate is of requests per second at the entries; Times, where Rate is 0, is how many times the mean rate it is.
	Rate, Times float64
	// Replicas is how many containers of a name share its requests, Quota how many cores each of a name may use.
	Replicas map[string]int
	Quota    map[string]float64
	// Move is on which host each container of a name is to run.
	Move map[string]string
}

// Prediction is what a scenario would be like.
type Prediction struct {
	// MeanRate is of requests per second at the entries, Rate that of the scenario.
	MeanRate float64 `json:"mean_rate"`
	Rate     float64 `json:"rate"`
	// Stretches of time are what is known of the past, at rates from LeastRate to GreatestRate.
	Stretches    int     `json:"stretches"`
	LeastRate    float64 `json:"least_rate"`
	GreatestRate float64 `json:"greatest_rate"`
	// Limit is the rate at which the first of the resources is used up; nil where that is not known, or there is none.
	Limit     *Interval  `json:"limit,omitempty"`
	LimitedBy string     `json:"limited_by,omitempty"` // its node
	Resources []Resource `json:"resources"`
	// Hosts are those that containers could move to, by their names.
	Hosts []string `json:"hosts"`
}

// Resource is a container, or the CPUs of a host, in a scenario.
type Resource struct {
	Node string `json:"node"`
	Name string `json:"name"`
	// Host is where it is in the scenario.
	Host string `json:"host"`
	// Parallel is how many cores it can use, because of ParallelBy.
	Parallel   float64 `json:"parallel"`
	ParallelBy string  `json:"parallel_by"`
	// Base is what it takes without requests, in cores, and PerRequest the CPU time in seconds for one at the entries; of a
	// host, with the containers that run there in the scenario.
	Base       *float64 `json:"base,omitempty"`
	PerRequest *float64 `json:"per_request,omitempty"`
	// Before is its utilisation at the mean rate as it is, Utilisation that of the scenario: 1 is used up.
	Before      *Interval `json:"before,omitempty"`
	Utilisation *Interval `json:"utilisation,omitempty"`
	// Limit is the rate at the entries at which it is used up.
	Limit *Interval `json:"limit,omitempty"`
	// Unknown is why the others are not known.
	Unknown string `json:"unknown,omitempty"`

	// demand is as it was, then as it would be with the containers that move.
	demand, then *Demand
	cores        float64 // of its host, 0 where not known
}

// isHost is that it is the CPUs of its host.
func (r *Resource) isHost() bool { return r.Node == graph.CPUsOf(r.Host) }

// History is what resources did in stretches of time.
type History struct {
	rates     []float64
	resources map[string]*past
	cores     map[string]float64
}

type past struct {
	graph.Resource // the newest
	all            []observed
}

type observed struct {
	Observation
	stretch  int // its number
	parallel float64
	by       string
}

// Add adds a stretch of time, of which the analysis is; they are in the order of time. cores is how many CPUs each host
// has.
func (h *History) Add(a *graph.Analysis, cores map[string]float64) {
	if a.ArrivalRate <= 0 {
		return
	}
	if h.resources == nil {
		h.resources = map[string]*past{}
	}
	h.cores = cores
	h.rates = append(h.rates, a.ArrivalRate)
	for _, r := range a.Resources {
		p := h.resources[r.Node]
		if p == nil {
			p = &past{}
			h.resources[r.Node] = p
		}
		p.Resource = r
		p.all = append(p.all, observed{Observation{a.ArrivalRate, r.CPUCores}, len(h.rates) - 1, r.Parallel, r.ParallelBy})
	}
}

// Predict tells what a scenario would be like. It is an error if a name of it is that of no container.
func (h *History) Predict(s Scenario) (*Prediction, error) {
	p := &Prediction{Stretches: len(h.rates), Resources: []Resource{}, Hosts: slices.Sorted(maps.Keys(h.cores))}
	moved, err := h.moved(s)
	if err != nil {
		return nil, err
	}
	for _, rate := range h.rates {
		p.MeanRate += rate / float64(len(h.rates))
	}
	if len(h.rates) > 0 {
		p.LeastRate, p.GreatestRate = slices.Min(h.rates), slices.Max(h.rates)
	}
	if p.Rate = s.Rate; p.Rate == 0 {
		p.Rate = p.MeanRate * s.Times
	}
	names := map[string]int{} // how many containers have each
	for _, r := range h.resources {
		now := r.resource(h.cores)
		now.moveTo(s, r, moved[now.Node], h.cores)
		p.Resources = append(p.Resources, now)
		if !now.isHost() {
			names[now.Name]++
		}
	}
	for _, name := range s.names() {
		if names[name] == 0 {
			return nil, fmt.Errorf("no request reached a container named %q", name)
		}
	}
	for node := range moved {
		if h.resources[node] == nil {
			p.Resources = append(p.Resources, unknownHost(node, h.cores))
		}
	}
	more := p.replicated(s, names)
	for i := range p.Resources {
		p.Resources[i].change(p, s, names, more)
	}
	p.finish()
	return p, nil
}

// names are those of the containers that a scenario is about.
func (s *Scenario) names() []string {
	return slices.Concat(slices.Sorted(maps.Keys(s.Replicas)), slices.Sorted(maps.Keys(s.Quota)), slices.Sorted(maps.Keys(s.Move)))
}

// moved is what the containers that move bring to the CPUs of each host and take from them, in cores by the number of the
// stretch of time.
func (h *History) moved(s Scenario) (map[string]map[int]float64, error) {
	all := map[string]map[int]float64{}
	add := func(host string, of observed, cores float64) {
		node := graph.CPUsOf(host)
		if all[node] == nil {
			all[node] = map[int]float64{}
		}
		all[node][of.stretch] += cores
	}
	for _, host := range s.Move {
		if h.cores[host] == 0 {
			return nil, fmt.Errorf("there is no host named %q", host)
		}
	}
	for _, p := range h.resources {
		to, ok := s.Move[p.Name]
		if !ok || to == p.Host || p.Node == graph.CPUsOf(p.Host) {
			continue
		}
		for _, o := range p.all {
			add(p.Host, o, -o.Cores)
			add(to, o, o.Cores)
		}
	}
	return all, nil
}

// unknownHost are the CPUs of a host that no request has reached.
func unknownHost(node string, cores map[string]float64) Resource {
	r := Resource{Node: node, Unknown: "no request reached this host before, so that it is not known what else runs there"}
	for host, n := range cores {
		if graph.CPUsOf(host) == node {
			r.Name, r.Host, r.Parallel, r.ParallelBy = "CPUs of "+host, host, n, "cores"
		}
	}
	return r
}

// moveTo is the resource after the containers have moved: a container is on its new host, and a host's line is of what
// would have run there.
func (r *Resource) moveTo(s Scenario, p *past, brought map[int]float64, cores map[string]float64) {
	if to, ok := s.Move[r.Name]; ok && !r.isHost() && to != r.Host {
		r.Host, r.cores = to, cores[to]
		return
	}
	if brought == nil || r.demand == nil {
		return
	}
	all := make([]Observation, len(p.all))
	for i, o := range p.all {
		all[i] = Observation{o.Rate, max(0, o.Cores+brought[o.stretch])}
	}
	if d, err := FitDemand(all); err == nil {
		r.then, r.Base, r.PerRequest = &d, &d.Base, &d.PerRequest
	}
}

// resource is what is known of the past. How many cores it could use is that of the quarter of the time with the highest
// rates: threads work at the same time where there is work for them.
func (p *past) resource(cores map[string]float64) Resource {
	busiest := slices.Clone(p.all)
	slices.SortFunc(busiest, func(a, b observed) int { return cmp.Compare(b.Rate, a.Rate) })
	busiest = busiest[:(len(busiest)+3)/4]
	slices.SortFunc(busiest, func(a, b observed) int { return cmp.Compare(a.parallel, b.parallel) })
	middle := busiest[len(busiest)/2]
	r := Resource{Node: p.Node, Name: p.Name, Parallel: middle.parallel, ParallelBy: middle.by, Host: p.Host,
		cores: cores[p.Host]}
	all := make([]Observation, len(p.all))
	for i := range p.all {
		all[i] = p.all[i].Observation
	}
	switch d, err := FitDemand(all); {
	case err != nil:
		r.Unknown = err.Error()
	case r.Parallel <= 0:
		r.Unknown = "it is not known how many cores it can use"
	default:
		r.demand, r.then, r.Base, r.PerRequest = &d, &d, &d.Base, &d.PerRequest
	}
	return r
}

// replicated is what the replicas that are to come take of their host without requests, by its node.
func (p *Prediction) replicated(s Scenario, names map[string]int) map[string]float64 {
	more := map[string]float64{}
	for i := range p.Resources {
		r := &p.Resources[i]
		if n, ok := s.Replicas[r.Name]; ok && !r.isHost() && r.demand != nil {
			more[graph.CPUsOf(r.Host)] += r.demand.Base * float64(n-names[r.Name]) / float64(names[r.Name])
		}
	}
	return more
}

// change finds what the scenario makes of a resource.
func (r *Resource) change(p *Prediction, s Scenario, names map[string]int, more map[string]float64) {
	if r.demand == nil {
		return
	}
	parallel, share, added := r.Parallel, 1.0, 0.0
	if r.ParallelBy == "cores" && r.cores > 0 { // of the host where it is then
		parallel = r.cores
	}
	if r.isHost() {
		added = more[r.Node]
	} else {
		if n, ok := s.Replicas[r.Name]; ok {
			share = float64(names[r.Name]) / float64(n)
		}
		if quota, ok := s.Quota[r.Name]; ok {
			if r.ParallelBy == "quota" {
				parallel, r.ParallelBy = r.cores, "cores"
			}
			if quota < parallel || parallel == 0 {
				parallel, r.ParallelBy = quota, "quota"
			}
		}
	}
	before := r.demand.Cores(p.MeanRate).over(r.Parallel)
	after := r.then.Cores(p.Rate * share).plus(added).over(parallel)
	r.Before, r.Utilisation, r.Parallel = &before, &after, parallel
	if limit, ok := r.then.Rate(parallel - added); ok {
		limit = limit.over(share)
		r.Limit = &limit
	}
}

func (i Interval) over(n float64) Interval {
	i.Value, i.Low = i.Value/n, i.Low/n
	if i.High != nil {
		high := *i.High / n
		i.High = &high
	}
	return i
}

func (i Interval) plus(n float64) Interval {
	i.Value, i.Low = i.Value+n, i.Low+n
	if i.High != nil {
		high := *i.High + n
		i.High = &high
	}
	return i
}

// finish finds the first limit. The fullest resource comes first.
func (p *Prediction) finish() {
	full := func(r *Resource) float64 {
		if r.Utilisation == nil {
			return math.Inf(-1)
		}
		return r.Utilisation.Value
	}
	slices.SortFunc(p.Resources, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(full(&b), full(&a)), cmp.Compare(a.Node, b.Node))
	})
	for i := range p.Resources {
		r := &p.Resources[i]
		if r.Limit != nil && (p.Limit == nil || r.Limit.Value < p.Limit.Value) {
			p.Limit, p.LimitedBy = r.Limit, r.Node
		}
	}
}
