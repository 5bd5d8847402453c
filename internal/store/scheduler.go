package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Scheduler divides slots among tenants, round robin. A tenant without a running request can use spare slots as well,
// so that it need not wait for long requests of others. A single tenant has all slots.
type Scheduler struct {
	options SchedulerOptions

	// mu guards what follows.
	mu      sync.Mutex
	epoch   time.Time
	running int
	waiting int
	// active are the tenants with a running or waiting request, in round-robin order.
	active  []*scheduledTenant
	tenants map[string]*scheduledTenant
}

// SchedulerOptions are the limits of a Scheduler.
type SchedulerOptions struct {
	// Slots is how many requests run at a time, SpareSlots how many more of tenants that have none running.
	Slots, SpareSlots int
	// Waiting bounds the waiting requests. At the limit, a request of the tenant with the most is refused in favour of
	// a tenant with fewer.
	Waiting int
	// Share is the greatest share (0 to 1) of the slots that a tenant has while others have a running or waiting
	// request; nil for all.
	Share func(tenant string) float64
	// Time is how long requests may run in a minute, of which each tenant may use its share. Beyond that it has one
	// slot at a time while others wait. 0 for no limit.
	Time time.Duration
	// Now is the clock; nil for time.Now.
	Now func() time.Time
}

// scheduledTenant is a tenant that has or had a request.
type scheduledTenant struct {
	name    string
	running int
	queue   []*waiter
	// startSum is the sum of the start times of running requests, since the epoch of the Scheduler; used is the time
	// used of the quota by checked.
	startSum, used time.Duration
	checked        time.Time

	all, turnedAway uint64
	seconds         float64
}

// waiter is a waiting or running request.
type waiter struct {
	tenant *scheduledTenant
	// ready is closed when it gets a slot, or is refused.
	ready chan struct{}
	// turnedAway means that it was refused, running that it has a slot, since started.
	turnedAway, running bool
	started             time.Duration
}

// maxScheduledTenants bounds the tenants that are remembered: a client may be able to name any number.
const maxScheduledTenants = 1000

// NewScheduler makes a Scheduler.
func NewScheduler(o SchedulerOptions) *Scheduler {
	if o.Share == nil {
		o.Share = func(string) float64 { return 1 }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Scheduler{options: o, epoch: o.Now(), tenants: map[string]*scheduledTenant{}}
}

// Enter waits for a slot, which leave gives back. The error wraps ErrBusy, or is that of ctx.
func (t *Scheduler) Enter(ctx context.Context, tenant string) (leave func(), err error) {
	t.mu.Lock()
	of := t.tenant(tenant)
	of.all++
	w := &waiter{tenant: of, ready: make(chan struct{})}
	if t.waiting >= t.options.Waiting && !t.mayRun(of) && !t.evictWaiter(of) {
		of.turnedAway++
		err := t.busy(of)
		t.mu.Unlock()
		return nil, err
	}
	t.activate(of)
	of.queue = append(of.queue, w)
	t.waiting++
	t.dispatch()
	t.mu.Unlock()
	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case w.turnedAway:
		return nil, t.busy(of)
	case !w.running:
		of.queue = slices.DeleteFunc(of.queue, func(other *waiter) bool { return other == w })
		t.waiting--
		t.retire(of)
		return nil, ctx.Err()
	}
	return sync.OnceFunc(func() { t.leave(of, w.started) }), nil
}

func (t *Scheduler) sinceEpoch() time.Duration { return t.options.Now().Sub(t.epoch) }

func (t *Scheduler) leave(of *scheduledTenant, began time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	took := max(t.sinceEpoch()-began, 0)
	t.charge(of)
	of.used += took
	of.seconds += took.Seconds()
	of.startSum -= began
	of.running--
	t.running--
	t.retire(of)
	t.dispatch()
}

func (t *Scheduler) busy(of *scheduledTenant) error {
	return &queryError{ErrBusy, fmt.Errorf("%d requests run and %d wait, %d of them of this tenant: try again later",
		t.running, t.waiting, len(of.queue))}
}

// tenant finds a tenant, or makes it.
func (t *Scheduler) tenant(name string) *scheduledTenant {
	of := t.tenants[name]
	if of == nil {
		if len(t.tenants) >= maxScheduledTenants {
			for name, other := range t.tenants {
				if other.running+len(other.queue) == 0 {
					delete(t.tenants, name)
					break
				}
			}
		}
		of = &scheduledTenant{name: name, checked: t.options.Now()}
		t.tenants[name] = of
	}
	return of
}

