package ingest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"outsight/internal/quota"
)

const (
	// reserveTimeout bounds the wait for the reserve, reserveBodyTime the time in which the body must be complete once
	// the request has it: other tenants wait for it.
	reserveTimeout  = 10 * time.Second
	reserveBodyTime = 5 * time.Second
)

// LeastInFlight is the least Options.InFlight with the default limits: less has no reserve for the largest request.
var LeastInFlight = func() int64 { o := Options{}.withDefaults(); return 2 * o.largest() }()

// largest is the memory in bytes of the largest accepted request: its compressed body, what it is decompressed to with
// the window for that, the protobuf made of JSON, and the batch.
func (o *Options) largest() int64 {
	// A buffer has one byte more than it may, and one that grows a quarter.
	raw, text := o.MaxBody+1, o.MaxDecompressed+1
	protobuf := o.MaxDecompressed + o.MaxDecompressed/4 + 64<<10
	return max(raw+text+max(windowBytes(maxWindow), protobuf, int64(o.Limits.Built)), protobuf+int64(o.Limits.Built))
}

// inFlight bounds the bytes of requests in flight. Tenants have shares. A request that exceeds its tenant's share waits
// for the reserve, which is large enough for the largest request and used by one tenant at a time. So each tenant can
// send a large request, however many tenants there are.
type inFlight struct {
	*quota.Shares
	capacity, reserve int64
	limitOf           func(tenant string) int64
	reserveSlot       *slots

	// mu guards what follows.
	mu sync.Mutex
	// waiting are the tenants with a request that has the reserve or waits for it: one each.
	waiting map[string]bool
	// reserved are the bytes in use of the reserve.
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

// total is the number of bytes of all requests.
func (f *inFlight) total() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Used() + f.reserved
}

// enterReserve waits for the reserve. It fails at once if another request of the tenant has it or waits for it.
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

// leaveReserve passes the reserve on to the next tenant.
func (f *inFlight) leaveReserve(tenant string) {
	f.mu.Lock()
	delete(f.waiting, tenant)
	f.mu.Unlock()
	f.reserveSlot.release()
}

// reservation is the memory of one request in flight. Bytes of a body are reserved as they arrive, not by its stated
// length.
type reservation struct {
	from   *inFlight
	ctx    context.Context
	tenant string
	// limitBodyTime bounds the time left for the body; nil if the request has none.
	limitBodyTime func(time.Duration)
	// shareBytes are of the tenant's share, reserveBytes of the reserve, which the request has if inReserve.
	shareBytes, reserveBytes int64
	inReserve                bool
}

// grow reserves n more bytes, or fails.
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
		return fmt.Errorf("%w: %d bytes more for requests%s are not available, of %d for all", errBusy, n, who,
			h.from.capacity)
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

// held is how many bytes are reserved.
func (h *reservation) held() int64 { return h.shareBytes + h.reserveBytes }

// shrink releases n bytes.
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
