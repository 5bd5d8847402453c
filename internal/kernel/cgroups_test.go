package kernel

import (
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

	"outsight/internal/model"
)

// readGroup reads one group's counters, zero if there are none.
func readGroup(t *testing.T, p *Probes, id model.CgroupID) model.CgroupCounters {
	t.Helper()
	all, err := p.ReadCgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.ID == id && c.Slot == model.OrdinaryCgroup {
			return c
		}
	}
	return model.CgroupCounters{}
}

// The kernel's account is read before and after ours: ours must lie between the two, give or
// take one per cent, what the kernel itself has not yet accounted to running threads (a tick each),
// and what the workload ran between joining the two groups that v1 needs.
func TestCPUTimeIsTheKernels(t *testing.T) {
	p := open(t, Options{})
	for _, work := range []string{"spin", "spin8", "idle", "short"} {
		t.Run(work, func(t *testing.T) {
			g := newGroup(t, work)
			stolen := stolenTime(t)
			_, stop := g.start(t, work)
			var earliest, first, early time.Duration
			if work == "short" {
				stop()
			} else {
				earliest = g.cpuTime(t)
				first = time.Duration(readGroup(t, p, g.id(t)).CPU.UsageNS)
				early = g.cpuTime(t)
				time.Sleep(3 * time.Second) // the measured interval
			}
			late := g.cpuTime(t)
			ours := time.Duration(readGroup(t, p, g.id(t)).CPU.UsageNS) - first
			low, high := late-early, g.cpuTime(t)-earliest
			slack := cpuSlack(high, stolenTime(t)-stolen)
			if ours < low-slack || ours > high+slack {
				t.Errorf("CPU time %v, the kernel says %v to %v", ours, low, high)
			}
			t.Logf("ours %v, the kernel's %v to %v", ours, low, high)
		})
	}
}

// On a hybrid host the tests above use a v1 hierarchy; this is the default one there.
func TestDefaultHierarchy(t *testing.T) {
	if controller() == "" {
		return // all the other tests are this test
	}
	name := fmt.Sprintf("outsight-test-%d-v2", os.Getpid())
	p := openAs(t, Options{})
	g := newGroupAt(t, filepath.Join("/sys/fs/cgroup/unified", name), filepath.Join("/sys/fs/cgroup/cpuacct", name))
	stolen := stolenTime(t)
	g.start(t, "spin")
	earliest := g.cpuTime(t)
	first := readGroup(t, p, g.id(t)).CPU.UsageNS
	early := g.cpuTime(t)
	time.Sleep(time.Second) // the measured interval
	late := g.cpuTime(t)
	ours := time.Duration(readGroup(t, p, g.id(t)).CPU.UsageNS - first)
	low, high := late-early, g.cpuTime(t)-earliest
	if slack := cpuSlack(high, stolenTime(t)-stolen); ours < low-slack || ours > high+slack {
		t.Errorf("CPU time %v, the kernel says %v to %v", ours, low, high)
	}
	for timeout := time.After(10 * time.Second); ; {
		select {
		case e := <-p.Events():
			if e.ID == g.id(t) && e.Kind == model.CgroupMade && e.Path == "/"+name {
				return
			}
		case <-timeout:
			t.Fatal("the group's making was not told")
		}
	}
}

// A thread that never yields counts up to the moment of reading.
func TestSpinningThreadIsSeenAtOnce(t *testing.T) {
	p := open(t, Options{})
	g := newGroup(t, "spinner")
	g.start(t, "spin")
	at := time.Now()
	before := readGroup(t, p, g.id(t)).CPU.UsageNS
	eventually(t, "usage grows between two readings without a switch", func() bool {
		a := readGroup(t, p, g.id(t)).CPU
		b := readGroup(t, p, g.id(t)).CPU
		return b.UsageNS > a.UsageNS && a.Voluntary == b.Voluntary && a.Involuntary == b.Involuntary
	})
	// The run queue's clock, by which a running thread is counted up to now, is known to a tick.
	const tick = 10 * time.Millisecond
	ran := time.Duration(readGroup(t, p, g.id(t)).CPU.UsageNS - before)
	if passed := time.Since(at); ran > passed+tick {
		t.Errorf("one thread ran %v in %v", ran, passed)
	}
}

