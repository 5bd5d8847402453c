package predict

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"outsight/internal/graph"
)

// Entry is how long requests at an entry take in a scenario.
type Entry struct {
	Node string `json:"node"`
	Name string `json:"name"`
	// Rate is of its requests per second in the scenario: its share of those at all entries stays as it was.
	Rate float64 `json:"rate"`
	// Model is how Then was found: Queueing or Scalability, whichever was nearer to the past.
	Model Model `json:"model,omitempty"`
	// Before is at the mean rate as it is, Then that of the scenario; nil where it is not known, or where a resource is
	// used up, so that the queue grows without end (Saturated).
	Before    *Latencies `json:"before,omitempty"`
	Then      *Latencies `json:"then,omitempty"`
	Saturated bool       `json:"saturated,omitempty"`
	// Waits are what the 99th percentile is longer for in the scenario, the longest first; nil where it is not, or Then is not by
	// Queueing.
	Waits []Wait `json:"waits,omitempty"`
	// Tested is how far off each model was on the user's own past; nil where there was too little of it.
	Tested *Tested `json:"tested,omitempty"`
	// Unknown is why Then is not known.
	Unknown string `json:"unknown,omitempty"`
}

// Latencies are durations in seconds.
type Latencies struct {
	Mean Interval `json:"mean"`
	P50  Interval `json:"p50"`
	P95  Interval `json:"p95"`
	P99  Interval `json:"p99"`
}

func (l *Latencies) each() [durations]*Interval {
	return [durations]*Interval{&l.Mean, &l.P50, &l.P95, &l.P99}
}

// Tested is a test on the past: of what the stretches at lower rates tell of Stretches ones at higher rates, up to
// Times their highest rate. The errors are medians of |told / seen - 1| of the 99th percentile.
type Tested struct {
	Stretches   int     `json:"stretches"`
	Times       float64 `json:"times"`
	Queueing    float64 `json:"queueing_error"`
	Scalability float64 `json:"scalability_error"`
}

// Model is how latencies follow from rates.
type Model string

const (
	// Queueing is an open network of queues, one for each resource, with as many servers as it has cores or threads. What
	// a request waits at each is by Sakasegawa's approximation of M/G/c, and a duration is R + K Q + H, where Q is the sum of
	// the waits and H what a CPU quota or a pool of connections holds back (holder); R and K are fitted to the past.
	Queueing Model = "queueing"
	// Scalability is Gunther's Universal Scalability Law, fitted to the past: the duration of a request is
	// (1 + α (N - 1) + β N (N - 1)) / γ with N requests in flight.
	Scalability Model = "scalability"
)

// durations is how many durations of an entry there are: mean, p50, p95 and p99.
const durations = 4

// waitsOf is what each of the durations grows by for a second of mean wait if waits are exponentially distributed: what
// K is expected to be before anything is known of it.
var waitsOf = [durations]float64{1, math.Ln2, -math.Log(0.05), -math.Log(0.01)}

// Errors of latencies.
var (
	errNoWaits = errors.New("it is not known what any of the resources takes for a request")
	errFewSeen = errors.New("there are too few stretches of time with its requests")
)

// entryPast is what an entry did in the past.
type entryPast struct {
	graph.Entry // the newest
	all         []entryObserved
}

// entryObserved is a stretch of time: rate is of requests per second at all entries, own at this one.
type entryObserved struct {
	rate, own float64
	seconds   [durations]float64
	// left is what others leave of the CPUs of each host that its requests reach, as a share of them.
	left map[string]float64
}

// leftOf is what others leave of the CPUs of each host, as a share of them.
func (h *History) leftOf(a *graph.Analysis) map[string]float64 {
	left := map[string]float64{}
	for i := range a.Resources {
		if r := &a.Resources[i]; r.Node == graph.CPUsOf(r.Host) && h.cores[r.Host] > 0 {
			left[r.Host] = r.Parallel / h.cores[r.Host]
		}
	}
	return left
}

