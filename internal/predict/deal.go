package predict

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"outsight/internal/graph"
)

// dealt is how unevenly replicas got requests in the past: what a balancer that deals them in turn does leaves no chance to
// it, one that chooses at random, or by a hash, all that there is.
type dealt struct {
	// uneven is the sum of (Nᵢ - N/n)² / (N/n) over the replicas of all stretches, each of which has Nᵢ of N requests;
	// freedom is how great that is on average if each request goes to one of the n at random: n - 1 for each stretch.
	uneven, freedom float64
}

// addDeals adds what containers of the same name got of the requests in a stretch.
func (h *History) addDeals(a *graph.Analysis) {
	byName := map[string][]float64{}
	for i := range a.Resources {
		if r := &a.Resources[i]; r.Requests > 0 {
			byName[r.Name] = append(byName[r.Name], r.Requests)
		}
	}
	for name, got := range byName {
		if len(got) < 2 {
			continue
		}
		if h.deals == nil {
			h.deals = map[string]*dealt{}
		}
		d := h.deals[name]
		if d == nil {
			d = &dealt{}
			h.deals[name] = d
		}
		mean := 0.0
		for _, n := range got {
			mean += n / float64(len(got))
		}
		for _, n := range got {
			d.uneven += (n - mean) * (n - mean) / mean
		}
		d.freedom += float64(len(got) - 1)
	}
}

// chance is which share of a random choice there is in who gets a request: 0 is in turn, 1 at random, and more is that
// replicas do not get the same. Where there were no replicas it may be either; most balancers deal in turn.
func (d *dealt) chance() Interval {
	high := 1.0
	if d == nil || d.freedom == 0 {
		return Interval{0, 0, &high}
	}
	// The sum is as of a χ² distribution, which is scaled. Where it may be a random choice, it is taken for one.
	scale := func(q float64) float64 { return d.uneven / distuv.ChiSquared{K: d.freedom}.Quantile(q) }
	value := d.uneven / d.freedom
	if scale((1-chances)/2) >= 1 {
		value = 1
	}
	high = min(scale((1-chances)/2), 1)
	return Interval{value, min(scale((1+chances)/2), 1), &high}
}

// arrivalsAt is the squared variation of the times between requests at each of so many replicas, if those to all of them
// come at random. One that gets each n-th has gaps of n: gamma distributed, with 1/n.
func (d *dealt) arrivalsAt(replicas float64) Interval {
	if replicas <= 1 {
		return atRandom()
	}
	of := func(chance float64) float64 { return 1/replicas + chance*(1-1/replicas) }
	chance := d.chance()
	high := of(*chance.High)
	return Interval{of(chance.Value), of(chance.Low), &high}
}

// atRandom is the squared variation of the times between requests that come at random: 1.
func atRandom() Interval {
	one := 1.0
	return Interval{1, 1, &one}
}

// evenly is by how much the mean wait for a server that is utilised so is less than that of requests that come at random,
// where the squared variations of the times between them and of how long they take are these: Allen and Cunneen's
// approximation of G/G/m, with the correction of Krämer and Langenbach-Belz for requests that come more evenly.
func evenly(utilisation, arrivals, service float64) float64 {
	if arrivals >= 1 {
		return 1
	}
	if utilisation <= 0 {
		return 0
	}
	correction := math.Exp(-2 * (1 - utilisation) / (3 * utilisation) * (1 - arrivals) * (1 - arrivals) / (arrivals + service))
	return (arrivals + service) / (1 + service) * correction
}

// dealAnew deals the requests among the containers of a scenario.
func (h *History) dealAnew(p *Prediction, s *Scenario) {
	if !s.hasOthers() {
		return
	}
	replicas := map[string]float64{}
	for i := range p.Resources {
		if r := &p.Resources[i]; !r.isHost() {
			replicas[r.Name]++
		}
	}
	for name, n := range s.Replicas {
		replicas[name] = float64(n)
	}
	for i := range p.Resources {
		r := &p.Resources[i]
		r.arrivals = h.deals[r.Name].arrivalsAt(replicas[r.Name])
	}
}
