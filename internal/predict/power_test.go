package predict

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"outsight/internal/graph"
)

// powered is a history of two hosts of 4 cores: a takes 40 W and 10 W for each used core, which requests use 5 ms of, b
// takes 60 W and 20 W, and 2 ms. Host c is idle and has no meter where without is set.
func powered(without bool) *History {
	r := rand.New(rand.NewPCG(3, 4))
	var h History
	for range 40 {
		rate := 50 + 200*r.Float64()
		noise := func() float64 { return 1e-3 * r.NormFloat64() }
		web, db := 0.1+0.005*rate+noise(), 0.002*rate+noise()
		cores := map[string]float64{"a": 4, "b": 4}
		if without {
			cores["c"] = 4
		}
		h.Add(&graph.Analysis{ArrivalRate: rate, Resources: []graph.Resource{
			{Node: "1", Name: "web", Host: "a", CPUCores: web, Parallel: 4, ParallelBy: "cores"},
			{Node: "2", Name: "db", Host: "b", CPUCores: db, Parallel: 4, ParallelBy: "cores"},
			{Node: "cpus/a", Name: "CPUs of a", Host: "a", CPUCores: web, Parallel: 4, ParallelBy: "left"},
			{Node: "cpus/b", Name: "CPUs of b", Host: "b", CPUCores: db, Parallel: 4, ParallelBy: "left"},
		}}, cores, map[string]float64{"a": 40 + 10*web + 0.05*r.NormFloat64(), "b": 60 + 20*db + 0.05*r.NormFloat64()})
	}
	return &h
}

// TestPower: power follows load, moves and hosts that are down, and the truth is within the bounds.
func TestPower(t *testing.T) {
	h := powered(false)
	mean := 0.0
	for _, rate := range h.rates {
		mean += rate / float64(len(h.rates))
	}
	a, b := func(cores float64) float64 { return 40 + 10*cores }, func(cores float64) float64 { return 60 + 20*cores }
	for _, c := range []struct {
		name        string
		scenario    Scenario
		first, then float64 // of a and b
	}{
		{"as it is", Scenario{Rate: 100}, a(0.6), b(0.2)},
		{"five times the load", Scenario{Rate: 500}, a(2.6), b(1)},
		{"more than there are cores", Scenario{Rate: 2000}, a(4), b(4)},
		{"web goes to b", Scenario{Rate: 200, Move: map[string]string{"web": "b"}}, a(0), b(1.1 + 0.4)},
		{"b is down", Scenario{Rate: 200, Down: []string{"b"}}, a(1.1 + 0.4), 0},
	} {
		p, err := h.Predict(c.scenario)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Power) != 2 || p.Watts == nil || p.JoulesPerRequest == nil {
			t.Fatalf("%s: %+v", c.name, p.Power)
		}
		for k, want := range []float64{c.first, c.then} {
			got := p.Power[k].Watts
			if math.Abs(got.Value-want) > 0.5 || got.Low > want+0.05 || *got.High < want-0.05 || *got.High-got.Low > 3 {
				t.Errorf("%s: host %s takes %v, %v to %v; want %v", c.name, p.Power[k].Host, got.Value, got.Low, *got.High, want)
			}
		}
		if before := p.BeforeWatts.Value; math.Abs(before-a(0.1+0.005*mean)-b(0.002*mean)) > 0.5 {
			t.Errorf("%s: before it was %v", c.name, before)
		}
		if j := p.JoulesPerRequest.Value; math.Abs(j-(c.first+c.then)/p.Rate) > 0.01 {
			t.Errorf("%s: %v J for a request", c.name, j)
		}
	}
}

// TestPowerIsNotKnown: where a meter is missing, or nothing can be learnt, it is said, and no sum is told.
func TestPowerIsNotKnown(t *testing.T) {
	p, err := powered(true).Predict(Scenario{Times: 2})
	if err != nil {
		t.Fatal(err)
	}
	if p.Watts != nil || p.JoulesPerRequest != nil || len(p.Power) != 3 || p.Power[0].Watts == nil ||
		!strings.Contains(p.Power[2].Unknown, "no meter") {
		t.Errorf("with a host without a meter: %+v, all %v", p.Power, p.Watts)
	}
	var steady History
	for i := range 30 {
		rate := 100 + float64(i)
		steady.Add(&graph.Analysis{ArrivalRate: rate, Resources: []graph.Resource{
			{Node: "cpus/a", Name: "CPUs of a", Host: "a", CPUCores: 1, Parallel: 4, ParallelBy: "left"},
		}}, map[string]float64{"a": 4}, map[string]float64{"a": 50})
	}
	if p, err = steady.Predict(Scenario{Times: 2}); err != nil || p.Watts != nil || !strings.Contains(p.Power[0].Unknown, "hardly changed") {
		t.Errorf("steady: %+v, %v", p.Power, err)
	}
	var other History // less where its CPUs give more: something else takes most of it
	for i := range 30 {
		used := 0.5 + 0.1*float64(i)
		other.Add(&graph.Analysis{ArrivalRate: 100 * used, Resources: []graph.Resource{
			{Node: "cpus/a", Name: "CPUs of a", Host: "a", CPUCores: used, Parallel: 4, ParallelBy: "left"},
		}}, map[string]float64{"a": 4}, map[string]float64{"a": 50 - used})
	}
	if p, err = other.Predict(Scenario{Times: 2}); err != nil || p.Watts != nil || p.Power[0].WattsPerCore != nil ||
		!strings.Contains(p.Power[0].Unknown, "something else") {
		t.Errorf("power that falls: %+v, %v", p.Power, err)
	}
}
