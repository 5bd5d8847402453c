package sched

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
	"outsight/internal/topology"
)

// fakeEvents opens files instead of events, and refuses what a test says.
type fakeEvents struct {
	refuse func(index, cpu int) error
	opened []string
}

func (f *fakeEvents) opener(t *testing.T) *EventOpener {
	t.Helper()
	indices := map[uint64]int{unix.PERF_COUNT_HW_CPU_CYCLES: 0, unix.PERF_COUNT_HW_INSTRUCTIONS: 1,
		unix.PERF_COUNT_HW_CACHE_REFERENCES: 2, unix.PERF_COUNT_HW_CACHE_MISSES: 3}
	return &EventOpener{
		open: func(a *unix.PerfEventAttr, cpu, group int) (int, error) {
			index := indices[a.Config&0xffff]
			if err := f.refuse(index, cpu); err != nil {
				return -1, err
			}
			if (group == -1) != (index == 0) {
				t.Errorf("event %d of CPU %d is in group %d, want all in the group of the first", index, cpu, group)
			}
			if disabled := a.Bits&unix.PerfBitDisabled != 0; disabled != (index == 0) {
				t.Errorf("event %d is disabled: %v, want the first alone", index, disabled)
			}
			fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			f.opened = append(f.opened, fmt.Sprintf("%d/%d/%x", cpu, index, a.Config>>32))
			return fd, nil
		},
		start: func(int) error { return nil },
	}
}

func TestGroupsThatCannotBeOpened(t *testing.T) {
	never := func(int, int) error { return nil }
	check := func(name string, refuse func(index, cpu int) error, mayLack bool, known uint8, want error) {
		t.Helper()
		before := kerneltest.OpenFiles()
		f := &fakeEvents{refuse: refuse}
		g, err := openGroup(f.opener(t), &corePMU{name: "cpu"}, 3, 15, mayLack)
		switch {
		case want != nil:
			if !errors.Is(err, want) || g != nil {
				t.Errorf("%s: got %v, want %v", name, err, want)
			}
		case err != nil || g.known != known:
			t.Errorf("%s: got %v with events %b, want %b", name, err, g.known, known)
		default:
			if err := g.Close(); err != nil {
				t.Errorf("%s: closing: %v", name, err)
			}
		}
		if after := kerneltest.OpenFiles(); after != before {
			t.Errorf("%s: %d descriptors are left", name, after-before)
		}
	}
	at := func(index int, err error) func(int, int) error {
		return func(p, _ int) error {
			if p == index {
				return err
			}
			return nil
		}
	}
	check("all there", never, true, 0b1111, nil)
	check("no cache events", at(2, unix.ENOENT), true, 0b1011, nil)
	check("room for three", at(3, unix.EINVAL), true, 0b0111, nil)
	check("unlike the other CPUs", at(3, unix.ENOENT), false, 0, unix.ENOENT)
	check("no cycles", at(0, unix.EOPNOTSUPP), true, 0, unix.EOPNOTSUPP)
	check("not allowed", at(0, unix.EACCES), true, 0, unix.EACCES)
	check("too many files", at(2, unix.EMFILE), true, 0, unix.EMFILE)
	check("CPU is off line", at(0, unix.ENODEV), true, 0, unix.ENODEV)
}

func TestRefusalSaysWhatItWouldTake(t *testing.T) {
	root := t.TempDir()
	writeTree(t, root, map[string]string{"sys/kernel/perf_event_paranoid": "4\n"})
	err := explain(fmt.Errorf("opening event 0: %w", unix.EACCES), root)
	if !errors.Is(err, unix.EACCES) || !strings.Contains(err.Error(), "perf_event_paranoid is 4") {
		t.Errorf("got %v, want the setting", err)
	}
	if err := explain(unix.ENODEV, root); strings.Contains(err.Error(), "paranoid") {
		t.Errorf("got %v, want no word about rights", err)
	}
}

