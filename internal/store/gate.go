package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/promql"

	"outsight/internal/quota"
)

// gate bounds the queries of a store.
type gate struct {
	timeout time.Duration
	// scheduler has a slot for each running query.
	scheduler *Scheduler
	budget    *Budget
	// closing is closed when close begins; queries counts those that must end before it is over.
	closing chan struct{}
	queries sync.WaitGroup
	counts  queryCounts

	// mu guards closed.
	mu     sync.Mutex
	closed bool
}

// queryCounts are the counters behind Stats of queries.
type queryCounts struct{ all, tooLarge, tooSlow, turnedAway atomic.Uint64 }

func (g *gate) addTo(s *Stats) {
	c := &g.counts
	g.budget.addTo(s)
	s.Queries, s.QueriesTooLarge = c.all.Load(), c.tooLarge.Load()
	s.QueriesTooSlow, s.QueriesTurnedAway = c.tooSlow.Load(), c.turnedAway.Load()
}

func newGate(places int, timeout time.Duration, o QueryBounds, quotas quota.Table) *gate {
	share := func(tenant string) float64 { return cmp.Or(quotas.Of(tenant).QueryShare, o.TenantShare) }
	return &gate{
		timeout: timeout,
		scheduler: NewScheduler(SchedulerOptions{Slots: places, SpareSlots: places, Waiting: maxWaitingFactor * places,
			Share: share, Time: time.Duration(places) * time.Minute}),
		budget:  newBudget(&o, share),
		closing: make(chan struct{}),
	}
}

// QueryBounds are the bounds of what queries take together. A zero field means its default.
type QueryBounds struct {
	// Memory bounds the bytes that all queries and answers hold; one query or answer may have half of it (1 GiB).
	Memory int64
	// TenantShare is the greatest share of one tenant: of Memory, of the slots of queries while others wait for one,
	// and of the time of all slots in a minute, after which it has one slot while others wait (0.5).
	TenantShare float64
	// ProcessMemory is how many bytes the process may have before the query that holds most is ended (no bound).
	ProcessMemory int64
}

func (o *QueryBounds) setDefaults() error {
	if o.Memory < 0 || o.ProcessMemory < 0 || o.TenantShare < 0 || o.TenantShare > 1 {
		return fmt.Errorf("bounds of queries %+v: want bytes, and a share from 0 to 1", *o)
	}
	setDefault(&o.Memory, 1<<30)
	setDefault(&o.TenantShare, 0.5)
	return nil
}

// close cancels the queries and waits until none is left. It is called once.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	close(g.closing)
	g.queries.Wait()
}

// enter waits until the query may run; done must be called when it has. What the query holds is to be taken from the
// account, which done closes.
func (g *gate) enter(ctx context.Context, tenant string, timeout time.Duration) (_ context.Context, _ *account,
	done func(), err error) {
	g.counts.all.Add(1)
	g.mu.Lock()
	closed := g.closed
	if !closed {
		g.queries.Add(1)
	}
	g.mu.Unlock()
	if closed {
		return nil, nil, nil, &queryError{ErrCanceled, ErrClosed}
	}
	if timeout <= 0 || timeout > g.timeout {
		timeout = g.timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	ctx, stop := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-g.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	leave, err := g.scheduler.Enter(ctx, tenant)
	if err != nil {
		stop(nil)
		cancel()
		g.queries.Done()
		if errors.Is(err, ErrBusy) {
			g.counts.turnedAway.Add(1)
			return nil, nil, nil, err
		}
		return nil, nil, nil, g.sort(ctx, fmt.Errorf("waiting for other queries: %w", err))
	}
	a := g.budget.open(tenant, stop)
	return ctx, a, func() {
		a.close()
		stop(nil)
		cancel()
		leave()
		g.queries.Done()
	}, nil
}

// tenantQueries is what each tenant uses.
func (g *gate) tenantQueries() []TenantQueries {
	all := g.scheduler.use()
	for i := range all {
		all[i].Bytes, all[i].MaxBytes, all[i].WithoutMemory = g.budget.useOf(all[i].Tenant)
	}
	return all
}

// sort sorts the errors of the engine by kind.
func (g *gate) sort(ctx context.Context, err error) error {
	if stopped := (*queryError)(nil); errors.As(context.Cause(ctx), &stopped) {
		return stopped
	}
	var (
		own      *queryError
		canceled promql.ErrQueryCanceled
		timeout  promql.ErrQueryTimeout
		tooMany  promql.ErrTooManySamples
		disk     promql.ErrStorage
	)
	err = shortened(err)
	switch {
	case errors.As(err, &own):
		return &queryError{own.kind, own.err}
	case errors.As(err, &timeout), errors.Is(err, context.DeadlineExceeded):
		g.counts.tooSlow.Add(1)
		return &queryError{ErrTimeout, err}
	case errors.As(err, &canceled), errors.Is(err, context.Canceled):
		return &queryError{ErrCanceled, err}
	case errors.As(err, &tooMany):
		g.counts.tooLarge.Add(1)
		return &queryError{ErrExecution, err}
	case errors.As(err, &disk):
		return &queryError{ErrStorage, err}
	}
	return &queryError{ErrExecution, err}
}

// maxQueryError bounds the text of an error, which may contain labels.
const maxQueryError = 4 << 10

// shortened is err with its text truncated.
func shortened(err error) error {
	if text := err.Error(); len(text) > maxQueryError {
		return &shortError{err, strings.ToValidUTF8(text[:maxQueryError], "") + "…"}
	}
	return err
}

type shortError struct {
	error
	text string
}

func (e *shortError) Error() string { return e.text }
func (e *shortError) Unwrap() error { return e.error }
