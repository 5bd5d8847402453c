package sched

import (
	"bufio"
	"errors"
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

// pinned works on the first CPU alone until its standard input ends: it spins with one or four threads, or
// wakes up again and again to run for a moment.
func pinned(name string) int {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var first unix.CPUSet
	first.Set(0)
	for _, task := range tasks { // further threads inherit it
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			_ = unix.SchedSetaffinity(tid, &first) // one that has ended needs none
		}
	}
	work, threads := kerneltest.Spin, 1
	switch name {
	case "pinned-spin4":
		threads = 4
	case "pinned-nap":
		work = func(time.Duration) {
			runtime.LockOSThread()
			for {
				nap := unix.NsecToTimespec(int64(2 * time.Millisecond))
				_ = unix.Nanosleep(&nap, nil)
				kerneltest.Spin(200 * time.Microsecond)
			}
		}
	}
	runtime.GOMAXPROCS(threads + 1)
	for range threads {
		go work(time.Hour)
	}
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadByte()
	return 0
}

// contention is what a group waited for, by group, with the sum of all.
type contention struct {
	model.ContentionRest
	by          map[model.CgroupID]uint64
	preemptions map[model.CgroupID]uint64
	// kernel is the kernel's own sum of waits, which count when the thread is switched out again.
	kernel uint64
}

func (c contention) total() uint64 {
	sum := c.WaitNS()
	for _, ns := range c.by {
		sum += ns
	}
	return sum
}

func readContention(t *testing.T, p *Sched, id model.CgroupID) contention {
	t.Helper()
	all, err := p.ReadContention()
	if err != nil {
		t.Fatal(err)
	}
	c := contention{by: map[model.CgroupID]uint64{}, preemptions: map[model.CgroupID]uint64{}}
	for _, g := range all.Groups {
		if g.ID == id && g.Slot == model.OrdinaryCgroup {
			c.ContentionRest = g.ContentionRest
		}
	}
	for _, pair := range all.Pairs {
		if pair.Victim == id {
			c.by[pair.Culprit] += pair.WaitNS
			c.preemptions[pair.Culprit] += pair.Preemptions
		}
	}
	if h := readGroup(t, p, id).CPU.RunQueue; h != nil {
		c.kernel = h.SumNS
	}
	return c
}

func (c contention) since(before contention) contention {
	d := contention{ContentionRest: c.Since(&before.ContentionRest), kernel: c.kernel - before.kernel,
		by: map[model.CgroupID]uint64{}, preemptions: map[model.CgroupID]uint64{}}
	for id, ns := range c.by {
		d.by[id] = ns - before.by[id]
	}
	for id, n := range c.preemptions {
		d.preemptions[id] = n - before.preemptions[id]
	}
	return d
}

func (c contention) String() string {
	return fmt.Sprintf("total %v kernel %v %+v by %v preempted by %v", time.Duration(c.total()),
		time.Duration(c.kernel), c.ContentionRest, c.by, c.preemptions)
}

// ranOnFirstCPU is how long a group's threads ran on the first CPU, up to their last switch.
func ranOnFirstCPU(t *testing.T, p *Sched, id model.CgroupID) uint64 {
	t.Helper()
	var slot uint32
	if err := p.cgroups.maps.SlotOfCgroup.Lookup(uint64(id), &slot); err != nil {
		return 0
	}
	return host.Load(&p.cgroups.lanes.Entries[int(slot)*p.cgroups.cpus].UsageNs)
}

// cpuWatch tells what groups have of the first CPU.
type cpuWatch struct {
	p      *Sched
	at     time.Time
	before map[model.CgroupID]uint64
}

func watchCPU(t *testing.T, p *Sched, ids ...model.CgroupID) *cpuWatch {
	w := &cpuWatch{p: p, at: time.Now(), before: map[model.CgroupID]uint64{}}
	for _, id := range ids {
		w.before[id] = ranOnFirstCPU(t, p, id)
	}
	return w
}

// ran is for how long a group ran, in ns.
func (w *cpuWatch) ran(t *testing.T, id model.CgroupID) float64 {
	return float64(ranOnFirstCPU(t, w.p, id) - w.before[id])
}

// share is what id ran of the time in which victim did not.
func (w *cpuWatch) share(t *testing.T, id, victim model.CgroupID) float64 {
	return w.ran(t, id) / max(float64(time.Since(w.at))-w.ran(t, victim), 1)
}

