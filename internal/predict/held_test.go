package predict

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"outsight/internal/graph"
)

// quotaQueue is a simulated thread with a quota of 20 ms of CPU time in 100 ms, which takes 2 ms for each request. The
// network takes another 1 ms.
func quotaQueue(r *rand.Rand, rate float64, requests int) graph.Entry {
	comes, taken := make([]float64, requests), make([]float64, requests)
	now, sum := 0.0, 0.0
	for i := range comes {
		now += r.ExpFloat64() / rate
		comes[i] = now / quotaPeriod
	}
	b := bandwidth{cores: 0.2, cpus: make([]bandwidthCPU, 1)}
	for i, end := range b.ends(comes, 0.002/quotaPeriod, 1) {
		taken[i] = (end-comes[i])*quotaPeriod + 0.001
		sum += taken[i]
	}
	return entryOf(taken, sum, rate)
}

func entryOf(taken []float64, sum, rate float64) graph.Entry {
	slices.Sort(taken)
	at := func(q float64) *graph.Seconds {
		s := graph.Seconds(taken[int(q*float64(len(taken)-1))])
		return &s
	}
	mean := graph.Seconds(sum / float64(len(taken)))
	return graph.Entry{Node: "1", Name: "web", ArrivalRate: rate, Mean: &mean, P50: at(0.5), P95: at(0.95), P99: at(0.99)}
}

// quotaPast is a history of it at 15 to 45 % of its limit of 100/s.
func quotaPast(r *rand.Rand) *History {
	var h History
	for range 30 {
		rate := 15 + 30*r.Float64()
		h.Add(&graph.Analysis{ArrivalRate: rate, Entries: []graph.Entry{quotaQueue(r, rate, int(60*rate))},
			Resources: []graph.Resource{{Node: "1", Name: "web", Host: "a", CPUCores: 0.002*rate + 2e-3*r.NormFloat64(),
				Parallel: 0.2, ParallelBy: "quota"}}}, map[string]float64{"a": 8}, nil)
	}
	return &h
}

// TestPredictionEnds: nothing is simulated for one that nobody waits for, and it is no prediction.
func TestPredictionEnds(t *testing.T) {
	h := quotaPast(rand.New(rand.NewPCG(1, 32)))
	scenario := Scenario{Rate: 70, Quota: map[string]float64{"web": 0.537}} // no other test has it
	cases := func() int {
		heldCases.mu.Lock()
		defer heldCases.mu.Unlock()
		return len(heldCases.all)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	before := cases()
	if p, err := h.PredictWithin(ended, scenario); p != nil || !errors.Is(err, context.Canceled) || cases() != before {
		t.Errorf("%v, %v, %d cases were simulated", p, err, cases()-before)
	}
	if p, err := h.PredictWithin(t.Context(), scenario); err != nil || p.Entries[0].Then == nil || cases() == before {
		t.Errorf("%+v, %v, %d cases were simulated", p, err, cases()-before)
	}
}

// TestLatencyWithQuota: from a history at 15 to 45 % of a quota's limit of 100/s, where requests are hardly ever held
// back, the 99th percentile at up to 80 % of it, ten times as long, is within 20 % in the median, and within its interval
// in nine runs of ten.
func TestLatencyWithQuota(t *testing.T) {
	if bounded := wantForeseen(t, 9, []float64{70, 80}, quotaPast, quotaQueue); bounded < 90 {
		t.Errorf("p99 has an upper bound in %d of 100: nothing gives a doubt", bounded)
	}
}
