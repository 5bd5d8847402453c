package sched

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// faultsAtOnce is how many pages the workload "faults" touches for each line that it reads.
const faultsAtOnce = 3000

func touchPages() int {
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	for {
		if _, err := in.ReadString('\n'); err != nil {
			return 0
		}
		pages, err := unix.Mmap(-1, 0, faultsAtOnce*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		unix.Madvise(pages, unix.MADV_NOHUGEPAGE)
		for i := 0; i < len(pages); i += os.Getpagesize() {
			pages[i] = 1
		}
		fmt.Println("touched")
	}
}

// openCounting opens the probes with the kernel's software events instead of hardware counters.
func openCounting(t *testing.T, o Options) *Sched {
	t.Helper()
	if kerneltest.WithoutEdges() {
		t.Skip("the kernel lacks atomic exchange (5.12), as for edges")
	}
	o.Counters = CountersSoftware
	return open(t, o)
}

// readWork reads one group's counters: those of cgroups.bpf.c and those of counters.bpf.c.
func readWork(t *testing.T, p *Sched, id model.CgroupID) (model.CgroupCounters, []model.PackageTime) {
	t.Helper()
	all, err := p.ReadCgroups()
	if err != nil {
		t.Fatal(err)
	}
	packages, err := p.ReadWork(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.ID == id && c.Slot == model.OrdinaryCgroup {
			return c, packages
		}
	}
	return model.CgroupCounters{Perf: make([]model.PerfCounters, 1), Work: []uint64{0}}, packages
}

// The indices of software events.
const (
	cpuClock = iota
	taskClock
	contextSwitches
	pageFaults
)

// Page faults are exact: the kernel's own count of the process is compared while it sleeps.
func TestCountersAreTheKernels(t *testing.T) {
	p := openCounting(t, Options{})
	g := kerneltest.NewGroup(t, "faults")
	w := startToucher(g, t)
	settled := func() (ours, kernels uint64, c model.CgroupCounters) {
		kerneltest.Eventually(t, "the process sleeps", func() bool {
			before := minorFaults(t, w.pid)
			c, _ = readWork(t, p, g.ID(t))
			ours = c.Perf[0].Counts[pageFaults]
			again, _ := readWork(t, p, g.ID(t))
			kernels = minorFaults(t, w.pid)
			return before == kernels && again.Perf[0].Counts == c.Perf[0].Counts
		})
		return ours, kernels, c
	}
	oursBefore, kernelsBefore, _ := settled()
	for range 5 {
		w.touch()
	}
	oursAfter, kernelsAfter, c := settled()
	ours, kernels := oursAfter-oursBefore, kernelsAfter-kernelsBefore
	if kernels < 5*faultsAtOnce {
		t.Fatalf("the workload touched %d pages, want %d at least", kernels, 5*faultsAtOnce)
	}
	if ours != kernels {
		t.Errorf("%d page faults, the kernel counted %d", ours, kernels)
	}
	if c.Perf[0].PMU != "software" || c.Perf[0].Known != 15 || c.Perf[0].EnabledNS != c.Perf[0].RunningNS ||
		c.Perf[0].RunningNS == 0 {
		t.Errorf("got %+v, want all software events, always running", c.Perf[0])
	}
}

func minorFaults(t *testing.T, pid int) uint64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	minor, err := strconv.ParseUint(fields[7], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	major, err := strconv.ParseUint(fields[9], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return minor + major
}

// The time that the events counted is the CPU time, and a thread that never yields counts up to the
// moment of reading. Switches to the group are as many as switches away from it, but for those that run,
// and those at which no program ran. Readings of the one are bracketed by readings of the other.
func TestCountersFollowCPUTime(t *testing.T) {
	p := openCounting(t, Options{})
	for _, work := range []string{"spin", "spin8"} {
		g := kerneltest.NewGroup(t, "counted-"+work)
		g.Start(t, work)
		untoldBefore := untoldSwitches(p)
		earliest, _ := readWork(t, p, g.ID(t))
		first := earliest.Perf[0].Counts
		firstWork := earliest.Work[0]
		early := readGroup(t, p, g.ID(t)).CPU
		time.Sleep(2 * time.Second) // the measured interval
		late, _ := readWork(t, p, g.ID(t))
		latest := readGroup(t, p, g.ID(t)).CPU

		counted := time.Duration(late.Perf[0].Counts[cpuClock] - first[cpuClock])
		low, high := time.Duration(late.CPU.UsageNS-early.UsageNS), time.Duration(latest.UsageNS-earliest.CPU.UsageNS)
		// The clock by which a running thread is counted up to now is known to a tick, on each CPU.
		slack := high/50 + 40*time.Millisecond
		if kerneltest.Emulated() {
			slack += high / 5
		}
		if counted < low-slack || counted > high+slack {
			t.Errorf("%s: %v counted, want the CPU time, %v to %v", work, counted, low, high)
		}
		if counted < 100*time.Millisecond {
			t.Errorf("%s: %v counted of two seconds", work, counted)
		}
		away := func(c model.CPUCounters) int64 { return int64(c.Voluntary + c.Involuntary) }
		switches, running := int64(late.Perf[0].Counts[contextSwitches]-first[contextSwitches]), int64(p.cgroups.cpus)
		untold := untoldSwitches(p) - untoldBefore
		if least, most := away(late.CPU)-away(early)-running-untold,
			away(latest)-away(earliest.CPU)+running; switches < least || switches > most {
			t.Errorf("%s: %d switches to the group, want as many as away from it, %d to %d", work, switches, least, most)
		}
		if weighted := time.Duration(late.Work[0] - firstWork); weighted != counted {
			t.Errorf("%s: weighted %v of %v, want all of it: no core is shared", work, weighted, counted)
		}
		t.Logf("%s: %v counted in %v to %v, %d switches", work, counted, low, high, switches)
	}
}

// untoldSwitches is how many switches the kernel made without running programs.
func untoldSwitches(p *Sched) int64 {
	n := uint64(0)
	for cpu := range p.cgroups.states.Entries {
		n += p.cgroups.states.Entries[cpu].MissedSwitches
	}
	return int64(n)
}

// A thread that never yields counts up to the moment of reading.
func TestSpinningThreadIsCountedAtOnce(t *testing.T) {
	p := openCounting(t, Options{})
	g := kerneltest.NewGroup(t, "counted-at-once")
	g.Start(t, "spin")
	kerneltest.Eventually(t, "counts grow between two readings without a switch", func() bool {
		a, _ := readWork(t, p, g.ID(t))
		b, _ := readWork(t, p, g.ID(t))
		return b.Perf[0].Counts[cpuClock] > a.Perf[0].Counts[cpuClock] &&
			b.Perf[0].Counts[contextSwitches] == a.Perf[0].Counts[contextSwitches] &&
			a.CPU.Voluntary == b.CPU.Voluntary && a.CPU.Involuntary == b.CPU.Involuntary
	})
}

// siblings makes a sysfs in which both CPUs of this machine are threads of one core.
func siblings(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	writeTree(t, root, map[string]string{
		"devices/system/cpu/online": string(online),
	})
	for cpu := range 64 {
		writeTree(t, root, map[string]string{
			fmt.Sprintf("devices/system/cpu/cpu%d/topology/physical_package_id", cpu): "7\n",
			fmt.Sprintf("devices/system/cpu/cpu%d/topology/core_id", cpu):             fmt.Sprintln(cpu / 2),
		})
	}
	return root
}

func writeTree(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Two groups spin on the two threads of a core: what they count is shared then, and weighs 0.55 each.
func TestSharedCore(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU has no sibling")
	}
	p := openCounting(t, Options{SysFS: siblings(t), HTRatio: 1.1})
	here, there := kerneltest.NewGroup(t, "thread-0"), kerneltest.NewGroup(t, "thread-1")
	for cpu, g := range []*kerneltest.Group{here, there} {
		shell := exec.Command("sh", "-c", "while :; do :; done")
		if err := shell.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { shell.Process.Kill(); shell.Wait() }()
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(shell.Process.Pid, &one); err != nil {
			t.Fatal(err)
		}
		for _, dir := range g.Dirs {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(shell.Process.Pid)), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	read := func(g *kerneltest.Group) model.CgroupCounters {
		c, packages := readWork(t, p, g.ID(t))
		if len(packages) != 1 || packages[0].ID != 7 || !packages[0].Counted {
			t.Fatalf("packages %+v, want one, 7, counted", packages)
		}
		return c
	}
	before := [2]model.CgroupCounters{read(here), read(there)}
	time.Sleep(2 * time.Second) // the measured interval
	for i, g := range []*kerneltest.Group{here, there} {
		c := read(g)
		clock := c.Perf[0].Counts[cpuClock] - before[i].Perf[0].Counts[cpuClock]
		alone, both := c.Perf[0].Shared[0]-before[i].Perf[0].Shared[0], c.Perf[0].Shared[1]-before[i].Perf[0].Shared[1]
		if clock == 0 || alone+both != clock || c.Perf[0].Shared[2]+c.Perf[0].Shared[3] != 0 {
			t.Errorf("thread %d: %d alone and %d shared of %d, want parts that add up", i, alone, both, clock)
		}
		if both < clock/10*9 && !kerneltest.Emulated() || both == 0 {
			t.Errorf("thread %d: %d of %d shared, want nearly all", i, both, clock)
		}
		weighted := c.Work[0] - before[i].Work[0]
		if want := alone + both*55/100; weighted+2 < want || weighted > want+2 {
			t.Errorf("thread %d: weight %d, want %d", i, weighted, want)
		}
		t.Logf("thread %d: alone %v, shared %v, weighted %v", i, time.Duration(alone), time.Duration(both),
			time.Duration(weighted))
	}
}
