package network

import "outsight/internal/model"

// identities finds containers by control group and remembers those that are gone, so that an
// edge keeps its name when an end of it has ended.
type identities struct {
	max     int
	known   map[model.CgroupID]*model.Container
	order   []model.CgroupID
	evicted uint64
}

func newIdentities(max int) *identities {
	return &identities{max: max, known: make(map[model.CgroupID]*model.Container)}
}

// find asks lookup, then the memory, which holds containers but not the host. A control group's id is never used again,
// so that what was once true of it stays true.
func (s *identities) find(id model.CgroupID, lookup func(model.CgroupID) *model.Container) *model.Container {
	if id == 0 {
		return nil
	}
	c, before := lookup(id), s.known[id]
	// What is no longer known is in no container for who looks now.
	if c == nil || before != nil && c.Runtime == model.HostRuntime {
		return before
	}
	if c.Runtime == model.HostRuntime {
		return c
	}
	if before == nil {
		s.order = append(s.order, id)
	}
	s.known[id] = c
	if len(s.order) > s.max {
		delete(s.known, s.order[0])
		s.order = s.order[1:]
		s.evicted++
	}
	return c
}

func (s *identities) drop() model.Drop {
	return model.Drop{Name: "network identities", Count: s.evicted, Capacity: uint64(s.max), Used: uint64(len(s.known))}
}
