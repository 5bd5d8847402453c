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
	waitedFor string
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

// partsOf is by the name of the resource, or the client and the server of the pool.
func (f *queues) partsOf(stations []station, rate float64) map[string]*part {
	all := map[string]*part{}
	for i := range stations {
		s := &stations[i]
		id := s.name
		if s.pool != nil {
			id = s.pool.client + ">" + s.pool.server
		}
		if all[id] == nil {
			all[id] = &part{waitedFor: s.waitedFor, waiting: waiting{rare: f.rare}}
		}
		s.estimate(&all[id].waiting, rate, s.utilisation(rate))
	}
	return all
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

func compareWaits(a, b Wait) int {
	return cmp.Or(cmp.Compare(b.Longer, a.Longer), cmp.Compare(a.For, b.For))
}

// longer are the waits for which the 99th percentile is longer at a rate with stations than at another one with others.
func (f *queues) longer(now []station, mean float64, then []station, rate float64) (all []Wait) {
	const last = durations - 1
	whole, wholeThen := waits(now, mean, f.rare, (*station).estimate), waits(then, rate, f.rare, (*station).estimate)
	was, p99 := f.value(last, &whole), f.value(last, &wholeThen)
	if !(p99 >= waitsLonger*was) {
		return nil
	}
	before, after := f.partsOf(now, mean), f.partsOf(then, rate)
	var holding []string
	for id, p := range after {
		if p.holds() {
			holding = append(holding, id)
		}
	}
	// longerFor is by how much shorter the percentile is if a part is something else.
	longerFor := func(id string, other *waiting) float64 {
		w := waiting{others: wholeThen.others}
		for d := range w.others {
			w.others[d] += other.others[d] - after[id].others[d]
		}
		w.hold(other)
		for _, holder := range holding {
			if holder != id {
				w.hold(&after[holder].waiting)
			}
		}
		w.finish()
		return p99 - f.value(last, &w)
	}
	for id, p := range after {
		var as waiting // it was
		if b := before[id]; b != nil {
			as = b.waiting
		}
		w := Wait{For: p.waitedFor, Longer: longerFor(id, &as)}
		if w.Longer < waitsLeast*(p99-was) {
			continue
		}
		if as.replicas = p.replicas; p.holds() && p.pool == (held{}) && longerFor(id, &as) < w.Longer/2 {
			w.For = "the quota of " + id // most of it
		}
		all = append(all, w)
	}
	slices.SortFunc(all, compareWaits)
	return all[:min(len(all), waitsTold)]
}
