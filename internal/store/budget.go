package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
)

// Budget bounds the bytes that all queries and answers hold at a time. Its methods may be called at the same time, and
// a nil *Budget bounds nothing.
type Budget struct {
	// total is for all, and perQuery for one query or answer.
	total, perQuery int64
	// share of total that one tenant may have.
	share func(tenant string) float64
	// process is how many bytes the process may have before a query is ended; 0 for no bound.
	process int64

	// mu guards what follows, and account.held.
	mu       sync.Mutex
	used     int64
	tenants  map[string]*tenantMemory
	accounts map[*account]struct{}
	// tooLarge counts queries beyond perQuery, refused those beyond the available memory, stopped those that were ended
	// because the process was about to run out of memory.
	tooLarge, refused, stopped uint64
	watching                   bool
}

// tenantMemory is what a tenant holds, and how often it was refused more.
type tenantMemory struct {
	used    int64
	refused uint64
}

// ofTenant finds what a tenant holds, or makes it.
func (b *Budget) ofTenant(tenant string) *tenantMemory {
	t := b.tenants[tenant]
	if t == nil {
		if len(b.tenants) >= maxScheduledTenants {
			for name, other := range b.tenants {
				if other.used == 0 {
					delete(b.tenants, name)
					break
				}
			}
		}
		t = &tenantMemory{}
		b.tenants[tenant] = t
	}
	return t
}

// budgetGrain is how many bytes a query reserves at least, so that the lock is not taken for each series.
const budgetGrain = 256 << 10

func newBudget(o *QueryBounds, share func(tenant string) float64) *Budget {
	return &Budget{total: o.Memory, share: share, perQuery: o.Memory / 2, process: o.ProcessMemory,
		tenants: map[string]*tenantMemory{}, accounts: map[*account]struct{}{}}
}

// limit is how many bytes a tenant may have; "" is the reader of all tenants.
func (b *Budget) limit(tenant string) int64 {
	if tenant == "" {
		return b.total
	}
	return int64(b.share(tenant) * float64(b.total))
}

// Hold reserves n bytes for an answer of a tenant until release is called. The error wraps ErrBusy or ErrExecution.
func (b *Budget) Hold(tenant string, n int64) (release func(), err error) {
	if b == nil {
		return func() {}, nil
	}
	a := b.open(tenant, nil)
	if _, err := a.reserve(n, 0); err != nil {
		a.close()
		return nil, err
	}
	return a.close, nil
}

// account is what one query or answer holds.
type account struct {
	budget *Budget
	tenant string
	// stop ends the query; nil for what is no query.
	stop context.CancelCauseFunc
	held int64
	// closed, stopped and looks are guarded by the budget's lock.
	closed, stopped bool
	// checks is how often the watchdog has met it.
	checks int
}

// open is an account for a query, which stop can end.
func (b *Budget) open(tenant string, stop context.CancelCauseFunc) *account {
	a := &account{budget: b, tenant: tenant, stop: stop}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accounts[a] = struct{}{}
	if stop != nil && b.process > 0 && !b.watching {
		b.watching = true
		go b.watch()
	}
	return a
}

// reserve reserves n more bytes, and up to extra more if available; got is how many it reserved.
func (a *account) reserve(n, extra int64) (got int64, err error) {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.ofTenant(a.tenant)
	limit := b.limit(a.tenant)
	ofTenant := limit - t.used
	if a.tenant == "" {
		ofTenant = math.MaxInt64
	}
	switch {
	case a.closed:
		return 0, errors.New("BUG: memory for a query that is over")
	case n > b.perQuery-a.held:
		b.tooLarge++
		err = &queryError{ErrExecution, fmt.Errorf("the query or its answer needs more than %d MiB of memory: "+
			"ask for fewer series, fewer or shorter labels or fewer steps, or raise --query-memory", b.perQuery>>20)}
	case n > ofTenant:
		b.refused++
		err = &queryError{ErrBusy, fmt.Errorf("queries and answers of tenant %q hold %d of their %d MiB already: "+
			"try again later, or raise --tenant-query-share or its query_share", a.tenant, t.used>>20, limit>>20)}
	case n > b.total-b.used:
		b.refused++
		err = &queryError{ErrBusy, fmt.Errorf("queries and answers hold %d of %d MiB already: try again later, or raise --query-memory", b.used>>20, b.total>>20)}
	}
	if err != nil {
		t.refused++
		return 0, err
	}
	got = min(n+extra, b.perQuery-a.held, ofTenant, b.total-b.used)
	a.held += got
	b.used += got
	t.used += got
	return got, nil
}

// close releases all bytes. It may be called again.
func (a *account) close() {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.closed {
		return
	}
	a.closed = true
	b.used -= a.held
	b.ofTenant(a.tenant).used -= a.held
	delete(b.accounts, a)
}

// allowance reserves bytes of an account in larger steps, for one goroutine. The zero value is unbounded.
type allowance struct {
	account *account
	spare   int64
}

func (p *allowance) reserve(n int64) error {
	if p.spare -= n; p.spare >= 0 || p.account == nil {
		return nil
	}
	got, err := p.account.reserve(-p.spare, budgetGrain)
	p.spare += got
	return err
}

// addTo adds the state of the budget to s.
func (b *Budget) addTo(s *Stats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.QueryMemory, s.MaxQueryMemory = b.used, b.total
	s.QueriesWithoutMemory, s.QueriesStopped = b.tooLarge+b.refused, b.stopped
}

// useOf is what a tenant holds, of how much, and how often it was refused more.
func (b *Budget) useOf(tenant string) (used, most int64, refused uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.ofTenant(tenant)
	return t.used, b.limit(tenant), t.refused
}
