package predict

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// stretchesOf are stretches of time in which a resource took base + per × rate, with an error of that deviation.
func stretchesOf(r *rand.Rand, n int, least, greatest, base, per, deviation float64) (all []Observation) {
	for range n {
		rate := least + (greatest-least)*r.Float64()
		all = append(all, Observation{rate, base + per*rate + deviation*r.NormFloat64()})
	}
	return all
}

// The rate at which a resource is used up is found from loads at 15 to 33 % of it, where CPU time in proportion to the
// rate would be a fifth off.
func TestBaseIsKnownFromDemand(t *testing.T) {
	const base, per, limit = 0.1, 0.0015, 600
	r := rand.New(rand.NewPCG(1, 1))
	d, err := FitDemand(stretchesOf(r, 30, 90, 200, base, per, 0.003))
	if err != nil {
		t.Fatal(err)
	}
	rate, ok := d.Rate(1)
	if !ok || math.Abs(rate.Value/limit-1) > 0.1 || rate.Low > limit || rate.High == nil || *rate.High < limit {
		t.Errorf("the limit is told to be %+v, want %v", rate, limit)
	}
	if proportional := 200 / (base + per*200); proportional > 0.9*limit {
		t.Errorf("in proportion it would be %v: the test is too easy", proportional)
	}
}

// TestIntervals: the truth is in the interval in nine of ten cases, also where one observation in ten is far off.
func TestIntervals(t *testing.T) {
	const runs = 2000
	for _, outliers := range []bool{false, true} {
		r := rand.New(rand.NewPCG(2, 3))
		within, cores := 0, 0
		for range runs {
			all := stretchesOf(r, 30, 100, 300, 0.05, 0.002, 0.01)
			if outliers {
				for i := 0; i < len(all); i += 10 {
					all[i].Cores += 0.3 * r.NormFloat64()
				}
			}
			d, err := FitDemand(all)
			if err != nil {
				t.Fatal(err)
			}
			if rate, ok := d.Rate(1); ok && rate.Low <= 475 && (rate.High == nil || *rate.High >= 475) {
				within++
			}
			if at := d.Cores(400); at.Low <= 0.85 && *at.High >= 0.85 {
				cores++
			}
		}
		for what, n := range map[string]int{"rate": within, "cores": cores} {
			if share := float64(n) / runs; share < 0.86 || share > 0.97 {
				t.Errorf("outliers %v: the truth is in the interval of the %s in %.3f of all runs", outliers, what, share)
			}
		}
	}
}

func TestDemandIsRefused(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 5))
	if _, err := FitDemand(stretchesOf(r, minObservations-1, 1, 100, 0, 0.01, 0)); !errors.Is(err, ErrFew) {
		t.Errorf("few observations: %v", err)
	}
	if _, err := FitDemand(stretchesOf(r, 100, 100, 110, 0, 0.01, 0.01)); !errors.Is(err, ErrSteady) {
		t.Errorf("a steady rate: %v", err)
	}
}

// TestNoLimit: what does not grow with requests has no rate at which it is used up, and what may not grow has no upper
// bound of it.
func TestNoLimit(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 7))
	d, err := FitDemand(stretchesOf(r, 30, 100, 200, 0.5, -0.001, 0.001))
	if err != nil {
		t.Fatal(err)
	}
	if rate, ok := d.Rate(1); ok {
		t.Errorf("of a falling line the limit is %+v", rate)
	}
	if d, err = FitDemand(stretchesOf(r, 30, 100, 200, 0.5, 1e-5, 0.05)); err != nil {
		t.Fatal(err)
	}
	if rate, ok := d.Rate(1); ok && rate.High != nil {
		t.Errorf("of a line that is nearly level the limit is %+v, up to %v", rate, *rate.High)
	}
	if _, ok := d.Rate(0.1); ok {
		t.Error("what is taken without requests is more than there is, and a rate is told")
	}
}

