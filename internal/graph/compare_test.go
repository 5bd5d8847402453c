package graph

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// observed is a graph of one edge with n transactions of random durations around mean.
func observed(random *rand.Rand, n int, mean time.Duration) *Graph {
	h := &model.Histogram{}
	for range n {
		h.Merge(latency(1, time.Duration(float64(mean)*random.ExpFloat64())))
	}
	s := &Side{values: of(Transactions, float64(n)), latency: *floats(h)}
	return &Graph{CoveredSeconds: 10, Nodes: []*Node{using("a", 0.1, 1, nil), using("b", 0.2, 1, nil)},
		Edges: []*Edge{{ID: "a>b", Client: "a", Server: "b", ClientSide: s.finish(10, &sideTimes{})}}}
}

// poisson is a number of events whose mean is large.
func poisson(random *rand.Rand, mean float64) int {
	return int(math.Round(mean + math.Sqrt(mean)*random.NormFloat64()))
}

// Chance alone is seldom called sure: windows of the same rate and the same distribution are compared.
func TestChanceIsNoChange(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	const tries = 400
	sure := map[string]int{}
	for range tries {
		d := Compare(observed(random, poisson(random, 2000), 3*time.Millisecond),
			observed(random, poisson(random, 2000), 3*time.Millisecond), 100)
		for _, c := range d.Changes {
			if c.Sure {
				sure[c.What]++
			}
		}
	}
	// 3 of 1000 for a normal distribution; a p99 has a heavier tail.
	for what, n := range sure {
		if share := float64(n) / tries; share > 0.02 {
			t.Errorf("%s: %.1f %% of chance is called sure", what, 100*share)
		}
	}
}

func TestCompare(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	before, after := observed(random, 1000, 3*time.Millisecond), observed(random, 2000, 9*time.Millisecond)
	after.Nodes[0].Usage.CPUCores = ptr(0.5)
	after.Nodes = append(after.Nodes, using("c", 0, 1, nil))
	after.Edges[0].ClientSide.set(failures[0], 1)
	d := Compare(before, after, 100)
	got := map[string]Change{}
	for _, c := range d.Changes {
		got[c.Node+c.Edge+" "+c.What] = c
	}
	f := func(what string, before, after, tolerance float64, sure bool) {
		t.Helper()
		c, ok := got[what]
		if !ok || math.Abs(*c.Before/before-1) > tolerance || math.Abs(*c.After/after-1) > tolerance || c.Sure != sure {
			t.Errorf("%s: %+v, want %v to %v", what, c, before, after)
		}
		delete(got, what)
	}
	f("a>b rate", 100, 200, 0, true)
	f("a>b mean", 0.003, 0.009, 0.1, true)
	f("a>b p99", 0.0138, 0.0414, 0.2, true)
	f("a cpu", 0.1, 0.5, 0, true)
	if c := got["a>b failures"]; c.Sure || *c.After != 0.1 || c.Deviations != 1 {
		t.Errorf("one failure is chance: %+v", c)
	}
	if c := got["c presence"]; c.Before != nil || c.After == nil || d.Changes[0] != c && d.Changes[0].What != "presence" {
		t.Errorf("what came: %+v, the first is %+v", c, d.Changes[0])
	}
	if len(got) != 2 {
		t.Errorf("besides: %+v", got)
	}
	if d := Compare(before, after, 2); len(d.Changes) != 2 || d.Omitted != 4 {
		t.Errorf("%d changes, %d omitted", len(d.Changes), d.Omitted)
	}
	once := observed(random, 4, time.Millisecond)
	once.Edges[0].ID = "other"
	for _, c := range Compare(before, once, 100).Changes {
		if c.Edge == "other" && (c.Sure || c.Deviations != 2) || c.Edge == "a>b" && !c.Sure {
			t.Errorf("presence: %+v", c)
		}
	}
	if d := Compare(before, before, 100); len(d.Changes) != 0 {
		t.Errorf("against itself: %+v", d.Changes)
	}
}

// floats is h as a graph has it.
func floats(h *model.Histogram) *model.FloatHistogram {
	f := framesOf(&model.Snapshot{Time: start, Containers: []model.ContainerSample{{Container: container("a", "a"),
		CPU: &model.CPUCounters{RunQueue: h}}}})
	var gained frame.Durations
	frame.Since(frame.Containers, nil, f[0]).AddHistogram(&gained, frame.Histogram(frame.Containers, "run_queue"), 0)
	all := floatDurations(&gained, nil)
	return &all
}
