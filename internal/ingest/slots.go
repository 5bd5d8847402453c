package ingest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// slots bounds concurrent work. Waiting requests get slots round robin between tenants, so that a tenant with many
// requests delays another by at most one of them.
type slots struct {
	// timeout bounds the wait for a slot.
	timeout time.Duration
	// mu guards the rest.
	mu   sync.Mutex
	free int
	// waiting are the requests of each tenant, oldest first; order has the tenants with any, the next one first.
	waiting map[string][]chan struct{}
	order   []string
}

func newSlots(n int) *slots {
	return &slots{timeout: slotTimeout, free: n, waiting: map[string][]chan struct{}{}}
}

// slotTimeout is the default of slots.timeout.
const slotTimeout = 5 * time.Second

// acquire waits for a slot, which release gives back.
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
	case <-slot: // it was handed over meanwhile
		t.handOver()
	default:
		t.removeWaiter(tenant, slot)
	}
	return fmt.Errorf("%w: no slot was free within %v", errBusy, t.timeout)
}

// release gives a slot back.
func (t *slots) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handOver()
}

// handOver passes a slot on to the next tenant; mu is held.
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

// removeWaiter removes a waiting request; mu is held.
func (t *slots) removeWaiter(tenant string, slot chan struct{}) {
	remaining := slices.DeleteFunc(t.waiting[tenant], func(c chan struct{}) bool { return c == slot })
	if len(remaining) > 0 {
		t.waiting[tenant] = remaining
		return
	}
	delete(t.waiting, tenant)
	t.order = slices.DeleteFunc(t.order, func(name string) bool { return name == tenant })
}
