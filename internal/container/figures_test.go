package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
		if *u.Pressure != *want.Pressure {
			return fmt.Errorf("%+v, files say %+v", *u.Pressure, *want.Pressure)
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
	setLimits(t, f, c)
	if u := readOne(t, f, c); u.Memory.LimitBytes != 200<<20 || u.Throttle.QuotaCores != 0.4 || u.ThreadsLimit != 123 {
		t.Errorf("the reading after limits were set has %d bytes, %g cores and %d threads", u.Memory.LimitBytes, u.Throttle.QuotaCores,
			u.ThreadsLimit)
	}
	if feature := f.kernelFeature(); feature.State != model.FeatureWorks {
		t.Errorf("%+v", feature)
	}
}

// setLimits sets limits of 200 MiB, 0.4 cores and 123 threads.
func setLimits(t *testing.T, f *Files, c *model.Container) {
	t.Helper()
	write := func(k fileKind, name, text string) {
		t.Helper()
		writeFile(t, filepath.Join(f.sources[k].mount, c.CgroupPath, name), text)
	}
	if f.sources[memoryStatFile].v2 {
		write(memoryStatFile, "memory.max", "209715200")
	} else {
		write(memoryStatFile, "memory.limit_in_bytes", "209715200")
	}
	if f.sources[cpuStat].v2 {
		write(cpuStat, "cpu.max", "40000 100000")
	} else {
		write(cpuStat, "cpu.cfs_quota_us", "40000")
	}
	write(pidsMax, "pids.max", "123")
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

// restless has a process enter the group after a reading of the kernel program, and leave it before the next one: its file
// says more than the program said before and after. It does so after each reading, or after every other one from the first on.
type restless struct {
	KernelFigures
	enter, leave func()
	every        int
	readings     int
}

func (r *restless) ReadGroup(slot uint32) error {
	r.leave()
	err := r.KernelFigures.ReadGroup(slot)
	if r.every != 0 && r.readings%r.every == 0 {
		r.enter()
	}
	r.readings++
	return err
}

// restlessGroup is a group of a process that a second one enters and leaves.
func restlessGroup(t *testing.T, n, every int) (*Files, *model.Container, *restless) {
	t.Helper()
	r := &restless{KernelFigures: kernelGroups(t, groups.Options{}), every: every}
	f, c := watchedGroup(t, r, n)
	aside := fmt.Sprintf("/osct-figures-%d/%s", n, testID(n+100))
	makeGroup(t, f.layout, aside)
	second := enter(t, f.layout, aside, "/bin/sleep", "600").Process.Pid
	move := func(path string) func() {
		file := f.sources[pidsCurrent].mount + path + "/cgroup.procs"
		return func() {
			if err := os.WriteFile(file, []byte(strconv.Itoa(second)), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.enter, r.leave = move(c.CgroupPath), move(aside)
	return f, c, r
}

// A number of threads that was another one only while its file was read is used all the same.
func TestFigureThatMovesIsNotDoubted(t *testing.T) {
	f, c, r := restlessGroup(t, 5, 2)
	const calm = 2 // readings of a comparison of figures that agree at once, but memory.stat
	moved := false
	for range 16 * checkOften {
		r.readings = 0
		readOne(t, f, c)
		moved = moved || r.readings > calm
		if n := f.groups[c.ID].kernel.disagreements[threadsFigure]; n != 0 {
			t.Fatalf("%d comparisons in a row disagreed", n)
		}
	}
	if !moved || !f.use(f.groups[c.ID], threadsFigure) {
		t.Errorf("moved %v, %+v", moved, f.trusts[threadsFigure])
	}
}

// A figure that disagreed so often that it is not used any more is used again once it agrees; each number is right
// meanwhile.
func TestTrustComesBack(t *testing.T) {
	f, c, r := restlessGroup(t, 6, 1)
	threads := func() {
		t.Helper()
		plain := NewFiles(f.layout, Options{})
		defer plain.Close()
		if u, want := readOne(t, f, c), readOne(t, plain, c); u.Err != nil || want.Err != nil || *u.Threads != *want.Threads {
			t.Fatalf("%d threads, the file says %d: %v, %v", *u.Threads, *want.Threads, u.Err, want.Err)
		}
	}
	lose := func() {
		t.Helper()
		r.every = 1
		for turn := 0; !f.distrusts(threadsFigure); turn++ {
			if threads(); turn > 4*checkRarely {
				t.Fatalf("%+v", f.trusts[threadsFigure])
			}
		}
		if feature := f.kernelFeature(); feature.State != model.FeatureAbsent ||
			!strings.HasSuffix(feature.Reason, ": threads") || f.TrustedFigures()&figureBits[threadsFigure] != 0 {
			t.Errorf("%+v, trusted %b", feature, f.TrustedFigures())
		}
	}
	comeBack := func() (agreed int) {
		t.Helper()
		r.every = 0
		r.leave()
		for turn := 0; f.distrusts(threadsFigure); turn++ {
			agreed = f.trusts[threadsFigure].row
			if threads(); turn > 4*returnAfter*checkRarely {
				t.Fatalf("%+v", f.trusts[threadsFigure])
			}
		}
		if feature := f.kernelFeature(); feature.State != model.FeatureWorks || !f.use(f.groups[c.ID], threadsFigure) ||
			f.TrustedFigures()&figureBits[threadsFigure] == 0 {
			t.Errorf("%+v, trusted %b", feature, f.TrustedFigures())
		}
		return agreed
	}
	lose()
	if n := comeBack(); n != returnAfter {
		t.Errorf("it came back after %d comparisons and one more, want %d", n, returnAfter)
	}
	lose()
	if n := comeBack(); n != 2*returnAfter {
		t.Errorf("it came back after %d comparisons and one more, want %d", n, 2*returnAfter)
	}
}

// A trust does not come back by the groups that agree while one does not.
func TestGroupThatDisagreesKeepsTrustAway(t *testing.T) {
	f, good := watchedGroup(t, nil, 7)
	_, bad := watchedGroup(t, nil, 8)
	k := &lyingOf{KernelFigures: kernelGroups(t, groups.Options{}), slot: 1, lies: true}
	f.UseKernel(k)
	usages := make([]Usage, 2)
	read := func(turns int) {
		t.Helper()
		for range turns {
			f.Read([]*model.Container{good, bad}, usages)
			for i := range usages {
				if u := &usages[i]; u.Err != nil || *u.Threads != 1 {
					t.Fatalf("container %d has %d threads, want 1: %v", i, *u.Threads, u.Err)
				}
			}
		}
	}
	read((returnAfter + 8) * checkRarely)
	if slot, watched := f.FigureSlot(bad.ID); !watched || slot != k.slot {
		t.Fatalf("it is watched in slot %d: %v", slot, watched)
	}
	if !f.distrusts(threadsFigure) || f.trusts[threadsFigure].holds {
		t.Errorf("%+v", f.trusts[threadsFigure])
	}
	k.lies = false
	read((returnAfter + 2) * checkRarely)
	if f.distrusts(threadsFigure) || !f.use(f.groups[bad.ID], threadsFigure) {
		t.Errorf("%+v", f.trusts[threadsFigure])
	}
}

// lyingOf answers a wrong number of threads of one group.
type lyingOf struct {
	KernelFigures
	slot uint32
	lies bool
}

func (l *lyingOf) Figures(slot uint32, to *model.GroupFigures) bool {
	ok := l.KernelFigures.Figures(slot, to)
	if l.lies && slot == l.slot {
		to.Threads++
	}
	return ok
}

// backwards answers the counters behind memory.stat in another order, while it does.
type backwards struct {
	KernelFigures
	does bool
}

func (b *backwards) FlushedStat(slot uint32) (words model.StatWords, ok bool) {
	words, ok = b.KernelFigures.FlushedStat(slot)
	if b.does {
		slices.Reverse(words[:])
	}
	return words, ok
}

// Where the true counters behind memory.stat were excluded they are found again.
func TestMeaningsOfStatAreFoundAgain(t *testing.T) {
	k := &backwards{KernelFigures: kernelGroups(t, groups.Options{}), does: true}
	f, c := watchedGroup(t, k, 9)
	eventually(t, func() error {
		readOne(t, f, c)
		const faults = 3 // of memoryStat.lines
		if left := f.stats.candidates[faults]; !f.trusts[statFigure].holds || len(left) > 2 {
			return fmt.Errorf("%+v, page faults may be %v", f.trusts[statFigure], left)
		}
		return nil
	})
	k.does = false
	lost := false
	plain := NewFiles(f.layout, Options{})
	defer plain.Close()
	eventually(t, func() error {
		u, want := readOne(t, f, c), readOne(t, plain, c)
		lost = lost || f.distrusts(statFigure)
		g := f.groups[c.ID]
		if _, known := f.stats.stat(&g.kernel.figures.Stat); !lost || !f.use(g, statFigure) || !known {
			return fmt.Errorf("lost %v, %+v, known %v", lost, f.trusts[statFigure], known)
		}
		if *u.Memory != *want.Memory {
			return fmt.Errorf("%+v, the files say %+v", *u.Memory, *want.Memory)
		}
		return nil
	})
	if feature := f.kernelFeature(); feature.State != model.FeatureWorks {
		t.Errorf("%+v", feature)
	}
}

// A counter that is negative between the flushes of two CPUs is 0 in the file, and stays a candidate for the line.
func TestNegativeCounterIsZeroInTheFile(t *testing.T) {
	m := newStatMeanings()
	words := model.StatWords{5: -3, 6: 7}
	file := memoryStat{rss: 7}
	if !m.narrow(&words, &file) {
		t.Fatal("no counter is left")
	}
	for _, c := range m.candidates[1] {
		if c.word == 5 {
			if _, ok := m.stat(&words); ok {
				t.Error("a negative counter is told")
			}
			return
		}
	}
	t.Error("a counter that was negative meanwhile is excluded")
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

// Of pressure the program keeps the greatest sum, which a file is behind by what the kernel adds up at a time, at most.
func TestPressureAheadOfItsFile(t *testing.T) {
	file := model.PressureCounters{CPU: model.Pressure{WaitingNS: 5e9, StalledNS: 1e9, Known: true}}
	for name, c := range map[string]struct {
		change func(*model.PressureCounters)
		want   verdict
	}{
		"equal":           {func(*model.PressureCounters) {}, agrees},
		"ahead":           {func(p *model.PressureCounters) { p.CPU.StalledNS += 1000 }, undecided},
		"far ahead":       {func(p *model.PressureCounters) { p.CPU.StalledNS += 2e9 + 1 }, differs},
		"behind":          {func(p *model.PressureCounters) { p.CPU.WaitingNS -= 1000 }, differs},
		"ahead, behind":   {func(p *model.PressureCounters) { p.CPU.WaitingNS, p.CPU.StalledNS = 6e9, 5e8 }, differs},
		"of other things": {func(p *model.PressureCounters) { p.IO.Known = true }, differs},
	} {
		kernel := file
		c.change(&kernel)
		if got := equalPressure(kernel, file); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
