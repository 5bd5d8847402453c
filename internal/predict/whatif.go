package predict

import (
	"cmp"
	"context"
	"errors"
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
	// Move is to which host the containers of a name go. Down are hosts that are no more: what has replicas elsewhere
	// leaves its requests to them, the rest is started again where most cores are left.
	Move map[string]string
	Down []string
}

// asItIs is that the load alone is different.
func (s *Scenario) asItIs() bool {
	return len(s.Replicas) == 0 && len(s.Quota) == 0 && len(s.Move) == 0 && len(s.Down) == 0
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
	// Limit is the rate at which the first of the resources is used up, or all connections of a pool are busy; nil where that
	// is not known, or there is none. Where UpperBound is true it is no estimate of the limit: no more than that can be served,
	// by CPU time, and it is not known how much less, as Doubts say. Its lower bound is no higher than the rate up to which nothing else can be used up
	// before. AtMost is why that is below the bound of what is known: the limit is at most that; empty where nothing else can
	// be the limit.
	Limit      *Interval `json:"limit,omitempty"`
	UpperBound bool      `json:"upper_bound,omitempty"`
	// LimitedBy is the resource's node, or CLIENT>SERVER of Pools.
	LimitedBy string     `json:"limited_by,omitempty"`
	AtMost    string     `json:"at_most,omitempty"`
	Resources []Resource `json:"resources"`
	// Pools are connections of which there may be no more; what is full first comes first. Doubts are signs of what may be
	// used up before Limit.
	Pools  []Pool  `json:"pools"`
	Doubts []Doubt `json:"doubts"`
	// Entries are where requests come in, with how long they take there; the busiest comes first.
	Entries []Entry `json:"entries"`
	// Hosts are those to which containers could move, by their names.
	Hosts []string `json:"hosts"`
	// Power is of each host. BeforeWatts and Watts are of all hosts, the joules those for one request at the entries, all
	// that hosts take shared by them; nil where that of a host is not known.
	Power                  []HostPower `json:"power"`
	BeforeWatts            *Interval   `json:"before_watts,omitempty"`
	Watts                  *Interval   `json:"watts,omitempty"`
	BeforeJoulesPerRequest *Interval   `json:"before_joules_per_request,omitempty"`
	JoulesPerRequest       *Interval   `json:"joules_per_request,omitempty"`
}

// Resource is a container, or the CPUs of a host, in a scenario.
type Resource struct {
	Node string `json:"node"`
	Name string `json:"name"`
	// Parallel is how many cores it can use, because of ParallelBy.
	Parallel   float64 `json:"parallel"`
	ParallelBy string  `json:"parallel_by"`
	// Base is what it takes without requests, in cores, and PerRequest the CPU time in seconds for one at the entries.
	Base       *float64 `json:"base,omitempty"`
	PerRequest *float64 `json:"per_request,omitempty"`
	// PerEndpoint parts PerRequest by what is asked for, where the mix of requests changed and what they take differs: the
	// mix of the scenario is that of the past.
	PerEndpoint []EndpointDemand `json:"per_endpoint,omitempty"`
	// Polling is the part of PerRequest that threads take to look for something now and then while there are requests. It is
	// taken to end where one request follows the other; of the CPUs of a host to fall as it did. Nil where there is none.
	Polling *float64 `json:"polling,omitempty"`
	// Before is its utilisation at the mean rate as it is, Utilisation that of the scenario: 1 is used up.
	Before      *Interval `json:"before,omitempty"`
	Utilisation *Interval `json:"utilisation,omitempty"`
	// Limit is the rate at the entries at which it is used up.
	Limit *Interval `json:"limit,omitempty"`
	// Alone is the rate at which its threads would be used up if they never waited for the CPUs of their host; Limit is lower
	// since others run there by then. Nil where they do not wait.
	Alone *float64 `json:"alone,omitempty"`
	// Host is where it is in the scenario, MovedFrom where it was if that is another one.
	Host      string `json:"host"`
	MovedFrom string `json:"moved_from,omitempty"`
	// Unknown is why the others are not known.
	Unknown string `json:"unknown,omitempty"`

	demand *Demand
	// leastLeft and mostLeft are what others left of a host's CPUs in nine of ten stretches; 0 of a container.
	leastLeft, mostLeft float64
	// then is what it takes in the scenario, of which share of its requests.
	then  *Demand
	share float64
	// arrivals is the squared variation of the times between its requests, of the part of those at the entries that it had, at
	// most all.
	arrivals Interval
	of       float64
	// cpus is on how many CPUs its threads could run at a time without a quota.
	cpus float64
	// serial is the line of the busiest thread, where that is what is used up; nil where it is not known. host is what goes on
	// at the CPUs of its host, nil where that is not known.
	serial *Demand
	host   *hostCPUs
}

