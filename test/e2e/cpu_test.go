package e2e

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// cpuFiles samples the kernel's own CPU files of some containers until it is closed.
type cpuFiles struct {
	stop chan struct{}
	done sync.WaitGroup
	// since is when all had been read once.
	since time.Time
	// covered is the time since which all files have been read once more, in ns; math.MaxInt64 after an error.
	covered atomic.Int64
	// readings by container ID, in order of time; not to be read before close.
	readings map[string][]cpuReading
	err      error
}

type cpuReading struct {
	// The file was read between the two.
	began, ended time.Time
	ns           uint64
}

// sampleCPUFiles has read all of the files once when it returns.
func sampleCPUFiles(containers []container) *cpuFiles {
	f := &cpuFiles{stop: make(chan struct{}), readings: map[string][]cpuReading{}}
	f.read(containers)
	f.since = time.Now()
	f.done.Go(func() {
		for tick := time.NewTicker(10 * time.Millisecond); f.err == nil; f.read(containers) {
			select {
			case <-f.stop:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	})
	return f
}

func (f *cpuFiles) read(containers []container) {
	round := time.Now()
	for _, c := range containers {
		began := time.Now()
		ns, err := c.cpuNS()
		if err != nil {
			f.err = err
			f.covered.Store(math.MaxInt64)
			return
		}
		f.readings[c.id] = append(f.readings[c.id], cpuReading{began, time.Now(), ns})
	}
	f.covered.Store(round.UnixNano())
}

// close stops the sampling when all files have been read after a time.
func (f *cpuFiles) close(t *testing.T, after time.Time) {
	t.Helper()
	eventually(t, func() error {
		if covered := f.covered.Load(); covered <= after.UnixNano() {
			return fmt.Errorf("the CPU files were read last at %v, want a time after %v", time.Unix(0, covered), after)
		}
		return nil
	})
	close(f.stop)
	if f.done.Wait(); f.err != nil {
		t.Fatal(f.err)
	}
}

// around returns the file's values before and after a time, leaving room for the duration of
// Outsight's reading on either side.
func (f *cpuFiles) around(t *testing.T, id string, at time.Time, reading time.Duration) (before, after uint64) {
	t.Helper()
	for _, r := range f.readings[id] {
		if r.ended.Before(at.Add(-time.Millisecond)) {
			before = r.ns
		}
		if r.began.After(at.Add(reading)) {
			return before, r.ns
		}
	}
	t.Fatalf("no reading of the CPU file of %s around %v", id, at)
	return 0, 0
}

// TestCPUTimeAgainstCgroupFile brackets Outsight's CPU time between readings of the kernel's own
// file: file, ours, file.
func TestCPUTimeAgainstCgroupFile(t *testing.T) {
	t.Parallel()
	containers := []container{
		shell(t, "busy", "while :; do :; done"),
		shell(t, "idle", "while :; do sleep 2; done"),
		shell(t, "forks", "while :; do busybox true; done"),
		start(t, "threads", nil, "stress-ng", "-q", "--pthread", "2", "--pthread-max", "40", "--temp-path", "/tmp"),
		start(t, "sleepers", nil, "stress-ng", "-q", "--cpu", "20", "--cpu-load", "2", "--temp-path", "/tmp"),
	}
	o := shared(t)
	files := sampleCPUFiles(containers)
	stretches := map[string]stretch{}
	var end time.Time
	for _, c := range containers {
		stretches[c.id] = o.cpuSince(c, files, 6*time.Second)
		end = stretches[c.id].last.time
	}
	reading := o.longestReading()
	files.close(t, end.Add(reading))
	for _, c := range containers {
		stretches[c.id].check(t, c, files, reading)
	}
}

// stretch is the CPU time that a container has in the store from one sample to another.
type stretch struct{ first, last point }

// cpuSince waits until the samples of a container since its file is read cover a stretch of a length.
func (o *outsight) cpuSince(c container, files *cpuFiles, length time.Duration) stretch {
	o.t.Helper()
	var s stretch
	eventually(o.t, func() error {
		points := slices.DeleteFunc(o.points(fmt.Sprintf(`container_cpu_usage_seconds_total{id=%q}[5m]`, c.id)),
			func(p point) bool { return p.time.Before(files.since.Add(10 * time.Millisecond)) })
		if len(points) > 0 {
			s = stretch{points[0], points[len(points)-1]}
		}
		if covers := s.last.time.Sub(s.first.time); covers < length {
			return fmt.Errorf("%d samples of %s cover %v, want %v", len(points), c.name, covers, length)
		}
		return nil
	})
	return s
}

// longestReading is how long after a snapshot's time its numbers may have been read.
func (o *outsight) longestReading() time.Duration {
	o.t.Helper()
	return time.Duration(o.number("max_over_time(outsight_agent_read_seconds[5m])") * float64(time.Second))
}

// check holds it against the kernel's file, which has been read before, between and after.
func (s stretch) check(t *testing.T, c container, files *cpuFiles, reading time.Duration) {
	t.Helper()
	firstBefore, firstAfter := files.around(t, c.id, s.first.time, reading)
	lastBefore, lastAfter := files.around(t, c.id, s.last.time, reading)
	// Where a reading may have taken as long as the stretch, the files say nothing about the least.
	least := lastBefore - min(lastBefore, firstAfter)
	checkCPU(t, c, (s.last.value-s.first.value)*1e9, least, lastAfter-firstBefore)
}

// checkCPU allows 1 % beside the kernel's own bracket, and a tenth of a millisecond for a container
// that used but a few of them: the file and the tracepoint draw the line within a switch differently.
func checkCPU(t *testing.T, c container, ours float64, least, most uint64) {
	t.Helper()
	const floorNS = 1e5
	t.Logf("%s: %.2f ms of CPU time, the file says %.2f to %.2f ms", c.name, ours/1e6, float64(least)/1e6,
		float64(most)/1e6)
	if ours < 0.99*float64(least)-floorNS || ours > 1.01*float64(most)+floorNS {
		t.Errorf("%s: %.2f ms of CPU time, the file says %.2f to %.2f ms", c.name, ours/1e6, float64(least)/1e6,
			float64(most)/1e6)
	}
}

// TestSpinnerShowsAtFirstRead starts the agent after a thread that never yields: no context switch
// tells of it, and yet the first interval must show all of it.
func TestSpinnerShowsAtFirstRead(t *testing.T) {
	c := start(t, "spinner", []string{"--cpuset-cpus", "0"}, "busybox", "sh", "-c", "while :; do :; done")
	files := sampleCPUFiles([]container{c})
	o := up(t)
	var points []point
	eventually(t, func() error {
		points = o.points(fmt.Sprintf(`container_cpu_usage_seconds_total{id=%q}[5m]`, c.id))
		if len(points) < 2 {
			return fmt.Errorf("%d samples, want 2", len(points))
		}
		return nil
	})
	reading := o.longestReading()
	files.close(t, points[1].time.Add(reading))
	stretch{points[0], points[1]}.check(t, c, files, reading)
}

// TestShortContainerIsCounted: a container that lives for 200 ms is known with all of its CPU time,
// and its last numbers stay after its end.
func TestShortContainerIsCounted(t *testing.T) {
	t.Parallel()
	o := shared(t)
	name := unique("short")
	text := docker(t, "run", "--rm", "--name", name, "--label", ownLabel, "-v", "/usr:/usr:ro", image, "busybox", "sh",
		"-c",
		`usage() { cat /sys/fs/cgroup/cpuacct/cpuacct.usage 2>/dev/null || echo $(sed -n 's/usage_usec //p' /sys/fs/cgroup/cpu.stat)000; }
		usage; /usr/bin/timeout 0.2 sh -c 'while :; do :; done' 2>/dev/null; usage`)
	var begin, end float64
	if _, err := fmt.Sscan(text, &begin, &end); err != nil {
		t.Fatalf("the container's own readings: %v: %s", err, text)
	}
	last := fmt.Sprintf(`last_over_time(container_cpu_usage_seconds_total{name=%q}[5m])`, name)
	o.settled(last)
	ours := o.number(last) * 1e9
	t.Logf("%.1f ms of CPU time; the container itself read %.1f ms at its begin and %.1f ms at its end", ours/1e6,
		begin/1e6, end/1e6)
	// Before its begin the runtime moved it from group to group, one hierarchy after the other;
	// after its end it used a little more.
	if ours < 0.99*(end-begin) || ours > end+30e6 {
		t.Errorf("%.1f ms of CPU time, want %.1f to %.1f ms", ours/1e6, (end-begin)/1e6, end/1e6)
	}
}
