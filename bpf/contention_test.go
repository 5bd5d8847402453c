package bpf

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	work, threads := spin, 1
	switch name {
	case "pinned-spin4":
		threads = 4
	case "pinned-nap":
		work = func(time.Duration) {
			runtime.LockOSThread()
			for {
				nap := unix.NsecToTimespec(int64(2 * time.Millisecond))
				_ = unix.Nanosleep(&nap, nil)
				spin(200 * time.Microsecond)
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

func (c *contention) total() uint64 {
	sum := c.WaitNS()
	for _, ns := range c.by {
		sum += ns
	}
	return sum
}

func readContention(t *testing.T, p *Probes, id model.CgroupID) contention {
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

func (c *contention) since(before contention) contention {
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
	return fmt.Sprintf("total %v kernel %v %+v by %v preempted by %v", time.Duration(c.total()), time.Duration(c.kernel), c.ContentionRest, c.by, c.preemptions)
}

// ranOnFirstCPU is how long a group's threads ran on the first CPU, up to their last switch.
func ranOnFirstCPU(t *testing.T, p *Probes, id model.CgroupID) uint64 {
	t.Helper()
	var slot uint32
	if err := p.cgroups.slotOf.Lookup(uint64(id), &slot); err != nil {
		return 0
	}
	return load(&p.cgroups.lanes.entries[int(slot)*p.cgroups.cpus].UsageNs)
}

// A group that wakes up on a CPU on which another spins waits behind that one. The machine may have other
// things to do: the spinning group's share of the waits is held against its share of the CPU.
func TestVictimWaitsBehindTheHog(t *testing.T) {
	p := open(t, Options{WithoutEndpoints: true})
	hog, victim := newGroup(t, "hog"), newGroup(t, "victim")
	hog.start(t, "pinned-spin")
	victim.start(t, "pinned-nap")
	hogID, victimID := hog.id(t), victim.id(t)
	before, hogBefore := readContention(t, p, victimID), readContention(t, p, hogID)
	at, hogRan, victimRan := time.Now(), ranOnFirstCPU(t, p, hogID), ranOnFirstCPU(t, p, victimID)
	var waited contention
	eventually(t, "the victim waited 300 ms", func() bool {
		now := readContention(t, p, victimID)
		waited = now.since(before)
		return waited.total() > 300e6
	})
	hogNow := readContention(t, p, hogID)
	t.Logf("victim: %v", waited)
	t.Logf("hog: %v", hogNow.since(hogBefore))
	passed := float64(time.Since(at))
	hogRanFor, victimRanFor := float64(ranOnFirstCPU(t, p, hogID)-hogRan), float64(ranOnFirstCPU(t, p, victimID)-victimRan)
	hogShare := hogRanFor / max(passed-victimRanFor, 1)
	if share := float64(waited.by[hogID]) / float64(waited.total()-waited.OwnNS); share < hogShare-0.1 {
		t.Errorf("%.0f %% of the waits were behind the hog, which had %.0f %% of what the victim left of the CPU", share*100, hogShare*100)
	} else {
		t.Logf("%.1f %% of the waits behind the hog, which had %.1f %% of the CPU", share*100, hogShare*100)
	}
	if waited.preemptions[hogID]+hogNow.since(hogBefore).preemptions[victimID] == 0 {
		t.Error("neither preempted the other")
	}
}

// What is waited for adds up to what the kernel says was waited.
func TestWaitsAddUp(t *testing.T) {
	p := open(t, Options{WithoutEndpoints: true})
	groups := []*testGroup{newGroup(t, "one"), newGroup(t, "two"), newGroup(t, "three")}
	for _, g := range groups {
		_, stop := g.start(t, "pinned-spin4")
		defer stop()
	}
	_, stopFree := groups[0].start(t, "spin8")
	before := map[model.CgroupID]contention{}
	for _, g := range groups {
		before[g.id(t)] = readContention(t, p, g.id(t))
	}
	eventually(t, "all waited a second", func() bool {
		for _, g := range groups {
			now := readContention(t, p, g.id(t))
			if d := now.since(before[g.id(t)]); d.kernel < 1e9 {
				return false
			}
		}
		return true
	})
	stopFree()
	for i, g := range groups {
		now := readContention(t, p, g.id(t))
		d := now.since(before[g.id(t)])
		t.Logf("%d: %v", i, d)
		t.Logf("%d: whole life %v", i, now)
	}
	t.Log(p.contention.drops())
}

var _ = filepath.Join
