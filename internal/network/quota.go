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
)

// quota is what one container may still have.
type quota struct {
	ledger *ledger
	// name is that of the container when it was last over its quota.
	name                    string
	any                     bool
	edges, ends, endpoints  *rate.Limiter
	overEdges, overEndpoint uint64
}

func limiter(n int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(n)/quotaWindow.Seconds()), n)
}

func (g *ledger) quota(container string) *quota {
	q := g.quotas[container]
	if q == nil {
		most := g.options.MaxContainerEdges
		q = &quota{ledger: g, edges: limiter(most), ends: limiter(max(most/reservedShare, 1)),
			endpoints: limiter(2 * most)}
		g.quotas[container] = q
	}
	return q
}

// admit is the key under which an edge counts: its own, the one without processes, or that of all others
// of its counting end. The first edge of a container is always its own.
func (g *ledger) admit(k edgeKey, counting model.Peer) edgeKey {
	if g.totals[k] != nil || k == k.others() {
		return k
	}
	q := g.quota(counting.ID())
	if !q.any {
		q.any = true
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
	q.overEdges++
	q.name = counting.Name()
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

// peersOf leaves out of two ends what is not told of the edge with key k.
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
	if len(t.admitted) < maxEdgeEndpoints && t.quota.admitEndpoint(t.countingPeer()) {
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

func (q *quota) admitEndpoint(counting model.Peer) bool {
	g := q.ledger
	if g.allEndpoints.TokensAt(g.now) < 1 {
		g.refusedEndpoints++
		return false
	}
	if !q.endpoints.AllowN(g.now, 1) {
		q.overEndpoint++
		q.name = counting.Name()
		return false
	}
	return g.allEndpoints.AllowN(g.now, 1)
}

// drops tell what all together would have had more, and name the containers that would.
func (g *ledger) drops() []model.Drop {
	used := func(l *rate.Limiter) uint64 { return uint64(l.Burst()) - uint64(max(l.TokensAt(g.now), 0)) }
	all := []model.Drop{
		{Name: "network new edges", Count: g.refused, Capacity: uint64(g.all.Burst()), Used: used(g.all)},
		{Name: "network new endpoints", Count: g.refusedEndpoints, Capacity: uint64(g.allEndpoints.Burst()),
			Used: used(g.allEndpoints)},
	}
	for _, q := range g.quotas {
		for _, d := range []model.Drop{{Name: "container-new-edges/" + q.name, Count: q.overEdges},
			{Name: "container-new-endpoints/" + q.name, Count: q.overEndpoint}} {
			if d.Count > 0 {
				all = append(all, d)
			}
		}
	}
	slices.SortFunc(all, func(a, b model.Drop) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
