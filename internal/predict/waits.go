package predict

import (
	"cmp"
	"slices"
)

// Wait is something that requests at an entry wait for.
type Wait struct {
	// For says what it is: CPU time of a container, the CPUs of a host, a quota, connections, requests that may be under way.
	For string `json:"for"`
	// Before is what of the 99th percentile it is at the mean rate as it is, Then in the scenario, in seconds.
	Before float64 `json:"before"`
	Then   float64 `json:"then"`
}

func (w *Wait) grows() float64 { return w.Then - w.Before }

const (
	// waitsTold is how many waits are told at most, waitsLeast which share each is of what all grow by, at least, and
	// waitsGrow how many times as long the 99th percentile is at least.
	waitsTold, waitsLeast, waitsGrow = 3, 0.1, 1.05
)

// grow are the waits for which the 99th percentile grows from one rate and its stations to others.
func (f *queues) grow(now []station, mean float64, then []station, rate float64) (all []Wait) {
	longer, before := f.longest(then, rate), f.longest(now, mean)
	sum := 0.0
	for what, seconds := range longer {
		if w := (Wait{what, before[what], seconds}); w.grows() > 0 {
			all, sum = append(all, w), sum+w.grows()
		}
	}
	p99 := waits(now, mean, (*station).estimate)
	if sum < (waitsGrow-1)*f.value(durations-1, &p99) {
		return nil
	}
	all = slices.DeleteFunc(all, func(w Wait) bool { return w.grows() < waitsLeast*sum })
	slices.SortFunc(all, func(a, b Wait) int { return cmp.Or(cmp.Compare(b.grows(), a.grows()), cmp.Compare(a.For, b.For)) })
	return all[:min(len(all), waitsTold)]
}

// longest is what of the 99th percentile, in seconds, is waited for at a rate, by what that is. Stations of the same name are
// replicas: others are waited for at each, and what their quotas hold back is their mean, as in waiting.
func (f *queues) longest(stations []station, rate float64) map[string]float64 {
	parts := map[string]*waiting{}
	for i := range stations {
		s := &stations[i]
		if parts[s.waitedFor] == nil {
			parts[s.waitedFor] = &waiting{}
		}
		s.estimate(parts[s.waitedFor], rate, s.utilisation(rate))
	}
	const last = durations - 1
	seconds := make(map[string]float64, len(parts))
	for what, w := range parts {
		w.finish()
		seconds[what] = f.lines[last].k*w.others[last] + w.quota[last] + w.pool[last]
	}
	return seconds
}
