package agent

import "outsight/internal/model"

// Proxies report how long requests take through programs that send them on. It is called by the goroutine that reads the
// Counters, after them.
type Proxies interface {
	ReadProxies() []model.KernelProxy
}

// proxies are those of containers.
type proxies struct{ of map[string]*proxySums }

// proxySums are what the kernel counted of a container's programs: in countings that go on, by their instances, and in
// those that have ended.
type proxySums struct {
	ended model.ProxyCounters
	going map[uint64]model.ProxyCounters
}

func (p *proxies) update(read []model.KernelProxy, lookup func(model.CgroupID) *model.Container) {
	goes := make(map[uint64]bool, len(read))
	for _, k := range read {
		c := lookup(k.Owner)
		if c == nil {
			continue
		}
		s := p.of[c.ID]
		if s == nil {
			s = &proxySums{going: make(map[uint64]model.ProxyCounters)}
			p.of[c.ID] = s
		}
		s.going[k.Instance] = k.ProxyCounters
		goes[k.Instance] = true
	}
	for _, s := range p.of {
		for instance, counters := range s.going {
			if goes[instance] {
				continue
			}
			if counters.Matched > 0 {
				s.ended = s.ended.Plus(&counters)
			}
			delete(s.going, instance)
		}
	}
}

// counters are those of a container's programs that have sent requests on; nil where none has.
func (p *proxies) counters(id string) *model.ProxyCounters {
	s := p.of[id]
	if s == nil {
		return nil
	}
	sum := s.ended
	for _, counters := range s.going {
		if counters.Matched > 0 {
			sum = sum.Plus(&counters)
		}
	}
	if sum.Matched == 0 {
		return nil
	}
	return &sum
}

// keep forgets containers that are no more.
func (p *proxies) keep(containers []*model.Container) {
	if len(p.of) == 0 {
		return
	}
	there := make(map[string]bool, len(containers))
	for _, c := range containers {
		there[c.ID] = true
	}
	for id := range p.of {
		if !there[id] {
			delete(p.of, id)
		}
	}
}
