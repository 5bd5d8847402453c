package predict

import (
	"cmp"
	"slices"
)

// Wait is something that requests at an entry wait for longer in a scenario.
type Wait struct {
	// For says what it is: CPU time of a container, the CPUs of a host, a quota, connections, requests that may be under way.
	For string `json:"for"`
	// Longer is by how much shorter the 99th percentile would be, in seconds, if requests waited for that as they do now. Of
	// several that hold requests back the longest counts, and what varies independently adds up to less than its sum, so
	// that all of them together need not be what the percentile is longer by.
	Longer float64 `json:"longer"`
}

const (
	// waitsTold is how many waits are told at most, waitsLeast which share each is of what the 99th percentile is longer by, at
	// least, and waitsLonger how many times as long that is, at least.
	waitsTold, waitsLeast, waitsLonger = 3, 0.1, 1.05
)

// part is what requests wait for at a resource, its replicas included, or for a pool.
type part struct {
	waiting
	waitedFor, quotaOf string
}

// holds is that it holds requests back, as quotas and pools do.
func (p *part) holds() bool {
	for _, all := range p.replicas {
		if slices.ContainsFunc(all, func(of held) bool { return of != held{} }) {
			return true
		}
	}
	return p.pool != held{}
}

// parts have the name of the resource, or the client and the server of the pool. others is the sum of what they have, and
// holding are those that hold requests back.
type parts struct {
	of      map[string]*part
	others  [durations]float64
	holding []string
}

func partsOf(stations []station, rate float64) *parts {
	all := &parts{of: map[string]*part{}}
	for i := range stations {
		s := &stations[i]
		id := s.name
		if s.pool != nil {
			id = s.pool.client + ">" + s.pool.server
		}
		p := all.of[id]
		if p == nil {
			p = &part{waitedFor: s.waitedFor, quotaOf: s.quotaOf}
			all.of[id] = p
		}
		s.estimate(&p.waiting, rate, s.utilisation(rate))
	}
	for id, p := range all.of {
		for d := range all.others {
			all.others[d] += p.others[d]
		}
		if p.holds() {
			all.holding = append(all.holding, id)
		}
	}
	return all
}

// with is what requests wait for if what they wait for under one of the names is other.
func (p *parts) with(name string, other *waiting) *waiting {
	w := &waiting{others: p.others}
	own := p.of[name]
	for d := range w.others {
		w.others[d] += other.others[d] - own.others[d]
	}
	w.hold(other)
	for _, id := range p.holding {
		if id != name {
			w.hold(&p.of[id].waiting)
		}
	}
	w.finish()
	return w
}

// hold adds what holds requests back.
func (w *waiting) hold(of *waiting) {
	w.pool = w.pool.longest(of.pool)
	for name, all := range of.replicas {
		if w.replicas == nil {
			w.replicas = map[string][]held{}
		}
		w.replicas[name] = all
	}
}

// longer are the waits for which the 99th percentile is longer at a rate with stations than at another one with others.
func (f *queues) longer(now []station, mean float64, then []station, rate float64) (all []Wait) {
	const last = durations - 1
	whole, wholeThen := waits(now, mean, (*station).estimate), waits(then, rate, (*station).estimate)
	was, p99 := f.value(last, &whole), f.value(last, &wholeThen)
	if !(p99 >= waitsLonger*was) {
		return nil
	}
	before, after := partsOf(now, mean), partsOf(then, rate)
	for id, p := range after.of {
		var as waiting // it was
		if b := before.of[id]; b != nil {
			as = b.waiting
		}
		w := Wait{For: p.waitedFor, Longer: p99 - f.value(last, after.with(id, &as))}
		if as.replicas = p.replicas; p.holds() && p.pool == (held{}) && p99-f.value(last, after.with(id, &as)) < w.Longer/2 {
			w.For = p.quotaOf
		}
		if w.Longer >= waitsLeast*(p99-was) {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b Wait) int { return cmp.Or(cmp.Compare(b.Longer, a.Longer), cmp.Compare(a.For, b.For)) })
	return all[:min(len(all), waitsTold)]
}