// A switch while a reading is made must not count the slice that ended twice: once as the time of
// the thread that was seen running, once as what its CPU counted when it was switched out.
func TestSwitchesWhileReading(t *testing.T) {
	p := open(t, Options{WithoutEndpoints: true})
	g := newGroup(t, "switched")
	onCPU := func(pid int) {
		var first unix.CPUSet
		first.Set(0)
		if err := unix.SchedSetaffinity(pid, &first); err != nil {
			t.Error(err)
		}
	}
	// A shell, since it has no other thread that would make it switch.
	shell := exec.Command("sh", "-c", "while :; do :; done")
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { shell.Process.Kill(); shell.Wait() }()
	onCPU(shell.Process.Pid)
	for _, dir := range g.dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(shell.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		runtime.LockOSThread() // and never unlocked: the thread ends with its affinity
		onCPU(0)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				// The thread that was woken up takes the CPU from the spinning one.
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	at := time.Now()
	before := readGroup(t, p, g.id(t)).CPU.UsageNS
	for time.Since(at) < 2*time.Second {
		ran := time.Duration(readGroup(t, p, g.id(t)).CPU.UsageNS - before)
		if passed := time.Since(at); ran > passed+10*time.Millisecond {
			t.Fatalf("one thread ran %v in %v", ran, passed)
		}
	}
}

// The waits that we sum up are those that the kernel keeps per thread in schedstat.
func TestRunQueueWaitIsTheKernels(t *testing.T) {
	p := open(t, Options{})
	g := newGroup(t, "waiters")
	pid, _ := g.start(t, "spin8")
	kernelWait := func() (sum uint64) {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task.Name()))
			if err != nil {
				t.Fatal(err)
			}
			var ran, waited, slices uint64
			fmt.Sscan(string(text), &ran, &waited, &slices)
			sum += waited
		}
		return sum
	}
	eventually(t, "a thread was switched out", func() bool { return readGroup(t, p, g.id(t)).CPU.RunQueue != nil })
	early, startOurs, late := kernelWait(), readGroup(t, p, g.id(t)).CPU.RunQueue.SumNS, kernelWait()
	time.Sleep(3 * time.Second) // the measured interval
	low := kernelWait() - late
	ours := readGroup(t, p, g.id(t)).CPU.RunQueue.SumNS - startOurs
	high := kernelWait() - early
	// A thread that is on a CPU has its last wait in schedstat already, in ours when it leaves.
	slack := high / 20
	if emulated() {
		slack = high / 5
	}
	if ours+slack < low || ours > high+slack {
		t.Errorf("waited %v, the kernel says %v to %v", time.Duration(ours), time.Duration(low), time.Duration(high))
	}
	t.Logf("ours %v, the kernel's %v to %v", time.Duration(ours), time.Duration(low), time.Duration(high))
}

func TestPartsAddUpToTheWhole(t *testing.T) {
	p := open(t, Options{})
	sum := func() (ns uint64, before, after time.Time) {
		before = time.Now()
		all, err := p.ReadCgroups()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			ns += c.CPU.UsageNS
		}
		return ns, before, time.Now()
	}
	eventually(t, "every CPU has switched once", func() bool {
		for cpu := range p.cgroups.cpus {
			if load(&p.cgroups.states.entries[cpu].SinceNs) == 0 {
				return false
			}
		}
		return true
	})
	first, earliest, early := sum()
	time.Sleep(2 * time.Second) // the measured interval
	second, late, latest := sum()
	cpus := float64(p.cgroups.cpus)
	share := 0.01
	if emulated() {
		share = 0.1
	}
	least, most := late.Sub(early).Seconds()*cpus, latest.Sub(earliest).Seconds()*cpus
	if all := float64(second-first) / 1e9; all < (1-share)*least || all > (1+share)*most {
		t.Errorf("groups, others and idle time make %.4f s of the CPUs' %.4f to %.4f s", all, least, most)
	}
}

