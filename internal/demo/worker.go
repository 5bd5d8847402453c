package demo

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"
)

// pollInterval of the worker. It polls: a blocking pop would be a transaction as long as the
// queue is empty, and its latency would say nothing of Redis.
const pollInterval = 100 * time.Millisecond

// worker takes orders from the queue in Redis.
type worker struct {
	redis *redisClient

	mu     sync.Mutex // held during a poll, so that a pause begins when none is under way
	paused bool
	orders uint64
}

func newWorker(f serviceFlags, l *ledger) *role {
	w := &worker{redis: newRedisClient(f.redis, l)}
	return &role{run: w.run, apply: w.apply, report: w.report, closeIdle: []func(){w.redis.closeIdle}}
}

func (w *worker) run(ctx context.Context) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := w.poll(ctx); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
}

// poll takes all orders that wait.
func (w *worker) poll(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.paused {
		order, err := w.redis.do(ctx, "RPOP", "orders")
		if err != nil || order == nil {
			return err
		}
		w.orders++
		if _, err := w.redis.do(ctx, "INCR", "orders:done"); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) apply(c control) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = c.Paused
}

func (w *worker) report(s *Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.Orders = w.orders
}
