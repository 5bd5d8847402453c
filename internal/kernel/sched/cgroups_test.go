package sched

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/host"
	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// readGroup reads one group's counters, zero if there are none.
func readGroup(t *testing.T, p *Sched, id model.CgroupID) model.CgroupCounters {
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
	type started struct {
		work                           string
		group                          *kerneltest.Group
		stolen, earliest, first, early time.Duration
	}
	var all []started
	for _, work := range []string{"spin", "spin8", "idle", "short"} {
		s := started{work: work, group: kerneltest.NewGroup(t, work), stolen: kerneltest.StolenTime(t)}
		_, stop := s.group.Start(t, work)
		if work == "short" {
			stop()
		} else {
			s.earliest = s.group.CPUTime(t)
			s.first = time.Duration(readGroup(t, p, s.group.ID(t)).CPU.UsageNS)
			s.early = s.group.CPUTime(t)
		}
		all = append(all, s)
	}
	time.Sleep(3 * time.Second) // the measured interval
	for _, s := range all {
		t.Run(s.work, func(t *testing.T) {
			late := s.group.CPUTime(t)
			ours := time.Duration(readGroup(t, p, s.group.ID(t)).CPU.UsageNS) - s.first
			low, high := late-s.early, s.group.CPUTime(t)-s.earliest
			slack := cpuSlack(high, kerneltest.StolenTime(t)-s.stolen)
			if ours < low-slack || ours > high+slack {
				t.Errorf("CPU time %v, the kernel says %v to %v", ours, low, high)
			}
			t.Logf("ours %v, the kernel's %v to %v", ours, low, high)
		})
	}
}

// On a hybrid host the tests above use a v1 hierarchy; this is the default one there.
func TestDefaultHierarchy(t *testing.T) {
	if kerneltest.Controller() == "" {
		return // all the other tests are this test
	}
	name := fmt.Sprintf("outsight-test-%d-v2", os.Getpid())
	p := New(Options{})
	kerneltest.OpenFor(t, kerneltest.KernelOf(t, ""), p)
	g := kerneltest.NewGroupAt(t, filepath.Join("/sys/fs/cgroup/unified", name), filepath.Join("/sys/fs/cgroup/cpuacct",
		name))
	stolen := kerneltest.StolenTime(t)
	g.Start(t, "spin")
	earliest := g.CPUTime(t)
	first := readGroup(t, p, g.ID(t)).CPU.UsageNS
	early := g.CPUTime(t)
	time.Sleep(time.Second) // the measured interval
	late := g.CPUTime(t)
	ours := time.Duration(readGroup(t, p, g.ID(t)).CPU.UsageNS - first)
	low, high := late-early, g.CPUTime(t)-earliest
	if slack := cpuSlack(high, kerneltest.StolenTime(t)-stolen); ours < low-slack || ours > high+slack {
		t.Errorf("CPU time %v, the kernel says %v to %v", ours, low, high)
	}
	for timeout := time.After(10 * time.Second); ; {
		select {
		case e := <-p.Events():
			if e.ID == g.ID(t) && e.Kind == model.CgroupMade && e.Path == "/"+name {
				return
			}
		case <-timeout:
			t.Fatal("no event says that the group was made")
		}
	}
}

// A thread that never yields counts up to the moment of reading.
func TestSpinningThreadIsSeenAtOnce(t *testing.T) {
	p := open(t, Options{})
	g := kerneltest.NewGroup(t, "spinner")
	g.Start(t, "spin")
	at := time.Now()
	before := readGroup(t, p, g.ID(t)).CPU.UsageNS
	kerneltest.Eventually(t, "usage grows between two readings without a switch", func() bool {
		a := readGroup(t, p, g.ID(t)).CPU
		b := readGroup(t, p, g.ID(t)).CPU
		return b.UsageNS > a.UsageNS && a.Voluntary == b.Voluntary && a.Involuntary == b.Involuntary
	})
	// The run queue's clock, by which a running thread is counted up to now, is known to a tick.
	const tick = 10 * time.Millisecond
	ran := time.Duration(readGroup(t, p, g.ID(t)).CPU.UsageNS - before)
	if passed := time.Since(at); ran > passed+tick {
		t.Errorf("one thread ran %v in %v", ran, passed)
	}
}

