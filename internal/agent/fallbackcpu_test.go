package agent

import (
	"io/fs"
	"testing"

	"outsight/internal/model"
)

// usage is what files report of one container.
type usage struct {
	ns  uint64
	err error
}

func (u *usage) CPUUsage(*model.Container) (uint64, error) { return u.ns, u.err }

// The kernel's programs count 100, then files go from 7000 to 7050, then the programs count on.
func TestCPUTimeGoesOnByFiles(t *testing.T) {
	files := &usage{ns: 7000}
	f := cpuFromFiles{files: files}
	c := &model.Container{ID: "a"}
	counted := uint64(100)
	fill := func() uint64 {
		t.Helper()
		cpu, err := f.fill(c, &model.CPUCounters{UsageNS: counted})
		if err != nil || cpu == nil {
			t.Fatalf("%v, %v", cpu, err)
		}
		return cpu.UsageNS
	}
	want := func(want uint64) {
		t.Helper()
		if got := fill(); got != want {
			t.Errorf("%d ns, want %d", got, want)
		}
	}
	turn := func(open bool) {
		f.turn(open, []model.ContainerSample{{Container: c, CPU: &model.CPUCounters{UsageNS: counted}}})
	}
	want(100)
	turn(true)
	files.ns = 7030
	want(130)
	turn(true) // nothing turns
	files.ns = 7050
	want(150)
	turn(false)
	files.ns = 9999 // nobody looks
	want(150)
	counted = 110
	want(160)
	turn(true)
	files.ns = 10009
	want(170)
	// It is started again, with a new control group.
	files.ns = 5
	want(175)
	files.ns = 9
	want(179)
	// Its last number stays when it ends.
	files.err = fs.ErrNotExist
	want(179)
	turn(false)
	want(179)
	f.keep(nil)
	if len(f.gaps) != 0 {
		t.Error("a container that is gone is kept")
	}
}

func TestCPUTimeWithoutFilesIsMissing(t *testing.T) {
	f := cpuFromFiles{}
	f.turn(true, nil)
	if cpu, err := f.fill(&model.Container{ID: "a"}, &model.CPUCounters{UsageNS: 1}); cpu != nil || err != nil {
		t.Errorf("%v, %v", cpu, err)
	}
	f.files = &usage{}
	if cpu, err := f.fill(&model.Container{ID: model.HostContainerID}, &model.CPUCounters{UsageNS: 1}); cpu != nil ||
		err != nil {
		t.Errorf("the host: %v, %v", cpu, err)
	}
}
