package container

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"outsight/internal/model"
)

func TestQuota(t *testing.T) {
	f := func(text string, quota, period uint64, ok bool) {
		t.Helper()
		q, p, err := parseQuota([]byte(text))
		if q != quota || p != period || (err == nil) != ok {
			t.Errorf("%q: %d, %d, %v", text, q, p, err)
		}
	}
	f("max 100000\n", 0, 0, true)
	f("50000 100000\n", 50000, 100000, true)
	f("-1\n", 0, 0, true)
	f("150000\n", 150000, 0, true)
	f("-2\n", 0, 0, false)
	f("50000 x\n", 50000, 0, false)
	f("50000", 0, 0, false)
}

func TestReadQuota(t *testing.T) {
	f, c, directory := v2Group(t)
	if u := readOne(t, f, c); u.Throttle.QuotaCores != 0 {
		t.Errorf("no quota: %v", u.Throttle.QuotaCores)
	}
	f.Close()
	writeFile(t, filepath.Join(directory, "cpu.max"), "150000 100000\n")
	for range limitEvery {
		readOne(t, f, c)
	}
	if u := readOne(t, f, c); u.Err != nil || u.Throttle.QuotaCores != 1.5 {
		t.Errorf("%v, %v", u.Throttle.QuotaCores, u.Err)
	}
}

// A group of three threads of which one ends and one begins.
func TestBusyThreads(t *testing.T) {
	group, proc := t.TempDir(), t.TempDir()
	path := "/docker/" + idA
	f := NewFiles(Layout{Name: "v2", MountPoint: group, unified: group, v2: []string{"pids"}}, Options{ProcRoot: proc})
	t.Cleanup(f.Close)
	c := &model.Container{ID: idA, CgroupPath: path, Cgroup: 7}
	look := func(want float64, ran map[int]int) {
		t.Helper()
		text := ""
		for thread, ns := range ran {
			text += fmt.Sprintln(thread)
			writeFile(t, fmt.Sprintf("%s/%d/schedstat", proc, thread), fmt.Sprintf("%d 12 3\n", ns))
		}
		writeFile(t, group+path+"/cgroup.threads", text)
		var u *Usage
		for range busyEvery {
			u = readOne(t, f, c)
		}
		if u.Err != nil || u.BusyThreads != want {
			t.Errorf("%v busy threads, %v; want %v", u.BusyThreads, u.Err, want)
		}
	}
	look(0, map[int]int{100: 5000, 101: 9000, 102: 1})
	look(2, map[int]int{100: 5000 + 600, 101: 9000 + 600, 102: 1})
	look(1.25, map[int]int{100: 5600 + 1000, 101: 9600, 102: 1 + 250})
	os.RemoveAll(proc + "/101")
	look(1.5, map[int]int{100: 6600 + 400, 102: 251, 103: 200})
	look(1.5, map[int]int{100: 7000, 102: 251, 103: 200}) // nothing ran: the last is kept
}

// TestVeryManyThreads: a container with more threads than the kernel lists in a bounded text costs no more than the
// bound, and others have their turn.
func TestVeryManyThreads(t *testing.T) {
	const threads = 300_000
	group, proc := t.TempDir(), t.TempDir()
	f := NewFiles(Layout{Name: "v2", MountPoint: group, unified: group, v2: []string{"pids"}}, Options{ProcRoot: proc})
	t.Cleanup(f.Close)
	var list []byte
	for thread := range threads {
		list = fmt.Appendln(list, 1_000_000+thread)
	}
	for thread := range maxBusyThreads {
		writeFile(t, fmt.Sprintf("%s/%d/schedstat", proc, 1_000_000+thread), "5 6 7\n")
	}
	writeFile(t, proc+"/77/schedstat", "5 6 7\n")
	crowd := &model.Container{ID: idA, CgroupPath: "/docker/" + idA, Cgroup: 7}
	writeFile(t, group+crowd.CgroupPath+"/cgroup.threads", string(list))
	other := &model.Container{ID: idB, CgroupPath: "/docker/" + idB, Cgroup: 7 + busyEvery}
	writeFile(t, group+other.CgroupPath+"/cgroup.threads", "77\n")
	both := []*model.Container{crowd, other}
	for range busyEvery + 1 {
		usages := make([]Usage, len(both))
		f.Read(both, usages)
		for i, u := range usages {
			if u.Err != nil {
				t.Fatalf("%s: %v", both[i].ID, u.Err)
			}
		}
		if f.looked > maxBusyThreads {
			t.Fatalf("%d threads were looked at in a reading", f.looked)
		}
	}
	if len(f.buffer) > 64<<10 {
		t.Errorf("a buffer of %d bytes", len(f.buffer))
	}
	if n := len(f.groups[crowd.ID].ran); n != maxBusyThreads {
		t.Errorf("%d threads are remembered, want %d", n, maxBusyThreads)
	}
	if len(f.groups[other.ID].ran) != 1 || f.postponed != 1 {
		t.Errorf("the other's threads %v; %d looks were postponed", f.groups[other.ID].ran, f.postponed)
	}
}
