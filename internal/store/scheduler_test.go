package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"outsight/internal/quota"
)

// half and full are shares of every tenant.
func half(string) float64 { return 0.5 }
func full(string) float64 { return 1 }

// enter asks for a place and tells when it has one; leave gives it back.
func enter(ctx context.Context, t *Scheduler, tenant string, begun chan<- string) (leave func()) {
	end, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		leave, err := t.Enter(ctx, tenant)
		if err != nil {
			begun <- tenant + ": " + err.Error()
			return
		}
		begun <- tenant
		<-end
		leave()
	}()
	return func() { close(end); <-over }
}

// A tenant that asks for much must not keep another from its turn.
func TestTurnsOfTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewScheduler(SchedulerOptions{Slots: 4, SpareSlots: 4, Waiting: 64, Share: half})
		begun := make(chan string, 200)
		took := func() (all string) {
			synctest.Wait()
			for len(begun) > 0 {
				all += <-begun
			}
			return all
		}
		var loud []func()
		for range 40 {
			loud = append(loud, enter(t.Context(), turns, "a", begun))
			synctest.Wait()
		}
		if got := took(); got != "aaaa" {
			t.Fatalf("alone it runs %q, want all four places", got)
		}
		// The first of another runs at once, and those after it have their share as places become free.
		var quiet []func()
		for range 3 {
			quiet = append(quiet, enter(t.Context(), turns, "b", begun))
			synctest.Wait()
		}
		if got := took(); got != "b" {
			t.Fatalf("%q began, want one of b beside the four of a", got)
		}
		// Five run: as one ends none begins, then b has its share, and then a has no more than its own.
		for _, want := range []string{"", "b", "a", "a"} {
			loud[0]()
			loud = loud[1:]
			if got := took(); got != want {
				t.Errorf("%q began as one of a ended, want %q", got, want)
			}
		}
		for len(loud)+len(quiet) > 0 {
			for _, list := range []*[]func(){&loud, &quiet} {
				if len(*list) > 0 {
					(*list)[0]()
					*list = (*list)[1:]
				}
			}
			synctest.Wait()
			for len(begun) > 0 {
				<-begun
			}
		}
		if turns.Running() != 0 || turns.waiting != 0 || len(turns.active) != 0 {
			t.Errorf("%d run, %d wait, %d tenants are active", turns.running, turns.waiting, len(turns.active))
		}
	})
}

// Where too many wait, those go whose tenant has the most.
func TestTurnsAreDisplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewScheduler(SchedulerOptions{Slots: 1, Waiting: 4, Share: half})
		begun := make(chan string, 20)
		ctx, cancel := context.WithCancel(t.Context())
		first := enter(ctx, turns, "a", begun)
		synctest.Wait()
		for range 4 {
			enter(ctx, turns, "a", begun)
			synctest.Wait()
		}
		<-begun
		if _, err := turns.Enter(ctx, "a"); !errors.Is(err, ErrBusy) {
			t.Errorf("one too many of a: %v", err)
		}
		for range 3 {
			enter(ctx, turns, "b", begun)
			synctest.Wait()
		}
		var away int
		for len(begun) > 0 {
			if got := <-begun; got[0] == 'a' {
				away++
			}
		}
		if away != 2 || len(turns.tenants["a"].queue) != 2 || len(turns.tenants["b"].queue) != 2 {
			t.Errorf("%d of a were turned away for b, %d and %d wait: want two each", away,
				len(turns.tenants["a"].queue), len(turns.tenants["b"].queue))
		}
		use := turns.use()
		if len(use) != 2 || use[0].Tenant != "a" || use[0].TurnedAway != 3 || use[1].TurnedAway != 1 ||
			use[0].Waiting != 2 || use[0].Running != 1 {
			t.Errorf("got %+v", use)
		}
		cancel()
		synctest.Wait()
		first()
		if turns.waiting != 0 || turns.Running() != 0 {
			t.Errorf("%d wait, whose context is over", turns.waiting)
		}
	})
}

// A tenant with a share of its own has so much of the places, the time and the memory.
func TestTenantsOwnQueryShare(t *testing.T) {
	g := newGate(8, time.Minute, QueryBounds{Memory: 1000, TenantShare: 0.5}, quota.Table{"small": {QueryShare: 0.25}})
	for _, tenant := range []string{"small", "other"} {
		_, _, done, err := g.enter(t.Context(), tenant, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
	}
	for i, want := range []TenantQueries{
		{Tenant: "other", Running: 1, MaxRunning: 4, Queries: 1, Quota: 4 * time.Minute, MaxBytes: 500},
		{Tenant: "small", Running: 1, MaxRunning: 2, Queries: 1, Quota: 2 * time.Minute, MaxBytes: 250},
	} {
		got := g.tenantQueries()[i]
		if got.Seconds, got.Used = 0, 0; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if _, err := g.budget.Hold("small", 251); !errors.Is(err, ErrBusy) {
		t.Errorf("more than its share of memory: %v", err)
	}
}

// Past its quota of time a tenant has one place while others want some, and gets more again as time goes on.
func TestQueriesHaveAQuotaOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewScheduler(SchedulerOptions{Slots: 4, SpareSlots: 0, Waiting: 64, Share: half, Time: 2 * time.Minute})
		begun := make(chan string, 20)
		b := enter(t.Context(), turns, "b", begun)
		synctest.Wait()
		a := []func(){enter(t.Context(), turns, "a", begun), enter(t.Context(), turns, "a", begun)}
		time.Sleep(45 * time.Second) // in the test's own time: twice 45 s
		synctest.Wait()
		if use := turns.use(); use[0].Used < time.Minute/2 || use[0].Used > 90*time.Second || use[0].Quota != time.Minute {
			t.Errorf("got %+v", use[0])
		}
		for range 2 {
			a = append(a, enter(t.Context(), turns, "a", begun))
			synctest.Wait()
		}
		time.Sleep(20 * time.Second)
		a[0]()
		a[1]()
		synctest.Wait()
		if use := turns.use(); use[0].Running != 1 || use[0].Waiting != 1 || use[0].Used < time.Minute {
			t.Errorf("past its quota: %+v", use[0])
		}
		a[2]()
		a[3]()
		time.Sleep(3 * time.Minute)
		if use := turns.use(); use[0].Used != 0 {
			t.Errorf("after three minutes: %+v", use[0])
		}
		b()
	})
}
