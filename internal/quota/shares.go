// Package quota divides a server's resources among its tenants. Half of a resource is guaranteed to them, in equal
// parts; the other half goes to whoever takes it first. So a tenant can use what others leave free, and never what
// another is guaranteed.
package quota

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// Tenants are those that share a resource. The zero value is for a server without tenants: one has all.
type Tenants struct {
	// Names are the tenants known from the start: each has its part, used or not.
	Names []string
	// Open means that more tenants can appear: one part is always kept free for the next one.
	Open bool
}

// maxTenants bounds the tenants with a part of their own; those past it share one part.
const maxTenants = 1000

// Others is the name under which all tenants past maxTenants are counted.
const Others = "(others)"

// Shares divides one resource, such as bytes. Its methods may be called concurrently.
type Shares struct {
	tenants  Tenants
	capacity int64
	// limitOf is a tenant's own limit, at most; 0 for none.
	limitOf func(tenant string) int64

	now func() time.Time

	// mu guards the rest.
	mu   sync.Mutex
	used map[string]int64
	// refused counts requests for more than a tenant may have.
	refused map[string]*refusal
	sweep   sweep
}

// refusal counts refused requests; idle is the number of sweeps since the last one.
type refusal struct {
	count uint64
	idle  int
}

// NewShares divides capacity. own, if any, is a limit of a tenant besides, 0 for none.
func NewShares(capacity int64, t Tenants, limitOf func(tenant string) int64) *Shares {
	s := &Shares{tenants: t, capacity: capacity, limitOf: limitOf, now: time.Now, used: map[string]int64{},
		refused: map[string]*refusal{}}
	for _, name := range t.Names {
		s.used[name] = 0
	}
	return s
}

// key is the name under which a tenant is counted; mu is held.
func (s *Shares) key(tenant string) string {
	if _, ok := s.used[tenant]; !ok && len(s.used) >= maxTenants {
		return Others
	}
	return tenant
}

// guaranteed is the part of each tenant, counting this one even if it has nothing yet; mu is held.
func (s *Shares) guaranteed(tenant string) int64 {
	n := len(s.used)
	if _, ok := s.used[tenant]; !ok {
		n++
	}
	if s.tenants.Open {
		n++
	}
	return s.capacity / 2 / int64(max(n, 1))
}

// available is how much more a tenant may take; mu is held. It is negative where a tenant has more than it may.
func (s *Shares) available(tenant string) int64 {
	part := s.guaranteed(tenant)
	free := s.capacity - s.used[tenant]
	for other, used := range s.used {
		if other != tenant {
			free -= max(used, part)
		}
	}
	if s.tenants.Open {
		free -= part
	}
	// What others use beyond their parts does not reduce this tenant's guaranteed part.
	free = max(free, min(part-s.used[tenant], s.capacity-s.total()))
	if limit := s.limit(tenant); limit > 0 {
		free = min(free, limit-s.used[tenant])
	}
	return free
}

func (s *Shares) total() (sum int64) {
	for _, used := range s.used {
		sum += used
	}
	return sum
}

func (s *Shares) limit(tenant string) int64 {
	if s.limitOf == nil {
		return 0
	}
	return s.limitOf(tenant)
}

// Take takes n for a tenant. If fewer are available it takes nothing and counts a refusal.
func (s *Shares) Take(tenant string, n int64) bool {
	ok := s.TryTake(tenant, n)
	if !ok {
		s.Refuse(tenant, 1)
	}
	return ok
}

// TryTake takes n for a tenant, or nothing if fewer are available.
func (s *Shares) TryTake(tenant string, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	tenant = s.key(tenant)
	if n > s.available(tenant) {
		return false
	}
	s.used[tenant] += n
	return true
}

// Add takes n for a tenant, even if fewer are available; a negative n releases.
func (s *Shares) Add(tenant string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n >= 0 {
		s.used[s.key(tenant)] += n
		return
	}
	// What a tenant took while there were more than maxTenants was counted for Others.
	if own, ok := s.used[tenant]; ok {
		back := max(n, -own)
		s.release(tenant, back)
		n -= back
	}
	if n < 0 {
		s.release(Others, n)
	}
}

// release is Add of a negative n; mu is held.
func (s *Shares) release(tenant string, n int64) {
	own, ok := s.used[tenant]
	if !ok {
		return
	}
	s.used[tenant] = own + n
	if own+n <= 0 && s.tenants.Open && !slices.Contains(s.tenants.Names, tenant) {
		delete(s.used, tenant)
	}
}

// Refuse counts n refusals of a tenant.
func (s *Shares) Refuse(tenant string, n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse(s.key(tenant), n)
}

// refuse is Refuse with mu held.
func (s *Shares) refuse(tenant string, n uint64) {
	s.evictIdle()
	if s.refused[tenant] == nil && len(s.refused) >= maxTenants {
		tenant = Others
	}
	r := s.refused[tenant]
	if r == nil {
		r = &refusal{}
		s.refused[tenant] = r
	}
	r.count += n
	r.idle = 0
}

// evictIdle removes the refusals of tenants that have nothing and were refused nothing for idleSweeps; mu is held.
func (s *Shares) evictIdle() {
	if !s.sweep.due(s.now()) {
		return
	}
	for tenant, r := range s.refused {
		if r.idle++; r.idle > idleSweeps && s.used[tenant] == 0 {
			delete(s.refused, tenant)
		}
	}
}

// Available is how much more a tenant may take.
func (s *Shares) Available(tenant string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.available(s.key(tenant)))
}

// Usage is a tenant's part of a resource.
type Usage struct {
	Tenant string
	// Used is at most Limit, which depends on what other tenants use now; Guaranteed is available whatever they use.
	Used, Limit, Guaranteed int64
	// Refused counts requests for more than it may have.
	Refused uint64
}

// Usages are those of all tenants, by name.
func (s *Shares) Usages() (all []Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evictIdle()
	names := maps.Clone(s.used)
	for tenant := range s.refused {
		names[tenant] += 0
	}
	for tenant := range names {
		u := Usage{Tenant: tenant, Used: s.used[tenant], Guaranteed: s.guaranteed(tenant)}
		if r := s.refused[tenant]; r != nil {
			u.Refused = r.count
		}
		if limit := s.limit(tenant); limit > 0 {
			u.Guaranteed = min(u.Guaranteed, limit)
		}
		u.Limit = max(0, u.Used+s.available(tenant))
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b Usage) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return all
}

// Used is what all tenants have.
func (s *Shares) Used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total()
}

// Capacity is the whole resource.
func (s *Shares) Capacity() int64 { return s.capacity }

// Unlimited is a capacity that is never reached.
const Unlimited = math.MaxInt64 / 4
