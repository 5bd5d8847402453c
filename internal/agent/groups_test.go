package agent

import (
	"testing"

	"outsight/internal/model"
)

func TestFilesOfGroupsAreSummed(t *testing.T) {
	web := &model.Container{ID: "web"}
	g := newGroups()
	self := &model.SelfSample{}
	counters := func(id model.CgroupID, cpu, bytes uint64) model.CgroupCounters {
		return model.CgroupCounters{ID: id, CPU: model.CPUCounters{UsageNS: cpu},
			Files: &model.FileCounters{ReadBytes: bytes, Reads: 1}}
	}
	both := func(id model.CgroupID) *model.Container { return web }
	g.update([]model.CgroupCounters{counters(2, 10, 100), counters(3, 10, 50)}, both, self)
	before := g.files("web")
	if before == nil || before.ReadBytes != 150 || before.Reads != 2 {
		t.Fatalf("%+v", before)
	}
	g.retire(3)
	g.update([]model.CgroupCounters{counters(2, 5, 30)}, both, self) // counted anew
	if now := g.files("web"); now.ReadBytes != 180 || now.Reads != 3 || before.ReadBytes != 150 {
		t.Errorf("%+v, before %+v", now, before)
	}
	g.update([]model.CgroupCounters{{ID: 9, CPU: model.CPUCounters{UsageNS: 1}}},
		func(model.CgroupID) *model.Container { return nil }, self)
	if host := g.files(model.HostContainerID); host != nil {
		t.Errorf("of the host %+v, which was not counted", host)
	}
}
