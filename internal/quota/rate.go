package quota

import (
	"sync"
	"time"
)

// burstWindow is the time over which a rate is averaged: a bucket holds the tokens of so long.
const burstWindow = 10 * time.Second

// Rates bound how much each tenant takes per second: one token bucket for each. Its methods may be called concurrently.
type Rates struct {
	now func() time.Time
	// perSecond is a tenant's limit, 0 for none.
	perSecond func(tenant string) int64

	// mu guards the rest.
	mu      sync.Mutex
	tenants map[string]*bucket
	sweep   sweep
}

type bucket struct {
	// tokens may be negative: a request is charged after it was admitted.
	tokens   float64
	refilled time.Time
	// idle is the number of sweeps since the tenant sent something.
	idle int
	// taken and refused in all.
	taken, refused uint64
}

// NewRates bounds rates by the clock now.
func NewRates(now func() time.Time, perSecond func(tenant string) int64) *Rates {
	return &Rates{now: now, perSecond: perSecond, tenants: map[string]*bucket{}}
}

// bucket is a tenant's bucket, refilled until now; mu is held. A clock that jumps back adds nothing, one that jumps
// ahead at most burstWindow.
func (r *Rates) bucket(tenant string) (*bucket, float64) {
	r.evictIdle()
	if r.tenants[tenant] == nil && len(r.tenants) >= maxTenants {
		tenant = Others
	}
	perSecond := float64(r.perSecond(tenant))
	now := r.now()
	t := r.tenants[tenant]
	if t == nil {
		t = &bucket{tokens: perSecond * burstWindow.Seconds(), refilled: now}
		r.tenants[tenant] = t
	}
	t.tokens = min(t.tokens+perSecond*max(0, now.Sub(t.refilled).Seconds()), perSecond*burstWindow.Seconds())
	t.refilled = now
	return t, perSecond
}

// evictIdle removes the buckets of tenants that sent nothing for idleSweeps, and are full by then; mu is held.
func (r *Rates) evictIdle() {
	if !r.sweep.due(r.now()) {
		return
	}
	for tenant, t := range r.tenants {
		if t.idle++; t.idle > idleSweeps {
			delete(r.tenants, tenant)
		}
	}
}

// Wait is how long a tenant has to wait before its next request, 0 if it may send one now.
func (r *Rates) Wait(tenant string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, perSecond := r.bucket(tenant)
	t.idle = 0
	if perSecond == 0 || t.tokens > 0 {
		return 0
	}
	t.refused++
	// A clock that was turned back must not lock out a tenant with many tokens to pay back.
	return min(time.Duration((1-t.tokens)/perSecond*float64(time.Second)), time.Minute)
}

// Charge takes n tokens of a tenant.
func (r *Rates) Charge(tenant string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, perSecond := r.bucket(tenant)
	t.idle = 0
	t.taken += uint64(n)
	if perSecond > 0 {
		t.tokens -= float64(n)
	}
}

// Refund undoes Charge for a request that was refused afterwards.
func (r *Rates) Refund(tenant string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, perSecond := r.bucket(tenant)
	t.taken -= min(t.taken, uint64(n))
	if perSecond > 0 {
		t.tokens = min(t.tokens+float64(n), perSecond*burstWindow.Seconds())
	}
}

// Rate is how much a tenant took.
type Rate struct {
	Taken, Refused uint64
	// PerSecond is its limit, 0 for none; Recent is roughly its rate over burstWindow.
	PerSecond, Recent int64
}

// All returns the rates of all tenants that are not idle, by name.
func (r *Rates) All() map[string]Rate {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]Rate, len(r.tenants))
	for tenant := range r.tenants {
		t, perSecond := r.bucket(tenant)
		recent := perSecond - t.tokens/burstWindow.Seconds()
		all[tenant] = Rate{t.taken, t.refused, int64(perSecond), int64(recent)}
	}
	return all
}
