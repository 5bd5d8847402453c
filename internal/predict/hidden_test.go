package predict

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"outsight/internal/graph"
)

// simulated is an application of a front that has some CPU time, and something else of which there is only so much.
type simulated struct {
	// cpu is the seconds of CPU time for a request, parallel how many cores the front can use.
	cpu, parallel float64
	by            string
	// hidden is what else there is: a pool of connections to a database, workers that stay with a request as long as it
	// is there, a lock or a disk. Each request has one of slots for hold seconds.
	hidden string
	slots  int
	hold   float64
	// even is that requests come one after the other in the same time, not at random.
	even bool
}

// limit is the rate that it can serve.
func (s *simulated) limit() float64 {
	cpu := s.parallel / s.cpu
	if s.hidden == "" {
		return cpu
	}
	return min(cpu, float64(s.slots)/s.hold)
}

// randomly makes an application of which the hidden limit is so many times that of CPU time.
func randomly(r *rand.Rand, hidden string, times float64) *simulated {
	s := &simulated{cpu: 0.001 * math.Pow(8, r.Float64()), hidden: hidden, slots: 1, even: r.IntN(3) == 0}
	switch r.IntN(3) {
	case 0:
		s.parallel, s.by = 0.2+0.6*r.Float64(), "quota"
	case 1:
		s.parallel, s.by = 1, "threads"
	case 2:
		s.parallel, s.by = 2, "cores"
	}
	if hidden == "pool" || hidden == "workers" {
		s.slots = 1 + r.IntN(8)
	}
	s.hold = float64(s.slots) / (times * s.parallel / s.cpu)
	return s
}

// servers is a queue: when each of some servers is free.
type servers []float64

// first is which of them is free first.
func (s servers) first() int { return slices.Index(s, slices.Min(s)) }

// serve answers when something that comes at a time is done.
func (s servers) serve(at, takes float64) (end float64) {
	first := s.first()
	s[first] = max(at, s[first]) + takes
	return s[first]
}

// quota is what the kernel lets run: so much of each tenth of a second, at full speed.
type quota struct {
	cores, period, left float64
}

// run answers when some work that begins at a time is done.
func (q *quota) run(at, work float64) (end float64) {
	const period = 0.1
	for {
		if n := math.Floor(at/period + 1e-9); n > q.period {
			q.period, q.left = n, q.cores*period
		}
		if q.left >= work {
			q.left -= work
			return at + work
		}
		work -= q.left
		q.left = 0
		at = (q.period + 1) * period
	}
}

// watch simulates a stretch of time at a rate.
func (s *simulated) watch(r *rand.Rand, rate, seconds float64) *graph.Analysis {
	cores := make(servers, int(math.Ceil(s.parallel)))
	slots := make(servers, max(s.slots, 1))
	held := quota{cores: s.parallel, period: -1}
	const others = 0.0003 // the network, and what is called that is no limit
	var latency, queued, called, at float64
	n := 0
	for ; at < seconds; n++ {
		gap := 1 / rate
		if !s.even {
			gap *= r.ExpFloat64()
		}
		at += gap
		work := s.cpu * (0.5 + r.Float64())
		hold := s.hold * (0.5 + r.Float64())
		begun, worker := at, 0
		if s.hidden == "workers" {
			worker = slots.first()
			begun = max(at, slots[worker])
		}
		core := cores.first()
		running := max(begun, cores[core])
		end := running + work
		if s.by == "quota" {
			end = held.run(running, work)
		}
		cores[core] = end
		queued += end - begun - work
		switch s.hidden {
		case "pool":
			called += hold
			end = slots.serve(end, hold)
		case "lock", "disk":
			end = slots.serve(end, hold)
		case "workers":
			// What remains of the hold is a call.
			called += max(hold-work, 0)
			end += max(hold-work, 0)
			slots[worker] = end
		}
		latency += end - at + others
		called += others
	}
	served := float64(n) / at
	mean := graph.Seconds(latency / float64(n))
	used := (0.01 + s.cpu*served) * (1 + 0.01*r.NormFloat64())
	waits := max(mean-graph.Seconds((used+(queued+called)/at)/served), 0)
	a := &graph.Analysis{ArrivalRate: served, Resources: []graph.Resource{{Node: "1", Name: "front", Host: "a", CPUCores: used,
		Parallel: s.parallel, ParallelBy: s.by, ArrivalRate: &served, Latency: &mean, Waits: &waits,
		Queued: queued / at}}}
	if s.hidden == "pool" {
		busy := graph.Seconds(s.hold)
		a.Resources = append(a.Resources, graph.Resource{Node: "2", Name: "db", Host: "a", CPUCores: 0.02 * s.hold * served,
			Parallel: 4, ParallelBy: "cores", ArrivalRate: &served, Latency: &busy, Waits: &busy})
		a.Connections = []graph.Connections{{Client: "1", Server: "2", Name: "front to db", Requests: float64(n),
			Busy: s.hold * served, Open: float64(s.slots), Rate: served, Spread: 1 / math.Sqrt(12)}}
	}
	return a
}

