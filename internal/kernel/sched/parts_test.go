package sched

import (
	"fmt"
	"os/exec"
	"outsight/internal/kernel/host"
	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// While switches are shed a group's CPU time stands still; afterwards it goes on from there, and
// neither the time between nor the waits in it are counted at once.
func TestShedSwitches(t *testing.T) {
	p := open(t, Options{})
	if parts := host.NewParts(p).List(); !slices.ContainsFunc(parts, func(given model.Part) bool { return given.Name == "switches" }) {
		t.Fatalf("parts: %v", parts)
	}
	g := kerneltest.NewGroup(t, "shed")
	g.Start(t, "spin8") // more threads than CPUs: they wait for each other
	kerneltest.Eventually(t, "waits are counted", func() bool { return readGroup(t, p, g.ID(t)).CPU.RunQueue != nil })
	kerneltest.Shed(t, p, "switches")
	before := readGroup(t, p, g.ID(t)).CPU
	begun := time.Now()
	time.Sleep(time.Second) // in which nothing is counted
	if during := readGroup(t, p, g.ID(t)).CPU; during.UsageNS != before.UsageNS || during.Involuntary != before.Involuntary {
		t.Errorf("%d ns in %d switches without a program, before it %d in %d", during.UsageNS, during.Involuntary, before.UsageNS, before.Involuntary)
	}
	hidden := time.Since(begun)
	kerneltest.Restore(t, p, "switches")
	back := time.Now()
	kerneltest.Eventually(t, "switches are counted again", func() bool {
		c := readGroup(t, p, g.ID(t)).CPU
		return c.UsageNS > before.UsageNS && c.Involuntary > before.Involuntary+20
	})
	after := readGroup(t, p, g.ID(t)).CPU
	seen := time.Since(back) + 20*time.Millisecond
	if ran, most := time.Duration(after.UsageNS-before.UsageNS), time.Duration(p.cgroups.cpus)*seen; ran > most {
		t.Errorf("%v in %v since it is counted again; not counted were %v", ran, seen, hidden)
	}
	// Eight threads could have waited for all of the hidden time; what they wait since is all there may be.
	if waited, most := time.Duration(after.RunQueue.SumNS-before.RunQueue.SumNS), 8*seen; waited > most {
		t.Errorf("%v of waits in %v since they are counted again; not counted were %v", waited, seen, hidden)
	}
}

// Where tasks have no storage, states of threads that ended while switches were shed are forgotten: when switches are
// taken up again, and when there is no more room for them, so that waits are counted afterwards as before.
func TestStatesOfGoneThreadsAreForgotten(t *testing.T) {
	const starts = 100
	p := open(t, Options{ThreadStates: maxThreads})
	startAndEnd(t, starts)
	kerneltest.Eventually(t, "ends are seen at the last switch", func() bool { return goneStates(t, p) < starts/4 })
	kerneltest.Shed(t, p, "switches")
	startAndEnd(t, starts)
	if n := goneStates(t, p); n < starts {
		t.Fatalf("%d states of threads that are gone, want %d at least: does the test still test anything?", n, starts)
	}
	kerneltest.Restore(t, p, "switches")
	kerneltest.Eventually(t, "they are forgotten", func() bool { return goneStates(t, p) < starts/4 })
	waitsAreCounted(t, p, "forgotten")
}

func TestStatesOfThreadsAreBounded(t *testing.T) {
	threads, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	const room = 300
	p := open(t, Options{ThreadStates: uint32(len(threads) + room)})
	lost := func() uint64 {
		drops := p.Drops()
		return drops[slices.IndexFunc(drops, func(d model.Drop) bool { return d.Name == "thread_states" })].Count
	}
	kerneltest.Shed(t, p, "switches")
	before := lost()
	startAndEnd(t, 2*room)
	if lost() == before {
		t.Fatalf("%d threads found room, of which there is for %d more", 2*room, room)
	}
	kerneltest.Eventually(t, "there is room again", func() bool {
		if _, err := p.ReadCgroups(); err != nil {
			t.Fatal(err)
		}
		return goneStates(t, p) < room/4
	})
	kerneltest.Restore(t, p, "switches")
	waitsAreCounted(t, p, "bounded")
}

// startAndEnd starts processes one after the other.
func startAndEnd(t *testing.T, n int) {
	t.Helper()
	if out, err := exec.Command("sh", "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do /bin/true; i=$((i+1)); done", n)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// goneStates is how many states are of threads that do not exist.
func goneStates(t *testing.T, p *Sched) (gone int) {
	t.Helper()
	var id uint32
	var state cgroupsTaskState
	all := p.cgroups.threadStates.Iterate()
	for all.Next(&id, &state) {
		if isGone("/proc", id) {
			gone++
		}
	}
	if err := all.Err(); err != nil {
		t.Logf("listing the states: %v", err) // one was taken away meanwhile
		return 1
	}
	return gone
}

// waitsAreCounted has more threads than CPUs in a group.
func waitsAreCounted(t *testing.T, p *Sched, name string) {
	t.Helper()
	g := kerneltest.NewGroup(t, name)
	g.Start(t, "spin8")
	kerneltest.Eventually(t, "waits are counted", func() bool {
		h := readGroup(t, p, g.ID(t)).CPU.RunQueue
		return h != nil && h.Count > 20 && h.SumNS > 0
	})
}
