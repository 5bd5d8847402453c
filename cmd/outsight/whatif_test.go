package main

import (
	"math/rand/v2"
	"strings"
	"testing"

	"outsight/internal/graph"
	"outsight/internal/predict"
)

// TestWhatifText: resources and entries are told with their bounds, and what has no end is said.
func TestWhatifText(t *testing.T) {
	seconds := func(v float64) *graph.Seconds { s := graph.Seconds(v); return &s }
	var h predict.History
	r := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		rate := 100 + 200*r.Float64()
		slow := 1 / (1 - rate/500) * (1 + 0.01*r.NormFloat64())
		h.Add(&graph.Analysis{ArrivalRate: rate,
			Entries: []graph.Entry{{Node: "1", Name: "web", ArrivalRate: rate, Mean: seconds(0.002 * slow),
				P50: seconds(0.0014 * slow), P95: seconds(0.006 * slow), P99: seconds(0.0092 * slow)}},
			Resources: []graph.Resource{{Node: "1", Name: "web", Host: "a", CPUCores: 0.002*rate + 1e-3*r.NormFloat64(),
				Parallel: 1, ParallelBy: "threads"}, {Node: "cpus/a", Name: "CPUs of a", Host: "a", CPUCores: 0.002 * rate,
				Parallel: 4, ParallelBy: "left"}}}, map[string]float64{"a": 4}, map[string]float64{"a": 40 + 10*0.002*rate})
	}
	f := func(rate float64, want ...string) {
		t.Helper()
		p, err := h.Predict(predict.Scenario{Rate: rate})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := (&whatifAnswer{StepSeconds: 60, Prediction: *p}).write(&text); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(text.String(), w) {
				t.Errorf("no %q in\n%s", w, text.String())
			}
		}
	}
	f(400, "ENTRY", "p99", "off ", " on the past, at up to 1.", "Used up first: web", "p99 at web is longer because requests wait for CPU time of web (+")
	f(400, "POWER", "a              44.3 W   48.0 W  (48.0 W to 48.0 W)  40.0 W  10.0 W", "for a request  0.2", "0.12 J")
	f(600, "a resource is used up: the queue has no end")
}

// TestWhatifPoolText: connections that are the limit are named with their bounds, and a doubt says where that may not be so.
func TestWhatifPoolText(t *testing.T) {
	high := 220.0
	f := func(p predict.Prediction, want ...string) {
		t.Helper()
		p.Stretches, p.Rate, p.MeanRate, p.GreatestRate = 60, 100, 50, 84
		p.Limit, p.LimitedBy = &predict.Interval{Value: 210, Low: 100, High: &high}, "1>2"
		two := 2.5
		pool := predict.Pool{Client: "1", Server: "2", Name: "web to db", Open: 4, Before: predict.Interval{Value: 1},
			Busy: predict.Interval{Value: 2, Low: 1.5, High: &two}, Limit: p.Limit, Fixed: true, Waited: len(p.Doubts) == 0}
		p.Pools = []predict.Pool{pool}
		var text strings.Builder
		if err := (&whatifAnswer{StepSeconds: 60, Prediction: p}).write(&text); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(text.String(), w) {
				t.Errorf("no %q in\n%s", w, text.String())
			}
		}
	}
	const named = "Used up first: the 4 connections of web to db, at 210/s (100/s to 220/s), 2.5 times the greatest rate that there was."
	f(predict.Prediction{}, named+"\n", "connections of web to db  25 %  50 %  (38 % to 62 %)  210/s    (100/s to 220/s)  4 connections, waited for  –")
	f(predict.Prediction{AtMost: "a lock"}, named[:len(named)-1]+". That is the most: from 100/s on, a lock.")
	f(predict.Prediction{Doubts: []predict.Doubt{{Node: "1", Text: "nobody was seen to wait"}}}, named+
		"\nThe limit may be another one:\n  nobody was seen to wait", "4 connections  ")
}

// A limit that cannot be told is an upper bound, by CPU time; a thread that waits for its host says what it could do alone; what
// lets so many requests through at a time is named as that.
func TestWhatifBoundText(t *testing.T) {
	high, half, alone, per, base := 5000.0, 0.5, 833.0, 0.0002, 0.01
	f := func(change func(p *predict.Prediction), want ...string) {
		t.Helper()
		p := predict.Prediction{Stretches: 60, Rate: 100, MeanRate: 50, GreatestRate: 84, LimitedBy: "1",
			Limit: &predict.Interval{Value: 4000, Low: 84, High: &high}, Resources: []predict.Resource{{Node: "1", Name: "web", Host: "a",
				Parallel: 1, ParallelBy: "threads", Base: &base, PerRequest: &per, Utilisation: &predict.Interval{Value: 0.1, High: &half}}}}
		change(&p)
		var text strings.Builder
		if err := (&whatifAnswer{StepSeconds: 60, Prediction: p}).write(&text); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(text.String(), w) {
				t.Errorf("no %q in\n%s", w, text.String())
			}
		}
	}
	doubts := []predict.Doubt{{Node: "1", Text: "web answers in 20 ms"}}
	f(func(p *predict.Prediction) { p.UpperBound, p.Doubts = true, doubts },
		"The limit cannot be told. It is at most about 4.00k/s, by the CPU time of web.\nThis may be used up before:\n  web answers in 20 ms\n")
	f(func(p *predict.Prediction) {
		p.UpperBound, p.Doubts, p.LimitedBy = true, doubts, "cpus/a"
		p.Resources[0].Node, p.Resources[0].Name = "cpus/a", "CPUs of a"
	}, "It is at most about 4.00k/s, by the CPUs of a.\n")
	f(func(p *predict.Prediction) { p.Resources[0].Alone = &alone },
		"web would be full at 833/s if its threads never waited for the CPUs of a, where others run by then.\n")
	f(func(p *predict.Prediction) {
		p.LimitedBy = "1>2"
		p.Pools = []predict.Pool{{Client: "1", Server: "2", Name: "web to db", Open: 4.02, Busy: predict.Interval{Value: 2, High: &half},
			Limit: p.Limit, Fixed: true, Waited: true, Ceiling: true}}
	}, "Used up first: the 4 requests at a time of web to db, at 4.00k/s", ", since no more were seen under way although there were others.",
		"requests at a time of web to db", "4 at a time")
}