func TestLifecycleEvents(t *testing.T) {
	p := open(t, Options{})
	g := newGroup(t, "events")
	id, path := g.id(t), strings.TrimPrefix(g.dirs[0], filepath.Dir(g.dirs[0]))
	pid, stop := g.start(t, "idle")
	stop()
	g.remove(t)
	want := []model.CgroupEvent{
		{Kind: model.CgroupMade, ID: id, Path: path},
		{Kind: model.TaskAttached, ID: id, Path: path, PID: pid},
		{Kind: model.CgroupRemoved, ID: id, Path: path},
	}
	for timeout := time.After(patience()); len(want) > 0; {
		select {
		case got := <-p.Events():
			if got.ID != id {
				continue
			}
			if time.Since(got.Time) > time.Minute || time.Until(got.Time) > time.Second {
				t.Errorf("event of %v is at %v", got.Kind, got.Time)
			}
			got.Time = time.Time{}
			if got != want[0] {
				t.Errorf("got %+v, want %+v", got, want[0])
			}
			want = want[1:]
		case <-timeout:
			t.Fatalf("not seen within %v: %+v", patience(), want)
		}
	}
	c := readGroup(t, p, id)
	if c.Exits != 1 {
		t.Errorf("%d exits counted, want 1", c.Exits)
	}
}

func TestFullTableCountsTheRestTogether(t *testing.T) {
	p := open(t, Options{MaxCgroups: 16})
	for i := range 20 {
		g := newGroup(t, fmt.Sprint("many", i))
		_, stop := g.start(t, "short")
		stop()
	}
	all, err := p.ReadCgroups()
	if err != nil {
		t.Fatal(err)
	}
	var others uint64
	for _, c := range all {
		if c.Slot == model.OtherCgroups {
			others = c.CPU.UsageNS
		}
	}
	if others < uint64(100*time.Millisecond) {
		t.Errorf("groups without a slot ran 100 ms each; together %v are counted", time.Duration(others))
	}
	if d := p.Drops()[0]; d.Name != "cgroups" || d.Count == 0 || d.Used != d.Capacity {
		t.Errorf("the overflow does not show: %+v", d)
	}
}

// forgetRemoved forgets the groups whose removal was told by now.
func forgetRemoved(p *Probes) {
	for {
		select {
		case e := <-p.Events():
			if e.Kind == model.CgroupRemoved {
				p.ForgetCgroup(e.ID)
			}
		default:
			return
		}
	}
}

func TestForgottenSlotStartsAtZero(t *testing.T) {
	p := open(t, Options{MaxCgroups: 128})
	for i := range 140 {
		g := newGroup(t, fmt.Sprint("one", i))
		_, stop := g.start(t, "shorter")
		stop()
		id := g.id(t)
		if c := readGroup(t, p, id).CPU; c.UsageNS == 0 || c.UsageNS > uint64(10*time.Second) {
			t.Fatalf("group %d used %v", i, time.Duration(c.UsageNS))
		}
		g.remove(t)
		forgetRemoved(p) // other groups of the host come and go as well
		p.ForgetCgroup(id)
		if c := readGroup(t, p, id); c.CPU.UsageNS != 0 {
			t.Fatalf("group %d is forgotten and still has %v", i, time.Duration(c.CPU.UsageNS))
		}
	}
}

// cpuSlack is how far ours may lie outside of what the kernel says of d, of which the hypervisor took
// stolen away: its ticks, at which the kernel accounts, are that much late.
func cpuSlack(d, stolen time.Duration) time.Duration {
	if emulated() {
		return d/5 + 100*time.Millisecond
	}
	return d/100 + 15*time.Millisecond + stolen
}

// stolenTime is what the hypervisor took from all CPUs since the start, to a hundredth of a second.
func stolenTime(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	var name string
	var user, nice, system, idle, wait, irq, soft, steal int64
	if _, err := fmt.Sscan(string(text), &name, &user, &nice, &system, &idle, &wait, &irq, &soft, &steal); err != nil {
		t.Fatal(err)
	}
	return time.Duration(steal) * 10 * time.Millisecond
}
