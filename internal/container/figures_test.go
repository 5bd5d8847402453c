package container

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"outsight/internal/kernel/groups"
	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// kernelGroups are the real kernel program.
func kernelGroups(t testing.TB, o groups.Options) *groups.Groups {
	t.Helper()
	p := groups.New(o)
	kerneltest.Open(t, p)
	return p
}

// shifted answers wrong numbers of threads, as where a field was at another offset.
type shifted struct{ KernelFigures }

func (s shifted) Figures(slot uint32, to *model.GroupFigures) bool {
	ok := s.KernelFigures.Figures(slot, to)
	to.Threads++
	return ok
}

// watchedGroup is a container with one process, which the kernel program watches, and a reader of it.
func watchedGroup(t *testing.T, k KernelFigures, n int) (*Files, *model.Container) {
	t.Helper()
	l := hostLayout(t)
	path := fmt.Sprintf("/osct-figures-%d/%s", n, testID(n))
	id := makeGroup(t, l, path)
	pid := enter(t, l, path, "/bin/sleep", "600").Process.Pid
	f := NewFiles(l, Options{})
	t.Cleanup(f.Close)
	f.UseKernel(k)
	return f, &model.Container{ID: testID(n), CgroupPath: path, Cgroup: id, PID: pid}
}

// What the kernel program says is what the files say, read by a reader without it.
func TestFiguresReplaceFiles(t *testing.T) {
	f, c := watchedGroup(t, kernelGroups(t, groups.Options{}), 1)
	plain := NewFiles(f.layout, Options{})
	defer plain.Close()
	g := func() *groupFiles { return f.groups[c.ID] }
	eventually(t, func() error {
		u, want := readOne(t, f, c), readOne(t, plain, c)
		if u.Err != nil || want.Err != nil {
			t.Fatalf("%v, %v", u.Err, want.Err)
		}
		for which, name := range figureNames {
			if !f.use(g(), figure(which)) {
				return fmt.Errorf("%s is not taken from the kernel program: %+v", name, f.trusts[which])
			}
		}
		if _, ok := f.stats.stat(&g().kernel.figures.Stat); !ok {
			return fmt.Errorf("memory.stat is not known yet: %v", f.stats.candidates)
		}
		if *u.Memory != *want.Memory || *u.Throttle != *want.Throttle || *u.Threads != *want.Threads {
			return fmt.Errorf("%+v %+v %d, files say %+v %+v %d", *u.Memory, *u.Throttle, *u.Threads, *want.Memory,
				*want.Throttle, *want.Threads)
		}
		return nil
	})
	if u := readOne(t, f, c); u.Memory.RSSBytes == 0 || u.Memory.PageFaults == 0 || u.Memory.LimitBytes != 0 {
		t.Errorf("%+v", *u.Memory)
	}
	if feature := f.kernelFeature(); feature.State != model.FeatureWorks {
		t.Errorf("%+v", feature)
	}
}

// A figure that differs from its file is not used, alone, and users are told.
func TestFigureThatDisagreesFallsBack(t *testing.T) {
	f, c := watchedGroup(t, shifted{kernelGroups(t, groups.Options{})}, 2)
	for range 2 * maxDisagreements * checkOften {
		if u := readOne(t, f, c); u.Err != nil || *u.Threads != 1 {
			t.Fatalf("%d threads, want 1: %v", *u.Threads, u.Err)
		}
	}
	feature := f.kernelFeature()
	if feature.State != model.FeatureAbsent || !strings.HasSuffix(feature.Reason, ": threads") {
		t.Errorf("%+v", feature)
	}
	if g := f.groups[c.ID]; f.use(g, threadsFigure) || !f.use(g, memoryFigure) || !f.use(g, throttleFigure) {
		t.Errorf("%+v", f.trusts)
	}
}

// Of groups that find no slot files are read, and they are counted.
func TestGroupsWithoutSlotAreReadFromFiles(t *testing.T) {
	k := kernelGroups(t, groups.Options{Max: 1})
	f, first := watchedGroup(t, k, 3)
	_, second := watchedGroup(t, k, 4)
	usages := make([]Usage, 2)
	f.Read([]*model.Container{first, second}, usages)
	for i := range usages {
		if u := &usages[i]; u.Err != nil || *u.Threads != 1 || u.Memory.UsageBytes == 0 {
			t.Errorf("%+v", u)
		}
	}
	if d := k.Drops()[0]; d.Count != 1 || d.Used != 1 || d.Capacity != 1 {
		t.Errorf("%+v", d)
	}
	f.Read(nil, nil)
	if d := k.Drops()[0]; d.Used != 0 {
		t.Errorf("a container that is gone keeps its slot: %+v", d)
	}
}

// BenchmarkReadInKernel is BenchmarkRead with the kernel program's figures, all of which are used.
func BenchmarkReadInKernel(b *testing.B) {
	f, containers := fiftyContainers(b)
	f.UseKernel(kernelGroups(b, groups.Options{}))
	usages := make([]Usage, len(containers))
	eventually(b, func() error {
		f.Read(containers, usages)
		for _, g := range f.groups {
			if _, known := f.stats.stat(&g.kernel.figures.Stat); !known || !f.use(g, statFigure) {
				return errors.New("memory.stat is not known yet")
			}
		}
		return nil
	})
	before := processTime(b)
	for b.Loop() {
		f.Read(containers, usages)
	}
	b.ReportMetric(float64(processTime(b)-before)/1e3/float64(b.N), "cpu-us/op")
}
