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
	both := func(id model.CgroupID) (*model.Container, bool) { return web, true }
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
		func(model.CgroupID) (*model.Container, bool) { return nil, true }, self)
	if host := g.files(model.HostContainerID); host != nil {
		t.Errorf("of the host %+v, which was not counted", host)
	}
}

// TestGroupsWaitForTheirOwners: what was counted before it was known whose a group is becomes its container's, and the
// host's where nobody ever knows.
func TestGroupsWaitForTheirOwners(t *testing.T) {
	web := &model.Container{ID: "web"}
	g := newGroups()
	read := func(id model.CgroupID, bytes uint64, owner *model.Container, known bool) {
		g.update([]model.CgroupCounters{{ID: id, Files: &model.FileCounters{ReadBytes: bytes}}},
			func(model.CgroupID) (*model.Container, bool) { return owner, known }, &model.SelfSample{})
	}
	read(2, 100, nil, false)
	if host := g.files(model.HostContainerID); host != nil {
		t.Errorf("before it is known whose a group is, the host has %+v", host)
	}
	read(2, 150, web, true)
	if had := g.files("web"); had == nil || had.ReadBytes != 150 {
		t.Errorf("the container has %+v, want all 150 bytes", had)
	}
	for range unsureReadings {
		read(3, 70, nil, false)
	}
	if host := g.files(model.HostContainerID); host != nil {
		t.Errorf("while it may become known whose a group is, the host has %+v", host)
	}
	read(3, 80, nil, false)
	if host := g.files(model.HostContainerID); host == nil || host.ReadBytes != 80 {
		t.Errorf("the host has %+v of a group of nobody, want 80 bytes", host)
	}
}