// LimitName is what LimitedBy is called: "web", "CPUs of host-1", "the 4 connections of web to db".
func (p *Prediction) LimitName() string {
	for i := range p.Resources {
		if p.Resources[i].Node == p.LimitedBy {
			return p.Resources[i].Name
		}
	}
	if pool := p.LimitingPool(); pool != nil {
		return pool.name()
	}
	return p.LimitedBy
}

// CPUTimeOf is what UpperBound is by: "the CPU time of web", "the CPUs of host-1".
func (p *Prediction) CPUTimeOf() string {
	for i := range p.Resources {
		if r := &p.Resources[i]; r.Node == p.LimitedBy && r.isHost() {
			return "the " + r.Name
		}
	}
	return "the CPU time of " + p.LimitName()
}

// LimitingPool is the pool that is the limit; nil where it is none.
func (p *Prediction) LimitingPool() *Pool {
	for i := range p.Pools {
		if p.Pools[i].id() == p.LimitedBy {
			return &p.Pools[i]
		}
	}
	return nil
}

// PollingGoes is what is taken to become of Polling where more come.
func (r *Resource) PollingGoes() string {
	if r.isHost() {
		return "fall with the rate as they did"
	}
	return "are taken to end where one request follows the other"
}

// isHost is that it is the CPUs of its host.
func (r *Resource) isHost() bool {
	return r.Node == graph.CPUsOf(r.Host) || r.Node == graph.CPUsOf(r.MovedFrom)
}

// History is what resources did in stretches of time.
type History struct {
	rates     []float64
	resources map[string]*past
	entries   map[string]*entryPast
	cores     map[string]float64
	// power is watts by cores used, of each host with a meter.
	power map[string][]Observation
	// connections are by client and server.
	connections map[[2]string]*connectionsPast
	nodes       map[string]*nodePast
	// deals are by the names of containers that have replicas.
	deals map[string]*dealt
	// ctx is of the prediction that is made, nil for one that goes on to its end.
	ctx context.Context
}

// ended is that the prediction is not wanted any more.
func (h *History) ended() bool { return h.ctx != nil && h.ctx.Err() != nil }

type past struct {
	graph.Resource // the newest
	all            []observed
}

type observed struct {
	Observation
	parallel float64
	by       string
	// cpus is on how many its threads could run without a quota.
	cpus float64
	// polling is the part of Cores of what looks for something now and then.
	polling float64
	// own is the rate of its own requests, 0 where it is not known.
	own float64
	// asked are requests per second by endpoint, at all entries.
	asked map[string]float64
}

// Add adds a stretch of time, of which the analysis is; they are in the order of time. cores is how many CPUs each host
// has, watts what those took of which a meter tells it.
func (h *History) Add(a *graph.Analysis, cores, watts map[string]float64) {
	if a.ArrivalRate <= 0 {
		return
	}
	if h.resources == nil {
		h.resources = map[string]*past{}
	}
	h.cores = cores
	h.addEntries(a)
	h.addDoubts(a)
	h.addDeals(a)
	h.rates = append(h.rates, a.ArrivalRate)
	asked := map[string]float64{}
	for _, e := range a.Entries {
		for name, rate := range e.Asked {
			asked[name] += rate
		}
	}
	used := map[string]float64{}
	for _, r := range a.Resources {
		p := h.resources[r.Node]
		if p == nil {
			p = &past{}
			h.resources[r.Node] = p
		}
		p.Resource = r
		if r.Node == graph.CPUsOf(r.Host) {
			used[r.Host] = r.CPUCores
		}
		own := 0.0
		if r.ArrivalRate != nil {
			own = *r.ArrivalRate
		}
		p.all = append(p.all, observed{Observation{a.ArrivalRate, r.CPUCores}, r.Parallel, r.ParallelBy, r.Cores, r.PollingCores, own, asked})
	}
	h.addPower(used, watts)
}

