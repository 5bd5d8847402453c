package sched

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"outsight/internal/kernel/host"
	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// While switches are shed a group's CPU time stands still; afterwards it goes on from there, and
// neither the time between nor the waits in it are counted at once.
func TestShedSwitches(t *testing.T) {
	p := open(t, Options{})
	if parts := host.NewParts(p).List(); !slices.ContainsFunc(parts,
		func(given model.Part) bool { return given.Name == "switches" }) {
		t.Fatalf("parts: %v", parts)
	}
	g := kerneltest.NewGroup(t, "shed")
	pid, _ := g.Start(t, "spin8") // more threads than CPUs: they wait for each other
	kerneltest.Eventually(t, "waits are counted", func() bool { return readGroup(t, p, g.ID(t)).CPU.RunQueue != nil })
	kerneltest.Shed(t, p, "switches")
	before := readGroup(t, p, g.ID(t)).CPU
	begun := time.Now()
	time.Sleep(time.Second) // in which nothing is counted
	if during := readGroup(t, p, g.ID(t)).CPU; during.UsageNS != before.UsageNS ||
		during.Involuntary != before.Involuntary {
		t.Errorf("%d ns in %d switches without a program, before it %d in %d", during.UsageNS, during.Involuntary,
			before.UsageNS, before.Involuntary)
	}
	hidden := time.Since(begun)
	waitedBefore := kernelWait(t, pid)
	back := time.Now() // restoring takes long where all CPUs are busy, and counts from its beginning
	kerneltest.Restore(t, p, "switches")
	kerneltest.Eventually(t, "switches are counted again", func() bool {
		c := readGroup(t, p, g.ID(t)).CPU
		return c.UsageNS > before.UsageNS && c.Involuntary > before.Involuntary+20
	})
	after := readGroup(t, p, g.ID(t)).CPU
	seen := time.Since(back) + 20*time.Millisecond
	if ran, most := time.Duration(after.UsageNS-before.UsageNS), time.Duration(p.cgroups.cpus)*seen; ran > most {
		t.Errorf("%v in %v since it is counted again; not counted were %v", ran, seen, hidden)
	}
	// Waits that ended in the hidden time are not counted. One that began in it and ended later is, whole.
	waited, most := after.RunQueue.SumNS-before.RunQueue.SumNS, kernelWait(t, pid)-waitedBefore
	if waited > most {
		t.Errorf("%v of waits since they are counted again, the kernel says %v; not counted were %v",
			time.Duration(waited), time.Duration(most), hidden)
	}
}

// Where tasks have no storage, states of threads that ended while switches were shed are removed: when switches are
// taken up again, and when there is no more room for them, so that waits are counted afterwards as before.
func TestStatesOfGoneThreadsAreRemoved(t *testing.T) {
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
	kerneltest.Eventually(t, "they are removed", func() bool { return goneStates(t, p) < starts/4 })
	waitsAreCounted(t, p, "removed")
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
	if out, err := exec.Command("sh", "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do /bin/true; i=$((i+1)); done",
		n)).CombinedOutput(); err != nil {
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

// A program that was detached may still run on another CPU; what it writes must not be mended before it has ended.
func TestDetachedProgramsHaveEnded(t *testing.T) {
	theirs, ours := divideCPUs(t)
	if ours.Count() == 0 {
		return // nothing runs beside the caller
	}
	// The program keeps its CPU to itself while it runs.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer pinThread(t, ours)()
	busy := newBusyProgram(t)
	for range 10 {
		if busy.detachWhileItRuns(t, theirs) {
			if err := waitForPrograms(); err != nil {
				t.Fatal(err)
			}
			if got := busy.state(t); got != busyEnded {
				t.Fatalf("the program's state is %d after the wait, want %d: it still runs", got, busyEnded)
			}
			return
		}
	}
	t.Fatal("the program ended before it was detached, each time")
}

// divideCPUs are one of the allowed CPUs, and the others.
func divideCPUs(t *testing.T) (one, others unix.CPUSet) {
	t.Helper()
	if err := unix.SchedGetaffinity(0, &others); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !others.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	others.Clear(cpu)
	return one, others
}

// pinThread keeps the calling thread on some CPUs until undo.
func pinThread(t *testing.T, to unix.CPUSet) (undo func()) {
	t.Helper()
	var before unix.CPUSet
	if err := errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &to)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.SchedSetaffinity(0, &before); err != nil {
			t.Error(err)
		}
	}
}

// busyProgram runs for some hundred milliseconds when a thread of this process changes its name.
type busyProgram struct {
	program  *ebpf.Program
	progress *ebpf.Map
}

const busyRuns, busyEnded = 1, 2

func newBusyProgram(t *testing.T) *busyProgram {
	t.Helper()
	const valueBytes, copies = 1 << 20, 4000
	newMap := func(size uint32, entries uint32) *ebpf.Map {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: size, MaxEntries: entries})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	progress, large := newMap(8, 1), newMap(valueBytes, 2)
	lookUp := func(m *ebpf.Map, to asm.Register) asm.Instructions {
		return asm.Instructions{
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "exit"),
			asm.Mov.Reg(to, asm.R0),
		}
	}
	program := asm.Instructions{
		asm.FnGetCurrentPidTgid.Call(),
		asm.RSh.Imm(asm.R0, 32),
		asm.JNE.Imm(asm.R0, int32(os.Getpid()), "exit"),
	}
	program = append(program, lookUp(progress, asm.R7)...)
	program = append(program, lookUp(large, asm.R8)...)
	program = append(program,
		asm.Mov.Imm(asm.R1, busyRuns),
		asm.StoreMem(asm.R7, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R9, 0),
		asm.StoreImm(asm.RFP, -4, 1, asm.Word).WithSymbol("copy"),
		asm.LoadMapPtr(asm.R1, large.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.Mov.Reg(asm.R3, asm.R8),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(),
		asm.Add.Imm(asm.R9, 1),
		asm.JLT.Imm(asm.R9, copies, "copy"),
		asm.Mov.Imm(asm.R1, busyEnded),
		asm.StoreMem(asm.R7, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("exit"),
		asm.Return(),
	)
	loaded, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp,
		AttachTo: "task_rename", License: "GPL", Instructions: program})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { loaded.Close() })
	return &busyProgram{loaded, progress}
}

func (b *busyProgram) state(t *testing.T) (state uint64) {
	t.Helper()
	if err := b.progress.Lookup(uint32(0), &state); err != nil {
		t.Fatal(err)
	}
	return state
}

// detachWhileItRuns tells whether the program still ran when it was detached.
func (b *busyProgram) detachWhileItRuns(t *testing.T, on unix.CPUSet) bool {
	t.Helper()
	if err := b.progress.Put(uint32(0), uint64(0)); err != nil {
		t.Fatal(err)
	}
	a := host.Attachment{Program: b.program}
	if err := a.Again(); err != nil {
		t.Fatal(err)
	}
	renamed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and not unlocked: a thread of another name is thrown away
		if err := unix.SchedSetaffinity(0, &on); err != nil {
			renamed <- err
			return
		}
		renamed <- unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&[]byte("busy\x00")[0])), 0, 0, 0)
	}()
	for ended := false; b.state(t) == 0; runtime.Gosched() {
		select {
		case err := <-renamed:
			if ended = true; err != nil {
				t.Fatal(err)
			}
		default:
			if ended {
				t.Fatal("the program did not run")
			}
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return b.state(t) == busyRuns
}
