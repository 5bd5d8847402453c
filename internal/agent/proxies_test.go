package agent

import (
	"testing"

	"outsight/internal/model"
)

// What was counted never becomes less, and what sends nothing on is in no number.
func TestProxyCountersOnlyGrow(t *testing.T) {
	p := proxies{of: make(map[string]*proxySums)}
	gateway := &model.Container{ID: "gateway"}
	containers := map[model.CgroupID]*model.Container{1: gateway, 2: gateway, 3: {ID: "other"}}
	lookup := func(id model.CgroupID) *model.Container { return containers[id] }
	counted := func(owner model.CgroupID, instance, requests, matched, alone uint64) model.KernelProxy {
		k := model.KernelProxy{Owner: owner, Instance: instance,
			ProxyCounters: model.ProxyCounters{Requests: requests, Matched: matched, Alone: alone}}
		if matched > 0 {
			k.Took = tookTimes(matched)
		}
		return k
	}
	step := func(requests, matched, alone uint64, read ...model.KernelProxy) {
		t.Helper()
		p.update(read, lookup)
		c := p.counters("gateway")
		if c == nil {
			c = &model.ProxyCounters{}
		}
		took := uint64(0)
		if c.Took != nil {
			took = c.Took.Count
		}
		if c.Requests != requests || c.Matched != matched || took != matched || c.Alone != alone {
			t.Errorf("%+v, %d timed; want %d requests, %d matched, %d alone", c, took, requests, matched, alone)
		}
	}
	step(0, 0, 0, counted(1, 1, 9, 0, 0))
	step(10, 8, 1, counted(1, 1, 10, 8, 1))
	step(15, 12, 1, counted(1, 1, 10, 8, 1), counted(2, 2, 5, 4, 0))
	step(15, 12, 1, counted(1, 1, 10, 8, 1)) // the second has ended
	step(22, 15, 2, counted(1, 3, 7, 3, 1), counted(4, 4, 7, 7, 7), counted(2, 5, 1000, 0, 0))
	step(22, 15, 2)
	step(22, 15, 2)
	if p.counters("other") != nil {
		t.Error("a container without a proxy has counters")
	}
	p.keep([]*model.Container{{ID: "other"}})
	step(0, 0, 0)
}