func TestFindPMUs(t *testing.T) {
	devices := func(files map[string]string) string {
		root := t.TempDir()
		tree := map[string]string{"bus/event_source/devices/software/type": "1\n"}
		for name, text := range files {
			tree["bus/event_source/devices/"+name] = text
		}
		writeTree(t, root, tree)
		return root
	}
	if _, err := findPMUs(devices(nil), CountersAuto); !errors.Is(err, errNoPMU) {
		t.Errorf("without one: got %v, want %v", err, errNoPMU)
	}
	plain, err := findPMUs(devices(map[string]string{"cpu/type": "4\n"}), CountersAuto)
	if err != nil || len(plain) != 1 || plain[0].name != "cpu" ||
		plain[0].attributes(1).Config != unix.PERF_COUNT_HW_INSTRUCTIONS || pmuOf(plain, 500) != 0 {
		t.Errorf("one for all: got %+v, %v", plain, err)
	}
	hybrid, err := findPMUs(devices(map[string]string{
		"cpu_core/type": "4\n", "cpu_core/cpus": "0-3\n", "cpu_atom/type": "10\n", "cpu_atom/cpus": "4-7\n",
	}), CountersAuto)
	if err != nil || len(hybrid) != 2 {
		t.Fatalf("hybrid: got %+v, %v", hybrid, err)
	}
	for cpu, want := range map[int]int{0: 0, 3: 0, 4: 1, 7: 1, 8: -1} {
		if got := pmuOf(hybrid, cpu); got != want {
			t.Errorf("CPU %d: PMU %d, want %d", cpu, got, want)
		}
	}
	if got := hybrid[1].attributes(3).Config; got != 10<<32|unix.PERF_COUNT_HW_CACHE_MISSES {
		t.Errorf("an event of the small cores is %#x, want their type in it", got)
	}
	for name, files := range map[string]map[string]string{
		"no type":  {"cpu_core/cpus": "0-3\n"},
		"bad type": {"cpu_core/cpus": "0-3\n", "cpu_core/type": "x\n"},
		"bad CPUs": {"cpu_core/cpus": "3-0\n", "cpu_core/type": "4\n"},
	} {
		if pmus, err := findPMUs(devices(files), CountersAuto); err == nil {
			t.Errorf("%s: got %+v, want an error", name, pmus)
		}
	}
}