// A switch while a reading is made must not count the slice that ended twice: once as the time of
// the thread that was seen running, once as what its CPU counted when it was switched out.
func TestSwitchesWhileReading(t *testing.T) {
	p := open(t, Options{})
	g := kerneltest.NewGroup(t, "switched")
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
	for _, dir := range g.Dirs {
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
	before := readGroup(t, p, g.ID(t)).CPU.UsageNS
	for time.Since(at) < 2*time.Second {
		ran := time.Duration(readGroup(t, p, g.ID(t)).CPU.UsageNS - before)
		if passed := time.Since(at); ran > passed+10*time.Millisecond {
			t.Fatalf("one thread ran %v in %v", ran, passed)
		}
	}
}

// What a thread does before it sleeps for a time that it chose is polling, and what it does before it waits for somebody is
// not. The first group's program also has threads that wait for it.
func TestPollingIsWorkBeforeTimedSleep(t *testing.T) {
	if !kerneltest.Kernel(t).SavedRegisters {
		return // before Linux 5.15 nothing tells
	}
	p := open(t, Options{})
	g := kerneltest.NewGroup(t, "polls")
	g.Start(t, "pinned-nap")
	before := readGroup(t, p, g.ID(t)).CPU
	kerneltest.Eventually(t, "most of what it does is polling", func() bool {
		now := readGroup(t, p, g.ID(t)).CPU
		if now.PollingNS > now.UsageNS {
			t.Fatalf("%d ns of %d are polling", now.PollingNS, now.UsageNS)
		}
		used := now.UsageNS - before.UsageNS
		return now.Voluntary > before.Voluntary+50 && now.PollingNS-before.PollingNS > used/2
	})

	waits := kerneltest.NewGroup(t, "waits")
	shell := exec.Command("sh", "-c", "while read line; do i=0; while [ $i -lt 200 ]; do i=$((i+1)); done; echo; done")
	lines, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { lines.Close(); shell.Wait() }()
	for _, dir := range waits.Dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(shell.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	answer := make([]byte, 1)
	var c model.CPUCounters
	kerneltest.Eventually(t, "a shell waits for its input many times", func() bool {
		if _, err := lines.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := answers.Read(answer); err != nil {
			t.Fatal(err)
		}
		c = readGroup(t, p, waits.ID(t)).CPU
		return c.Voluntary >= 50
	})
	if c.PollingNS != 0 {
		t.Errorf("of a shell that waits for its input, %d ns of %d in %d sleeps are polling", c.PollingNS, c.UsageNS, c.Voluntary)
	}
}

// kernelWait is what the kernel says that a process's threads have waited for CPUs, in ns: waits that have ended.
func kernelWait(t *testing.T, pid int) (sum uint64) {
	t.Helper()
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

// The waits that we sum up are those that the kernel keeps per thread in schedstat.
func TestRunQueueWaitIsTheKernels(t *testing.T) {
	p := open(t, Options{})
	g := kerneltest.NewGroup(t, "waiters")
	pid, _ := g.Start(t, "spin8")
	kernelWait := func() uint64 { return kernelWait(t, pid) }
	kerneltest.Eventually(t, "a thread was switched out",
		func() bool { return readGroup(t, p, g.ID(t)).CPU.RunQueue != nil })
	early, startOurs, late := kernelWait(), readGroup(t, p, g.ID(t)).CPU.RunQueue.SumNS, kernelWait()
	time.Sleep(3 * time.Second) // the measured interval
	low := kernelWait() - late
	ours := readGroup(t, p, g.ID(t)).CPU.RunQueue.SumNS - startOurs
	high := kernelWait() - early
	// A thread that is on a CPU has its last wait in schedstat already, in ours when it leaves.
	slack := high / 20
	if kerneltest.Emulated() {
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
	kerneltest.Eventually(t, "every CPU has switched once", func() bool {
		for cpu := range p.cgroups.cpus {
			if host.Load(&p.cgroups.states.Entries[cpu].SinceNs) == 0 {
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
	if kerneltest.Emulated() {
		share = 0.1
	}
	least, most := late.Sub(early).Seconds()*cpus, latest.Sub(earliest).Seconds()*cpus
	if all := float64(second-first) / 1e9; all < (1-share)*least || all > (1+share)*most {
		t.Errorf("groups, others and idle time make %.4f s of the CPUs' %.4f to %.4f s", all, least, most)
	}
}

func TestLifecycleEvents(t *testing.T) {
	p := open(t, Options{})
	g := kerneltest.NewGroup(t, "events")
	id, path := g.ID(t), strings.TrimPrefix(g.Dirs[0], filepath.Dir(g.Dirs[0]))
	pid, stop := g.Start(t, "idle")
	stop()
	g.Remove(t)
	want := []model.CgroupEvent{
		{Kind: model.CgroupMade, ID: id, Path: path},
		{Kind: model.TaskAttached, ID: id, Path: path, PID: pid},
		{Kind: model.CgroupRemoved, ID: id, Path: path},
	}
	for timeout := time.After(kerneltest.Patience()); len(want) > 0; {
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
			t.Fatalf("not seen within %v: %+v", kerneltest.Patience(), want)
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
		g := kerneltest.NewGroup(t, fmt.Sprint("many", i))
		_, stop := g.Start(t, "short")
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

// forgetRemoved forgets the groups whose removal was reported by now.
func forgetRemoved(p *Sched) {
	for {
		select {
		case e := <-p.Events():
			if e.Kind == model.CgroupRemoved {
				p.Forget(e.ID)
			}
		default:
			return
		}
	}
}

func TestReleasedSlotStartsAtZero(t *testing.T) {
	p := open(t, Options{MaxCgroups: 128})
	for i := range 140 {
		g := kerneltest.NewGroup(t, fmt.Sprint("one", i))
		_, stop := g.Start(t, "shorter")
		stop()
		id := g.ID(t)
		if c := readGroup(t, p, id).CPU; c.UsageNS == 0 || c.UsageNS > uint64(10*time.Second) {
			t.Fatalf("group %d used %v", i, time.Duration(c.UsageNS))
		}
		g.Remove(t)
		forgetRemoved(p) // other groups of the host come and go as well
		p.Forget(id)
		if c := readGroup(t, p, id); c.CPU.UsageNS != 0 {
			t.Fatalf("group %d is forgotten and still has %v", i, time.Duration(c.CPU.UsageNS))
		}
	}
}

// A thread that runs on after its group's slot was released, as the last one of a removed group may, adds nothing to
// that slot: another group gets it. In a CPU's cache of slots two groups may be in each other's way, hence several.
func TestReleasedSlotIsLeftAlone(t *testing.T) {
	p := open(t, Options{})
	var ids []model.CgroupID
	var stops []func()
	before := map[model.CgroupID]uint32{}
	for i := range 6 {
		g := kerneltest.NewGroup(t, fmt.Sprint("running", i))
		_, stop := g.Start(t, "pinned-nap")
		ids, stops = append(ids, g.ID(t)), append(stops, stop)
	}
	allRun := func() bool {
		return !slices.ContainsFunc(ids, func(id model.CgroupID) bool { return readGroup(t, p, id).CPU.Voluntary < 20 })
	}
	kerneltest.Eventually(t, "all were switched to", allRun)
	for _, id := range ids {
		before[id], _ = p.SlotOf(id)
		p.Forget(id)
	}
	kerneltest.Eventually(t, "all have other slots", allRun)
	for i, id := range ids {
		stops[i]()
		slot := before[id]
		if now, found := p.SlotOf(id); !found || now == slot {
			t.Errorf("group %d had slot %d and has slot %d", id, slot, now)
		}
		for cpu := range p.cgroups.cpus {
			lane := p.cgroups.lanes.Entries[int(slot)*p.cgroups.cpus+cpu]
			if lane != (cgroupsCgroupLane{}) && p.Slots()[slot] == 0 {
				t.Errorf("CPU %d added %+v to slot %d, which was released", cpu, lane, slot)
			}
		}
	}
}

// cpuSlack is how far ours may lie outside of what the kernel says of d, of which the hypervisor took
// stolen away: its ticks, at which the kernel accounts, are that much late.
func cpuSlack(d, stolen time.Duration) time.Duration {
	if kerneltest.Emulated() {
		return d/5 + 100*time.Millisecond
	}
	return d/100 + 15*time.Millisecond + stolen
}
