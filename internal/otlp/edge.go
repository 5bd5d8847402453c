package otlp

import (
	"net/netip"
	"time"

	"outsight/internal/model"
)

// edgeKey is what the labels of an edge's series are made from: two edges with one key would
// be one series twice.
type edgeKey struct {
	side             model.Role
	client, server   string
	clientN, serverN string
	clientP, serverP string
	service          netip.AddrPort
	transport        model.Transport
}

func keyOf(e *model.Edge) edgeKey {
	return edgeKey{e.Side, e.Client.ID(), e.Server.ID(), e.Client.Name(), e.Server.Name(),
		e.Client.Process, e.Server.Process, e.Service, e.Transport}
}

// uniqueEdges adds up edges that have the same labels, in the order of the first of each.
func uniqueEdges(edges []model.Edge) []model.Edge {
	at := make(map[edgeKey]int, len(edges))
	unique := make([]model.Edge, 0, len(edges))
	for i := range edges {
		e := edges[i]
		k := keyOf(&e)
		if j, ok := at[k]; ok {
			addEdge(&unique[j], &e)
			continue
		}
		at[k] = len(unique)
		unique = append(unique, e)
	}
	return unique
}

// addEdge adds e to sum, which is a copy of ours.
func addEdge(sum, e *model.Edge) {
	sum.Counters.Add(&e.Counters)
	sum.Endpoints = model.MergeEndpoints(sum.Endpoints, e.Endpoints)
	sum.Paired = sum.Paired && e.Paired
	sum.Confidence = min(sum.Confidence, e.Confidence)
	if e.Start.IsZero() || e.Start.Before(sum.Start) {
		sum.Start = e.Start
	}
}

// edgeStart is when the counters of e were zero: what e says, else the later start of its two
// ends, which no counter of it can be older than.
func edgeStart(e *model.Edge) (start time.Time) {
	if !e.Start.IsZero() {
		return e.Start
	}
	for _, p := range []model.Peer{e.Client, e.Server} {
		if p.Container != nil && p.Container.Started.After(start) {
			start = p.Container.Started
		}
	}
	return start
}
