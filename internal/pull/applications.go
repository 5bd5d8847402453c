package pull

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"outsight/internal/model"
)

// runID is a container between its beginning and its end: its agent forgets what a container's applications have counted
// that is gone, also where it begins again.
type runID struct {
	container string
	startedNS int64
}

func runOf(c *model.Container) runID { return runID{c.ID, c.Started.UnixNano()} }

// applicationCounts are what counters of a container's applications have counted.
type applicationCounts map[model.ApplicationKey]uint64

// applicationState is a metric of a container's applications. It has counted earlier, in earlier runs, and now.Count less
// base.
type applicationState struct {
	now           model.ApplicationMetric
	earlier, base uint64
	turn          uint64
}

// baseApplications counts nothing of what the first reading has.
func (m *maker) baseApplications(first *reading) {
	for i := range first.Applications {
		one := &first.Applications[i]
		run := runOf(&first.Containers[one.Container].Container)
		had, known := m.goneApplications[run]
		if !known {
			had = gone[applicationCounts]{applicationCounts{}, first.At}
			m.goneApplications[run] = had
		}
		had.had[one.ApplicationKey] = one.Count
	}
}

// takeApplications adds what a reading says of applications' own metrics. A counter is the greatest that was read; a gauge
// that no process has any more is not there.
func (m *maker) takeApplications(r *reading) {
	if m.applicationsKnown {
		m.applicationsKnown = false
		m.baseApplications(r)
	}
	for i := range r.Applications {
		from := &r.Applications[i]
		c := m.containers[r.Containers[from.Container].Container.ID]
		run := runOf(c.container)
		if c.applications == nil {
			c.applications = map[model.ApplicationKey]*applicationState{}
		}
		one := c.applications[from.ApplicationKey]
		if one == nil {
			one = &applicationState{base: m.goneApplications[run].had[from.ApplicationKey]}
			one.now.Count = one.base
			c.applications[from.ApplicationKey] = one
		}
		if run != c.run && from.Count < one.now.Count {
			one.earlier, one.base, one.now.Count = one.earlier+one.now.Count-one.base, 0, 0
		}
		count := max(one.now.Count, from.Count)
		one.now, one.turn = from.ApplicationMetric, m.turn
		one.now.Count = count
	}
	for _, c := range m.containers {
		c.run = runOf(c.container)
		for key, one := range c.applications {
			if key.Kind == model.Gauge && one.turn != m.turn {
				delete(c.applications, key)
			}
		}
	}
}

// applicationMetrics are in order of their name and labels.
func (c *containerState) applicationMetrics() []model.ApplicationMetric {
	all := make([]model.ApplicationMetric, 0, len(c.applications))
	for _, one := range c.applications {
		m := one.now
		m.Count += one.earlier - one.base
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b model.ApplicationMetric) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Labels, b.Labels))
	})
	return all
}

// forgetApplications remembers what a container's applications had counted that is gone.
func (m *maker) forgetApplications(c *containerState, at time.Time) {
	if len(c.applications) == 0 {
		return
	}
	had := applicationCounts{}
	for key, one := range c.applications {
		had[key] = one.now.Count
	}
	m.goneApplications[c.run] = gone[applicationCounts]{had, at}
}