func (h *History) addEntries(a *graph.Analysis) {
	if h.entries == nil {
		h.entries = map[string]*entryPast{}
	}
	left := h.leftOf(a)
	for _, e := range a.Entries {
		if e.Mean == nil || math.IsInf(float64(*e.P99), 0) || *e.P50 <= 0 {
			continue
		}
		p := h.entries[e.Node]
		if p == nil {
			p = &entryPast{}
			h.entries[e.Node] = p
		}
		p.Entry = graph.Entry{Node: e.Node, Name: e.Name}
		own := map[string]float64{}
		for host, share := range left {
			if e.Hosts[host] {
				own[host] = share
			}
		}
		p.all = append(p.all, entryObserved{a.ArrivalRate, e.ArrivalRate,
			[durations]float64{float64(*e.Mean), float64(*e.P50), float64(*e.P95), float64(*e.P99)}, own})
	}
}

const (
	// disturbed is how many standard deviations less than usual others leave of a host's CPUs where they disturb.
	disturbed = 3
	// disturbedLeast is which share of a host's CPUs that is, at least: waits grow as 1 / (1 - ρ), so that of CPUs of which half
	// are busy a twentieth more makes them longer by a tenth. Less is lost in what durations are off anyway.
	disturbedLeast = 0.05
)

// calm are the stretches of all in which others took no more than usual of the CPUs of the hosts of which left tells what they
// leave: what they do at times makes durations longer, and tells nothing of how those grow with the rate. The deviation is a
// robust one. All are calm where less than half would be: of many hosts some are always disturbed, which is how it usually is.
func calm[T any](all []T, left func(*T) map[string]float64) []T {
	lefts := map[string][]float64{}
	for i := range all {
		for host, left := range left(&all[i]) {
			lefts[host] = append(lefts[host], left)
		}
	}
	least := map[string]float64{}
	for host, of := range lefts {
		middle := medianOf(slices.Clone(of))
		off := make([]float64, len(of))
		for i, left := range of {
			off[i] = math.Abs(left - middle)
		}
		least[host] = middle - max(disturbed*medianOf(off)/0.6745, disturbedLeast)
	}
	found := slices.DeleteFunc(slices.Clone(all), func(o T) bool {
		for host, left := range left(&o) {
			if left < least[host] {
				return true
			}
		}
		return false
	})
	if 2*len(found) < len(all) {
		return all
	}
	return found
}

// calm are the stretches in which nobody disturbed the hosts that requests of the entry reach.
func (p *entryPast) calm() []entryObserved {
	return calm(p.all, func(o *entryObserved) map[string]float64 { return o.left })
}

// upTo is what was known if only the stretches at rates up to most had been.
func (h *History) upTo(most float64) *History {
	less := &History{ctx: h.ctx, cores: h.cores, deals: h.deals, resources: map[string]*past{}, entries: map[string]*entryPast{},
		connections: map[[2]string]*connectionsPast{}}
	for _, rate := range h.rates {
		if rate <= most {
			less.rates = append(less.rates, rate)
		}
	}
	for node, p := range h.resources {
		all := slices.DeleteFunc(slices.Clone(p.all), func(o observed) bool { return o.Rate > most })
		if len(all) > 0 {
			less.resources[node] = &past{p.Resource, all}
		}
	}
	for node, p := range h.entries {
		all := slices.DeleteFunc(slices.Clone(p.all), func(o entryObserved) bool { return o.rate > most })
		less.entries[node] = &entryPast{p.Entry, all}
	}
	for key, p := range h.connections {
		all := slices.DeleteFunc(slices.Clone(p.all), func(o connectionsObserved) bool { return o.rate > most })
		less.connections[key] = &connectionsPast{p.Connections, all}
	}
	return less
}

// within are the stations for the prediction that is made.
func (h *History) within(all []station) []station {
	for i := range all {
		all[i].ctx = h.ctx
	}
	return all
}

// predictEntries tells the latencies at the entries, the busiest first.
func (h *History) predictEntries(p *Prediction, s *Scenario, now, pools []station) {
	then := make([]station, 0, len(now))
	for i := range p.Resources {
		if r := &p.Resources[i]; r.then != nil && r.Parallel > 0 {
			// Replicas that are to come are in no list: what all of a name take for a request stays.
			visits := r.share
			if _, ok := s.Replicas[r.Name]; ok {
				visits = 1
			}
			then = append(then, r.station(r.then, r.share, visits))
		}
	}
	pools = append(pools, h.permitStations(pools)...)
	now = h.within(append(now, pools...))
	for _, pool := range pools {
		if pool.change(p, s) {
			then = append(then, pool)
		}
	}
	then = h.within(then)
	tested := h.test()
	p.Entries = make([]Entry, 0, len(h.entries))
	for node, past := range h.entries {
		e := Entry{Node: node, Name: past.Name, Tested: tested[node], Rate: past.share(h.rates) * p.Rate}
		e.predict(past, now, then, p.MeanRate, p.Rate, s.asItIs())
		p.Entries = append(p.Entries, e)
	}
	slices.SortFunc(p.Entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Node, b.Node))
	})
}

