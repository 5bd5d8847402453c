package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Turns shares places between tenants: whoever waits gets one when it is the turn of its tenant, round robin. A
// tenant's first request has spare places besides, so that it need not wait for others' that run long. Where there is
// one tenant alone it has all places.
type Scheduler struct {
	options SchedulerOptions

	// mu guards what follows.
	mu      sync.Mutex
	epoch   time.Time
	running int
	waiting int
	// active are the tenants that have something running or waiting, in the order of their turns.
	active  []*scheduledTenant
	tenants map[string]*scheduledTenant
}

// TurnOptions are the bounds of Turns.
type SchedulerOptions struct {
	// Places is how many run at a time. Spare is how many more may, of tenants that have nothing running.
	Slots, SpareSlots int
	// Waiting bounds those that wait. Where it is reached, who waits longest in line of the tenant with the most
	// waiting makes room for a tenant with fewer.
	Waiting int
	// Share is the greatest share of the places that a tenant has while others have something running or waiting; nil
	// for all of them.
	Share func(tenant string) float64
	// Time of requests in a minute, of which each tenant may use its share. Past that it has one place at a time while
	// others want any. 0 for no bound.
	Time time.Duration
	// Now is the clock; nil for time.Now.
	Now func() time.Time
}

// turnTenant is a tenant that has or had a place.
type scheduledTenant struct {
	name    string
	running int
	queue   []*waiter
	// begun is the sum of the times since the epoch of Turns at which what runs began, used the time that was used of
	// the quota by checked.
	startSum, used time.Duration
	checked     time.Time

	all, turnedAway uint64
	seconds         float64
}

// turn is a request that waits.
type waiter struct {
	tenant *scheduledTenant
	// ready is closed when it has a place, or when it was turned away.
	ready chan struct{}
	// away is that it was turned away, placed that it has a place, since began.
	turnedAway, running bool
	started        time.Duration
}

// maxTurnTenants bounds the tenants that are remembered: whoever asks may be able to name any number.
const maxScheduledTenants = 1000

// NewTurns makes Turns.
func NewScheduler(o SchedulerOptions) *Scheduler {
	if o.Share == nil {
		o.Share = func(string) float64 { return 1 }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Scheduler{options: o, epoch: o.Now(), tenants: map[string]*scheduledTenant{}}
}

// Enter waits for a place, which leave gives back. The error wraps ErrBusy, or is that of ctx.
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

// settle takes from what a tenant has used what its quota has given it since.
func (t *Scheduler) charge(of *scheduledTenant) {
	now := t.options.Now()
	of.used = max(0, of.used-time.Duration(float64(t.quota(of))*now.Sub(of.checked).Minutes()))
	of.checked = now
}

// isOver is whether a tenant has used its quota of time.
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

// shareOf is how many places a tenant may have while others want some.
func (t *Scheduler) shareOf(of *scheduledTenant) int {
	return max(1, int(float64(t.options.Slots)*t.options.Share(of.name)))
}

// underWay is how long what runs has run, together.
func (t *Scheduler) elapsed(of *scheduledTenant) time.Duration {
	return max(time.Duration(of.running)*t.sinceEpoch()-of.startSum, 0)
}

// mayRun is whether a tenant may have one more place.
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

// deal gives places to those whose turn it is, as long as there are any.
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
		// The others come first now.
		t.active = append(slices.Delete(t.active, i, i+1), of)
		i = 0
	}
}

// displace turns away the newest request of the tenant with the most waiting, if that has more than of; false where
// there is none.
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

// Running is how many have a place.
func (t *Scheduler) Running() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running
}

// TenantQueries is what the queries of a tenant use.
type TenantQueries struct {
	// Tenant is empty for who reads everybody's.
	Tenant           string
	Running, Waiting int
	// MaxRunning is the greatest number that may run while others want places.
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

// use tells of each tenant, by name.
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
