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

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// newGroup makes a group in the hierarchy of each controller; directories are those of the controllers, empty where there is
// none.
func newGroup(t *testing.T, name string) (group *kerneltest.Group, directories [model.FigureControllers]string) {
	t.Helper()
	name = fmt.Sprintf("outsight-test-%d-%s", os.Getpid(), name)
	if kerneltest.Controller() == "" {
		const root = "/sys/fs/cgroup"
		for _, controller := range []string{"+memory", "+cpu", "+pids"} {
			if err := os.WriteFile(root+"/cgroup.subtree_control", []byte(controller), 0); err != nil {
				t.Fatalf("enabling %s: %v", controller, err)
			}
		}
		one := filepath.Join(root, name)
		return kerneltest.NewGroupAt(t, one), [model.FigureControllers]string{one, one, one, one}
	}
	var all []string
	for i, controller := range []string{"memory", "cpu", "pids", "unified"} {
		mount := filepath.Join("/sys/fs/cgroup", controller)
		if _, err := os.Stat(mount); err != nil && i == model.UnifiedController {
			continue // v1 alone
		}
		directories[i] = filepath.Join(mount, name)
		all = append(all, directories[i])
	}
	return kerneltest.NewGroupAt(t, all...), directories
}

func idsOf(t *testing.T, directories [model.FigureControllers]string) (ids [model.FigureControllers]uint64) {
	t.Helper()
	for i, directory := range directories {
		if directory == "" {
			continue
		}
		var stat syscall.Stat_t
		if err := syscall.Stat(directory, &stat); err != nil {
			t.Fatal(err)
		}
		ids[i] = stat.Ino
	}
	return ids
}

func watch(t *testing.T, p *Groups, pid int, ids [model.FigureControllers]uint64) uint32 {
	t.Helper()
	slot, found, err := p.WatchGroup(pid, ids)
	if err != nil || !found {
		t.Fatalf("found %v: %v", found, err)
	}
	return slot
}

// figures reads those of one group.
func figures(t *testing.T, p *Groups, slot uint32) (f model.GroupFigures, ok bool) {
	t.Helper()
	if err := p.ReadGroup(slot); err != nil {
		t.Fatal(err)
	}
	ok = p.Figures(slot, &f)
	return f, ok
}

// key is the number of one key of a file.
func key(t *testing.T, file, key string) uint64 {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 2 && words[0] == key {
			n, err := strconv.ParseUint(words[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("%s has no key %q", file, key)
	return 0
}

func v1() bool { return kerneltest.Controller() != "" }

// Figures are bracketed by two readings of the file, and equal once the file stands still.
func TestFiguresAreThoseOfFiles(t *testing.T) {
	p := open(t)
	group, directories := newGroup(t, "equal")
	memory, cpu, pids := directories[model.MemoryController], directories[model.CPUController],
		directories[model.PIDsController]
	usage, quota, setting := memory+"/memory.current", cpu+"/cpu.max", "5000 100000"
	anon := "anon"
	if v1() {
		usage, quota, setting = memory+"/memory.usage_in_bytes", cpu+"/cpu.cfs_quota_us", "5000"
		anon = "total_rss"
	}
	if err := os.WriteFile(quota, []byte(setting), 0); err != nil {
		t.Fatal(err)
	}
	pid, stop := group.Start(t, "spinwithmemory")
	slot := watch(t, p, pid, idsOf(t, directories))
	throttledTime := func() uint64 {
		if v1() {
			return key(t, cpu+"/cpu.stat", "throttled_time")
		}
		return key(t, cpu+"/cpu.stat", "throttled_usec") * 1000
	}
	throttled := false
	for range 200 {
		periods, count, ns := key(t, cpu+"/cpu.stat", "nr_periods"), key(t, cpu+"/cpu.stat", "nr_throttled"), throttledTime()
		f, ok := figures(t, p, slot)
		if !ok || !f.HasMemory || !f.HasKills || !f.HasThrottle || !f.HasThreads {
			t.Fatalf("%v %+v", ok, f)
		}
		between := func(what string, before, got, after uint64) {
			if got < before || got > after {
				t.Fatalf("%s is %d, the file says %d and then %d", what, got, before, after)
			}
		}
		between("nr_periods", periods, f.Throttle.Periods, key(t, cpu+"/cpu.stat", "nr_periods"))
		between("nr_throttled", count, f.Throttle.ThrottledPeriods, key(t, cpu+"/cpu.stat", "nr_throttled"))
		between("throttled time", ns, f.Throttle.ThrottledNS, throttledTime()+999)
		throttled = throttled || f.Throttle.ThrottledNS > 0
		time.Sleep(10 * time.Millisecond)
	}
	if !throttled {
		t.Error("the group was never throttled")
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(pid, syscall.SIGCONT)
	// The file of the counters is up to 2 s old; what is flushed and not may move, the sum must not.
	var differs string
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(differs)
		}
	})
	kerneltest.Eventually(t, "memory of the stopped group equals the files", func() bool {
		f, ok := figures(t, p, slot)
		bytes, threads := uint64(kerneltest.ReadNumber(t, usage)), uint64(kerneltest.ReadNumber(t, pids+"/pids.current"))
		pages, faults := key(t, memory+"/memory.stat", anon)/uint64(os.Getpagesize()), key(t, memory+"/memory.stat", "pgfault")
		differs = fmt.Sprintf("%+v, the files say %d bytes, %d threads, %d pages and %d faults", f, bytes, threads, pages, faults)
		return ok && f.MemoryBytes == bytes && f.Threads == threads && f.HasStat && has(f.Stat, pages) && has(f.Stat, faults)
	})
	syscall.Kill(pid, syscall.SIGCONT)
	stop()
	if err := p.UnwatchGroup(slot); err != nil {
		t.Fatal(err)
	}
}

func has(words model.StatWords, n uint64) bool {
	for _, w := range words {
		if w == int64(n) {
			return n != 0
		}
	}
	return false
}