// share is the entry's share of the requests at all entries in all of the past, of which the rates are.
func (p *entryPast) share(rates []float64) float64 {
	own, all := 0.0, 0.0
	for _, o := range p.all {
		own += o.own
	}
	for _, rate := range rates {
		all += rate
	}
	return own / all
}

func (e *Entry) predict(past *entryPast, now, then []station, mean, rate float64, asItIs bool) {
	calm := past.calm()
	queues, err := fitQueues(calm, now)
	if err != nil {
		e.Unknown = err.Error()
		return
	}
	e.Model = Queueing
	e.Before, _ = queues.at(mean, now, e.Tested)
	var saturated bool
	if e.Then, saturated = queues.at(rate, then, e.Tested); saturated {
		e.Saturated = true
		return
	}
	e.Waits = queues.longer(now, mean, then, rate)
	// The law does not know of quotas and pools, which may have held nothing back so far. Where it sees nothing grow, it tells
	// nothing of loads that there were not.
	if e.Tested != nil && e.Tested.Scalability < e.Tested.Queueing && asItIs && !mayHold(then, rate) {
		law := fitLaw(calm)
		before, told := law.at(mean, e.Tested)
		if then, too := law.at(rate, e.Tested); told && too && (law.grows() || rate <= highest(calm)) {
			e.Model, e.Before, e.Then, e.Waits = Scalability, before, then, nil
		}
	}
}

// test tells of each entry what each of the models, given the lower rates, is off at the higher ones.
func (h *History) test() map[string]*Tested {
	if len(h.rates) < 2*minObservations {
		return nil
	}
	rates := slices.Sorted(slices.Values(h.rates))
	most := rates[len(rates)*2/3-1]
	less := h.upTo(most)
	pools := less.poolStations()
	stations := h.within(slices.Concat(stationsOf(less.fit(), less.cores), pools, less.permitStations(pools)))
	tested := map[string]*Tested{}
	for node, past := range h.entries {
		calm := less.entries[node].calm()
		queues, err := fitQueues(calm, stations)
		if err != nil {
			continue
		}
		law := fitLaw(calm)
		var byQueues, byLaw []float64
		highest := 0.0
		for _, o := range past.calm() {
			if o.rate <= most {
				continue
			}
			highest = max(highest, o.rate)
			seen := o.seconds[durations-1]
			byQueues, byLaw = append(byQueues, math.Inf(1)), append(byLaw, math.Inf(1))
			last := len(byQueues) - 1
			if l, _ := queues.at(o.rate, stations, nil); l != nil {
				byQueues[last] = math.Abs(l.P99.Value/seen - 1)
			}
			if l, ok := law.at(o.rate, nil); ok {
				byLaw[last] = math.Abs(l.P99.Value/seen - 1)
			}
		}
		if len(byQueues) < minObservations/2 {
			continue
		}
		t := &Tested{Stretches: len(byQueues), Times: highest / most, Queueing: medianOf(byQueues), Scalability: medianOf(byLaw)}
		// A model that said there would be no end to the queue has no finite error.
		t.Queueing, t.Scalability = min(t.Queueing, math.MaxFloat32), min(t.Scalability, math.MaxFloat32)
		tested[node] = t
	}
	return tested
}

