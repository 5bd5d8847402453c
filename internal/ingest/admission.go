package ingest

import (
	"fmt"
	"sync"

	"outsight/internal/model"
	"outsight/internal/quota"
	"outsight/internal/store"
)

// seriesAccounts is a store that counts the series of each tenant.
type seriesAccounts interface {
	// Available is how many more series a tenant may have, and how many more bytes of labels.
	Available(tenant string) (series, labelBytes int64)
	// CountNew counts the series that the store does not have, and those of them beyond the given limits.
	CountNew(series []model.Series, room, roomBytes int64) store.NewSeries
}

// tenantAccounts is a store that counts what each tenant uses of it.
type tenantAccounts interface {
	Usages() (series, labelBytes []quota.Usage)
}

// A store without these methods has no limits: those of this project must not lose them by a change of names.
var (
	_ seriesAccounts = (*store.Store)(nil)
	_ seriesAccounts = (*store.Remote)(nil)
	_ tenantAccounts = (*store.Store)(nil)
	_ tenantAccounts = (*store.Remote)(nil)
)

// admission decides whether there is capacity for the new series of a request. The sender is answered before they are
// in the store, so the accepted ones are claimed until then.
type admission struct {
	store seriesAccounts
	// mu guards the rest.
	mu      sync.Mutex
	tenants map[string]*claims
	// pending are the claims of queued messages, by their IDs.
	pending map[string]*claim
	// lostBefore is the sequence of a message before which no queued message is left.
	lostBefore uint64
}

// claims are those of a tenant: of new series, and of series that were not compared with the store.
type claims struct{ series, bytes, unchecked, uncheckedBytes int64 }

// claim is that of a request.
type claim struct {
	admission *admission
	tenant    string
	claims
	// rejected counts the series that the sender knows to be rejected.
	rejected int64
	// sequence of the message, 0 until it is known.
	sequence uint64
}

// shortage is the series of a request that exceed the limits.
type shortage struct {
	series    uint64
	first     *model.Series
	available int64
	// temporary means that capacity may be left once queued messages are in the store: until then, series that several
	// messages have, or that the store has, count more than once.
	temporary bool
}

// message explains the shortage to the sender.
func (s *shortage) message(tenant string) string {
	who := ""
	if tenant != "" {
		who = fmt.Sprintf("tenant %q has ", tenant)
	}
	return fmt.Sprintf("%sroom for %d new series, and the first without is %.200q with labels %.400q", who, s.available,
		s.first.Name, fmt.Sprint(s.first.Labels))
}

func (r *admission) init(s Store) {
	r.store, _ = s.(seriesAccounts)
	r.tenants, r.pending = map[string]*claims{}, map[string]*claim{}
}

// nameBytes is more than the name of most series counts as a label, in bytes.
const nameBytes = 128

// uncheckedFactor: a request is admitted without a comparison of its series if this many times as many are available.
const uncheckedFactor = 4

// claim claims capacity for the new series of a request, and returns those that exceed it. bytes is roughly the size of
// the labels of all.
func (r *admission) claim(tenant string, series []model.Series, bytes int64) (*claim, shortage) {
	c := &claim{admission: r, tenant: tenant}
	if r.store == nil {
		return c, shortage{}
	}
	n := int64(len(series))
	bytes += n * nameBytes
	r.mu.Lock()
	room, roomBytes := r.store.Available(tenant)
	all := r.claimsOf(tenant)
	if room-all.series-all.unchecked >= uncheckedFactor*n &&
		roomBytes-all.bytes-all.uncheckedBytes >= uncheckedFactor*bytes {
		c.unchecked, c.uncheckedBytes = n, bytes
		all.add(&c.claims, 1)
		r.mu.Unlock()
		return c, shortage{}
	}
	left, leftBytes := max(0, room-all.series-all.unchecked), max(0, roomBytes-all.bytes-all.uncheckedBytes)
	// Until the store has answered, all that may be needed is claimed, so that no other request claims it.
	c.unchecked, c.uncheckedBytes = min(n, left), min(bytes, leftBytes)
	all.add(&c.claims, 1)
	r.mu.Unlock()
	fresh := r.store.CountNew(series, left, leftBytes)
	if fresh.Unknown {
		// All of them may be new: the claim stays until the store has them.
		return c, shortage{}
	}
	short := shortage{series: uint64(fresh.Rejected), first: fresh.FirstRejected, available: left}
	if fresh.Rejected > 0 && left < room {
		short.temporary = r.store.CountNew(series, room, roomBytes).Rejected == 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.release()
	if !short.temporary {
		c.claims, c.rejected = claims{series: fresh.Series, bytes: fresh.Bytes}, fresh.Rejected
		r.claimsOf(tenant).add(&c.claims, 1)
	}
	return c, short
}

// claimsOf is the claims of a tenant; mu is held.
func (r *admission) claimsOf(tenant string) *claims {
	c := r.tenants[tenant]
	if c == nil {
		c = &claims{}
		r.tenants[tenant] = c
	}
	return c
}

func (c *claims) add(other *claims, sign int64) {
	c.series += sign * other.series
	c.bytes += sign * other.bytes
	c.unchecked += sign * other.unchecked
	c.uncheckedBytes += sign * other.uncheckedBytes
}

// cancel releases a claim.
func (c *claim) cancel() {
	c.admission.mu.Lock()
	defer c.admission.mu.Unlock()
	c.release()
}

// release is drop with mu held.
func (c *claim) release() {
	all := c.admission.claimsOf(c.tenant)
	all.add(&c.claims, -1)
	c.claims = claims{}
	if *all == (claims{}) {
		delete(c.admission.tenants, c.tenant)
	}
}

// register keeps a claim until the message of this ID is in the store. It returns false if there is one for this ID
// already: it is the same request.
func (c *claim) register(id string) bool {
	c.admission.mu.Lock()
	defer c.admission.mu.Unlock()
	if c.admission.pending[id] != nil {
		c.release()
		return false
	}
	c.admission.pending[id] = c
	return true
}

// rejected is how many series of a message the sender knows not to be taken.
func (r *admission) rejected(id string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.pending[id]; c != nil {
		return uint64(c.rejected)
	}
	return 0
}

// published sets the sequence of a message, by which lost finds its claim.
func (r *admission) published(id string, sequence uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.pending[id]
	if c == nil {
		return
	}
	if c.sequence = sequence; sequence < r.lostBefore {
		r.release(id, c)
	}
}

// lost releases the claims of messages before this sequence: those left were lost by the queue.
func (r *admission) lost(before uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lostBefore = max(r.lostBefore, before)
	for id, c := range r.pending {
		if c.sequence > 0 && c.sequence < before {
			r.release(id, c)
		}
	}
}

// release releases the claim of a message; mu is held.
func (r *admission) release(id string, c *claim) {
	delete(r.pending, id)
	c.release()
}

// done releases the claim of a message, if it has one.
func (r *admission) done(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.pending[id]; c != nil {
		r.release(id, c)
	}
}
