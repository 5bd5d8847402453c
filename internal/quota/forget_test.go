package quota

import (
	"fmt"
	"testing"
	"time"
)

// Whatever order thousands of tenants that share one part give back in, nothing of them stays.
func TestOthersAreForgotten(t *testing.T) {
	s := NewShares(1<<20, Tenants{Open: true}, nil)
	for i := range 3 * maxTenants {
		s.Add(fmt.Sprint("t", i), 10)
	}
	for i := range 3 * maxTenants { // first those with a part of their own
		s.Add(fmt.Sprint("t", i), 1)
		s.Add(fmt.Sprint("t", i), -10)
		s.Add(fmt.Sprint("t", i), -1)
	}
	if s.Used() != 0 || len(s.used) != 0 {
		t.Errorf("%d are used by %d tenants: %+v", s.Used(), len(s.used), s.Usages())
	}
}

// Tenants that were refused something and went are bounded, and forgotten after a while.
func TestRefusalsAreForgotten(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	s := NewShares(0, Tenants{Open: true}, nil)
	s.now = func() time.Time { return now }
	for i := range 3 * maxTenants {
		if s.Take(fmt.Sprint("t", i), 1) {
			t.Fatal("there is room for nobody")
		}
	}
	if n := len(s.Usages()); n != maxTenants+1 {
		t.Errorf("%d tenants are known, want %d and the others", n, maxTenants)
	}
	for range idleSweeps + 1 {
		now = now.Add(sweepInterval)
		s.Refuse("t7", 1)
	}
	if all := s.Usages(); len(all) != 1 || all[0].Refused != idleSweeps+2 {
		t.Errorf("got %d, such as %+v", len(all), all[0])
	}
}

// Rates of tenants that send nothing any more are forgotten, also those of the tenants that share one.
func TestRatesAreForgotten(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	r := NewRates(func() time.Time { return now }, func(string) int64 { return 10 })
	for i := range 3 * maxTenants {
		r.Charge(fmt.Sprint("t", i), 10)
	}
	if n := len(r.All()); n != maxTenants+1 {
		t.Errorf("%d tenants are known, want %d and the others", n, maxTenants)
	}
	for range idleSweeps + 1 {
		now = now.Add(sweepInterval)
		r.Charge("t7", 1)
	}
	r.Charge("new", 1)
	if all := r.All(); len(all) != 2 || all["t7"].Taken != 10+idleSweeps+1 || all["new"].Taken != 1 {
		t.Errorf("got %d: %+v %+v", len(all), all["t7"], all["new"])
	}
}

// What was charged for a batch that was refused is given back.
func TestRateIsGivenBack(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	r := NewRates(func() time.Time { return now }, func(string) int64 { return 10 })
	for range 3 {
		r.Charge("a", 200)
		r.Refund("a", 200)
	}
	if wait := r.Wait("a"); wait != 0 {
		t.Errorf("has to wait for %v", wait)
	}
	if got := r.All()["a"]; got.Taken != 0 || got.Recent != 0 {
		t.Errorf("got %+v", got)
	}
}
