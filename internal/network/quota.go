package network

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"outsight/internal/model"
)

// Each new edge or endpoint is a set of series that a store keeps for about an hour, also when it ends at once. So what
// counts is how many of them a container makes in an hour, not how many there are.
const (
	quotaWindow = time.Hour
	// reservedShare of a container's quota is for edges without processes: the other end chooses
	// the name of its process, and may use up all other edges of the quota with names.
	reservedShare = 4
	// maxOtherEndpoints bounds the statuses of "other" on an edge.
	maxOtherEndpoints = 8
	// maxLeftQuotas bounds the quotas that are kept of containers that are gone.
	maxLeftQuotas = 1024
)

// quota is what one container may still have.
type quota struct {
	ledger *ledger
	// name is that of the container.
	name                   string
	any                    bool
	edges, ends, endpoints *rate.Limiter
}

// overQuota counts what the containers of one name would have had more.
type overQuota struct{ edges, endpoints uint64 }

func limiter(n int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(n)/quotaWindow.Seconds()), n)
}

func (g *ledger) quota(container model.Peer) *quota {
	id, name := container.ID(), container.Name()
	q := g.quotas[id]
	if q != nil {
		q.name = name // it may become known late
		return q
	}
	if q = g.leftQuotas[name]; q != nil {
		delete(g.leftQuotas, name)
	} else {
		most := g.options.MaxContainerEdges
		q = &quota{ledger: g, name: name, edges: limiter(most), ends: limiter(max(most/reservedShare, 1)),
			endpoints: limiter(2 * most)}
	}
	g.quotas[id] = q
	return q
}

// forgetQuotas keeps the quota of a container that is gone until all of it is free again: one that restarts all the
// time has no more than one that stays.
func (g *ledger) forgetQuotas(present map[string]bool) {
	names := make(map[string]bool)
	for id, q := range g.quotas {
		if present[id] {
			names[q.name] = true
			continue
		}
		delete(g.quotas, id)
		q.any = false
		if other := g.leftQuotas[q.name]; other == nil || q.edges.TokensAt(g.now) < other.edges.TokensAt(g.now) {
			g.leftQuotas[q.name] = q
		}
	}
	for name, q := range g.leftQuotas {
		if q.isFree() || len(g.leftQuotas) > maxLeftQuotas {
			delete(g.leftQuotas, name)
		} else {
			names[name] = true
		}
	}
	for name := range g.over {
		if !names[name] {
			delete(g.over, name)
		}
	}
}

func (q *quota) isFree() bool {
	for _, l := range []*rate.Limiter{q.edges, q.ends, q.endpoints} {
		if l.TokensAt(q.ledger.now) < float64(l.Burst()) {
			return false
		}
	}
	return true
}

// over is where to count what is beyond the quota.
func (q *quota) over() *overQuota {
	o := q.ledger.over[q.name]
	if o == nil {
		o = &overQuota{}
		q.ledger.over[q.name] = o
	}
	return o
}

// admit is the key under which an edge counts: its own, the one without processes, or that of all others
// of its counting end. The first edge of a container is always its own, unless it used up its quota before it
// restarted.
func (g *ledger) admit(k edgeKey, counting model.Peer) edgeKey {
	if g.totals[k] != nil || k == k.others() {
		return k
	}
	q := g.quota(counting)
	first := !q.any
	q.any = true
	if first && q.edges.AllowN(g.now, 1) {
		return k
	}
	if g.all.TokensAt(g.now) < 1 {
		g.refused++
		return k.others()
	}
	if q.edges.AllowN(g.now, 1) {
		g.all.AllowN(g.now, 1)
		return k
	}
	q.over().edges++
	k = k.ends()
	if g.totals[k] != nil {
		return k
	}
	if q.ends.AllowN(g.now, 1) {
		g.all.AllowN(g.now, 1)
		return k
	}
	return k.others()
}

// readmit is admit for what counts for another edge than its own. It counts nothing as refused again. While others of
// the container may wait for an edge of any kind, one that only lacks its processes leaves half of the quota to them.
func (g *ledger) readmit(own edgeKey, from *total) edgeKey {
	if g.totals[own] != nil {
		return own
	}
	ends, least := own.ends(), 1.0
	if from.key != own.others() {
		least = max(float64(from.quota.edges.Burst())/2, 1)
	} else if g.totals[ends] != nil {
		return ends
	}
	if g.all.TokensAt(g.now) < 1 {
		return from.key
	}
	q := from.quota
	switch {
	case q.edges.TokensAt(g.now) >= least && q.edges.AllowN(g.now, 1):
		g.all.AllowN(g.now, 1)
		return own
	case from.key != ends && q.ends.AllowN(g.now, 1):
		g.all.AllowN(g.now, 1)
		return ends
	}
	return from.key
}

// peersOf leaves out of two ends what is not part of the key k.
func peersOf(k edgeKey, client, server model.Peer) (model.Peer, model.Peer) {
	client.Process, server.Process = k.clientProcess, k.serverProcess
	if k != k.others() {
		return client, server
	}
	if k.side == model.RoleServer {
		return model.Peer{}, server
	}
	return client, model.Peer{}
}

// admit is the key under which an endpoint counts on the edge.
func (t *total) admit(k model.EndpointKey) model.EndpointKey {
	if t.admitted == nil {
		t.admitted = make(map[model.EndpointKey]bool)
	}
	if t.admitted[k] {
		return k
	}
	if len(t.admitted) < maxEdgeEndpoints && t.quota.admitEndpoint() {
		t.admitted[k] = true
		return k
	}
	k.Name = model.OtherEndpoint
	switch {
	case t.admitted[k]:
	case t.others < maxOtherEndpoints:
		t.others++
		t.admitted[k] = true
	default:
		k.Status = ""
	}
	return k
}

// readmit reports whether an endpoint that counts as "other" counts under its own name from now on. It counts nothing
// as refused again.
func (t *total) readmit(k model.EndpointKey) bool {
	switch g := t.quota.ledger; {
	case t.admitted[k]:
		return true
	case len(t.admitted) >= maxEdgeEndpoints || g.allEndpoints.TokensAt(g.now) < 1 || !t.quota.endpoints.AllowN(g.now, 1):
		return false
	default:
		t.admitted[k] = true
		return g.allEndpoints.AllowN(g.now, 1)
	}
}

func (q *quota) admitEndpoint() bool {
	g := q.ledger
	if g.allEndpoints.TokensAt(g.now) < 1 {
		g.refusedEndpoints++
		return false
	}
	if !q.endpoints.AllowN(g.now, 1) {
		q.over().endpoints++
		return false
	}
	return g.allEndpoints.AllowN(g.now, 1)
}

// drops report what all together would have had more, and name the containers that would.
func (g *ledger) drops() []model.Drop {
	used := func(l *rate.Limiter) uint64 { return uint64(l.Burst()) - uint64(max(l.TokensAt(g.now), 0)) }
	all := []model.Drop{
		{Name: "network new edges", Count: g.refused, Capacity: uint64(g.all.Burst()), Used: used(g.all)},
		{Name: "network new endpoints", Count: g.refusedEndpoints, Capacity: uint64(g.allEndpoints.Burst()),
			Used: used(g.allEndpoints)},
	}
	for name, o := range g.over {
		for _, d := range []model.Drop{{Name: "container-new-edges/" + name, Count: o.edges},
			{Name: "container-new-endpoints/" + name, Count: o.endpoints}} {
			if d.Count > 0 {
				all = append(all, d)
			}
		}
	}
	slices.SortFunc(all, func(a, b model.Drop) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
