package ingest

import (
	"slices"
	"time"

	"outsight/internal/model"
)

// nameable is how old samples may be to get names: who has an address changes.
const nameable = 5 * time.Minute

// names remember what labels became with names, so that their series have keys as well.
type names struct {
	// sets by the number of the set of labels without the names.
	sets map[uint64]*namedSet
	most int
}

// namedSet is a set of labels with names.
type namedSet struct {
	labels []model.Label
	// number is its own, as that of a labelSet.
	number uint64
	// came is where the labels of the last batch were: there they are the same for all its series of the set.
	came *model.Label
}

// named has the labels of Options.Name: series of our agents, whose labels mean what it thinks, and of now. One that
// got some is no longer the one that its key stands for.
func (i *Ingest) named(series []model.Series) []model.Series {
	if i.options.Name == nil || len(series) == 0 || i.options.Now().Sub(series[0].Time) > nameable {
		return series
	}
	named := i.options.Name(series)
	for n := range named {
		if len(named[n].Labels) != len(series[n].Labels) {
			i.names.settle(&named[n])
		}
	}
	return named
}

// settle gives a series that got names the key of what it is with them.
func (n *names) settle(s *model.Series) {
	if s.Key == 0 || len(s.Labels) == 0 {
		s.Key = 0
		return
	}
	without := s.Key >> metricBits
	set := n.sets[without]
	if set == nil || set.came != &s.Labels[0] {
		if set == nil || !slices.Equal(set.labels, s.Labels) {
			if n.sets == nil || len(n.sets) >= n.most {
				n.sets = map[uint64]*namedSet{}
			}
			set = &namedSet{labels: s.Labels, number: setNumbers.Add(1)}
			n.sets[without] = set
		}
		set.came = &s.Labels[0]
	}
	s.Labels, s.Key = set.labels, set.number<<metricBits|s.Key&(1<<metricBits-1)
}
