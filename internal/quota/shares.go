// Package quota divides what a server has among its tenants. Half of it is guaranteed to them, in equal parts; the rest
// is for whoever takes it first. So one tenant may use what others leave free, and can never take what another is
// guaranteed.
package quota

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// Tenants says among whom something is divided. The zero value is for a server without tenants: one has all.
type Tenants struct {
	// Names are those that are known from the start: each has its part, used or not.
	Names []string
	// Open is whether others may come: then one part is always kept for the next.
	Open bool
}

// maxTenants bounds the tenants that are told apart; those past it share one part.
const maxTenants = 1000

// Others stands for all tenants past the bound of those that are told apart.
const Others = "(others)"

// Shares are of one thing, such as bytes. Its methods may be called at the same time.
type Shares struct {
	tenants  Tenants
	capacity int64
	// own is a tenant's own limit, at most; 0 for none.
	own func(tenant string) int64

	now func() time.Time

	// mu guards the rest.
	mu   sync.Mutex
	used map[string]int64
	// refused counts what a tenant did not get.
	refused map[string]*refusal
	sweep   sweep
}

// refusal counts what a tenant did not get; idle is for how many sweeps it has stayed the same.
type refusal struct {
	count uint64
	idle  int
}

// NewShares divides capacity. own, if any, is a limit of a tenant besides, 0 for none.
func NewShares(capacity int64, t Tenants, own func(tenant string) int64) *Shares {
	s := &Shares{tenants: t, capacity: capacity, own: own, now: time.Now, used: map[string]int64{},
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

// guaranteed is the part of each, with one more tenant where tenant has nothing yet; mu is held.
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

// room is how much more a tenant may take; mu is held. It is negative where a tenant has more than it may.
func (s *Shares) room(tenant string) int64 {
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
	// What others have taken beyond their parts does not come out of this one's.
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
	if s.own == nil {
		return 0
	}
	return s.own(tenant)
}

// Take takes n for a tenant, or nothing where there is no room for that, which it counts.
func (s *Shares) Take(tenant string, n int64) bool {
	ok := s.TryTake(tenant, n)
	if !ok {
		s.Refuse(tenant, 1)
	}
	return ok
}

// TryTake takes n for a tenant, or nothing where there is no room for that.
func (s *Shares) TryTake(tenant string, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	tenant = s.key(tenant)
	if n > s.room(tenant) {
		return false
	}
	s.used[tenant] += n
	return true
}

// Add takes n for a tenant, whether there is room for it or not; a negative n gives it back.
func (s *Shares) Add(tenant string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n >= 0 {
		s.used[s.key(tenant)] += n
		return
	}
	// What a tenant took while too many were told apart was counted for Others.
	if own, ok := s.used[tenant]; ok {
		back := max(n, -own)
		s.giveBack(tenant, back)
		n -= back
	}
	if n < 0 {
		s.giveBack(Others, n)
	}
}

// giveBack is Add of a negative n; mu is held.
func (s *Shares) giveBack(tenant string, n int64) {
	own, ok := s.used[tenant]
	if !ok {
		return
	}
	s.used[tenant] = own + n
	if own+n <= 0 && s.tenants.Open && !slices.Contains(s.tenants.Names, tenant) {
		delete(s.used, tenant)
	}
}

// Refuse counts n that a tenant did not get.
func (s *Shares) Refuse(tenant string, n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse(s.key(tenant), n)
}

// refuse is Refuse with mu held.
func (s *Shares) refuse(tenant string, n uint64) {
	s.forget()
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

// forget drops the refusals of tenants that have had nothing and were refused nothing for long; mu is held.
func (s *Shares) forget() {
	if !s.sweep.due(s.now()) {
		return
	}
	for tenant, r := range s.refused {
		if r.idle++; r.idle > idleSweeps && s.used[tenant] == 0 {
			delete(s.refused, tenant)
		}
	}
}

// Room is how much more a tenant may take.
func (s *Shares) Room(tenant string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.room(s.key(tenant)))
}

// Use is what a tenant has of something.
type Use struct {
	Tenant string
	// Used of Limit, which is what it could have in all at the moment; Guaranteed it gets whatever others take.
	Used, Limit, Guaranteed int64
	// Refused counts what it did not get.
	Refused uint64
}

// Uses are those of all tenants, by name.
func (s *Shares) Uses() (all []Use) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
	names := maps.Clone(s.used)
	for tenant := range s.refused {
		names[tenant] += 0
	}
	for tenant := range names {
		u := Use{Tenant: tenant, Used: s.used[tenant], Guaranteed: s.guaranteed(tenant)}
		if r := s.refused[tenant]; r != nil {
			u.Refused = r.count
		}
		if limit := s.limit(tenant); limit > 0 {
			u.Guaranteed = min(u.Guaranteed, limit)
		}
		u.Limit = max(0, u.Used+s.room(tenant))
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b Use) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return all
}

// Used is what all tenants have.
func (s *Shares) Used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total()
}

// Capacity is what there is.
func (s *Shares) Capacity() int64 { return s.capacity }

// Unlimited is a capacity that nothing reaches.
const Unlimited = math.MaxInt64 / 4
