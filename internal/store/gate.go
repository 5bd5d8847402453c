package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/promql"
)

// gate bounds the queries of a store.
type gate struct {
	timeout time.Duration
	// running has a place for each query that runs; waiting counts those that want one.
	running chan struct{}
	waiting atomic.Int64
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

func (c *queryCounts) addTo(s *Stats) {
	s.Queries, s.QueriesTooLarge = c.all.Load(), c.tooLarge.Load()
	s.QueriesTooSlow, s.QueriesTurnedAway = c.tooSlow.Load(), c.turnedAway.Load()
}

func newGate(queries int, timeout time.Duration) *gate {
	return &gate{timeout: timeout, running: make(chan struct{}, queries), closing: make(chan struct{})}
}

// close cancels the queries and waits until none is left. It is called once.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	close(g.closing)
	g.queries.Wait()
}

// turn waits until the query may run; done must be called when it has.
func (g *gate) turn(ctx context.Context, timeout time.Duration) (_ context.Context, done func(), err error) {
	g.counts.all.Add(1)
	g.mu.Lock()
	closed := g.closed
	if !closed {
		g.queries.Add(1)
	}
	g.mu.Unlock()
	if closed {
		return nil, nil, &queryError{ErrCanceled, ErrClosed}
	}
	if timeout <= 0 || timeout > g.timeout {
		timeout = g.timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	go func() {
		select {
		case <-g.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := g.wait(ctx); err != nil {
		cancel()
		g.queries.Done()
		return nil, nil, err
	}
	return ctx, func() { cancel(); <-g.running; g.queries.Done() }, nil
}

func (g *gate) wait(ctx context.Context) error {
	select {
	case g.running <- struct{}{}:
		return nil
	default:
	}
	limit := int64(maxWaitingFactor * cap(g.running))
	defer g.waiting.Add(-1)
	if g.waiting.Add(1) > limit {
		g.counts.turnedAway.Add(1)
		return &queryError{ErrBusy, fmt.Errorf("%d queries run and %d wait: try again later", cap(g.running), limit)}
	}
	select {
	case g.running <- struct{}{}:
		return nil
	case <-ctx.Done():
		return g.sort(fmt.Errorf("waiting for other queries: %w", ctx.Err()))
	}
}

// sort sorts the errors of the engine by kind.
func (g *gate) sort(err error) error {
	var (
		canceled promql.ErrQueryCanceled
		timeout  promql.ErrQueryTimeout
		tooMany  promql.ErrTooManySamples
		disk     promql.ErrStorage
	)
	switch {
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
