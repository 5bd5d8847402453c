package predict

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// EndpointDemand is the CPU time of a resource for one request of an endpoint of an entry.
type EndpointDemand struct {
	// Endpoint is what is asked for; OtherEndpoints stands for all that are not told by themselves.
	Endpoint   string  `json:"endpoint"`
	PerRequest float64 `json:"per_request"` // seconds
	// Share of the requests at the entries.
	Share float64 `json:"share"`
}

// OtherEndpoints is the name of all endpoints that are not told by themselves.
const OtherEndpoints = "others"

const (
	// maxMix bounds the endpoints that are told by themselves, and mixStretches is how many stretches each of them needs.
	maxMix, mixStretches = 4, 6
)

// byEndpoint parts what a resource took by what was asked for, where the mix of requests changed: its CPU time is a line
// over the rate of each endpoint (a regression on several rates). It answers what would have been taken if the mix had
// been that of all stretches together, of which a line over the rate of all requests is true again. Where the Bayesian
// information criterion says that the endpoints are not worth their terms, it answers what was, and no demands.
func byEndpoint(all []observed) ([]Observation, []EndpointDemand) {
	plain := make([]Observation, len(all))
	total, sums := 0.0, map[string]float64{}
	for i, o := range all {
		plain[i] = o.Observation
		total += o.Rate
		for name, rate := range o.asked {
			sums[name] += rate
		}
	}
	names := make([]string, 0, len(sums))
	for name := range sums {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b)) })
	// The others are what is left: with one endpoint alone there are none.
	most := min(len(names), maxMix, len(all)/mixStretches-1)
	if most == len(names) && most > 0 && sums[names[most-1]] > 0 && asksAll(sums, total) {
		most--
	}
	if most < 1 {
		return plain, nil
	}
	names = names[:most]
	before, ok := fitMix(all, nil)
	after, too := fitMix(all, names)
	n := float64(len(all))
	if !ok || !too || before.squares <= 0 ||
		n*math.Log(after.squares/before.squares)+float64(most)*math.Log(n) >= 0 {
		return plain, nil
	}
	demands := make([]EndpointDemand, 0, most+1)
	rest := after.terms[1]
	left := 1.0
	for k, name := range names {
		share := sums[name] / total
		left -= share
		demands = append(demands, EndpointDemand{name, rest + after.terms[2+k], share})
		for i, o := range all {
			plain[i].Cores -= after.terms[2+k] * (o.asked[name] - share*o.Rate)
		}
	}
	return plain, append(demands, EndpointDemand{OtherEndpoints, rest, max(left, 0)})
}

// asksAll is that what was asked for by name is all that was.
func asksAll(sums map[string]float64, total float64) bool {
	named := 0.0
	for _, sum := range sums {
		named += sum
	}
	return named > 0.99*total
}

// mixFit is a line over the rate of all requests and those of endpoints: its terms are what is taken without requests,
// for one of the others, and how much more than that one of each endpoint takes. squares is the sum of the squares of
// what is left.
type mixFit struct {
	terms   []float64
	squares float64
}

func fitMix(all []observed, names []string) (f mixFit, ok bool) {
	x, y := mat.NewDense(len(all), 2+len(names), nil), mat.NewVecDense(len(all), nil)
	for i, o := range all {
		x.Set(i, 0, 1)
		x.Set(i, 1, o.Rate)
		for k, name := range names {
			x.Set(i, 2+k, o.asked[name])
		}
		y.SetVec(i, o.Cores)
	}
	var found mat.VecDense
	if err := found.SolveVec(x, y); err != nil {
		return f, false // the mix did not change
	}
	f.terms = found.RawVector().Data
	for i := range all {
		left := y.AtVec(i) - mat.Dot(x.RowView(i), &found)
		f.squares += left * left
	}
	return f, true
}
