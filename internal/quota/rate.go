package quota

import (
	"sync"
	"time"
)

// rateWindow is over how long a rate is an average: what was not used may be made up for as long.
const rateWindow = 10 * time.Second

// Rates bound how much each tenant takes in a second. Its methods may be called at the same time.
type Rates struct {
	now func() time.Time
	// perSecond is a tenant's rate, 0 for any.
	perSecond func(tenant string) int64

	// mu guards the rest.
	mu      sync.Mutex
	tenants map[string]*rate
	sweep   sweep
}

type rate struct {
	// left may be taken now; it is negative after more was taken than that.
	left float64
	at   time.Time
	// idle is for how many sweeps the tenant has sent nothing.
	idle int
	// taken and refused in all.
	taken, refused uint64
}

// NewRates bounds rates by the clock now.
func NewRates(now func() time.Time, perSecond func(tenant string) int64) *Rates {
	return &Rates{now: now, perSecond: perSecond, tenants: map[string]*rate{}}
}

// of is the rate of a tenant as of now; mu is held. A clock that jumps back gives nothing, one that jumps ahead no more
// than the window.
func (r *Rates) of(tenant string) (*rate, float64) {
	r.forget()
	if r.tenants[tenant] == nil && len(r.tenants) >= maxTenants {
		tenant = Others
	}
	perSecond := float64(r.perSecond(tenant))
	now := r.now()
	t := r.tenants[tenant]
	if t == nil {
		t = &rate{left: perSecond * rateWindow.Seconds(), at: now}
		r.tenants[tenant] = t
	}
	t.left = min(t.left+perSecond*max(0, now.Sub(t.at).Seconds()), perSecond*rateWindow.Seconds())
	t.at = now
	return t, perSecond
}

// forget drops the rates of tenants that sent nothing for long; mu is held. What they owed is long paid.
func (r *Rates) forget() {
	if !r.sweep.due(r.now()) {
		return
	}
	for tenant, t := range r.tenants {
		if t.idle++; t.idle > idleSweeps {
			delete(r.tenants, tenant)
		}
	}
}

// Wait is how long a tenant has to wait before it may take more, 0 where it may now.
func (r *Rates) Wait(tenant string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, perSecond := r.of(tenant)
	t.idle = 0
	if perSecond == 0 || t.left > 0 {
		return 0
	}
	t.refused++
	// A clock that was turned back while much was owed must not lock a tenant out.
	return min(time.Duration((1-t.left)/perSecond*float64(time.Second)), time.Minute)
}

// Took counts n that a tenant took.
func (r *Rates) Took(tenant string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, perSecond := r.of(tenant)
	t.idle = 0
	t.taken += uint64(n)
	if perSecond > 0 {
		t.left -= float64(n)
	}
}

// GiveBack undoes Took for what was refused afterwards.
func (r *Rates) GiveBack(tenant string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, perSecond := r.of(tenant)
	t.taken -= min(t.taken, uint64(n))
	if perSecond > 0 {
		t.left = min(t.left+float64(n), perSecond*rateWindow.Seconds())
	}
}

// Rate is what a tenant took.
type Rate struct {
	Taken, Refused uint64
	// PerSecond is its limit, 0 for none, and Recent about what it took of that in a second of the last ten.
	PerSecond, Recent int64
}

// All are the rates of all tenants that took anything.
func (r *Rates) All() map[string]Rate {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]Rate, len(r.tenants))
	for tenant := range r.tenants {
		t, perSecond := r.of(tenant)
		recent := perSecond - t.left/rateWindow.Seconds()
		all[tenant] = Rate{t.taken, t.refused, int64(perSecond), int64(recent)}
	}
	return all
}