// A group that wakes up on a CPU on which another spins waits behind that one. The host may have other things to do:
// the spinning group's share of the waits is compared with its share of the CPU. Both are heavy, since a victim does
// not wait behind several others in proportion to what they have of the CPU: it waits most while most of them run.
func TestVictimWaitsBehindTheHog(t *testing.T) {
	p := open(t, Options{})
	hog, victim := newHeavyGroup(t, "hog"), newHeavyGroup(t, "victim")
	hog.Start(t, "pinned-spin")
	victim.Start(t, "pinned-nap")
	hogID, victimID := hog.ID(t), victim.ID(t)
	before, hogBefore := readContention(t, p, victimID), readContention(t, p, hogID)
	cpu := watchCPU(t, p, hogID, victimID)
	var waited contention
	kerneltest.Eventually(t, "the victim waited 300 ms", func() bool {
		waited = readContention(t, p, victimID).since(before)
		return waited.total() > 300e6
	})
	hogWaited := readContention(t, p, hogID).since(hogBefore)
	t.Logf("victim: %v", waited)
	t.Logf("hog: %v", hogWaited)
	had := cpu.share(t, hogID, victimID)
	// The victim's runtime has other threads, which wait for each other.
	behind := float64(waited.by[hogID]) / float64(waited.total()-waited.OwnNS)
	if behind < had-0.1 {
		t.Errorf("%.1f %% of the waits were behind the hog, which had %.1f %% of what the victim left of the CPU",
			behind*100, had*100)
	}
	// The hog has one thread that always wants to run, and those of its runtime, which hardly do.
	if behind, ran := float64(hogWaited.by[victimID]), cpu.ran(t, victimID); behind > 1.2*ran {
		t.Errorf("the hog waited %.0f ns behind the victim, which ran %.0f ns", behind, ran)
	}
	if waited.preemptions[hogID]+hogWaited.preemptions[victimID] == 0 {
		t.Error("neither preempted the other")
	}
}

// Of two that spin, each has its part in what a third waits.
func TestTwoHogsShareTheBlame(t *testing.T) {
	p := open(t, Options{})
	one, two, victim := kerneltest.NewGroup(t, "one"), kerneltest.NewGroup(t, "two"), kerneltest.NewGroup(t, "victim")
	one.Start(t, "pinned-spin")
	two.Start(t, "pinned-spin4")
	victim.Start(t, "pinned-spin")
	ids := []model.CgroupID{one.ID(t), two.ID(t), victim.ID(t)}
	before, cpu := readContention(t, p, ids[2]), watchCPU(t, p, ids...)
	var waited contention
	kerneltest.Eventually(t, "the victim waited two seconds", func() bool {
		waited = readContention(t, p, ids[2]).since(before)
		return waited.total() > 2e9
	})
	t.Logf("victim: %v", waited)
	for i, id := range ids[:2] {
		had, behind := cpu.share(t, id, ids[2]), float64(waited.by[id])/float64(waited.total())
		if behind < had-0.15 || behind > had+0.15 {
			t.Errorf("%.1f %% of the waits were behind hog %d, which had %.1f %% of what the victim left of the CPU",
				behind*100, i, had*100)
		}
	}
}

// Threads of one group that wait for each other wait for no other.
func TestOwnThreadsAreOwn(t *testing.T) {
	p := open(t, Options{})
	g := kerneltest.NewGroup(t, "own")
	g.Start(t, "pinned-spin4")
	id := g.ID(t)
	before, cpu := readContention(t, p, id), watchCPU(t, p, id)
	var waited contention
	kerneltest.Eventually(t, "its threads waited two seconds", func() bool {
		waited = readContention(t, p, id).since(before)
		return waited.total() > 2e9
	})
	t.Logf("%v", waited)
	had := cpu.share(t, id, 0)
	if own := float64(waited.OwnNS) / float64(waited.total()); own < had-0.1 {
		t.Errorf("%.1f %% of the waits were its own, and it had %.1f %% of the CPU", own*100, had*100)
	}
	if waited.by[id] != 0 || waited.preemptions[id] != 0 {
		t.Error("the group is said to disturb itself")
	}
	if waited.OwnPreemptions == 0 {
		t.Error("no thread preempted another")
	}
}

