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
