package demo

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// paymentCPU is the CPU time of one payment: one thread saturates at 333 payments a second.
const paymentCPU = 3 * time.Millisecond

// payment is the shop's bottleneck: all payments pass through one thread.
type payment struct {
	redis *redisClient // nil: orders go nowhere
	queue chan chan<- [sha256.Size]byte
	done  atomic.Uint64
	cpu   atomic.Int64 // nanoseconds
	wait  atomic.Int64
}

func newPayment(f serviceFlags, l *ledger) *role {
	p := &payment{queue: make(chan chan<- [sha256.Size]byte)}
	r := &role{run: p.work, report: p.report}
	if f.redis != "" {
		p.redis = newRedisClient(f.redis, l)
		r.closeIdle = []func(){p.redis.closeIdle}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /pay", p.pay)
	r.handler = mux
	return r
}

// work is the one thread.
func (p *payment) work(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case <-ctx.Done():
			return
		case answer := <-p.queue:
			signature, spent, err := burn(paymentCPU)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			p.cpu.Add(int64(spent))
			p.done.Add(1)
			answer <- signature
		}
	}
}

// burn computes until this thread has used d of CPU time, and says how much it was. The caller
// is locked to its thread.
func burn(d time.Duration) (signature [sha256.Size]byte, spent time.Duration, err error) {
	start, err := threadCPU()
	for err == nil && spent < d {
		for range 20 {
			signature = sha256.Sum256(signature[:])
		}
		var now time.Duration
		now, err = threadCPU()
		spent = now - start
	}
	return signature, spent, err
}

func threadCPU() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("reading the thread's CPU time: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

func (p *payment) pay(w http.ResponseWriter, r *http.Request) {
	order, err := io.ReadAll(r.Body)
	if err != nil {
		respondError(w, http.StatusBadRequest, err)
		return
	}
	signature, err := p.sign(r.Context())
	if err != nil {
		respondError(w, http.StatusServiceUnavailable, err)
		return
	}
	if p.redis != nil {
		if _, err := p.redis.do(r.Context(), "LPUSH", "orders", string(order)); err != nil {
			respondError(w, http.StatusBadGateway, err)
			return
		}
	}
	respondJSON(w, fmt.Appendf(nil, `{"paid":true,"bytes":%d,"signature":"%x"}`, len(order), signature))
}

// sign waits for the one thread and lets it work. A caller that leaves while it waits costs nothing.
func (p *payment) sign(ctx context.Context) ([sha256.Size]byte, error) {
	answer := make(chan [sha256.Size]byte, 1)
	p.wait.Add(1)
	defer p.wait.Add(-1)
	select {
	case p.queue <- answer:
		return <-answer, nil
	case <-ctx.Done():
		return [sha256.Size]byte{}, fmt.Errorf("waiting for payment: %w", ctx.Err())
	}
}

func (p *payment) report(s *Status) {
	s.Payment = &PaymentReport{
		Payments: p.done.Load(), CPU: time.Duration(p.cpu.Load()), Waiting: int(p.wait.Load()),
	}
}
