package ingest

import (
	"net"
	"strings"
	"sync/atomic"
	"time"

	"outsight/internal/model"
)

// ledger counts the refusals of all senders, or of one tenant.
type ledger struct {
	requests [refusals]refused
	points   [reasons]refused
}

// refused counts the refusals for one reason.
type refused struct {
	count atomic.Uint64
	// last is the latest of them, nil where there was none.
	last atomic.Pointer[refusalContext]
}

// refusalContext is the time, the sender's address and the message of a refusal.
type refusalContext struct {
	at            time.Time
	from, message string
}

// maxRefusalText bounds the message, in bytes: parts of it are the sender's words.
const maxRefusalText = 200

func (r *refused) add(n uint64, o refusalContext) {
	r.count.Add(n)
	r.last.Store(&o)
}

// listed appends r to list where it counted anything.
func (r *refused) listed(list []model.Refusal, what, reason string) []model.Refusal {
	n := r.count.Load()
	if n == 0 {
		return list
	}
	one := model.Refusal{What: what, Reason: reason, Count: n}
	// count is stored before last, so that last may still be nil.
	if o := r.last.Load(); o != nil {
		one.Last, one.From, one.Said = o.at, o.from, o.message
	}
	return append(list, one)
}

// sender is the tenant, empty without tenants or if unknown, and the address of a sender.
type sender struct{ tenant, address string }

// refusalContext returns that of now.
func (i *Ingest) refusalContext(who sender, said string) refusalContext {
	if len(said) > maxRefusalText {
		said = strings.ToValidUTF8(said[:maxRefusalText], "") + "…"
	}
	host, _, err := net.SplitHostPort(who.address)
	if err != nil {
		host = who.address
	}
	return refusalContext{i.options.Now(), host, said}
}

// refuse counts a request that was turned away, for everybody and for its tenant.
func (i *Ingest) refuse(who sender, why Refusal, err error) {
	o := i.refusalContext(who, err.Error())
	i.all.requests[why].add(1, o)
	if own := i.tenants[who.tenant]; own != nil {
		own.requests[why].add(1, o)
	}
}

// reject counts data points that were not taken, for everybody and for their tenant.
func (i *Ingest) reject(who sender, why Reason, n uint64, said string) {
	if n == 0 {
		return
	}
	o := i.refusalContext(who, said)
	i.all.points[why].add(n, o)
	if own := i.tenants[who.tenant]; own != nil {
		own.points[why].add(n, o)
	}
}

// Refusals are the refusals since New, by reason: all for "", or those of one of Options.TenantNames. A request without
// a valid token belongs to no tenant, unless it names one.
func (i *Ingest) Refusals(tenant string) (list []model.Refusal) {
	l := &i.all
	if tenant != "" {
		if l = i.tenants[tenant]; l == nil {
			return nil
		}
	}
	for r := range l.requests {
		list = l.requests[r].listed(list, model.RefusedRequests, Refusal(r).String())
	}
	for r := range l.points {
		list = l.points[r].listed(list, model.RefusedPoints, Reason(r).String())
	}
	return list
}
