package groups

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// pressureOf is what the files of a directory say.
func pressureOf(t *testing.T, directory string) (all model.PressureCounters) {
	t.Helper()
	for name, to := range map[string]*model.Pressure{"cpu": &all.CPU, "memory": &all.Memory, "io": &all.IO} {
		text, err := os.ReadFile(filepath.Join(directory, name+".pressure"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var kind string
			var averages [3]float64
			var total uint64
			if _, err := fmt.Sscanf(line, "%s avg10=%g avg60=%g avg300=%g total=%d", &kind, &averages[0], &averages[1], &averages[2],
				&total); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if kind == "some" {
				to.WaitingNS = total * 1000
			} else {
				to.StalledNS = total * 1000
			}
		}
		to.Known = true
	}
	return all
}

// oneCPU keeps the threads of a process on the first CPU that they may use.
func oneCPU(t *testing.T, pid int) {
	t.Helper()
	var all, first unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &all); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !all.IsSet(cpu) {
		cpu++
	}
	first.Set(cpu)
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(filepath.Base(thread))
		if err == nil {
			err = unix.SchedSetaffinity(id, &first)
		}
		if err != nil && err != unix.ESRCH {
			t.Fatal(err)
		}
	}
}

// What the files would say is known before they are read, which makes the kernel add up; and it falls neither behind them
// while threads wait, nor at all: what is watched from now on is what the files say.
func TestPressureIsThatOfFiles(t *testing.T) {
	p := open(t)
	group, directories := newGroup(t, "pressure")
	directory := directories[model.UnifiedController]
	if _, err := os.Stat("/proc/pressure/cpu"); err != nil || directory == "" {
		t.Skipf("the kernel keeps no pressure of groups: v2 directory %q, %v", directory, err)
	}
	pid, stop := group.Start(t, "spin8")
	oneCPU(t, pid)
	slot := watch(t, p, pid, idsOf(t, directories))
	read := func(slot uint32) (all model.PressureCounters) {
		t.Helper()
		kerneltest.Eventually(t, "the kernel program reads the pressure", func() bool {
			f, ok := figures(t, p, slot)
			all = f.Pressure
			return ok && f.HasPressure
		})
		return all
	}
	gained := 0
	for range 10 {
		before := pressureOf(t, directory)
		for range 20 {
			if now := read(slot); now.CPU.WaitingNS < before.CPU.WaitingNS || now.CPU.StalledNS < before.CPU.StalledNS {
				t.Fatalf("%+v, the files said %+v before", now, before)
			}
			time.Sleep(5 * time.Millisecond)
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		last := read(slot)
		kerneltest.Eventually(t, "the stopped group's pressure stands still", func() bool {
			time.Sleep(20 * time.Millisecond)
			now := read(slot)
			still := now == last
			last = now
			return still
		})
		file, fresh := pressureOf(t, directory), read(watch(t, p, pid, idsOf(t, directories)))
		if fresh != file || last.CPU.WaitingNS < file.CPU.WaitingNS || last.CPU.StalledNS < file.CPU.StalledNS {
			t.Fatalf("%+v, and watched anew %+v; the files say %+v, and before %+v", last, fresh, file, before)
		}
		if last.CPU.WaitingNS > before.CPU.WaitingNS {
			gained++
		}
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	if gained < 9 {
		t.Errorf("8 threads waited for one CPU in %d of 10 stretches", gained)
	}
	if err := os.WriteFile(filepath.Join(directory, "cgroup.pressure"), []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	if f, _ := figures(t, p, slot); f.HasPressure || !f.HasThreads {
		t.Errorf("switched off: %+v", f)
	}
	stop()
}

// setLimits sets those of a group: bytes, microseconds of CPU time in each 100 ms, and threads, or "max".
func setLimits(t *testing.T, directories [model.FigureControllers]string, memory, quota, threads string) {
	t.Helper()
	write := func(controller int, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(directories[controller], name), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	if v1() {
		write(model.MemoryController, "memory.limit_in_bytes", strings.Replace(memory, "max", "-1", 1))
		write(model.CPUController, "cpu.cfs_quota_us", strings.Replace(quota, "max", "-1", 1))
	} else {
		write(model.MemoryController, "memory.max", memory)
		write(model.CPUController, "cpu.max", quota+" 100000")
	}
	write(model.PIDsController, "pids.max", threads)
}

// Limits are those of the files as soon as they are set, and none where they are taken away.
func TestLimitsAreThoseOfFiles(t *testing.T) {
	p := open(t)
	group, directories := newGroup(t, "limits")
	pid, stop := group.Start(t, "idle")
	defer stop()
	slot := watch(t, p, pid, idsOf(t, directories))
	set := func(memory, quota, threads string) {
		t.Helper()
		setLimits(t, directories, memory, quota, threads)
	}
	check := func(memory uint64, quota float64, threads uint64) {
		t.Helper()
		f, ok := figures(t, p, slot)
		if !ok || !f.HasMemoryLimit || !f.HasQuota || !f.HasThreadsLimit || f.MemoryLimit != memory ||
			f.QuotaCores != quota || f.ThreadsLimit != threads {
			t.Errorf("%+v, want %d bytes, %g cores, %d threads", f, memory, quota, threads)
		}
	}
	check(0, 0, 0)
	set("104857600", "33000", "77")
	check(104857600, 0.33, 77)
	set("max", "max", "max")
	check(0, 0, 0)
}