// Predict tells what a scenario would be like. It is an error if a name of it is that of no container.
func (h *History) Predict(s Scenario) (*Prediction, error) { return h.predict(s, true) }

// predict is Predict, without the durations at the entries if they are not wanted: these take by far the longest.
func (h *History) predict(s Scenario, durations bool) (*Prediction, error) {
	p := &Prediction{Stretches: len(h.rates), Resources: []Resource{}, Hosts: slices.Sorted(maps.Keys(h.cores))}
	for _, rate := range h.rates {
		p.MeanRate += rate / float64(len(h.rates))
	}
	if len(h.rates) > 0 {
		p.LeastRate, p.GreatestRate = slices.Min(h.rates), slices.Max(h.rates)
	}
	if p.Rate = s.Rate; p.Rate == 0 {
		p.Rate = p.MeanRate * s.Times
	}
	now := h.fit()
	names := map[string]int{} // how many containers have each
	for i := range now {
		if !now[i].isHost() {
			names[now[i].Name]++
		}
	}
	p.Resources = append(p.Resources, now...)
	if err := s.check(names, h.cores); err != nil {
		return nil, err
	}
	h.addOthers(p, &s)
	slices.SortFunc(p.Resources, func(a, b Resource) int { return cmp.Compare(a.Node, b.Node) })
	c := change{Scenario: &s, prediction: p, names: names, cores: h.cores, host: map[string]*Resource{}}
	c.apply()
	h.dealAnew(p, &s)
	pools := h.poolStations()
	if durations {
		h.predictEntries(p, &s, stationsOf(now, h.cores), pools)
	}
	h.predictPower(p, &s)
	p.finish()
	h.predictDoubts(p, &s, pools)
	p.UpperBound = p.Limit != nil && len(p.Doubts) > 0 && p.LimitingPool() == nil
	p.leaveDurationsOpen()
	return p, nil
}

// PredictWithin is Predict until the context ends. Then it is the context's error: what quotas and pools hold back takes long to
// simulate.
func (h *History) PredictWithin(ctx context.Context, s Scenario) (*Prediction, error) {
	h.ctx = ctx
	defer func() { h.ctx = nil }()
	p, err := h.Predict(s)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return p, err
}

// leaveDurationsOpen takes the upper bounds of durations away where something else than CPU time, of which there is a sign,
// may be used up, and what waits for it is in no model.
func (p *Prediction) leaveDurationsOpen() {
	ceiling := p.LimitingPool() != nil && p.LimitingPool().Ceiling
	if !ceiling && !slices.ContainsFunc(p.Doubts, func(d Doubt) bool { return !d.modelled }) || p.Limit == nil || p.Rate < p.Limit.Low {
		return
	}
	for i := range p.Entries {
		if e := &p.Entries[i]; ceiling && p.Rate >= p.Limit.Value {
			e.Then, e.Waits, e.Saturated = nil, nil, e.Before != nil
		}
		if then := p.Entries[i].Then; then != nil {
			for _, of := range then.each() {
				of.High = nil
			}
		}
	}
}

// check refuses names that nothing has.
func (s *Scenario) check(names map[string]int, cores map[string]float64) error {
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(s.Replicas)), slices.Sorted(maps.Keys(s.Quota)),
		slices.Sorted(maps.Keys(s.Move))) {
		if names[name] == 0 {
			return fmt.Errorf("no request reached a container named %q", name)
		}
	}
	slices.Sort(s.Down)
	s.Down = slices.Compact(s.Down)
	for _, host := range slices.Concat(slices.Sorted(maps.Values(s.Move)), s.Down) {
		if _, ok := cores[host]; !ok {
			return fmt.Errorf("no host is named %q", host)
		}
	}
	if len(s.Down) >= len(cores) && len(s.Down) > 0 {
		return errors.New("all hosts are to be down")
	}
	for _, host := range s.Move {
		if slices.Contains(s.Down, host) {
			return fmt.Errorf("host %q is to be down and to get containers", host)
		}
	}
	return nil
}

