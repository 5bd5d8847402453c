package ingest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"outsight/internal/quota"
)

const (
	// reservePatience is how long a request waits for the reserve, reserveBodyTime how long the rest of its body may
	// take once it has it: others wait meanwhile.
	reservePatience = 10 * time.Second
	reserveBodyTime = 5 * time.Second
)

// LeastInFlight is the least Options.InFlight with the default limits: less has no reserve for the largest request.
var LeastInFlight = func() int64 { o := Options{}.withDefaults(); return 2 * o.largest() }()

// largest is how many bytes the largest request that is taken holds: its body as it came, and then what it is
// decompressed to with the window for that, the protobuf that JSON becomes, or the batch.
func (o *Options) largest() int64 {
	// A buffer has one byte more than it may, and one that grows a quarter.
	raw, text := o.MaxBody+1, o.MaxDecompressed+1
	protobuf := o.MaxDecompressed + o.MaxDecompressed/4 + 64<<10
	return max(raw+text+max(windowBytes(maxWindow), protobuf, int64(o.Limits.Built)), protobuf+int64(o.Limits.Built))
}

// inFlight bounds the bytes of requests that are worked on. Tenants have shares; one that finds no room in its share
// waits for the reserve, which has room for the largest request and is had by one tenant at a time. So a tenant can
// have a large request taken however many tenants there are.
type inFlight struct {
	*quota.Shares
	capacity, reserve int64
	own               func(tenant string) int64
	turn              *turns

	// mu guards the rest.
	mu sync.Mutex
	// waiting are the tenants that have the reserve or wait for it, with one request each.
	waiting map[string]bool
	// reserved are the bytes that are taken of the reserve.
	reserved int64
}

func newInFlight(o *Options) *inFlight {
	own := func(tenant string) int64 { return o.Quotas.Of(tenant).InFlightBytes }
	reserve := min(o.largest(), o.InFlight/2)
	f := &inFlight{Shares: quota.NewShares(o.InFlight-reserve, o.divided(), own), capacity: o.InFlight,
		reserve: reserve, own: own,
		turn: newTurns(1), waiting: map[string]bool{}}
	f.turn.patience = reservePatience
	return f
}

// total is what all requests hold.
func (f *inFlight) total() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Used() + f.reserved
}

// enter waits for the reserve. It fails at once where another request of the tenant waits or has it.
func (f *inFlight) enter(ctx context.Context, tenant string) bool {
	f.mu.Lock()
	if f.waiting[tenant] {
		f.mu.Unlock()
		return false
	}
	f.waiting[tenant] = true
	f.mu.Unlock()
	if f.turn.take(ctx, tenant) == nil {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.waiting, tenant)
	return false
}

// leave gives the reserve to the next.
func (f *inFlight) leave(tenant string) {
	f.mu.Lock()
	delete(f.waiting, tenant)
	f.mu.Unlock()
	f.turn.give()
}

// hold is what a request holds of the bytes in flight. Memory is taken for a body as it comes, not by what the sender
// says of its length.
type hold struct {
	from   *inFlight
	ctx    context.Context
	tenant string
	// hurry bounds how long the rest of the body may take; nil where there is none.
	hurry func(time.Duration)
	// bytes are of the tenant's share, reserved of the reserve, which entered is whether it has.
	bytes, reserved int64
	entered         bool
}

// more takes n bytes, or fails.
func (h *hold) more(n int64) error {
	if !h.entered && h.from.TryTake(h.tenant, n) {
		h.bytes += n
		return nil
	}
	if !h.fromReserve(n) {
		h.from.Refuse(h.tenant, 1)
		who := ""
		if h.tenant != "" {
			who = fmt.Sprintf(" of tenant %q", h.tenant)
		}
		return fmt.Errorf("%w: no room for %d bytes more of requests%s, of %d for all", errBusy, n, who, h.from.capacity)
	}
	return nil
}

func (h *hold) fromReserve(n int64) bool {
	if limit := h.from.own(h.tenant); limit > 0 && h.held()+n > limit {
		return false
	}
	if h.reserved+n > h.from.reserve || !h.entered && !h.from.enter(h.ctx, h.tenant) {
		return false
	}
	if !h.entered && h.hurry != nil {
		h.hurry(reserveBodyTime)
	}
	h.entered = true
	h.reserve(n)
	return true
}

func (h *hold) reserve(n int64) {
	h.from.mu.Lock()
	defer h.from.mu.Unlock()
	h.from.reserved += n
	h.reserved += n
}

// held is how many bytes it holds.
func (h *hold) held() int64 { return h.bytes + h.reserved }

// less gives n bytes back.
func (h *hold) less(n int64) {
	reserved := min(n, h.reserved)
	h.reserve(-reserved)
	if n -= reserved; n > 0 {
		h.from.Add(h.tenant, -n)
		h.bytes -= n
	}
}

func (h *hold) release() {
	h.less(h.held())
	if h.entered {
		h.from.leave(h.tenant)
	}
}