// A group that has used its quota up waits behind no other, whoever runs meanwhile.
func TestQuotaIsNobodysFault(t *testing.T) {
	p := open(t, Options{})
	if types, err := kerneltest.Types.Kernel(); err != nil {
		t.Fatal(err)
	} else if !host.HasMember(types, "cfs_rq", "throttled_clock_self_time") {
		t.Skip("this kernel does not say how long a group was throttled (before 6.7)")
	}
	// A quota that is used up also where many others run on that CPU, and that is longer than a tick.
	hog, victim := kerneltest.NewGroup(t, "hog"), newQuotaGroup(t, "throttled", 5*time.Millisecond, 100*time.Millisecond)
	hog.Start(t, "pinned-spin")
	startShell(t, victim)
	hogID, id := hog.ID(t), victim.ID(t)
	// The time is taken outside of the account, so that what is left of it is no less than it was.
	before, throttledBefore, at := readContention(t, p, id), throttledTime(t, victim), time.Now()
	kerneltest.Eventually(t, "it was throttled for two seconds",
		func() bool { return throttledTime(t, victim)-throttledBefore > 2e9 })
	passed, throttledFor := uint64(time.Since(at)), throttledTime(t, victim)-throttledBefore
	waited := readContention(t, p, id).since(before)
	t.Logf("throttled %v of %v: %v", time.Duration(throttledFor), time.Duration(passed), waited)
	// A time that it was throttled counts when its thread runs again: one may have begun before, and one have not ended.
	// From Linux 6.18 on a group may be throttled again while its thread still waits behind others to be picked, and the
	// kernel takes the thread off its queue when it is: the wait until then is behind these others.
	const period = 100e6
	if waited.total()+period < throttledFor || waited.QuotaNS < throttledFor*3/4 || waited.QuotaNS > throttledFor+period {
		t.Errorf("waited %v for its quota, and was throttled %v", time.Duration(waited.QuotaNS), time.Duration(throttledFor))
	}
	if limit := passed - throttledFor + period; waited.total()-waited.QuotaNS > limit {
		t.Errorf("waited %v for others, %v of it behind the hog, and was not throttled for %v",
			time.Duration(waited.total()-waited.QuotaNS),
			time.Duration(waited.by[hogID]), time.Duration(limit))
	}
	if waited.QuotaStops == 0 {
		t.Error("it was never taken off its CPU because of its quota")
	}
}

// startShell runs a shell in a group that spins on the first CPU: unlike a Go program, it has one thread.
func startShell(t *testing.T, g *kerneltest.Group) {
	t.Helper()
	shell := exec.Command("sh", "-c", "while :; do :; done")
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shell.Process.Kill(); shell.Wait() })
	var first unix.CPUSet
	first.Set(0)
	if err := unix.SchedSetaffinity(shell.Process.Pid, &first); err != nil {
		t.Fatal(err)
	}
	for _, dir := range g.Dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(shell.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// newQuotaGroup makes a group with a CPU quota.
func newQuotaGroup(t *testing.T, name string, quota, period time.Duration) *kerneltest.Group {
	t.Helper()
	q, p := fmt.Sprint(quota.Microseconds()), fmt.Sprint(period.Microseconds())
	return newCPUGroup(t, name, map[string]string{"cpu.max": q + " " + p},
		map[string]string{"cpu.cfs_period_us": p, "cpu.cfs_quota_us": q})
}

// newHeavyGroup makes a group that has nearly all of a CPU that it shares with groups of the usual weight.
func newHeavyGroup(t *testing.T, name string) *kerneltest.Group {
	t.Helper()
	return newCPUGroup(t, name, map[string]string{"cpu.weight": "10000"}, map[string]string{"cpu.shares": "262144"})
}

// newCPUGroup makes a group whose last directory has these files of the CPU controller.
func newCPUGroup(t *testing.T, name string, v2, v1 map[string]string) *kerneltest.Group {
	t.Helper()
	name = fmt.Sprintf("outsight-test-%d-%s", os.Getpid(), name)
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	dirs, files := []string{filepath.Join("/sys/fs/cgroup", name)}, v2
	if kerneltest.Controller() == "" {
		write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu")
	} else {
		dirs, files = []string{filepath.Join("/sys/fs/cgroup/memory", name), filepath.Join("/sys/fs/cgroup/cpu", name)}, v1
	}
	g := kerneltest.NewGroupAt(t, dirs...)
	for file, text := range files {
		write(filepath.Join(g.Dirs[len(g.Dirs)-1], file), text)
	}
	return g
}

// throttledTime is the kernel's own account of how long a group was throttled, in ns.
func throttledTime(t *testing.T, g *kerneltest.Group) uint64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.Dirs[len(g.Dirs)-1], "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var n uint64
		if _, err := fmt.Sscanf(line, "throttled_time %d", &n); err == nil {
			return n
		}
		if _, err := fmt.Sscanf(line, "throttled_usec %d", &n); err == nil {
			return n * 1000
		}
	}
	t.Fatalf("no throttled time in %q", text)
	return 0
}