// fit is the resources as they were, in the order of their nodes.
func (h *History) fit() []Resource {
	all := make([]Resource, 0, len(h.resources))
	replicas := map[string]float64{}
	for _, node := range slices.Sorted(maps.Keys(h.resources)) {
		r := h.resources[node].resource()
		all = append(all, r)
		replicas[r.Name]++
	}
	for i := range all {
		all[i].arrivals = h.deals[all[i].Name].arrivalsAt(replicas[all[i].Name])
	}
	return all
}

// addOthers adds the CPUs of hosts that no request has reached until now, where containers move there.
func (h *History) addOthers(p *Prediction, s *Scenario) {
	to := slices.Sorted(maps.Values(s.Move))
	for _, host := range slices.Compact(to) {
		if node := graph.CPUsOf(host); h.resources[node] == nil {
			p.Resources = append(p.Resources, Resource{Node: node, Name: graph.CPUsName(host), Host: host,
				Parallel: h.cores[host], ParallelBy: "cores",
				Unknown: "no request reached this host before, so that it is not known what else runs there"})
		}
	}
}

// resource is what is known of the past. How many cores it could use is that of the quarter of the time with the highest
// rates: threads work at the same time where there is work for them.
func (p *past) resource() Resource {
	busiest := slices.Clone(p.all)
	slices.SortFunc(busiest, func(a, b observed) int { return cmp.Compare(b.Rate, a.Rate) })
	busiest = busiest[:(len(busiest)+3)/4]
	slices.SortFunc(busiest, func(a, b observed) int { return cmp.Compare(a.parallel, b.parallel) })
	middle := busiest[len(busiest)/2]
	r := Resource{Node: p.Node, Name: p.Name, Parallel: middle.parallel, ParallelBy: middle.by, Host: p.Host,
		share: 1, of: p.part(), cpus: middle.cpus}
	if middle.by == "left" {
		lefts := make([]float64, len(p.all))
		for i := range p.all {
			lefts[i] = p.all[i].parallel
		}
		slices.Sort(lefts)
		last := float64(len(lefts) - 1)
		r.leastLeft = min(lefts[int(math.Floor((1-chances)/2*last))], r.Parallel)
		r.mostLeft = max(lefts[int(math.Ceil((1+chances)/2*last))], r.Parallel)
	}
	all, demands := byEndpoint(p.all)
	switch d, err := FitDemand(all); {
	case err != nil:
		r.Unknown = err.Error()
	case r.Parallel <= 0:
		r.Unknown = "it is not known how many cores it can use"
	default:
		r.demand, r.Base, r.PerRequest, r.PerEndpoint = &d, &d.Base, &d.PerRequest, demands
		polling := make([]float64, len(p.all))
		for i := range p.all {
			polling[i] = p.all[i].polling
		}
		if d.findBusy(all, polling); middle.by == "left" {
			d.findDecay(all, polling, r.Parallel)
		}
		if d.busy != nil {
			part := d.PerRequest - d.busy.PerRequest
			r.Polling = &part
		}
		if middle.by == "threads" {
			r.serial = p.serial()
		}
	}
	return r
}

// serial is the line of the utilisation of the busiest thread, where it is that thread which works for requests and others
// only wake up beside it: there are fewer busy ones the more requests come. Nil where that is not seen.
func (p *past) serial() *Demand {
	var threads, used []Observation
	for i := range p.all {
		if o := &p.all[i]; o.by == "threads" && o.parallel > 0 {
			threads = append(threads, Observation{o.Rate, o.parallel})
			used = append(used, Observation{o.Rate, o.Cores / o.parallel})
		}
	}
	trend, err := FitDemand(threads)
	if err != nil || trend.PerRequest+trend.factor*math.Sqrt(trend.varianceSlope) >= 0 {
		return nil
	}
	line, err := FitDemand(used)
	if err != nil || line.PerRequest <= 0 {
		return nil
	}
	return &line
}

// part is which part of the requests at the entries it got, at most all.
func (p *past) part() float64 {
	own, all := 0.0, 0.0
	for i := range p.all {
		if o := &p.all[i]; o.own > 0 {
			own, all = own+o.own, all+o.Rate
		}
	}
	if own == 0 {
		return 1
	}
	return min(own/all, 1)
}

// Over is the interval of a share: of the estimate over n.
func (i Interval) Over(n float64) Interval {
	i.Value, i.Low = i.Value/n, i.Low/n
	if i.High != nil {
		high := *i.High / n
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