// past is what was seen of it at 15 to 33 % of its limit.
func (s *simulated) past(r *rand.Rand) *History {
	var h History
	for range 24 {
		h.Add(s.watch(r, s.limit()*(0.15+0.18*r.Float64()), 30), map[string]float64{"a": 4}, nil)
	}
	return &h
}

// From loads at 15 to 33 % of the limit, the truth is within what is told in nine of ten cases, whatever the limit is; a
// limit that is CPU time is told within 10 %; and one that is not is never told with a narrow interval elsewhere.
func TestLimitsThatAreNotSeen(t *testing.T) {
	const runs = 200
	f := func(hidden string, times float64) {
		t.Helper()
		var within, near, narrow, wrong, signs, quotas, pools int
		r := rand.New(rand.NewPCG(11, uint64(100*times)))
		for range runs {
			s := randomly(r, hidden, times)
			p, err := s.past(r).Predict(Scenario{Times: 1})
			if err != nil || p.Limit == nil {
				t.Fatalf("%+v: %+v, %v", s, p, err)
			}
			truth := s.limit()
			inside := p.Limit.Low <= truth && (p.Limit.High == nil || truth <= *p.Limit.High)
			isNarrow := p.AtMost == "" && len(p.Doubts) == 0 && p.LimitingPool() == nil
			for what, holds := range map[*int]bool{&within: inside, &near: math.Abs(p.Limit.Value/truth-1) <= 0.1,
				&narrow: isNarrow, &wrong: isNarrow && !inside, &signs: len(p.Doubts) > 0, &quotas: s.by == "quota",
				&pools: p.LimitingPool() != nil} {
				if holds {
					*what++
				}
			}
		}
		t.Logf("%q at %v times CPU time: of %d runs the truth is within in %d, told within 10 %% in %d, without a doubt in %d, of "+
			"which wrong %d; signs in %d; limited by a quota of CPU time in %d; told as a pool in %d", hidden, times, runs, within, near,
			narrow, wrong, signs, quotas, pools)
		if pools > 0 && (hidden != "pool" || times > 1) {
			t.Errorf("%q at %v times CPU time: a pool is told as the limit in %d", hidden, times, pools)
		}
		if within < runs*9/10 {
			t.Errorf("%q at %v times CPU time: within in %d of %d", hidden, times, within, runs)
		}
		if times < 1 && narrow > 0 {
			t.Errorf("%q at %v times CPU time: told without a doubt in %d of %d", hidden, times, narrow, runs)
		}
		if hidden == "" && narrow < quotas*9/10 {
			t.Errorf("CPU time alone is told without a doubt in %d runs, of %d with a quota", narrow, quotas)
		}
		if times >= 1 && near < runs*9/10 {
			t.Errorf("%q at %v times CPU time: told within 10 %% in %d of %d", hidden, times, near, runs)
		}
	}
	for _, hidden := range []string{"pool", "workers", "lock", "disk"} {
		for _, times := range []float64{0.2, 0.5, 0.8, 1.5, 4} {
			f(hidden, times)
		}
	}
	f("", 1)
}

// A container that can use a core at most, and in which a request is next to none but CPU time, has no other limit: it is
// told with a narrow interval. One that waits where nothing can be used up gives no doubt.
func TestNothingElseCanBeTheLimit(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 13))
	for range 100 {
		s := &simulated{cpu: 0.004, parallel: 0.2, by: "quota", hidden: []string{"", "lock"}[r.IntN(2)], slots: 1, hold: 0.006}
		p, err := s.past(r).Predict(Scenario{Times: 1})
		if err != nil || p.Limit == nil || p.AtMost != "" || len(p.Doubts) > 0 || p.Limit.Low < 45 || p.Limit.Low > 50 {
			t.Fatalf("%+v: limit %+v, at most because %q, doubts %+v, %v", s, p.Limit, p.AtMost, p.Doubts, err)
		}
		if p, err = s.past(r).Predict(Scenario{Times: 1, Quota: map[string]float64{"front": 2}}); err != nil || p.AtMost == "" ||
			p.Limit.Low > 1/0.004 {
			t.Fatalf("%+v with a larger quota: limit %+v, %v", s, p.Limit, err)
		}
	}
}

