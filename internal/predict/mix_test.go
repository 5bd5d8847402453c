package predict

import (
	"math"
	"math/rand/v2"
	"testing"

	"outsight/internal/graph"
)

// mixed is a history of a shop that takes 0.05 cores, 1 ms for a request of a page and 10 ms for an order, of which there
// are between none and a half of all requests, at rates from 50 to 100/s.
func mixed(r *rand.Rand, dear float64) *History {
	var h History
	for range 40 {
		rate := 50 + 50*r.Float64()
		orders := rate * 0.5 * r.Float64()
		h.Add(&graph.Analysis{ArrivalRate: rate,
			Entries: []graph.Entry{{Node: "1", ArrivalRate: rate, Asked: map[string]float64{"GET /page": rate - orders, "POST /order": orders}}},
			Resources: []graph.Resource{{Node: "1", Name: "shop", Host: "a", Parallel: 1, ParallelBy: "quota",
				CPUCores: 0.05 + 0.001*(rate-orders) + dear*orders + 0.005*r.NormFloat64()}}}, map[string]float64{"a": 4}, nil)
	}
	return &h
}

// ofLine is the limit of a resource as its line has it, which does not bend.
func ofLine(r *Resource) Interval {
	high := *r.Limit.High * (1 - bend)
	return Interval{r.Limit.Value, r.Limit.Low, &high}
}

// A mix of cheap and dear requests that changes: what each takes is found, and the limit of the usual mix is known as
// well as if the mix had not changed.
func TestMix(t *testing.T) {
	const runs = 300
	within := 0
	for run := range uint64(runs) {
		h := mixed(rand.New(rand.NewPCG(run, 7)), 0.010)
		p, err := h.Predict(Scenario{Times: 1})
		if err != nil {
			t.Fatal(err)
		}
		r := &p.Resources[0]
		if len(r.PerEndpoint) != 2 || p.Limit == nil || p.Limit.High == nil {
			t.Fatalf("%+v, limit %+v", r, p.Limit)
		}
		orders := 0.0
		for _, d := range r.PerEndpoint {
			want := 0.001
			if d.Endpoint == "POST /order" {
				orders = d.Share
			}
			if d.Endpoint == "POST /order" || d.Endpoint == OtherEndpoints && r.PerEndpoint[0].Endpoint == "GET /page" {
				want, orders = 0.010, d.Share
			}
			if math.Abs(d.PerRequest-want) > 0.0006 {
				t.Errorf("run %d: %s takes %v, want %v", run, d.Endpoint, d.PerRequest, want)
			}
		}
		limit := 0.95 / (0.001 + 0.009*orders)
		line := ofLine(r)
		if line.Low <= limit && limit <= *line.High {
			within++
		}
		if off := math.Abs(p.Limit.Value/limit - 1); off > 0.1 {
			t.Errorf("run %d: the limit is told to be %v, want %v", run, p.Limit.Value, limit)
		}
		if width := (*line.High - line.Low) / limit; width > 0.2 {
			t.Errorf("run %d: the interval is %.2f of the limit", run, width)
		}
	}
	if share := float64(within) / runs; share < 0.84 || share > 0.97 {
		t.Errorf("the truth is in the interval in %.3f of all runs", share)
	}
}

// Where all requests take the same, or all are of one endpoint, nothing is told of endpoints.
func TestMixThatDoesNotMatter(t *testing.T) {
	told := 0
	for run := range uint64(100) {
		p, err := mixed(rand.New(rand.NewPCG(run, 8)), 0.001).Predict(Scenario{Times: 1})
		if err != nil {
			t.Fatal(err)
		}
		told += len(p.Resources[0].PerEndpoint) / 2
	}
	if told > 15 { // the criterion takes chance for an effect in a few of a hundred cases
		t.Errorf("in %d of 100 runs endpoints are told that take the same", told)
	}
	all := make([]observed, 30)
	for i := range all {
		rate := 50 + float64(i)
		all[i] = observed{Observation: Observation{rate, 0.001 * rate}, asked: map[string]float64{"GET /": rate}}
	}
	if same, demands := byEndpoint(all); demands != nil || same[7] != all[7].Observation {
		t.Errorf("of one endpoint: %v, %+v", demands, same[7])
	}
}
