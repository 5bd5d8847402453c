package ingest

import (
	"slices"
	"sync"

	"outsight/internal/model"
)

// names caches what sets of labels became when names were added, so that the named series have keys, too.
type names struct {
	// mu guards sets.
	mu sync.Mutex
	// sets by the number of the set of labels without the names.
	sets map[uint64]*namedSet
	most int
}

// namedSet is a set of labels with names.
type namedSet struct {
	labels []model.Label
	// number is its own, as that of a labelSet.
	number uint64
	// lastLabels is the address of the set's labels in the current batch, which all its series of the set share.
	lastLabels *model.Label
}

// settle gives the named series the keys of their new labels; before is their old labels.
func (n *names) settle(before, named []model.Series) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range named {
		if len(named[i].Labels) != len(before[i].Labels) {
			n.one(&named[i])
		}
	}
}

// one is settle for a series that changed; mu is held.
func (n *names) one(s *model.Series) {
	if s.Key == 0 || len(s.Labels) == 0 {
		s.Key = 0
		return
	}
	without := s.Key >> metricBits
	set := n.sets[without]
	if set == nil || set.lastLabels != &s.Labels[0] {
		if set == nil || !slices.Equal(set.labels, s.Labels) {
			if n.sets == nil || len(n.sets) >= n.most {
				n.sets = map[uint64]*namedSet{}
			}
			set = &namedSet{labels: s.Labels, number: setNumbers.Add(1)}
			n.sets[without] = set
		}
		set.lastLabels = &s.Labels[0]
	}
	s.Labels, s.Key = set.labels, set.number<<metricBits|s.Key&(1<<metricBits-1)
}
