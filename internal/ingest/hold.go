package ingest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"outsight/internal/quota"
)

const (
	// reserveTimeout is how long a request waits for the reserve, reserveBodyTime how long the rest of its body may
	// take once it has it: others wait meanwhile.
	reserveTimeout = 10 * time.Second
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
	limitOf               func(tenant string) int64
	reserveSlot              *slots

	// mu guards the rest.
	mu sync.Mutex
	// pending are the tenants that have the reserve or wait for it, with one request each.
	waiting map[string]bool
	// reserveBytes are the bytes that are taken of the reserve.
	reserved int64
}

func newInFlight(o *Options) *inFlight {
	own := func(tenant string) int64 { return o.Quotas.Of(tenant).InFlightBytes }
	reserve := min(o.largest(), o.InFlight/2)
	f := &inFlight{Shares: quota.NewShares(o.InFlight-reserve, o.tenantsOf(), own), capacity: o.InFlight,
		reserve: reserve, limitOf: own,
		reserveSlot: newSlots(1), waiting: map[string]bool{}}
	f.reserveSlot.timeout = reserveTimeout
	return f
}

// total is what all requests hold.
func (f *inFlight) total() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Used() + f.reserved
}

// enterReserve waits for the reserve. It fails at once where another request of the tenant waits or has it.
func (f *inFlight) enterReserve(ctx context.Context, tenant string) bool {
	f.mu.Lock()
	if f.waiting[tenant] {
		f.mu.Unlock()
		return false
	}
	f.waiting[tenant] = true
	f.mu.Unlock()
	if f.reserveSlot.acquire(ctx, tenant) == nil {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.waiting, tenant)
	return false
}

// removeWaiter gives the reserve to the next.
func (f *inFlight) leaveReserve(tenant string) {
	f.mu.Lock()
	delete(f.waiting, tenant)
	f.mu.Unlock()
	f.reserveSlot.release()
}

// reservation is what a request holds of the bytes in flight. Memory is taken for a body as it comes, not by what the sender
// says of its length.
type reservation struct {
	from   *inFlight
	ctx    context.Context
	tenant string
	// limitBodyTime bounds how long the rest of the body may take; nil where there is none.
	limitBodyTime func(time.Duration)
	// shareBytes are of the tenant's share, reserved of the reserve, which entered is whether it has.
	shareBytes, reserveBytes int64
	inReserve         bool
}

// grow takes n bytes, or fails.
func (h *reservation) grow(n int64) error {
	if !h.inReserve && h.from.TryTake(h.tenant, n) {
		h.shareBytes += n
		return nil
	}
	if !h.growFromReserve(n) {
		h.from.Refuse(h.tenant, 1)
		who := ""
		if h.tenant != "" {
			who = fmt.Sprintf(" of tenant %q", h.tenant)
		}
		return fmt.Errorf("%w: no room for %d bytes more of requests%s, of %d for all", errBusy, n, who, h.from.capacity)
	}
	return nil
}

func (h *reservation) growFromReserve(n int64) bool {
	if limit := h.from.limitOf(h.tenant); limit > 0 && h.held()+n > limit {
		return false
	}
	if h.reserveBytes+n > h.from.reserve || !h.inReserve && !h.from.enterReserve(h.ctx, h.tenant) {
		return false
	}
	if !h.inReserve && h.limitBodyTime != nil {
		h.limitBodyTime(reserveBodyTime)
	}
	h.inReserve = true
	h.addReserve(n)
	return true
}

func (h *reservation) addReserve(n int64) {
	h.from.mu.Lock()
	defer h.from.mu.Unlock()
	h.from.reserved += n
	h.reserveBytes += n
}

// held is how many bytes it holds.
func (h *reservation) held() int64 { return h.shareBytes + h.reserveBytes }

// shrink gives n bytes back.
func (h *reservation) shrink(n int64) {
	reserved := min(n, h.reserveBytes)
	h.addReserve(-reserved)
	if n -= reserved; n > 0 {
		h.from.Add(h.tenant, -n)
		h.shareBytes -= n
	}
}

func (h *reservation) release() {
	h.shrink(h.held())
	if h.inReserve {
		h.from.leaveReserve(h.tenant)
	}
}
