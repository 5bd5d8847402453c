package predict

import (
	"math"
	"math/rand/v2"
	"testing"

	"outsight/internal/graph"
)

// paying is a history of an application like the demo shop on two CPUs, of which others take 0.15: a payment whose one thread
// takes 3 ms for 0.4 of the requests, beside which others of its wake up less and less often, and a front of small threads. What
// they take to look for something now and then falls exponentially with the rate.
func paying(r *rand.Rand, least, most float64) *History {
	var h History
	for range 28 {
		rate := least + (most-least)*r.Float64()
		noise := func() float64 { return 1 + 0.02*r.NormFloat64() }
		thread, polls := 0.0012*rate*noise(), rate*math.Exp(-0.0022*rate)*noise()
		own := 0.4 * rate
		payment, front := thread+0.00035*polls, 0.06+0.0008*rate*noise()+0.00055*polls
		h.Add(&graph.Analysis{ArrivalRate: rate, Resources: []graph.Resource{
			{Node: "1", Name: "payment", Host: "a", CPUCores: payment, Parallel: payment / thread, ParallelBy: "threads",
				PollingCores: 0.00035 * polls, ArrivalRate: &own},
			{Node: "2", Name: "front", Host: "a", CPUCores: front, Parallel: 2, ParallelBy: "cores", PollingCores: 0.00055 * polls},
			{Node: "cpus/a", Name: "CPUs of a", Host: "a", CPUCores: payment + front, Parallel: 1.85, ParallelBy: "left",
				PollingCores: 0.0009 * polls},
		}}, map[string]float64{"a": 2}, nil)
	}
	return &h
}

// A thread that nearly is used up is slowed down by what else runs on its host: that is its limit, below that of its own CPU
// time and that of the host.
func TestThreadsWaitForTheirHost(t *testing.T) {
	// Where 0.0012 λ / (1 - ρ²) is 1, and ρ is half of what others and the front take by then.
	polls := func(rate float64) float64 { return rate * math.Exp(-0.0022*rate) }
	truth := 100.0
	for rest := 0.0; 0.0012*truth/(1-rest*rest) < 1; truth++ {
		rest = (0.15 + 0.06 + 0.0008*truth + 0.0009*polls(truth)) / 2
	}
	for seed := range uint64(20) {
		for _, most := range []float64{0.33, 0.5, 0.8} {
			p, err := paying(rand.New(rand.NewPCG(seed, 61)), 0.15*truth, most*truth).Predict(Scenario{Times: 1})
			if err != nil || p.Limit == nil || p.LimitName() != "payment" || math.Abs(p.Limit.Value/truth-1) > 0.1 || p.Limit.Low > truth ||
				p.Limit.High != nil && *p.Limit.High < truth {
				t.Errorf("from up to %v of the limit of %v: %+v by %s, %v", most, truth, p.Limit, p.LimitName(), err)
			}
			for i := range p.Resources {
				if r := &p.Resources[i]; (r.Alone != nil) != (r.Name == "payment") || r.Alone != nil && math.Abs(*r.Alone*0.0012-1) > 0.05 {
					t.Errorf("%s alone: %v", r.Name, r.Alone)
				}
			}
		}
	}
}

// On one CPU that is shared a thread takes 1 / (1 - ρ) times as long, on two 1 / (1 - ρ²): exact for processor sharing.
func TestSlowdown(t *testing.T) {
	for _, used := range []float64{0, 0.3, 0.6, 0.9} {
		for cores, want := range map[float64]float64{1: 1 / (1 - used), 2: 1 / (1 - used*used)} {
			h := hostCPUs{line: &Demand{Base: used * cores, Greatest: 100}, left: cores, cores: cores}
			if got := h.slowdown(50); math.Abs(got/want-1) > 1e-9 {
				t.Errorf("%v of %v cores used: %v times as long, want %v", used, cores, got, want)
			}
		}
	}
	if h := (&hostCPUs{line: &Demand{Base: 1}, left: 1, cores: 1}); !math.IsInf(h.slowdown(1), 1) {
		t.Errorf("a host that is used up lets a thread run in %v times", h.slowdown(1))
	}
	var unknown *hostCPUs
	if unknown.slowdown(1) != 1 {
		t.Error("what is not known slows down")
	}
}

// Of the CPUs of a host polling goes on at the limit. How much of it is told by how it falls; where that is not seen, half.
func TestPollingGoesOnAtAHost(t *testing.T) {
	const base, per, look = 0.1, 0.0022, 0.001
	for _, decay := range []float64{0, 0.001, 0.002, 0.004} {
		used := func(rate float64) float64 { return base + per*rate + look*rate*math.Exp(-decay*rate) }
		truth := 100.0
		for used(truth) < 1.8 {
			truth++
		}
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 62))
			for _, most := range []float64{0.33, 0.6} {
				var all []Observation
				var polling []float64
				for range 28 {
					rate := truth * (0.15 + (most-0.15)*r.Float64())
					part := look * rate * math.Exp(-decay*rate) * (1 + 0.03*r.NormFloat64())
					all = append(all, Observation{rate, (base + per*rate + part) * (1 + 0.01*r.NormFloat64())})
					polling = append(polling, part)
				}
				d, err := FitDemand(all)
				if err != nil {
					t.Fatal(err)
				}
				d.findBusy(all, polling)
				d.findDecay(all, polling, 1.8)
				if rate, ok := d.full(1.8); !ok || math.Abs(rate/truth-1) > 0.12 {
					t.Errorf("decay %v, up to %v: the limit is told to be %v, want %v", decay, most, rate, truth)
				}
				if at, line := d.Utilisation(d.Greatest, 1.8), d.Cores(d.Greatest); math.Abs(at.Value-line.Value/1.8) > 1e-9 {
					t.Errorf("decay %v: at the greatest rate it is %v, not %v", decay, at.Value, line.Value/1.8)
				}
			}
		}
	}
}
