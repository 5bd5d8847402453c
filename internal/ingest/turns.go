package ingest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// turns let some work at a time. Those who wait get their places tenant by tenant, so that one with many requests does
// not keep another waiting for longer than the work of one.
type slots struct {
	// timeout is how long a request waits for its turn.
	timeout time.Duration
	// mu guards the rest.
	mu   sync.Mutex
	free int
	// pending are those of each tenant, the first one first; order has the tenants with any, the next one first.
	waiting map[string][]chan struct{}
	order   []string
}

func newSlots(n int) *slots {
	return &slots{timeout: slotTimeout, free: n, waiting: map[string][]chan struct{}{}}
}

// slotTimeout is turns.patience where nothing else is said.
const slotTimeout = 5 * time.Second

// accept waits for a place. Who has one gives it back.
func (t *slots) acquire(ctx context.Context, tenant string) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	slot := make(chan struct{})
	if len(t.waiting[tenant]) == 0 {
		t.order = append(t.order, tenant)
	}
	t.waiting[tenant] = append(t.waiting[tenant], slot)
	t.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	select {
	case <-slot:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-slot: // it came meanwhile
		t.handOver()
	default:
		t.removeWaiter(tenant, slot)
	}
	return fmt.Errorf("%w: no turn within %v", errBusy, t.timeout)
}

// release gives a place back.
func (t *slots) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handOver()
}

// handOver hands a place to the next tenant's first; mu is held.
func (t *slots) handOver() {
	if len(t.order) == 0 {
		t.free++
		return
	}
	tenant := t.order[0]
	next := t.waiting[tenant][0]
	t.removeWaiter(tenant, next)
	if len(t.waiting[tenant]) > 0 { // it is the last one now
		t.order = append(slices.DeleteFunc(t.order, func(name string) bool { return name == tenant }), tenant)
	}
	close(next)
}

// removeWaiter forgets one that waits; mu is held.
func (t *slots) removeWaiter(tenant string, slot chan struct{}) {
	remaining := slices.DeleteFunc(t.waiting[tenant], func(c chan struct{}) bool { return c == slot })
	if len(remaining) > 0 {
		t.waiting[tenant] = remaining
		return
	}
	delete(t.waiting, tenant)
	t.order = slices.DeleteFunc(t.order, func(name string) bool { return name == tenant })
}
