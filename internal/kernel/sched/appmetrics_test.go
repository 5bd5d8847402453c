package sched

import (
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// nameThreads gives a thread names: those that announce something, and others.
func nameThreads(string) int {
	runtime.LockOSThread()
	for _, name := range []string{"outsight:7", "outsight", "outsight:", "other:7", "outsight:12345"} {
		text := append([]byte(name), 0)
		if unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&text[0])), 0, 0, 0) != nil {
			return 1
		}
	}
	return 0
}

// flood announces without end.
func flood(string) int {
	runtime.LockOSThread()
	text := append([]byte("outsight:9"), 0)
	for range floodAnnouncements {
		if unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&text[0])), 0, 0, 0) != nil {
			return 1
		}
	}
	return 0
}

// floodAnnouncements are far more than MAX_ANNOUNCED of appmetrics.h, in far less than a second.
const floodAnnouncements = 20_000

// announcements are the paths of the events of a process that has ended: all that came before those of a later process.
func announcements(t *testing.T, p *Sched, group model.CgroupID, pid int) (paths []string) {
	t.Helper()
	later := kerneltest.NewGroup(t, "metrics-later").Workload("name-threads")
	if err := later.Run(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.After(kerneltest.Patience()); ; {
		select {
		case e := <-p.Events():
			if e.Kind != model.MetricsFile {
				continue
			}
			if e.PID == later.Process.Pid {
				return paths
			}
			if e.ID == group && e.PID == pid {
				paths = append(paths, e.Path)
			}
		case <-deadline:
			t.Fatal("the announcement of a later process has not come")
		}
	}
}

// Each announcement is an event with its process and control group, and nothing else is.
func TestMetricsFiles(t *testing.T) {
	p := open(t, Options{})
	g := kerneltest.NewGroup(t, "metrics-files")
	work := g.Workload("name-threads")
	if err := work.Run(); err != nil {
		t.Fatal(err)
	}
	got := announcements(t, p, g.ID(t), work.Process.Pid)
	if !slices.Equal(got, []string{"outsight:7", "outsight:12345"}) {
		t.Errorf("got %q", got)
	}
}

// A group that does nothing but announce cannot fill the ring: most of it is refused, and counted.
func TestMetricsFileFlood(t *testing.T) {
	p := open(t, Options{})
	g := kerneltest.NewGroup(t, "metrics-flood")
	work := g.Workload("flood-metrics")
	if err := work.Run(); err != nil {
		t.Fatal(err)
	}
	got := len(announcements(t, p, g.ID(t), work.Process.Pid))
	dropped := uint64(0)
	for _, d := range p.Drops() {
		if d.Name == appmetricsDropNames[appmetricsAppmetricsDropDROP_METRICS_FILE] {
			dropped = d.Count
		}
	}
	if got == 0 || dropped == 0 || uint64(got)+dropped != floodAnnouncements {
		t.Errorf("%d came and %d were counted, want %d", got, dropped, floodAnnouncements)
	}
}
