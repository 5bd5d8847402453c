package predict

import (
	"math"
	"math/rand/v2"
	"testing"

	"outsight/internal/graph"
)

// unseen is what is seen if each request to the server is over a connection of its own, so that no number of them is that of
// permits.
func (p *pooled) unseen(r *rand.Rand) *History {
	all := p.watched(r, 30, 60, 0.15, 0.45)
	for _, a := range all {
		a.Connections[0].Open = float64(r.IntN(p.connections + 1))
	}
	return historyOf(all)
}

// uncounted is unseen where nobody knows how many requests were in flight at a time.
func (p *pooled) uncounted(r *rand.Rand) *History {
	h := p.unseen(r)
	for _, c := range h.connections {
		for i := range c.all {
			c.all[i].Sent, c.all[i].Received = graph.InFlightRequests{}, graph.InFlightRequests{}
		}
	}
	return h
}

// TestLatencyWithPermits: of a client that lets no more than four requests through at a time, which nothing tells but that it waits,
// the 99th percentile at 80 % of what it can serve is within 20 % in the median, and within its interval in nine of ten,
// from a history at 15 to 45 %.
func TestLatencyWithPermits(t *testing.T) {
	same := func(*rand.Rand) float64 { return 1 }
	for _, p := range []*pooled{{connections: 4, hold: 0.02, takes: same}, {connections: 4, hold: 0.02, takes: exponential}} {
		wantForeseen(t, 23, []float64{0.8 * p.limit()}, p.uncounted, p.entry)
		wantForeseen(t, 23, []float64{0.8 * p.limit()}, p.unseen, p.entry)
	}
}

// TestNoPermitsShow: of a client that lets all through, or to which requests come evenly, it is not known that there are any.
func TestNoPermitsShow(t *testing.T) {
	f := func(name string, p *pooled) {
		t.Helper()
		shown, limits := 0, 0
		for seed := range uint64(50) {
			h := p.unseen(rand.New(rand.NewPCG(seed, 24)))
			for _, h := range []*History{h, p.uncounted(rand.New(rand.NewPCG(seed, 24)))} {
				for _, s := range h.permitStations(nil) {
					if s.pool.fixed == 1 {
						shown++
					}
				}
			}
			for _, c := range h.connections {
				if c.permitPool(1, 1) != nil {
					limits++
				}
			}
		}
		if shown > 4 || limits > 0 {
			t.Errorf("%s: permits are known in %d of 50 histories, looked at twice, and named as a limit in %d", name, shown, limits)
		}
	}
	same := func(*rand.Rand) float64 { return 1 }
	f("as many as are needed", &pooled{connections: 4, hold: 0.02, takes: exponential, more: true})
	f("as many as are needed, and work after that", &pooled{connections: 4, hold: 0.02, takes: same, more: true, own: 0.03})
	f("evenly", &pooled{connections: 4, hold: 0.02, takes: same, even: true})
	f("evenly, and work after that", &pooled{connections: 4, hold: 0.02, takes: same, even: true, own: 0.1})
	f("each caller waits", &pooled{connections: 4, hold: 0.02, takes: same, more: true, callers: 5})
	f("each caller waits, and work after that", &pooled{connections: 4, hold: 0.02, takes: same, more: true, callers: 5, own: 0.03})
}

// TestPermitsByNumber: that a client lets no more than four requests through at a time is known from loads at which hardly any has to
// wait, by that there were never five. From 15 to 25 % of what it can serve, the limit is told within 10 % and within its bounds, and
// the 99th percentile at 40 % within 20 %.
func TestPermitsByNumber(t *testing.T) {
	const runs = 50
	for _, takes := range []func(*rand.Rand) float64{func(*rand.Rand) float64 { return 1 }, exponential} {
		p := &pooled{connections: 4, hold: 0.02, takes: takes}
		near, foreseen := 0, 0
		for seed := range uint64(runs) {
			r := rand.New(rand.NewPCG(seed, 26))
			all := p.watched(r, 20, 20, 0.15, 0.25)
			for _, a := range all {
				a.Connections[0].Open = 20 + float64(r.IntN(3))
			}
			told, err := historyOf(all).Predict(Scenario{Rate: 0.4 * p.limit()})
			if err != nil {
				t.Fatal(err)
			}
			pool := told.LimitingPool()
			if pool != nil && pool.Open == 4 && math.Abs(told.Limit.Value/p.limit()-1) <= 0.1 && told.Limit.Low <= p.limit() &&
				(told.Limit.High == nil || p.limit() <= *told.Limit.High) {
				near++
			}
			seen := float64(*p.entry(r, 0.4*p.limit(), 20_000).P99)
			if then := told.Entries[0].Then; then != nil && math.Abs(then.P99.Value/seen-1) <= 0.2 {
				foreseen++
			}
		}
		if near < runs*9/10 || foreseen < runs*9/10 {
			t.Errorf("of %d histories the limit is told in %d, and p99 in %d", runs, near, foreseen)
		}
	}
}

// TestLessThanNoWaitIsNoPermits: where the client answers sooner than those whom it calls, what grows are no waits for permits.
func TestLessThanNoWaitIsNoPermits(t *testing.T) {
	p := &pooled{connections: 4, hold: 0.02, takes: exponential}
	shown := func(change func(client *graph.Resource)) (of50 int) {
		for seed := range uint64(50) {
			all := p.watched(rand.New(rand.NewPCG(seed, 25)), 30, 60, 0.15, 0.45)
			for _, a := range all {
				c := &a.Connections[0]
				c.Open, c.Sent, c.Received = c.Busy, graph.InFlightRequests{}, graph.InFlightRequests{}
				for i := range a.Resources {
					if r := &a.Resources[i]; r.Node == a.Connections[0].Client {
						change(r)
					}
				}
			}
			of50 += len(historyOf(all).permitStations(nil))
		}
		return of50
	}
	if n := shown(func(*graph.Resource) {}); n < 40 {
		t.Errorf("permits show in %d of 50 histories", n)
	}
	sooner := func(r *graph.Resource) { *r.Latency -= 0.003 }
	if n := shown(sooner); n > 0 {
		t.Errorf("permits show in %d of 50 histories in which the client answers sooner than the server", n)
	}
}

// What a request waits for M/M/c, as a multiple of its time over c: of one server ρ / (1 - ρ) of two 2 ρ² / (1 - ρ²).
func TestErlangWait(t *testing.T) {
	f := func(servers int, utilised, want float64) {
		t.Helper()
		if got := erlangWait(servers, utilised); got < want*(1-1e-9) || got > want*(1+1e-9) {
			t.Errorf("%d servers used by %v: %v, want %v", servers, utilised, got, want)
		}
	}
	f(1, 0.5, 1)
	f(1, 0.9, 9)
	f(2, 0.5, 2*0.25/0.75)
	f(2, 0.8, 2*0.64/0.36)
}