// Stretches that follow each other are alike: the interval is wider than of as many that are not.
func TestAlikeStretches(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	const runs = 1000
	within := 0
	for range runs {
		all := stretchesOf(r, 60, 100, 300, 0.05, 0.002, 0)
		drift := 0.0
		for i := range all {
			drift = 0.7*drift + 0.007*r.NormFloat64()
			all[i].Cores += drift
		}
		d, err := FitDemand(all)
		if err != nil {
			t.Fatal(err)
		}
		if at := d.Cores(200); at.Low <= 0.45 && *at.High >= 0.45 {
			within++
		}
	}
	if share := float64(within) / runs; share < 0.85 {
		t.Errorf("the truth is in the interval in %.3f of all runs", share)
	}
}

// looking are stretches of a resource in which threads look for something while there is a request: each that finds none
// there begins it anew, which a share of 1 - rate / limit does.
func looking(r *rand.Rand, n int, least, greatest, base, per, look, limit float64) (all []Observation, polling []float64) {
	for range n {
		rate := least + (greatest-least)*r.Float64()
		part := look * rate * (1 - rate/limit) * (1 + 0.1*r.NormFloat64())
		all = append(all, Observation{rate, (base + per*rate + part) * (1 + 0.02*r.NormFloat64())})
		polling = append(polling, part)
	}
	return all, polling
}

// What threads take to look for something now and then ends at the limit: from loads at 15 to 33 % of it, it is told within
// 7 %, where the line is up to 15 % off. Below, the resource takes what it did.
func TestPollingEndsAtTheLimit(t *testing.T) {
	const base, per, look, quota, limit = 0.002, 0.0021, 0.0005, 0.2, (0.2 - 0.002) / 0.0021
	r := rand.New(rand.NewPCG(10, 11))
	for range 50 {
		all, polling := looking(r, 28, 0.15*limit, 0.33*limit, base, per, look, limit)
		d, err := FitDemand(all)
		if err != nil {
			t.Fatal(err)
		}
		if line, ok := d.Rate(quota); !ok || line.Value > 0.93*limit {
			t.Fatalf("the line is at %+v: the test is too easy", line)
		}
		d.findBusy(all, polling)
		resource := Resource{then: &d, Parallel: quota, share: 1}
		resource.finish(limit)
		if told := resource.Limit; math.Abs(told.Value/limit-1) > 0.07 || told.Low > limit || told.High == nil || *told.High < limit {
			t.Errorf("the limit is told to be %+v, want %v", told, limit)
		}
		if u := resource.Utilisation; math.Abs(u.Value-1) > 0.07 || u.Low > 1.05 || *u.High < 1 {
			t.Errorf("at the limit the utilisation is told to be %+v", u)
		}
		if now, line := d.Utilisation(d.Greatest, quota), d.Cores(d.Greatest); now.Value != line.Value/quota {
			t.Errorf("at the greatest rate it is %v of %v cores, not %v", now.Value, quota, line.Value)
		}
		last := 0.0
		for rate := 0.1 * limit; rate < 1.5*limit; rate += 1 {
			u := d.Utilisation(rate, quota)
			if u.Value < last || u.Low > u.Value || *u.High < u.Value {
				t.Fatalf("at a rate of %v it is %+v, after %v", rate, u, last)
			}
			last = u.Value
		}
	}
}

// What looks for something always, whether there are requests or not, takes as much at the limit; and where a container's
// part of it moves to a host, the host's line has it.
func TestPollingThatStays(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 13))
	all := stretchesOf(r, 30, 100, 200, 0.1, 0.0015, 0.001)
	polling := make([]float64, len(all))
	for i := range polling {
		polling[i] = 0.08 * (1 + 0.02*r.NormFloat64())
	}
	d, err := FitDemand(all)
	if err != nil {
		t.Fatal(err)
	}
	if d.findBusy(all, polling); d.busy != nil {
		t.Errorf("polling that does not grow with requests ends: %+v", d.busy)
	}
	other := d
	busy := Demand{Base: 0.05, PerRequest: 0.001}
	other.busy = &busy
	for name, sum := range map[string]Demand{"to": d.plus(1, 1, &other), "from": other.plus(1, 1, &d)} {
		if sum.busy == nil || math.Abs(sum.busy.Base-(d.Base+0.05)) > 1e-9 || math.Abs(sum.busy.PerRequest-(d.PerRequest+0.001)) > 1e-9 {
			t.Errorf("%s: %+v", name, sum.busy)
		}
	}
	if other.busy.Base != 0.05 {
		t.Error("the sum changed what it is of")
	}
}
