package network

import (
	"cmp"
	"maps"
	"slices"

	"outsight/internal/model"
)

// maxEdgeEndpoints bounds the endpoints that an edge ever has. The kernel gives up those that are
// silent and takes others; what comes when an edge has had so many is "other".
const maxEdgeEndpoints = 128

// tally counts by endpoint. Its histograms may be shared and never change.
type tally map[model.EndpointKey]model.Endpoint

func (t tally) add(e *model.Endpoint) {
	have := t[e.EndpointKey]
	sum := have.Plus(e)
	sum.EndpointKey = e.EndpointKey
	t[e.EndpointKey] = sum
}

func (t tally) addAll(o tally) {
	for _, e := range o {
		t.add(&e)
	}
}

// list is the tally in order.
func (t tally) list() []model.Endpoint {
	if len(t) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Values(t), func(a, b model.Endpoint) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Status, b.Status))
	})
}

// lineEndpoint is an endpoint of a kernel edge: its latest state, the state in which it was
// assigned to the total, and the key under which it counts there.
type lineEndpoint struct {
	last, base model.Endpoint
	as         model.EndpointKey
}

func (l *lineEndpoint) gained() model.Endpoint {
	gained := l.last.Since(&l.base)
	gained.EndpointKey = l.as
	return gained
}

// takeEndpoints adds the kernel's counters of a line's endpoints. What those counted that it
// no longer has, or counts anew, stays with the total.
func (l *line) takeEndpoints(endpoints []model.Endpoint) {
	if len(endpoints) == 0 && len(l.endpoints) == 0 {
		return
	}
	l.to.stale = true
	now := make(map[model.EndpointKey]lineEndpoint, len(endpoints))
	for _, e := range endpoints {
		if e.Protocol == model.Kafka {
			e.Name = kafkaRequest(e.Name)
		}
		before, known := l.endpoints[e.EndpointKey]
		if known && before.last.Precedes(&e) {
			if before.as != e.EndpointKey && l.to.readmit(e.EndpointKey) {
				gained := before.gained()
				l.to.keepEndpoint(&gained)
				before.base, before.as = before.last, e.EndpointKey
			}
			before.last = e
			now[e.EndpointKey] = before
			delete(l.endpoints, e.EndpointKey)
		} else {
			now[e.EndpointKey] = lineEndpoint{last: e, as: l.to.admit(e.EndpointKey)}
		}
	}
	l.keepEndpoints()
	l.endpoints = now
}

// keepEndpoints leaves what the line's endpoints counted with its total.
func (l *line) keepEndpoints() {
	for _, e := range l.endpoints {
		gained := e.gained()
		l.to.keepEndpoint(&gained)
	}
}

// moveEndpoints makes the line's endpoints count for its new total from now on.
func (l *line) moveEndpoints() {
	l.to.stale = true
	for k, e := range l.endpoints {
		e.as, e.base = l.to.admit(k), e.last
		l.endpoints[k] = e
	}
}

func (t *total) keepEndpoint(e *model.Endpoint) {
	if e.Transactions() == 0 {
		return
	}
	if t.goneEndpoints == nil {
		t.goneEndpoints = make(tally)
	}
	t.goneEndpoints.add(e)
	t.stale = true
}

// sumEndpoints adds up what the lines of each stale total have counted, and what is gone.
func (g *ledger) sumEndpoints() {
	sums := make(map[*total]tally)
	of := func(t *total) tally {
		if sums[t] == nil {
			sums[t] = make(tally)
		}
		return sums[t]
	}
	for _, t := range g.totals {
		if t.stale && len(t.goneEndpoints) > 0 {
			of(t).addAll(t.goneEndpoints)
		}
	}
	for _, l := range g.lines {
		if !l.to.stale {
			continue
		}
		for _, e := range l.endpoints {
			if gained := e.gained(); gained.Transactions() > 0 {
				of(l.to).add(&gained)
			}
		}
	}
	for _, t := range g.totals {
		if t.stale {
			t.endpoints = sums[t].list()
		}
	}
}