func (t *Scheduler) activate(of *scheduledTenant) {
	if of.running+len(of.queue) == 0 {
		t.active = append(t.active, of)
	}
}

func (t *Scheduler) retire(of *scheduledTenant) {
	if of.running+len(of.queue) == 0 {
		t.active = slices.DeleteFunc(t.active, func(other *scheduledTenant) bool { return other == of })
	}
}

// charge takes from what a tenant has used what its quota has given it since.
func (t *Scheduler) charge(of *scheduledTenant) {
	now := t.options.Now()
	of.used = max(0, of.used-time.Duration(float64(t.quota(of))*now.Sub(of.checked).Minutes()))
	of.checked = now
}

// isOverQuota reports whether a tenant has used its quota of time.
func (t *Scheduler) isOverQuota(of *scheduledTenant) bool {
	if t.options.Time == 0 {
		return false
	}
	t.charge(of)
	return of.used+t.elapsed(of) > t.quota(of)
}

// quota is the time that a tenant may use in a minute.
func (t *Scheduler) quota(of *scheduledTenant) time.Duration {
	return time.Duration(t.options.Share(of.name) * float64(t.options.Time))
}

// shareOf is how many slots a tenant may have while others wait.
func (t *Scheduler) shareOf(of *scheduledTenant) int {
	return max(1, int(float64(t.options.Slots)*t.options.Share(of.name)))
}

// elapsed is how long what runs has run, together.
func (t *Scheduler) elapsed(of *scheduledTenant) time.Duration {
	return max(time.Duration(of.running)*t.sinceEpoch()-of.startSum, 0)
}

// mayRun reports whether a tenant may have one more slot.
func (t *Scheduler) mayRun(of *scheduledTenant) bool {
	others := len(t.active) > 1 || len(t.active) == 1 && t.active[0] != of
	places := t.options.Slots
	if others {
		if places = t.shareOf(of); t.isOverQuota(of) {
			places = 1
		}
	}
	return t.running < t.options.Slots && of.running < places || of.running == 0 &&
		t.running < t.options.Slots+t.options.SpareSlots
}

// dispatch gives free slots to waiting requests, round robin.
func (t *Scheduler) dispatch() {
	for i := 0; i < len(t.active); {
		of := t.active[i]
		if len(of.queue) == 0 || !t.mayRun(of) {
			i++
			continue
		}
		w := of.queue[0]
		of.queue = of.queue[1:]
		t.waiting--
		t.running++
		of.running++
		w.running, w.started = true, t.sinceEpoch()
		of.startSum += w.started
		close(w.ready)
		// The other tenants come first now.
		t.active = append(slices.Delete(t.active, i, i+1), of)
		i = 0
	}
}

// evictWaiter refuses the newest request of the tenant with the most waiting, if that has more than of; false if there
// is none.
func (t *Scheduler) evictWaiter(of *scheduledTenant) bool {
	var most *scheduledTenant
	for _, other := range t.active {
		if most == nil || len(other.queue) > len(most.queue) {
			most = other
		}
	}
	if most == nil || most == of || len(most.queue) <= len(of.queue)+1 {
		return false
	}
	last := len(most.queue) - 1
	w := most.queue[last]
	most.queue = most.queue[:last]
	t.waiting--
	most.turnedAway++
	w.turnedAway = true
	close(w.ready)
	return true
}

// Running is how many requests have a slot.
func (t *Scheduler) Running() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}

// TenantQueries is what the queries of a tenant use.
type TenantQueries struct {
	// Tenant is empty for readers of all tenants.
	Tenant           string
	Running, Waiting int
	// MaxRunning is the greatest number that may run while others wait.
	MaxRunning int
	// Queries since the start, those that were turned away because too many waited, those for which there was no
	// memory, and the time that they took.
	Queries, TurnedAway, WithoutMemory uint64
	Seconds                            float64
	// Used is the time of the quota of a minute that is used now.
	Used, Quota time.Duration
	// Bytes that queries and answers hold, of at most MaxBytes.
	Bytes, MaxBytes int64
}

// use is what each tenant uses, by name.
func (t *Scheduler) use() (all []TenantQueries) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, of := range t.tenants {
		t.charge(of)
		all = append(all, TenantQueries{
			Tenant: of.name, Running: of.running, Waiting: len(of.queue), MaxRunning: t.shareOf(of),
			Queries: of.all, TurnedAway: of.turnedAway, Seconds: of.seconds + t.elapsed(of).Seconds(),
			Used: of.used + t.elapsed(of), Quota: t.quota(of),
		})
	}
	slices.SortFunc(all, func(a, b TenantQueries) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return all
}
