package predict

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestLoads: of a front with a fixed pool of four connections, whose load grows, the requests at the entries have the pool's limit,
// the connections under way have their number, and both are told to run out at the same time. Where the limit is only an upper
// bound, no requests are told.
func TestLoads(t *testing.T) {
	p := &pooled{connections: 4, hold: 0.02, takes: func(*rand.Rand) float64 { return 1 }}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const stretches, first, most = 30, 0.2, 0.6
	found := map[BoundedKind]Bounded{}
	var l Loads
	r := rand.New(rand.NewPCG(1, 27))
	for i := range stretches {
		rate := p.limit() * (first + (most-first)*float64(i+1)/stretches)
		l.Add(begin.Add(time.Duration(i+1)*time.Hour), p.watch(r, rate, int(120*rate)), map[string]float64{"a": 8})
	}
	l.Each(t.Context(), func(b Bounded, all []Used) {
		if len(all) != stretches || all[0].At != begin.Add(time.Hour) {
			t.Errorf("%s: %d stretches, the first ends at %v", b.Kind, len(all), all[0].At)
		}
		b.Fit(all, 2*stretches*time.Hour)
		found[b.Kind] = b
	})
	for kind, want := range map[BoundedKind]Bounded{Requests: {Name: "requests", By: "the 4 connections of web to db, or sooner", Capacity: p.limit(),
		Used: most * p.limit()}, Connections: {Node: "1", Name: "web to db", Host: "a", Capacity: 4, Used: most * 4}} {
		b := found[kind]
		near := func(got, want float64) bool { return math.Abs(got/want-1) < 0.1 }
		if b.Name != want.Name || b.By != want.By || b.Host != want.Host || b.Node != want.Node || !near(b.Capacity, want.Capacity) || !near(b.Used, want.Used) {
			t.Errorf("%s: %+v, want %+v", kind, b, want)
		}
		end := begin.Add(time.Duration(stretches * (1 - first) / (most - first) * float64(time.Hour)))
		if b.RunsOut == nil || b.RunsOut.At == nil || b.RunsOut.At.Sub(end).Abs() > 6*time.Hour {
			t.Errorf("%s runs out %+v, want about %v", kind, b.RunsOut, end)
		}
	}
	var few Loads
	for i := range stretches {
		rate := p.limit() * (0.02 + 0.02*float64(i)/stretches)
		few.Add(begin.Add(time.Duration(i+1)*time.Hour), p.watch(r, rate, int(60*rate)), map[string]float64{"a": 8})
	}
	few.Each(t.Context(), func(b Bounded, _ []Used) { t.Errorf("at a low load: %+v", b) })
}

// TestLoadsOfPoolsThatComeAndGo: of a pool there is what it used while it was there, and nothing once it is gone.
func TestLoadsOfPoolsThatComeAndGo(t *testing.T) {
	p := &pooled{connections: 4, hold: 0.02, takes: func(*rand.Rand) float64 { return 1 }}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := func(name string, there func(stretch int) bool, want int) {
		t.Helper()
		r := rand.New(rand.NewPCG(1, 28))
		var l Loads
		for i := range 40 {
			rate := p.limit() * (0.4 + 0.2*r.Float64())
			a := p.watch(r, rate, int(60*rate))
			if !there(i) {
				a.Connections = nil
			}
			l.Add(begin.Add(time.Duration(i)*time.Hour), a, map[string]float64{"a": 8})
		}
		got := 0
		l.Each(t.Context(), func(b Bounded, all []Used) {
			if b.Kind == Connections {
				got = len(all)
			}
		})
		if got != want {
			t.Errorf("%s: the connections of %d stretches, want %d", name, got, want)
		}
	}
	f("it came", func(i int) bool { return i >= 25 }, 15)
	f("it went", func(i int) bool { return i < 25 }, 0)
}
