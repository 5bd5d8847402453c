package appmetrics

import (
	"cmp"
	"slices"
	"strings"

	"outsight/internal/model"
)

// sums are the metrics of a container, by name and labels.
type sums struct {
	of map[model.ApplicationKey]*sum
}

// sum is a metric of a container.
type sum struct {
	unit, help string
	// count is what was counted, by processes that have ended too.
	count uint64
	// ended is what of count no value says that a process still has; endedLevel of the same processes as users.
	ended      uint64
	endedLevel float64
	// level is the sum of what processes say, of which there are users: those that ended since the last reading too.
	level float64
	users int
}

// all are the metrics as they are now, in order. A gauge that no process has any more is not there.
func (s *sums) all() []model.ApplicationMetric {
	if s == nil || len(s.of) == 0 {
		return nil
	}
	all := make([]model.ApplicationMetric, 0, len(s.of))
	for key, v := range s.of {
		if key.Kind == model.Gauge && v.users == 0 {
			continue
		}
		m := model.ApplicationMetric{ApplicationKey: key, Unit: v.unit, Help: v.help, Count: v.count, Level: v.level}
		if !m.Unbounded() {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b model.ApplicationMetric) int { return compareKeys(&a.ApplicationKey, &b.ApplicationKey) })
	return all
}

func compareKeys(a, b *model.ApplicationKey) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Labels, b.Labels))
}
