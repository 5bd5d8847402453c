package predict

import (
	"math"
	"math/rand/v2"
	"testing"

	"outsight/internal/graph"
)

// replicated is a simulated front without CPU time before workers that take 2 ms of CPU time for each request and each have
// a quota of a fifth of a core: 100/s each. Requests come at random.
type replicated struct {
	workers int
	// inTurn is that the front deals requests in turn, and not at random.
	inTurn bool
}

func (s *replicated) watch(r *rand.Rand, rate float64, requests int) *graph.Analysis {
	comes, taken := make([][]float64, s.workers), make([]float64, 0, requests)
	var now, sum float64
	for i := range requests {
		now += r.ExpFloat64() / rate
		to := i % s.workers
		if !s.inTurn {
			to = r.IntN(s.workers)
		}
		comes[to] = append(comes[to], now/quotaPeriod)
	}
	for _, comes := range comes {
		b := bandwidth{cores: 0.2, cpus: make([]bandwidthCPU, 1)}
		for i, end := range b.ends(comes, 0.002/quotaPeriod, 1) {
			taken = append(taken, (end-comes[i])*quotaPeriod+0.001)
			sum += taken[len(taken)-1]
		}
	}
	a := &graph.Analysis{ArrivalRate: rate, Entries: []graph.Entry{entryOf(taken, sum, rate)}}
	for i, comes := range comes {
		served := float64(len(comes))
		own := served / now
		latency := graph.Seconds(sum / float64(requests))
		a.Resources = append(a.Resources, graph.Resource{Node: string(rune('1' + i)), Name: "worker", Host: "a", CPUCores: (0.001 + 0.002*own) *
			(1 + 0.01*r.NormFloat64()), Parallel: 0.2, ParallelBy: "quota", ArrivalRate: &own, Latency: &latency, Requests: served})
	}
	return a
}

func (s *replicated) past(r *rand.Rand) *History {
	var all []*graph.Analysis
	for range 30 {
		rate := float64(s.workers) * (20 + 40*r.Float64())
		all = append(all, s.watch(r, rate, int(30*rate)))
	}
	return historyOf(all)
}

// What a second replica does to durations depends on how requests are dealt. From a history of one it is not known, and the
// interval holds both; from one of two it is.
func TestDealingToReplicas(t *testing.T) {
	f := func(of, then replicated, near bool) {
		t.Helper()
		const runs = 30
		within := 0
		var errs []float64
		for seed := range uint64(runs) {
			r := rand.New(rand.NewPCG(seed, 31))
			rate := 65 * float64(then.workers)
			p, err := of.past(r).Predict(Scenario{Rate: rate, Replicas: map[string]int{"worker": then.workers}})
			if err != nil || p.Entries[0].Then == nil {
				t.Fatal(p, err)
			}
			told, truth := p.Entries[0].Then.P99, float64(*then.watch(r, rate, 200_000).Entries[0].P99)
			if told.Low <= truth && (told.High == nil || truth <= *told.High) {
				within++
			}
			errs = append(errs, math.Abs(told.Value/truth-1))
		}
		t.Logf("of %+v, then %+v: p99 off by %.0f %% in the median, within in %d of %d", of, then, 100*medianOf(errs), within, runs)
		if within < runs*9/10 || near && medianOf(errs) > 0.25 {
			t.Errorf("of %+v, then %+v: p99 off by %v in the median, within in %d of %d", of, then, medianOf(errs), within, runs)
		}
	}
	f(replicated{1, true}, replicated{2, true}, true)
	f(replicated{1, true}, replicated{2, false}, false)
	f(replicated{2, true}, replicated{4, true}, true)
	f(replicated{2, false}, replicated{4, false}, true)
}

// How requests were dealt is known from how many each replica got.
func TestChanceOfDealing(t *testing.T) {
	f := func(s replicated, low, high float64) {
		t.Helper()
		chance := s.past(rand.New(rand.NewPCG(1, 32))).deals["worker"].chance()
		if chance.Value < low || chance.Value > high || chance.Low > chance.Value || *chance.High < chance.Value {
			t.Errorf("%+v: the share of chance is %+v to %v, want %v to %v", s, chance, *chance.High, low, high)
		}
	}
	f(replicated{2, true}, 0, 0.05)
	f(replicated{5, true}, 0, 0.05)
	f(replicated{2, false}, 0.6, 1)
	f(replicated{5, false}, 0.8, 1)
	var none *dealt
	if chance := none.chance(); chance.Low != 0 || *chance.High != 1 {
		t.Errorf("of what had no replicas it is %+v", chance)
	}
	if at := none.arrivalsAt(4); at.Value != 0.25 || at.Low != 0.25 || *at.High != 1 {
		t.Errorf("at one of four: %+v", at)
	}
}

// Requests that come more evenly wait less: half as long where they come one after the other and take exponentially long
// (a D/M/1 queue, whose exact mean wait is known), and as long where they come at random.
func TestEvenArrivalsWaitLess(t *testing.T) {
	for _, u := range []float64{0.5, 0.7, 0.9} {
		// D/M/1: the wait is σ/(1-σ) services, where σ = exp(-(1-σ)/ρ). M/M/1: ρ/(1-ρ).
		sigma := u
		for range 200 {
			sigma = math.Exp(-(1 - sigma) / u)
		}
		want := sigma / (1 - sigma) / (u / (1 - u))
		if got := evenly(u, 0, 1); math.Abs(got/want-1) > 0.1 {
			t.Errorf("at %v: %v of the wait, exactly %v", u, got, want)
		}
		if evenly(u, 1, 1) != 1 {
			t.Errorf("at %v: random arrivals are not as they are", u)
		}
	}
}
