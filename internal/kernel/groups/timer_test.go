package groups

import (
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"outsight/internal/kernel/host"
	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// TestTimerReadsFigures: nothing of this process reads, and the figures follow what the group does.
func TestTimerReadsFigures(t *testing.T) {
	p := open(t)
	group, directories := newGroup(t, "timer")
	pid, _ := group.Start(t, "sleep")
	slot := watch(t, p, pid, idsOf(t, directories))
	threads := func() (n uint64) {
		var f model.GroupFigures
		if p.Figures(slot, &f) && f.HasThreads {
			n = f.Threads
		}
		return n
	}
	one := threads()
	if one == 0 {
		t.Fatal("no threads")
	}
	group.Start(t, "sleep")
	if n := threads(); n != one {
		t.Fatalf("%d threads before anybody has read, want %d", n, one)
	}
	if err := p.ReadGroupsEvery(20 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	kerneltest.Eventually(t, "the timer finds the second process", func() bool { return threads() > one })
	two := threads()
	group.Start(t, "sleep")
	kerneltest.Eventually(t, "the timer finds the third process", func() bool { return threads() > two })
	readings, took := p.TimerReadings()
	if readings == 0 || took <= 0 {
		t.Errorf("%d readings took %v", readings, took)
	}
	// More groups than fit into a slice.
	const groups = 100
	there := &p.control.Entries[0].Groups
	watched := host.Load(there)
	host.Store(there, groups)
	kerneltest.Eventually(t, "all groups are read", func() bool {
		for i := range groups {
			if host.Load(&p.figures.Entries[i].Head) == 0 {
				return false
			}
		}
		return true
	})
	if n := host.Load(&p.figures.Entries[groups].Head); n != 0 {
		t.Errorf("a slot that is no group's was read %d times", n)
	}
	if err := p.ReadGroupsEvery(0); err != nil {
		t.Fatal(err)
	}
	// While a program reads all of them, the timer need not.
	if err := p.ReadGroupsEvery(time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := p.ReadGroups(); err != nil {
		t.Fatal(err)
	}
	before, _ := p.TimerReadings()
	if err := p.ReadGroupsEvery(time.Minute); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if after, _ := p.TimerReadings(); after != before {
		t.Errorf("the timer has read %d times as well", after-before)
	}
	if err := p.ReadGroupsEvery(0); err != nil {
		t.Fatal(err)
	}
	// One that was due may still come.
	kerneltest.Eventually(t, "the timer ends", func() bool {
		before, _ := p.TimerReadings()
		time.Sleep(200 * time.Millisecond)
		after, _ := p.TimerReadings()
		return before == after
	})
	host.Store(there, watched)
	if err := p.ReadGroupsEvery(10 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	before, _ = p.TimerReadings()
	kerneltest.Eventually(t, "the timer goes on", func() bool {
		after, _ := p.TimerReadings()
		return after > before
	})
	if err := p.ReadGroupsEvery(0); err != nil {
		t.Fatal(err)
	}
}

// TestTimerReadsPressureAndLimits: those who read from outside have them, too, while nothing of this process reads. The
// pressure is what the kernel has added up, which it does every 2 s, and when somebody reads the file.
func TestTimerReadsPressureAndLimits(t *testing.T) {
	p := open(t)
	group, directories := newGroup(t, "timed-pressure")
	directory := directories[model.UnifiedController]
	if _, err := os.Stat("/proc/pressure/cpu"); err != nil || directory == "" {
		t.Skipf("the kernel keeps no pressure of groups: v2 directory %q, %v", directory, err)
	}
	pid, _ := group.Start(t, "spin8")
	oneCPU(t, pid)
	slot := watch(t, p, pid, idsOf(t, directories))
	if err := p.ReadGroupsEvery(20 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	setLimits(t, directories, "104857600", "33000", "77")
	f := &p.figures.Entries[slot]
	known := func() bool {
		const all = groupsGroupFigureFIGURE_PRESSURE | groupsGroupFigureFIGURE_MEMORY_LIMIT | groupsGroupFigureFIGURE_QUOTA |
			groupsGroupFigureFIGURE_THREADS_LIMIT
		return groupsGroupFigure(atomic.LoadUint32(&f.Known))&(all|groupsGroupFigureFIGURE_PRESSURE_NOW) == all
	}
	kerneltest.Eventually(t, "the timer reads limits", func() bool {
		return known() && host.Load(&f.MemoryLimitBytes) == 104857600 && host.Load(&f.QuotaMicrocores) == 330000 &&
			host.Load(&f.ThreadsLimit) == 77
	})
	waited := &f.PressureNs[groupsGroupPressurePRESSURE_CPU_SOME]
	for range 5 {
		before := host.Load(waited)
		file := pressureOf(t, directory) // the kernel adds up
		kerneltest.Eventually(t, "the timer has what the file said", func() bool { return host.Load(waited) >= file.CPU.WaitingNS })
		if host.Load(waited) < before {
			t.Errorf("%d after %d", host.Load(waited), before)
		}
		last := host.Load(waited)
		kerneltest.Eventually(t, "the kernel adds up by itself", func() bool { return host.Load(waited) > last })
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(pid, syscall.SIGCONT)
	kerneltest.Eventually(t, "the stopped group's pressure is that of its file", func() bool {
		file := pressureOf(t, directory)
		before, _ := p.TimerReadings()
		kerneltest.Eventually(t, "the timer reads once more", func() bool {
			after, _ := p.TimerReadings()
			return after > before+1
		})
		return host.Load(waited) == file.CPU.WaitingNS && known()
	})
	if err := p.ReadGroupsEvery(0); err != nil {
		t.Fatal(err)
	}
}

// TestTimerAndProgramTakeTurns has both read as often as they can.
func TestTimerAndProgramTakeTurns(t *testing.T) {
	p := open(t)
	group, directories := newGroup(t, "turns")
	pid, _ := group.Start(t, "sleep")
	slot := watch(t, p, pid, idsOf(t, directories))
	head := func() uint64 { return host.Load(&p.figures.Entries[slot].Head) }
	begun, readings := head(), 0
	before, _ := p.TimerReadings()
	if err := p.ReadGroupsEvery(100 * time.Microsecond); err != nil {
		t.Fatal(err)
	}
	kerneltest.Eventually(t, "the timer has read a hundred times", func() bool {
		for range 1000 {
			if f, ok := figures(t, p, slot); !ok || f.Threads == 0 || !f.HasMemory {
				t.Fatalf("%v %+v", ok, f)
			}
			readings++
		}
		n, _ := p.TimerReadings()
		return n >= before+100
	})
	if err := p.ReadGroupsEvery(0); err != nil {
		t.Fatal(err)
	}
	kerneltest.Eventually(t, "each reading is one generation", func() bool {
		n, _ := p.TimerReadings()
		return head()-begun == uint64(readings)+n-before
	})
}

// TestFiguresAreWaitedFor: figures that are being written are not those of a group that is gone.
func TestFiguresAreWaitedFor(t *testing.T) {
	p := open(t)
	group, directories := newGroup(t, "written")
	pid, _ := group.Start(t, "sleep")
	slot := watch(t, p, pid, idsOf(t, directories))
	tail := &p.figures.Entries[slot].Tail
	host.Store(tail, host.Load(tail)+1)
	time.AfterFunc(20*time.Millisecond, func() { host.Store(tail, host.Load(tail)-1) })
	var f model.GroupFigures
	if ok := p.Figures(slot, &f); !ok || f.Threads == 0 {
		t.Fatalf("%v %+v", ok, f)
	}
}