func medianOf(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// station is a resource at which requests wait: what it takes of them, how many cores it can use, what it gets of the
// requests that it got, how many times as many of a request's visits are to it, and whether a CPU quota is what bounds it.
// Where it is a pool, it takes connections in the place of cores.
type station struct {
	// ctx is History.ctx: when it ends nothing more is simulated.
	ctx                     context.Context
	demand                  *Demand
	parallel, share, visits float64
	quota                   bool
	pool                    *poolQueue
	// arrivals is the squared variation of the times between requests.
	arrivals Interval
	// of is which part of the requests at the entries it had, at most all: each of two replicas has half of them. name is that
	// which its replicas have, too.
	of   float64
	name string
	// cpus is on how many CPUs its threads run at a time.
	cpus float64
	// host is what its threads find at the CPUs of their host; nil where that is not known.
	host *hostCPUs
	// waitedFor says what requests wait for here.
	waitedFor string
}

// wait is the mean time, in seconds, that a request at the entries waits there for others if it is utilised so:
// Sakasegawa's approximation of M/M/c, D ρ^(√(2(c+1))-1) / (c (1-ρ)), less what they come more evenly than at random;
// infinite from 1 on. Until a quota is used up, its container has whole cores. Threads are slowed down by others on their
// host.
func (s *station) wait(utilisation, arrivals, slowdown float64) (seconds, share float64) {
	if utilisation *= slowdown; !(utilisation < 1) { // or none of a host that is used up
		return math.Inf(1), 1
	}
	if s.pool != nil {
		return 0, 0 // it is held back
	}
	servers := max(s.parallel, 1)
	service := s.visits * max(s.demand.PerRequest, 0) * slowdown
	if s.quota {
		utilisation *= s.parallel / servers
	} else {
		service *= servers / s.parallel
	}
	share = math.Pow(max(utilisation, 0), math.Sqrt(2*(servers+1))-1)
	return service * share / (servers * (1 - utilisation)) * evenly(utilisation, arrivals, 1), share
}

// withoutBusy is the station if a request takes as much where one follows the other.
func (s *station) withoutBusy() *station {
	if s.demand.busy == nil {
		return s
	}
	other, line := *s, *s.demand
	line.busy, other.demand = nil, &line
	return &other
}

// held is for how long, in seconds, its quota or its pool holds requests back if it is utilised so. Connections of the pool
// are taken holds times as long as requests take over them.
func (s *station) held(utilisation, holds, arrivals float64) held {
	return s.heldFor(utilisation, utilisation, 1, holds, arrivals)
}

// heldFor is held where it would be utilised by alone if each request took idle times as much of a quota as those that follow each
// other.
func (s *station) heldFor(utilisation, alone, idle, holds, arrivals float64) held {
	if s.ctx != nil && s.ctx.Err() != nil {
		return held{}
	}
	if s.pool != nil {
		return s.pool.at(utilisation).times(s.pool.takes * holds)
	}
	busy := s.demand.whenBusy()            // those that are held back follow each other
	left := s.parallel - max(busy.Base, 0) // for requests
	if !s.quota || busy.PerRequest <= 0 || left <= 0 {
		return held{}
	}
	share := func(utilisation float64) float64 { return 1 - (1-utilisation)*s.parallel/left }
	return quotaLoad{room: left * quotaPeriod / busy.PerRequest * s.of, // of its own requests
		even: share(utilisation), load: share(alone) / idle, idle: idle, cores: left, cpus: s.cpus,
		arrivals: arrivals}.held().times(quotaPeriod)
}

// idle is how many times as much a request takes that finds none there.
func (s *station) idle() float64 {
	if busy := s.demand.whenBusy().PerRequest; busy > 0 {
		return min(max(s.demand.PerRequest/busy, 1), idleMost)
	}
	return 1
}

func (r *Resource) station(d *Demand, share, visits float64) station {
	line, parallel := r.used(d)
	waitedFor := "CPU time of " + r.Name
	if r.Node == graph.CPUsOf(r.Host) {
		waitedFor = r.Name
	}
	return station{demand: line, parallel: parallel, share: share, visits: visits, quota: r.ParallelBy == "quota", arrivals: r.arrivals,
		of: r.of, name: r.Name, cpus: r.cpus, host: r.host, waitedFor: waitedFor}
}

// stationsOf are resources as they were.
func stationsOf(resources []Resource, cores map[string]float64) (all []station) {
	findHosts(resources, cores, func(r *Resource) *Demand { return r.demand })
	for i := range resources {
		if r := &resources[i]; r.demand != nil {
			all = append(all, r.station(r.demand, 1, 1))
		}
	}
	return all
}

// waiting is what requests wait for: others at all stations, by which each duration grows as by so long a mean wait, and what
// pools and quotas hold them back for. Of several the one that holds them back most counts; of replicas with a quota it is
// their mean.
type waiting struct {
	// rare is that quantiles grow by those of the waits of all requests, of which only a share waits, and not as the mean wait does.
	rare        bool
	others      [durations]float64
	pool, quota held
	replicas    map[string][]held // of those with a quota
}

func (w *waiting) add(s *station, utilisation, arrivals, slowdown float64, by held) {
	wait, share := s.wait(utilisation, arrivals, slowdown)
	if !w.rare {
		share = 1
	}
	for d := range w.others {
		if math.IsInf(wait, 0) {
			w.others[d] = wait
		} else {
			w.others[d] += wait * s.tail(d, share)
		}
	}
	switch {
	case s.pool != nil:
		w.pool = w.pool.longest(by)
	case s.quota:
		if w.replicas == nil {
			w.replicas = map[string][]held{}
		}
		w.replicas[s.name] = append(w.replicas[s.name], by)
	}
}

// above is the share of requests that take longer than each of the durations.
var above = [durations]float64{0, 0.5, 0.05, 0.01}

// tail is by how much more than the mean wait of a request at the entries a duration grows, as a multiple of waitsOf, where such a
// share of those that go there has to wait, and a part of all goes there: each of those waits so much longer, and fewer are in the
// longest waits.
func (s *station) tail(d int, share float64) float64 {
	if s.of > 0 && s.of < 1 {
		share *= s.of
	}
	if d == 0 || share >= 1 {
		return 1
	}
	if share <= 0 {
		return 0
	}
	return max(math.Log(share/above[d])/share, 0) / waitsOf[d]
}

// endless is that a queue has no end.
func (w *waiting) endless() bool { return math.IsInf(w.others[0], 0) }

// finish finds what quotas hold back of what those of replicas do.
func (w *waiting) finish() {
	for _, all := range w.replicas {
		var mean held
		for _, of := range all {
			for d := range mean {
				mean[d] += of[d] / float64(len(all))
			}
		}
		w.quota = w.quota.longest(mean)
	}
}

// waits is what requests wait for at a rate: the estimate, or a bound.
func waits(stations []station, rate float64, rare bool, of func(s *station, w *waiting, rate float64, u Interval)) (w waiting) {
	w.rare = rare
	for i := range stations {
		of(&stations[i], &w, rate, stations[i].utilisation(rate))
	}
	w.finish()
	return w
}

// utilisation is that at a rate at the entries. At rates that there were not, the lower bound of what is used allows for the bend, as
// the upper one of the limit does. Of a pool that was not seen it is not known that it can be used up.
func (s *station) utilisation(rate float64) Interval {
	u := s.demand.Utilisation(rate*s.share, s.parallel)
	if rate*s.share > s.demand.Greatest {
		u.Low = min(u.Low, (1-bend)*s.demand.Cores(rate*s.share).Low/s.parallel)
	}
	if p := s.pool; p != nil && (!p.seen || p.fixed < 1) {
		u.Value = min(u.Value, 1-1.0/heldLoads)
	}
	return u
}

// estimate adds what it makes requests wait: of a pool that may be none, as much of the queue as is known of that there is one.
func (s *station) estimate(w *waiting, rate float64, u Interval) {
	switch p := s.pool; {
	case p == nil:
		alone := s.withoutBusy().demand.Utilisation(rate*s.share, s.parallel).Value
		w.add(s, u.Value, s.arrivals.Value, s.host.slowdown(rate), s.heldFor(u.Value, alone, s.idle(), 1, s.arrivals.Value))
	case p.fixed < 1:
		w.pool = w.pool.longest(s.held(u.Value, 1, s.arrivals.Value).times(p.fixed))
	default:
		w.add(s, u.Value, s.arrivals.Value, 1, s.held(u.Value, 1, s.arrivals.Value))
	}
}

// least adds what it makes requests wait at least: of a pool that may be none, nothing.
func (s *station) least(w *waiting, _ float64, u Interval) {
	switch p := s.pool; {
	case p == nil:
		w.add(s, u.Low, s.arrivals.Low, 1, s.held(u.Low, 1, s.arrivals.Low))
	case p.fixed == 1:
		used := min(u.Low*p.holds.Low, u.Value)
		w.add(s, used, s.arrivals.Low, 1, s.held(used, p.holds.Low, s.arrivals.Low))
	}
}

// most adds what it makes requests wait at most.
func (s *station) most(w *waiting, rate float64, u Interval) {
	if p := s.pool; p != nil {
		used := *u.High * *p.holds.High
		w.add(s, used, *s.arrivals.High, 1, s.held(used, *p.holds.High, *s.arrivals.High))
		return
	}
	line := s.withoutBusy()
	w.add(line, *u.High, *s.arrivals.High, s.host.slowdown(rate), line.held(*u.High, 1, *s.arrivals.High))
}

// mayHold is whether quotas or pools may hold a request in a hundred back at a rate.
func mayHold(stations []station, rate float64) bool {
	high := waits(stations, rate, false, (*station).most)
	return high.pool.longest(high.quota)[durations-1] > 0
}

// queues is a line over the sum of waits for each of the durations of an entry.
type queues struct {
	lines [durations]line
	rare  bool
	// factor is Student's for nine chances of ten.
	factor    float64
	stretches int
}

// line is R + K Q, with the covariance of R and K, and the deviation of a stretch as a share of its value.
type line struct {
	r, k, varianceR, varianceK, covariance, deviation float64
}

// mixture is how durations grow with waits, in several ways, each as likely as it fits the past; the likeliest is the first.
type mixture struct {
	ways    []*queues
	weights []float64
}

// unlikelyWay is the weight below which a way does not count for the bounds.
const unlikelyWay = 0.05

// fitQueues fits each of the ways in which durations may grow with waits. How likely each is follows from what is left of the 99th
// percentile: stretches that follow each other are alike, so half as many count.
func fitQueues(all []entryObserved, stations []station) (*mixture, error) {
	if len(all) < minObservations {
		return nil, errFewSeen
	}
	if len(stations) == 0 {
		return nil, errNoWaits
	}
	m := &mixture{}
	for _, rare := range []bool{false, true} {
		f, err := fitWay(all, stations, rare)
		if err != nil {
			return nil, err
		}
		m.ways = append(m.ways, f)
	}
	slices.SortStableFunc(m.ways, func(a, b *queues) int { return cmp.Compare(a.deviation(), b.deviation()) })
	sum := 0.0
	for _, f := range m.ways {
		m.weights = append(m.weights, math.Pow(m.ways[0].deviation()/f.deviation(), float64(f.stretches)/2))
		sum += m.weights[len(m.weights)-1]
	}
	for i := range m.weights {
		m.weights[i] /= sum
	}
	return m, nil
}

// deviation is that of the 99th percentile.
func (f *queues) deviation() float64 { return f.lines[durations-1].deviation }

// at is the durations at a rate, on average of the ways, and between the bounds of all that are not unlikely. saturated is that the
// queue has no end there.
func (m *mixture) at(rate float64, stations []station, tested *Tested) (l *Latencies, saturated bool) {
	l = &Latencies{}
	for i, f := range m.ways {
		of, saturated := f.at(rate, stations, tested)
		if saturated {
			return nil, true
		}
		parts := of.each()
		for d, into := range l.each() {
			part := parts[d]
			into.Value += m.weights[i] * part.Value
			switch {
			case i == 0:
				into.Low, into.High = part.Low, part.High
			case m.weights[i] < unlikelyWay:
			default:
				into.Low = min(into.Low, part.Low)
				if into.High != nil && part.High != nil {
					*into.High = max(*into.High, *part.High)
				}
			}
		}
	}
	for _, of := range l.each() {
		of.Low = min(of.Low, of.Value)
		if of.High != nil {
			*of.High = max(*of.High, of.Value)
		}
	}
	return l, false
}

// longer is for what p99 is longer, on average of the ways that are not unlikely; nil where it is not longer on average.
func (m *mixture) longer(now []station, mean float64, then []station, rate float64) (all []Wait) {
	const last = durations - 1
	var was, p99 float64
	for i, f := range m.ways {
		before, after := waits(now, mean, f.rare, (*station).estimate), waits(then, rate, f.rare, (*station).estimate)
		was, p99 = was+m.weights[i]*f.value(last, &before), p99+m.weights[i]*f.value(last, &after)
		if i > 0 && m.weights[i] < unlikelyWay {
			continue
		}
		for _, w := range f.longer(now, mean, then, rate) {
			at := slices.IndexFunc(all, func(found Wait) bool { return found.For == w.For })
			if at < 0 {
				at, all = len(all), append(all, Wait{For: w.For})
			}
			all[at].Longer += m.weights[i] * w.Longer
		}
	}
	if !(p99 >= waitsLonger*was) {
		return nil
	}
	all = slices.DeleteFunc(all, func(w Wait) bool { return w.Longer < waitsLeast*(p99-was) })
	slices.SortFunc(all, compareWaits)
	return all[:min(len(all), waitsTold)]
}

// fitWay fits R and K of each duration by weighted least squares, relative to the durations, with Huber's weights. K is expected to
// be that of exponential waits, give or take as much; the past moves it the more, the more waits there were.
func fitWay(all []entryObserved, stations []station, rare bool) (*queues, error) {
	f := &queues{rare: rare}
	q := make([]waiting, 0, len(all))
	kept := make([]entryObserved, 0, len(all))
	for _, o := range all {
		if value := waits(stations, o.rate, f.rare, (*station).estimate); !value.endless() {
			q, kept = append(q, value), append(kept, o)
		}
	}
	if len(q) < minObservations {
		return nil, errFewSeen
	}
	f.factor, f.stretches = student(float64(len(q)-1)), len(q)
	for d := range f.lines {
		f.lines[d].fit(q, kept, d)
	}
	return f, nil
}

// own is the share of a duration that it had if nothing held requests back.
func (w *waiting) own(o *entryObserved, d int) float64 {
	mean := min(max(o.seconds[0]-w.quota[0], 0), o.seconds[d])
	above := o.seconds[d] - mean
	own := mean + math.Sqrt(max(above*above-w.quota[d]*w.quota[d], 0))
	return max(min(own, o.seconds[d]-w.pool[d]), 0) / o.seconds[d]
}

func (l *line) fit(q []waiting, all []entryObserved, d int) {
	expected := waitsOf[d]
	weights, residuals := make([]float64, len(all)), make([]float64, len(all))
	for i := range weights {
		weights[i] = 1
	}
	l.deviation = 0.1
	for range rounds {
		// The sums of the normal equations, of r / y + k q / y = 1 - h / y, where h is what was held back.
		var rr, rk, kk, r1, k1 float64
		for i, o := range all {
			x, z, own := 1/o.seconds[d], q[i].others[d]/o.seconds[d], q[i].own(&o, d)
			rr, rk, kk = rr+weights[i]*x*x, rk+weights[i]*x*z, kk+weights[i]*z*z
			r1, k1 = r1+weights[i]*own*x, k1+weights[i]*own*z
		}
		prior := l.deviation * l.deviation / (expected * expected)
		kk, k1 = kk+prior, k1+prior*expected
		determinant := rr*kk - rk*rk
		l.r, l.k = (kk*r1-rk*k1)/determinant, (rr*k1-rk*r1)/determinant
		if deviation := l.deviation * math.Sqrt(rr/determinant); l.k < 2*deviation {
			// Nobody takes less long for waiting: of a K that may be below 0 it is what is expected of one that is not.
			l.k = positive(l.k, deviation)
			l.r = max((r1-rk*l.k)/rr, 0)
		}
		squares := 0.0
		for i, o := range all {
			residuals[i] = q[i].own(&o, d) - (l.r+l.k*q[i].others[d])/o.seconds[d]
			squares += weights[i] * residuals[i] * residuals[i]
		}
		l.deviation = max(math.Sqrt(squares/float64(max(len(all)-1, 1))), 1e-3)
		variance := l.deviation * l.deviation / determinant
		l.varianceR, l.varianceK, l.covariance = variance*kk, variance*rr, -variance*rk
		weigh(weights, residuals)
	}
}

// positive is the mean of a normally distributed value that is known to be above 0.
func positive(mean, deviation float64) float64 {
	below := -mean / deviation
	unit := distuv.UnitNormal
	if above := unit.Survival(below); above > 1e-12 {
		return mean + deviation*unit.Prob(below)/above
	}
	return 0
}

// at is the durations at a rate. saturated is that the queue has no end there; the interval has no upper bound where that
// may be.
func (f *queues) at(rate float64, stations []station, tested *Tested) (l *Latencies, saturated bool) {
	value := waits(stations, rate, f.rare, (*station).estimate)
	if value.endless() {
		return nil, true
	}
	low, high := waits(stations, rate, f.rare, (*station).least), waits(stations, rate, f.rare, (*station).most)
	l = &Latencies{}
	for d, into := range l.each() {
		into.Value = max(f.value(d, &value), 0)
		into.Low = max(min(f.value(d, &low)-f.half(d, &low, tested), into.Value), 0)
		if !high.endless() {
			most := f.value(d, &high) + f.half(d, &high, tested)
			into.High = &most
		}
	}
	return l, false
}

// value is a duration of those that wait for so long. Who is held back by a quota is not who takes long by itself: of both,
// what is above the mean is as that of a sum of what varies independently.
func (f *queues) value(d int, w *waiting) float64 {
	of := func(d int) float64 { return f.lines[d].r + f.lines[d].k*w.others[d] }
	mean := min(of(0), of(d))
	if d == 0 {
		return mean + max(w.quota[0], w.pool[0])
	}
	return max(mean+math.Hypot(of(d)-mean, w.quota[d]), of(d)+w.pool[d])
}

// half is half of the interval of what a stretch of time has at a sum of waits: the line's and the stretches' own
// variance, and what the model was off on the past.
func (f *queues) half(d int, w *waiting, tested *Tested) float64 {
	l, waits, value := &f.lines[d], w.others[d], f.value(d, w)
	own := l.deviation * value
	off := 0.0
	if tested != nil {
		off = min(tested.Queueing, 1) * value
	}
	return f.factor * math.Sqrt(max(l.varianceR+2*waits*l.covariance+waits*waits*l.varianceK, 0)+own*own+off*off)
}

// law is the Universal Scalability Law of an entry: the mean duration is a + b (N - 1) + c N (N - 1) seconds with N
// requests in flight; the other durations are ratios to the mean.
type law struct {
	a, b, c, deviation, factor float64
	ratios                     [durations]float64
}

// fitLaw fits the law by least squares, relative to the durations; b and c are not below 0.
func fitLaw(all []entryObserved) *law {
	var best *law
	least := math.Inf(1)
	for _, columns := range [][]int{{0}, {0, 1}, {0, 2}, {0, 1, 2}} {
		x, ones := mat.NewDense(len(all), len(columns), nil), mat.NewDense(len(all), 1, nil)
		for i, o := range all {
			mean := o.seconds[0]
			n := max(o.rate*mean, 1)
			terms := [3]float64{1, n - 1, n * (n - 1)}
			for j, column := range columns {
				x.Set(i, j, terms[column]/mean)
			}
			ones.Set(i, 0, 1)
		}
		var found mat.Dense
		if err := found.Solve(x, ones); err != nil {
			continue // the terms are alike
		}
		var terms [3]float64
		for j, column := range columns {
			terms[column] = found.At(j, 0)
		}
		var off mat.Dense
		off.Mul(x, &found)
		off.Sub(&off, ones)
		squares := mat.Norm(&off, 2)
		if terms[0] > 0 && terms[1] >= 0 && terms[2] >= 0 && squares < least {
			least = squares
			best = &law{a: terms[0], b: terms[1], c: terms[2], deviation: squares / math.Sqrt(float64(len(all)-1))}
		}
	}
	best.factor = student(float64(len(all) - 1))
	for d := range best.ratios {
		ratios := make([]float64, len(all))
		for i, o := range all {
			ratios[i] = o.seconds[d] / o.seconds[0]
		}
		best.ratios[d] = medianOf(ratios)
	}
	return best
}

// at is the durations at a rate λ: N = λ R (Little's law) put into the law gives a quadratic equation of R. ok is false
// where it has no solution: so many requests cannot be served.
func (l *law) at(rate float64, tested *Tested) (*Latencies, bool) {
	mean, ok := l.mean(rate)
	if !ok {
		return nil, false
	}
	off := l.deviation * l.deviation
	if tested != nil {
		off += min(tested.Scalability, 1) * min(tested.Scalability, 1)
	}
	share := l.factor * math.Sqrt(off)
	all := &Latencies{}
	for d, into := range all.each() {
		value := mean * l.ratios[d]
		most := value * (1 + share)
		*into = Interval{value, max(value*(1-share), 0), &most}
	}
	return all, true
}

// grows is that durations grow with the requests in flight.
func (l *law) grows() bool { return l.b > 0 || l.c > 0 }

// highest is the greatest rate at all entries.
func highest(all []entryObserved) (rate float64) {
	for i := range all {
		rate = max(rate, all[i].rate)
	}
	return rate
}

func (l *law) mean(rate float64) (float64, bool) {
	if rate*l.a <= 1 {
		return l.a, true // no more than one request is in flight
	}
	// c λ² R² + (b λ - c λ - 1) R + a - b = 0
	a, b, c := l.c*rate*rate, (l.b-l.c)*rate-1, l.a-l.b
	if a == 0 {
		return -c / b, b < 0 && c > 0
	}
	root := b*b - 4*a*c
	if root < 0 {
		return 0, false
	}
	mean := (-b - math.Sqrt(root)) / (2 * a)
	return mean, mean > 0
}