// What is waited for adds up to what the kernel says was waited, exactly, once the threads have left their
// CPUs; but for the wait of each process's first thread before it joined the group, which is
// another group's here, and its own where the kernel's sum is taken.
func TestWaitsAddUp(t *testing.T) {
	p := open(t, Options{})
	groups := []*kerneltest.Group{kerneltest.NewGroup(t, "one"), kerneltest.NewGroup(t, "two"),
		kerneltest.NewGroup(t, "three")}
	var stops []func()
	// What threads waited before they joined takes long on a busy machine.
	var joining [3]uint64
	for i, work := range []string{"pinned-spin4", "pinned-nap", "spin8"} {
		_, stop := groups[i].Start(t, work)
		stops = append(stops, stop)
		c := readContention(t, p, groups[i].ID(t))
		joining[i] = 5e6 + c.kernel - min(c.kernel, c.total())
	}
	kerneltest.Eventually(t, "all waited a while", func() bool {
		return !slices.ContainsFunc(groups,
			func(g *kerneltest.Group) bool { return readContention(t, p, g.ID(t)).kernel < 200e6 })
	})
	for _, stop := range stops {
		stop()
	}
	for i, g := range groups {
		c := readContention(t, p, g.ID(t))
		t.Logf("%d: %v", i, c)
		if c.total() > c.kernel || c.total() < c.kernel-min(c.kernel, joining[i]) {
			t.Errorf("group %d waited %d ns in sum, the kernel says %d", i, c.total(), c.kernel)
		}
		if c.OtherNS > c.total()/10 {
			t.Errorf("group %d waited %d ns of %d for it is not known whom", i, c.OtherNS, c.total())
		}
	}
}

// A group that gets the slot of one that is gone has nothing of its waits, as victim or as culprit.
func TestContentionOfAReusedSlot(t *testing.T) {
	p := open(t, Options{MaxCgroups: 16})
	other := kerneltest.NewGroup(t, "other")
	other.Start(t, "pinned-spin")
	otherID := other.ID(t)
	slotsSeen := map[uint32]int{}
	for round := range 20 {
		g := kerneltest.NewGroup(t, fmt.Sprintf("round%d", round))
		_, stop := g.Start(t, "pinned-spin")
		id := g.ID(t)
		kerneltest.Eventually(t, "the two waited for each other", func() bool {
			mine := readContention(t, p, id)
			return mine.by[otherID] > 10e6 && readContention(t, p, otherID).by[id] > 10e6
		})
		var slot uint32
		if err := p.cgroups.maps.SlotOfCgroup.Lookup(uint64(id), &slot); err != nil {
			t.Fatal(err)
		}
		slotsSeen[slot]++
		stop()
		g.Remove(t)
		final := readContention(t, p, id)
		p.Forget(id)
		// The other's threads may still wait that began to while this group ran: their pair is made again, and evicted.
		kerneltest.Eventually(t, "its pairs are evicted", func() bool {
			all, err := p.ReadContention()
			if err != nil {
				t.Fatal(err)
			}
			return !slices.ContainsFunc(all.Pairs,
				func(pair model.CgroupPair) bool { return pair.Victim == id || pair.Culprit == id })
		})
		if final.total() == 0 {
			t.Errorf("round %d waited for nothing", round)
		}
		// The next one in this slot begins at nothing.
		if last := readGroupOfSlot(p, slot); last != (contentionContentionLane{}) && p.Slots()[slot] == 0 {
			t.Errorf("round %d: the slot still has %+v", round, last)
		}
	}
	if len(slotsSeen) == 20 {
		t.Fatal("no slot was used twice")
	}
}

// readGroupOfSlot is what the first CPU's lane of a slot counts.
func readGroupOfSlot(p *Sched, slot uint32) contentionContentionLane {
	return p.contention.lanes.Entries[int(slot)*p.contention.cpus]
}

// Without the program everything else goes on; paused, it counts nothing.
func TestContentionAlone(t *testing.T) {
	p := open(t, Options{})
	g := kerneltest.NewGroup(t, "alone")
	g.Start(t, "pinned-spin4")
	id := g.ID(t)
	kerneltest.Eventually(t, "it waits", func() bool { return readContention(t, p, id).OwnNS > 0 })
	if err := host.NewParts(p).Shed("contention"); err != nil {
		t.Fatal(err)
	}
	paused := readContention(t, p, id)
	kerneltest.Eventually(t, "the kernel's sum goes on",
		func() bool { return readContention(t, p, id).kernel > paused.kernel+100e6 })
	if now := readContention(t, p, id); now.total() != paused.total() {
		t.Errorf("paused, it counted %v and then %v", paused, now)
	}
	if err := host.NewParts(p).Restore("contention"); err != nil {
		t.Fatal(err)
	}
	kerneltest.Eventually(t, "it counts again", func() bool { return readContention(t, p, id).OwnNS > paused.OwnNS })

	without := open(t, Options{WithoutContention: true})
	if _, err := without.ReadContention(); err == nil {
		t.Error("waits are read without a program")
	}
	if err := errors.Join(host.NewParts(without).Shed("contention"),
		host.NewParts(without).Restore("contention")); err != nil {
		t.Error(err)
	}
}
