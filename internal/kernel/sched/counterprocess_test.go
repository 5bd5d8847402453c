package sched

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// renames is how often the workload "rename" gives its process another name.
const renames = 1000

// renameProcess renames the process again and again, and sleeps in between, so that each name is there at a switch.
func renameProcess() int {
	comm := fmt.Sprintf("/proc/self/task/%d/comm", os.Getpid())
	for i := range renames {
		if err := os.WriteFile(comm, []byte(fmt.Sprint("name-", i)), 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		time.Sleep(50 * time.Microsecond)
	}
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadByte()
	return 0
}

// toucher is a process that touches pages on request.
type toucher struct {
	pid   int
	in    io.WriteCloser
	lines *bufio.Reader
}

func startToucher(g *kerneltest.Group, t *testing.T) *toucher {
	t.Helper()
	cmd := g.Workload("faults", "GODEBUG=asyncpreemptoff=1")
	in, out := kerneltest.StartTalking(t, cmd)
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	w := &toucher{cmd.Process.Pid, in, out}
	w.lines.ReadString('\n')
	return w
}

func (w *toucher) touch() {
	fmt.Fprintln(w.in)
	w.lines.ReadString('\n')
}

// tally sums what processes of a group gained.
type tally struct {
	p     *Sched
	group model.CgroupID
	of    map[int]*[4]uint64
	names map[int]string
}

func (s *tally) read(t *testing.T) (group model.CgroupCounters) {
	t.Helper()
	group, _ = readWork(t, s.p, s.group)
	gains, err := s.p.ReadProcesses()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gains {
		if g.Group != s.group {
			continue
		}
		sum := s.of[g.PID]
		if sum == nil {
			sum = new([4]uint64)
			s.of[g.PID] = sum
		}
		for i, n := range g.Perf[0].Counts {
			sum[i] += n
		}
		s.names[g.PID] = g.Process
	}
	return group
}

func newTally(p *Sched, group model.CgroupID) *tally {
	return &tally{p, group, map[int]*[4]uint64{}, map[int]string{}}
}

// Each of two processes of one group counts what the kernel counts for it, to the last page fault, and both are
// what their group counts.
func TestProcessesCountApart(t *testing.T) {
	p := openCounting(t, Options{CounterProcesses: 1024})
	g := kerneltest.NewGroup(t, "processes")
	one, two := startToucher(g, t), startToucher(g, t)
	counts := newTally(p, g.ID(t))
	settled := func() (ones, twos, kernelOnes, kernelTwos, group uint64) {
		kerneltest.Eventually(t, "both sleep", func() bool {
			before := minorFaults(t, one.pid) + minorFaults(t, two.pid)
			counts.read(t)
			again := counts.read(t)
			if counts.of[one.pid] == nil || counts.of[two.pid] == nil {
				one.touch()
				two.touch()
				return false
			}
			ones, twos, group = counts.of[one.pid][pageFaults], counts.of[two.pid][pageFaults], again.Perf[0].Counts[pageFaults]
			counts.read(t)
			kernelOnes, kernelTwos = minorFaults(t, one.pid), minorFaults(t, two.pid)
			return before == kernelOnes+kernelTwos && ones == counts.of[one.pid][pageFaults] &&
				twos == counts.of[two.pid][pageFaults]
		})
		return ones, twos, kernelOnes, kernelTwos, group
	}
	ones, twos, kernelOnes, kernelTwos, group := settled()
	for range 3 {
		one.touch()
		two.touch()
		two.touch()
	}
	onesAfter, twosAfter, kernelOnesAfter, kernelTwosAfter, groupAfter := settled()
	if got, want := onesAfter-ones, kernelOnesAfter-kernelOnes; got != want || want < 3*faultsAtOnce {
		t.Errorf("one: %d page faults, the kernel counted %d", got, want)
	}
	if got, want := twosAfter-twos, kernelTwosAfter-kernelTwos; got != want || want < 6*faultsAtOnce {
		t.Errorf("two: %d page faults, the kernel counted %d", got, want)
	}
	if sum := onesAfter - ones + twosAfter - twos; groupAfter-group != sum {
		t.Errorf("the group has %d page faults, its processes %d", groupAfter-group, sum)
	}
	// The name of a process is the one that the kernel has.
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", one.pid))
	if err != nil {
		t.Fatal(err)
	}
	if got := counts.names[one.pid] + "\n"; got != string(comm) {
		t.Errorf("process is called %q, want %q", got, comm)
	}
}

// counterDrop is the drop of the bound.
func counterDrop(t *testing.T, p *Sched) model.Drop {
	t.Helper()
	drops := p.Drops()
	i := slices.IndexFunc(drops, func(d model.Drop) bool { return d.Name == "counter_processes" })
	if i < 0 {
		t.Fatalf("no bound of processes among %+v", drops)
	}
	return drops[i]
}

// Many more processes than there are entries come and go: those without an entry are counted as drops, the entries of
// those that are gone are removed, and the group counts all of them.
func TestProcessesThatForkAreBounded(t *testing.T) {
	const entries, forks = 64, 300
	p := openCounting(t, Options{CounterProcesses: entries})
	g := kerneltest.NewGroup(t, "forks")
	counts := newTally(p, g.ID(t))
	counts.read(t)
	script := `for procs in "$@"; do echo $$ > $procs; done; i=0; while [ $i -lt ` + strconv.Itoa(forks) +
		` ]; do /bin/true; i=$((i+1)); done`
	args := []string{"-c", script, "sh"}
	for _, dir := range g.Dirs {
		args = append(args, filepath.Join(dir, "cgroup.procs"))
	}
	if out, err := exec.Command("sh", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var c model.CgroupCounters
	kerneltest.Eventually(t, "all processes have ended",
		func() bool { c, _ = readWork(t, p, g.ID(t)); return c.Exits >= forks })
	d := counterDrop(t, p)
	if d.Capacity != entries || d.Count < forks-entries {
		t.Errorf("%+v, want %d slices without an entry at least", d, forks-entries)
	}
	group := counts.read(t)
	if len(counts.of) > entries {
		t.Errorf("%d processes are counted apart, there are %d entries", len(counts.of), entries)
	}
	var faults uint64
	for _, sum := range counts.of {
		faults += sum[pageFaults]
	}
	if all := group.Perf[0].Counts[pageFaults]; faults > all || all < forks {
		t.Errorf("%d page faults of processes, %d of their group", faults, all)
	}
	// There is room again, for those who come now.
	again := newTally(p, g.ID(t))
	w := startToucher(g, t)
	kerneltest.Eventually(t, "a process has an entry again",
		func() bool { w.touch(); again.read(t); return again.of[w.pid] != nil })
	kerneltest.Eventually(t, "entries are removed",
		func() bool { again.read(t); return counterDrop(t, p).Used < entries })
}

// A process that renames itself all the time is one.
func TestRenamingProcessIsOne(t *testing.T) {
	p := openCounting(t, Options{CounterProcesses: 1024})
	g := kerneltest.NewGroup(t, "rename")
	counts := newTally(p, g.ID(t))
	pid, stop := g.Start(t, "rename")
	kerneltest.Eventually(t, "its last name is known",
		func() bool { counts.read(t); return counts.names[pid] == fmt.Sprint("name-", renames-1) })
	own := 0
	for key := range p.counters.processes.sums {
		if key.Group == uint64(g.ID(t)) {
			own++
		}
	}
	if own != 1 {
		t.Errorf("%d processes, want 1", own)
	}
	stop()
	kerneltest.Eventually(t, "its entry is removed", func() bool {
		counts.read(t)
		for key := range p.counters.processes.sums {
			if int(key.Tgid) == pid {
				return false
			}
		}
		return true
	})
}

// Where processes are not wanted they cost no memory and are not counted.
func TestProcessesAreOff(t *testing.T) {
	p := openCounting(t, Options{})
	if gains, err := p.ReadProcesses(); gains != nil || err != nil {
		t.Errorf("got %v, %v", gains, err)
	}
	if slices.ContainsFunc(p.Drops(), func(d model.Drop) bool { return d.Name == "counter_processes" }) {
		t.Error("a bound of processes is listed")
	}
	if mode, err := ParseCounterMode("processes"); mode != CountersProcesses || err != nil {
		t.Errorf("got %q, %v", mode, err)
	}
	if o := New(Options{Counters: CountersProcesses}).options; o.Counters != CountersAuto || o.CounterProcesses != 1024 {
		t.Errorf("got %q and %d", o.Counters, o.CounterProcesses)
	}
}

// BenchmarkCounterSwitch switches between two processes of one group on one CPU, with counters of groups, and of
// processes too: what the kernel's statistics say that a switch costs is reported.
func BenchmarkCounterSwitch(b *testing.B) {
	for _, entries := range []int{0, 1024} {
		b.Run(fmt.Sprintf("processes=%v", entries > 0), func(b *testing.B) {
			p := New(Options{Counters: CountersSoftware, CounterProcesses: entries})
			defer p.Close()
			if err := p.Open(kerneltest.Kernel(b)); err != nil {
				b.Fatal(err)
			}
			costs := kerneltest.CostsOf(b, p, func() { pingPong(b, b.N) })
			one := costs[slices.IndexFunc(costs, func(c model.ProgramCost) bool { return c.Name == countersHook.Name })]
			b.ReportMetric(float64(one.RunTimeNS)/float64(one.Runs), "program-ns/switch")
		})
	}
}

// pingPong makes another process answer n lines, on the CPU of this thread.
func pingPong(b *testing.B, n int) {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	back := onFirstCPU(b)
	defer back()
	cat := exec.Command("cat")
	in, err := cat.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cat.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cat.Start(); err != nil {
		b.Fatal(err)
	}
	line := []byte("x")
	b.ResetTimer()
	for range n {
		if _, err := in.Write(line); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(out, line); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	in.Close()
	cat.Wait()
}

// onFirstCPU keeps this thread, and what it starts, on a CPU until back is called.
func onFirstCPU(b *testing.B) (back func()) {
	b.Helper()
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		b.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if allowed.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		b.Fatal(err)
	}
	return func() { unix.SchedSetaffinity(0, &allowed) }
}
