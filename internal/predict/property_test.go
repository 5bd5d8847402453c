package predict

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// pasts are histories of simulated applications that have different limits, by what they are of.
func pasts(r *rand.Rand) map[string]*History {
	all := map[string]*History{"a tandem": watched(r, 75, 200), "a shop": shop(), "two hosts": twoHosts(),
		"a pool":   (&pooled{connections: 4, hold: 0.02, takes: exponential}).past(r),
		"permits":  (&pooled{connections: 4, hold: 0.02, takes: exponential}).unseen(r),
		"replicas": (&replicated{2, r.IntN(2) == 0}).past(r)}
	for _, hidden := range []string{"", "pool", "workers", "lock", "disk"} {
		all["of "+hidden] = randomly(r, hidden, 0.5+r.Float64()).past(r)
	}
	return all
}

// What is told of the mean load as it is, is what there was: the same utilisations, and durations within their intervals.
func TestTodayIsToday(t *testing.T) {
	for seed := range uint64(10) {
		for name, h := range pasts(rand.New(rand.NewPCG(seed, 41))) {
			p, err := h.Predict(Scenario{Times: 1})
			if err != nil {
				t.Fatal(err)
			}
			for i := range p.Resources {
				r := &p.Resources[i]
				if r.Before == nil || r.Utilisation == nil {
					continue
				}
				if r.Utilisation.Value != r.Before.Value || r.Utilisation.Low > r.Before.Value || *r.Utilisation.High < r.Before.Value {
					t.Errorf("%s: %s is utilised by %+v, then by %+v", name, r.Name, r.Before, r.Utilisation)
				}
			}
			for _, e := range p.Entries {
				if e.Before == nil || e.Then == nil {
					t.Fatalf("%s: %+v", name, e)
				}
				seen := h.entries[e.Node].median()
				for d, then := range e.Then.each() {
					if then.Value != e.Before.each()[d].Value {
						t.Errorf("%s: duration %d is %v, then %v", name, d, e.Before.each()[d].Value, then.Value)
					}
					if then.Low > seen[d] || then.High != nil && *then.High < seen[d] {
						t.Errorf("%s: duration %d is told as %+v, and was %v", name, d, then, seen[d])
					}
				}
			}
		}
	}
}

// median is that of each of the durations in the stretches.
func (p *entryPast) median() (of [durations]float64) {
	for d := range of {
		all := make([]float64, len(p.all))
		for i := range p.all {
			all[i] = p.all[i].seconds[d]
		}
		of[d] = medianOf(all)
	}
	return of
}

// More of anything never lowers the limit, and more load never lowers what is used.
func TestMoreIsNeverLess(t *testing.T) {
	for seed := range uint64(10) {
		for name, h := range pasts(rand.New(rand.NewPCG(seed, 42))) {
			f := func(s Scenario) (limit float64, p *Prediction) {
				t.Helper()
				p, err := h.Predict(s)
				if err != nil || p.Limit == nil {
					t.Fatalf("%s: %+v: %+v, %v", name, s, p, err)
				}
				if p.Limit.Low > p.Limit.Value || p.Limit.High != nil && *p.Limit.High < p.Limit.Value {
					t.Errorf("%s: %+v: the limit is %+v to %v", name, s, p.Limit, *p.Limit.High)
				}
				return p.Limit.Value, p
			}
			as, now := f(Scenario{Times: 1})
			names := map[string]int{}
			for i := range now.Resources {
				if r := &now.Resources[i]; !r.isHost() {
					names[r.Name]++
				}
			}
			for container := range maps.Keys(names) {
				last := as
				for _, quota := range []float64{2, 4, 8} {
					limit, _ := f(Scenario{Times: 1, Quota: map[string]float64{container: quota}})
					if limit < last*(1-1e-9) && quota > 2 {
						t.Errorf("%s: with a quota of %v cores %s lowers the limit from %v to %v", name, quota, container, last, limit)
					}
					last = limit
				}
			}
			var last *Prediction
			for times := 0.5; times < 3; times += 0.25 {
				_, p := f(Scenario{Times: times})
				if last != nil {
					wantMore(t, fmt.Sprintf("%s at %v times the load", name, times), last, p)
				}
				last = p
			}
		}
	}
}

// wantMore holds that each resource is used more, and that requests take longer.
func wantMore(t *testing.T, name string, less, more *Prediction) {
	t.Helper()
	used := map[string]float64{}
	for i := range less.Resources {
		if r := &less.Resources[i]; r.Utilisation != nil {
			used[r.Node] = r.Utilisation.Value
		}
	}
	for i := range more.Resources {
		if r := &more.Resources[i]; r.Utilisation != nil && *r.PerRequest > 0 && r.Utilisation.Value < used[r.Node] {
			t.Errorf("%s: %s is used by %v, with less load by %v", name, r.Name, r.Utilisation.Value, used[r.Node])
		}
	}
	for i := range more.Entries {
		before, then := less.Entries[i].Then, more.Entries[i].Then
		if then != nil && (before == nil || more.Entries[i].Model == less.Entries[i].Model && then.P99.Value < before.P99.Value*(1-1e-9)) {
			t.Errorf("%s: p99 is %+v, with less load %+v", name, then, before)
		}
	}
}
