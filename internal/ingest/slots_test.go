package ingest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// Of a tenant with many requests and one with few, each has every other turn.
func TestTurnsAreFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := newSlots(1)
		if err := places.acquire(t.Context(), "many"); err != nil {
			t.Fatal(err)
		}
		var order []string
		wait := func(tenant string) {
			go func() {
				if err := places.acquire(t.Context(), tenant); err != nil {
					t.Error(err)
					return
				}
				order = append(order, tenant) // one at a time has the place
				places.release()
			}()
			synctest.Wait()
		}
		for range 4 {
			wait("many")
		}
		wait("few")
		wait("few")
		places.release()
		synctest.Wait()
		if want := []string{"many", "few", "many", "few", "many", "many"}; !slices.Equal(order, want) {
			t.Errorf("got %v, want %v", order, want)
		}
		if places.free != 1 || len(places.waiting) != 0 || len(places.order) != 0 {
			t.Errorf("got %+v", places)
		}
	})
}

// Who has waited too long, or has gone, leaves nothing behind.
func TestTurnsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := newSlots(1)
		if err := places.acquire(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		gone, leave := context.WithCancel(t.Context())
		results := make(chan error, 3)
		go func() { results <- places.acquire(gone, "a") }()
		go func() { results <- places.acquire(t.Context(), "b") }()
		synctest.Wait()
		leave()
		for range 2 { // the second after its patience
			if err := <-results; !errors.Is(err, errBusy) {
				t.Error(err)
			}
		}
		if len(places.waiting) != 0 || len(places.order) != 0 || places.free != 0 {
			t.Errorf("got %+v", places)
		}
		places.release()
		if err := places.acquire(gone, "c"); err != nil {
			t.Error(err)
		}
	})
}