// CPUs that go off line give their events back, and have new ones when they come again. One that cannot
// have them is counted, and the others go on.
func TestCPUsComeAndGo(t *testing.T) {
	p := openCounting(t, Options{})
	r := p.counters
	if r.cpus < 2 {
		t.Skip("one CPU cannot come and go")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	online := func(list string) { writeTree(t, root, map[string]string{"devices/system/cpu/online": list + "\n"}) }
	for cpu := range r.cpus {
		writeTree(t, root, map[string]string{
			fmt.Sprintf("devices/system/cpu/cpu%d/topology/physical_package_id", cpu): fmt.Sprintln(cpu % 2),
			fmt.Sprintf("devices/system/cpu/cpu%d/topology/core_id", cpu):             fmt.Sprintln(cpu),
		})
	}
	r.machine = topology.New(root, r.cpus)
	software := kernelEvents
	var refused error
	r.events = &EventOpener{start: software.start, open: func(a *unix.PerfEventAttr, cpu, group int) (int, error) {
		if cpu == 1 && refused != nil {
			return -1, refused
		}
		return software.open(a, cpu, group)
	}}
	expect := func(what string, wantErr error, want ...int) {
		t.Helper()
		if err := r.follow(); !errors.Is(err, wantErr) {
			t.Errorf("%s: got %v, want %v", what, err, wantErr)
		}
		var have []int
		for cpu := range r.groups {
			have = append(have, cpu)
		}
		slices.Sort(have)
		if !slices.Equal(have, want) {
			t.Errorf("%s: groups of CPUs %v, want %v", what, have, want)
		}
	}
	online("0")
	expect("one", nil, 0)
	refused = unix.EMFILE
	online("0-1")
	expect("the second is refused", unix.EMFILE, 0)
	if d := p.Drops()[slices.IndexFunc(p.Drops(),
		func(d model.Drop) bool { return d.Name == "counter_groups" })]; d.Count != 1 || d.Used != 1 {
		t.Errorf("got %+v, want one group and one refused", d)
	}
	if f := r.features(CountersSoftware)[0]; f.State != model.FeatureWorks ||
		!strings.Contains(f.Reason, "not on 1 of 2 CPUs") {
		t.Errorf("got %+v, want it to say that a CPU is missing", f)
	}
	refused = nil
	online("1")
	expect("they change", nil, 1)
	online("0-1")
	expect("both", nil, 0, 1)
	files := kerneltest.OpenFiles()
	online("0")
	expect("one again", nil, 0)
	if left := kerneltest.OpenFiles() - files; left != -counterEvents {
		t.Errorf("%d descriptors fewer, want %d", -left, counterEvents)
	}
	if cpu := r.machine.CPUs[1]; cpu.Online || cpu.Core != 1 || cpu.Package != 1 {
		t.Errorf("CPU 1 is %+v, want its position to stay", cpu)
	}
}

// A group that never has the hardware is absent, not zero.
func TestCountersThatOthersUse(t *testing.T) {
	p := openCounting(t, Options{})
	r := p.counters
	for cpu := range r.states.Entries {
		r.states.Entries[cpu] = countersCounterCpu{EnabledNs: 2e9}
	}
	r.waiting.Store(r.unscheduled())
	f := r.features(CountersAuto)[0]
	if f.State != model.FeatureAbsent || !strings.Contains(f.Reason, "other programs") || f.Remedy == "" {
		t.Errorf("got %+v, want it absent, with who has it", f)
	}
}

func TestCountersAreOff(t *testing.T) {
	p := open(t, Options{})
	before := kerneltest.IdleTime(t)
	idled := func() bool { return kerneltest.IdleTime(t)-before > 20*time.Millisecond }
	// On a busy host no CPU may idle.
	for end := time.Now().Add(time.Second); !idled() && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
	}
	wantIdle := idled()
	all, err := p.ReadCgroups()
	if err != nil {
		t.Fatal(err)
	}
	packages, err := p.ReadWork(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Perf != nil {
			t.Errorf("group %d has counters %+v, want none", c.ID, c.Perf)
		}
		var ns uint64
		for _, n := range c.WorkNS {
			ns += n
		}
		// A lane may have grown since the group was read.
		if ns < c.CPU.UsageNS && c.Slot == model.OrdinaryCgroup {
			t.Errorf("group %d: %d ns in all packages, want %d", c.ID, ns, c.CPU.UsageNS)
		}
	}
	if len(packages) == 0 || packages[0].Counted || packages[0].BusyNS == 0 || wantIdle && packages[0].IdleNS == 0 {
		t.Errorf("packages %+v, want busy and idle time, and no counters", packages)
	}
	for _, c := range p.Programs() {
		if c.Name == countersHook.Name {
			t.Error("a program that counts is loaded, want none")
		}
	}
}

// A machine without hardware counters says so and loses nothing else.
func TestCountersAbsent(t *testing.T) {
	root := t.TempDir()
	writeTree(t, root, map[string]string{
		"devices/system/cpu/online":              "0\n",
		"bus/event_source/devices/software/type": "1\n",
	})
	p := New(Options{Counters: CountersAuto, SysFS: root})
	defer p.Close()
	_ = p.Open(kerneltest.Kernel(t)) // its features tell
	features := p.Features()
	f := features[slices.IndexFunc(features, func(f model.Feature) bool { return f.Name == countersHook.Name })]
	if f.State != model.FeatureAbsent || f.Reason != errNoPMU.Error() || f.Required {
		t.Errorf("got %+v, want absent for want of a PMU", f)
	}
	if _, err := p.ReadCgroups(); err != nil {
		t.Errorf("reading control groups: %v", err)
	}
}
