package store

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// What one tenant holds leaves room for the others.
func TestBudgetOfTenants(t *testing.T) {
	b := newBudget(&QueryBounds{Memory: 100}, func(string) float64 { return 0.6 })
	f := func(tenant string, n int64, want error) func() {
		t.Helper()
		release, err := b.Hold(tenant, n)
		if !errors.Is(err, want) {
			t.Errorf("%d of %q: %v, want %v", n, tenant, err, want)
		}
		return release
	}
	f("a", 51, ErrExecution) // more than half of all
	first := f("a", 40, nil)
	f("a", 21, ErrBusy) // more than its share
	second := f("a", 20, nil)
	third := f("b", 40, nil)
	f("b", 1, ErrBusy) // all is held
	second()
	second()
	f("b", 20, nil)()
	first()
	third()
	var s Stats
	if b.addTo(&s); s.QueryMemory != 0 || s.MaxQueryMemory != 100 || s.QueriesWithoutMemory != 3 {
		t.Errorf("%d of %d bytes are held, %d were refused", s.QueryMemory, s.MaxQueryMemory, s.QueriesWithoutMemory)
	}
	if used, most, refused := b.useOf("a"); used != 0 || most != 60 || refused != 2 {
		t.Errorf("a: %d of %d bytes, %d refused", used, most, refused)
	}
}

// A allowance reserves more than it is asked for, as long as there is room, and all that there is near the end.
func TestPurse(t *testing.T) {
	const all = 4 * budgetGrain
	b := newBudget(&QueryBounds{Memory: all}, full)
	a := b.open("a", nil)
	p := allowance{account: a}
	for n := range all / 2 {
		if err := p.reserve(1); err != nil {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
	if err := p.reserve(1); !errors.Is(err, ErrExecution) {
		t.Errorf("past half of all: %v", err)
	}
	a.close()
	if used, _, _ := b.useOf("a"); used != 0 {
		t.Errorf("%d bytes are held", used)
	}
}

// Where the process has more memory than it may, the query that holds most ends, and with the cause.
func TestLargestQueryIsStopped(t *testing.T) {
	s := open(t, t.TempDir(), Options{QueryBounds: QueryBounds{ProcessMemory: 1}}) // it has more
	large, largeAccount, largeDone, err := s.gate.enter(t.Context(), "a", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer largeDone()
	small, smallAccount, smallDone, err := s.gate.enter(t.Context(), "b", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer smallDone()
	for account, n := range map[*account]int64{largeAccount: 2 << 20, smallAccount: 1 << 20} {
		if _, err := account.reserve(n, 0); err != nil && !errors.Is(context.Cause(large), ErrExecution) {
			t.Fatal(err)
		}
	}
	<-large.Done()
	<-small.Done() // after it, since there is still too much
	if err := s.gate.sort(large, large.Err()); !errors.Is(err, ErrExecution) ||
		!strings.Contains(err.Error(), "no memory left") {
		t.Errorf("got %v", err)
	}
	if stopped := s.Stats().QueriesStopped; stopped != 2 {
		t.Errorf("%d were ended, want 2", stopped)
	}
}

// Of several queries the one that holds most is ended first.
func TestStopLargest(t *testing.T) {
	b := newBudget(&QueryBounds{Memory: 100}, full)
	var ended []string
	for name, n := range map[string]int64{"small": 10, "large": 30, "middle": 20} {
		a := b.open("", func(error) { ended = append(ended, name) })
		a.checks = watchAge
		if _, err := a.reserve(n, 0); err != nil {
			t.Fatal(err)
		}
	}
	b.open("", func(error) { t.Error("a query that has just begun was ended") })
	if _, err := b.Hold("", 40); err != nil { // an answer cannot be ended
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.stopLargest() {
	}
	if got := strings.Join(ended, " "); got != "large middle small" {
		t.Errorf("ended: %s", got)
	}
}