// The lower bound of the limit is the greatest rate that there was, or that up to which requests can be one at a time in
// each of the containers; where it is not known how long they take, the former.
func TestBoundByWhatIsKnown(t *testing.T) {
	f := func(name string, s Scenario, want float64, change func(a *graph.Analysis)) {
		t.Helper()
		p, err := calling(50, func(_ int, a *graph.Analysis) { change(a) }).Predict(s)
		if err != nil || p.Limit == nil || p.AtMost == "" {
			t.Fatalf("%s: %+v, %v", name, p, err)
		}
		if want == 0 {
			want = p.GreatestRate
		}
		if math.Abs(p.Limit.Low/want-1) > 0.01 {
			t.Errorf("%s: limit %+v, the lower bound should be %v (%s)", name, p.Limit, want, p.AtMost)
		}
	}
	latency := func(seconds float64) func(a *graph.Analysis) {
		return func(a *graph.Analysis) {
			for i := range a.Resources {
				s := graph.Seconds(seconds)
				a.Resources[i].Latency = &s
			}
		}
	}
	as := Scenario{Times: 1}
	f("5 ms", as, 200, latency(0.005))
	f("50 ms", as, 0, latency(0.05))
	f("half of the requests", Scenario{Times: 1, Replicas: map[string]int{"web": 2}}, 400, latency(0.005))
	f("not known", as, 0, func(a *graph.Analysis) { a.Resources[0].Latency = nil })
	f("another one that is slower", as, 100, func(a *graph.Analysis) {
		latency(0.005)(a)
		r, twice, s := a.Resources[0], 2*a.ArrivalRate, graph.Seconds(0.005)
		r.Node, r.Name, r.ArrivalRate, r.Latency, r.CPUCores = "2", "cart", &twice, &s, 1e-5*a.ArrivalRate
		a.Resources = slices.Concat(a.Resources, []graph.Resource{r})
	})
	f("another one of which it is not known", as, 0, func(a *graph.Analysis) {
		latency(0.005)(a)
		r := a.Resources[0]
		r.Node, r.Name, r.Latency, r.CPUCores = "2", "cart", nil, 1e-5*a.ArrivalRate
		a.Resources = slices.Concat(a.Resources, []graph.Resource{r})
	})
}

// Where the limit by CPU time is far above all rates that there were, and most of a request is something else, it is the most
// that the limit can be, however short that is: a disk may be fast because little is asked of it. The same is where requests
// cannot all be one at a time up to there, although the line is not sure of its lower bound.
func TestFarAboveWhatWas(t *testing.T) {
	// f is of replicas of a front that have a quota of so many cores together and take so much CPU time for a request, which takes
	// as long, behind an nginx where there are several; pairs of stretches at rates of 10/s to 20/s are off by noise, one to either
	// side.
	f := func(name string, replicas int, cores, takes, latency, noise float64, want string, lowest float64) {
		t.Helper()
		var h History
		for i := range 30 {
			rate, seconds := 10+10*float64(i/2)/14, graph.Seconds(latency)
			used := 0.001 + takes*rate + noise*float64(1-2*(i%2))
			a := &graph.Analysis{ArrivalRate: rate}
			part := rate / float64(replicas)
			for n := range replicas {
				a.Resources = append(a.Resources, graph.Resource{Node: fmt.Sprint(n), Name: "front", Host: "a", ArrivalRate: &part,
					CPUCores: used / float64(replicas), Parallel: cores / float64(replicas), ParallelBy: "quota", Latency: &seconds})
			}
			if whole := seconds + 0.0001; replicas > 1 {
				a.Resources = append(a.Resources, graph.Resource{Node: "nginx", Name: "nginx", Host: "a", CPUCores: 1e-5 * rate,
					Parallel: 4, ParallelBy: "cores", ArrivalRate: &rate, Latency: &whole})
			}
			h.Add(a, map[string]float64{"a": 4}, nil)
		}
		p, err := h.Predict(Scenario{Times: 1})
		if err != nil || p.Limit == nil || math.Abs(p.Limit.Value/((cores-0.001)/takes)-1) > 1e-6 {
			t.Fatalf("%s: %+v, %v", name, p, err)
		}
		if !strings.Contains(p.AtMost, want) || (p.AtMost == "") != (want == "") {
			t.Errorf("%s: at most because %q, want %q", name, p.AtMost, want)
		}
		if p.Limit.Low > p.Limit.Value || lowest > 0 && math.Abs(p.Limit.Low/lowest-1) > 0.01 {
			t.Errorf("%s: the limit is %+v, its lower bound should be %v", name, p.Limit, lowest)
		}
	}
	f("most is a disk", 1, 0.4, 0.0002, 0.00045, 1e-6, "of the 0.45 ms that a request takes in front, 0.2 ms are CPU time (front), and", 20)
	f("most is CPU time", 1, 0.5, 0.0009, 0.001, 1e-6, "", 0.499/0.0009)
	f("most is CPU time of one of two", 2, 0.5, 0.0009, 0.001, 1e-6, "", 0.499/0.0009)
	f("most is a disk, not far off", 1, 0.01, 0.0002, 0.00045, 1e-6, "", 0.009/0.0002)
	f("the line is not sure, not far off", 1, 1, 0.008, 0.012, 0.06, "", 0)
	f("the line is not sure", 1, 1, 0.0008, 0.0012, 0.006, "a request takes 1.2 ms in front, so that several have to be there", 0)
}
