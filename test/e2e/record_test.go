package e2e

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"outsight/internal/csvy"
	_ "outsight/internal/csvy/parquet"
)

// filesOf is a pattern of the files of a container, which are called by its name and the beginning of its ID.
func filesOf(id string) string {
	if len(id) == 64 {
		return "*" + id[:12] + "*_*"
	}
	return id + "_*"
}

// recordingOf opens the one file of a container in a directory.
func recordingOf(t *testing.T, dir, id string) *csvy.Recording {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, filesOf(id)))
	if len(files) != 1 {
		t.Fatalf("%d files of %s in %s", len(files), id, dir)
	}
	r, err := csvy.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// gained is by how much a column grew from its first to its last value, and the times of these.
func gained(t *testing.T, r *csvy.Recording, column string) (by float64, from, to time.Time) {
	t.Helper()
	i := r.Head.Index(column)
	if i < 0 {
		t.Fatalf("%s has no column %q", r.Path, column)
	}
	first, last := -1, -1
	for row, v := range r.Values[i] {
		if math.IsNaN(v) {
			continue
		}
		if first < 0 {
			first = row
		}
		last = row
	}
	if first < 0 {
		t.Fatalf("%s has no value of %q", r.Path, column)
	}
	return r.Values[i][last] - r.Values[i][first], time.Unix(0, r.At[first]), time.Unix(0, r.At[last])
}

func TestRecordEveryFormat(t *testing.T) {
	c := shell(t, "recorded", "while :; do :; done")
	other := shell(t, "not-recorded", "busybox sleep 1000")
	for _, format := range []string{"csvy", "radvisor", "parquet"} {
		t.Run(format, func(t *testing.T) {
			dir := t.TempDir()
			before, err := c.cpuNS()
			if err != nil {
				t.Fatal(err)
			}
			text, code := output(t, "record", "--format", format, "-d", dir, "--for", "3s", "--containers", c.name)
			after, err := c.cpuNS()
			if err != nil {
				t.Fatal(err)
			}
			if code != 0 || !strings.Contains(text, "Recorded in "+dir) {
				t.Fatalf("code %d\n%s", code, text)
			}
			r := recordingOf(t, dir, c.id)
			if len(r.Problems) > 0 || r.End.Cut || string(r.Format) != format {
				t.Errorf("format %s, problems %v, cut %v", r.Format, r.Problems, r.End.Cut)
			}
			if len(r.At) < 50 || len(r.At) > 62 {
				t.Errorf("%d rows in 3 s", len(r.At))
			}
			cpu, from, to := gained(t, r, csvy.CPUNS)
			if least := 0.2 * float64(to.Sub(from)); cpu < least || cpu > float64(after-before) {
				t.Errorf("the container used %.0f ns in %v, want %.0f to %d", cpu, to.Sub(from), least, after-before)
			}
			if memory, _, _ := gained(t, r, csvy.MemoryBytes); math.IsNaN(memory) {
				t.Error("no memory")
			}
			if name := r.Head.Container.Name; name != c.name {
				t.Errorf("the head calls it %q, want %q", name, c.name)
			}
			if files, _ := filepath.Glob(filepath.Join(dir, filesOf(other.id))); len(files) > 0 {
				t.Errorf("recorded, too: %v", files)
			}
		})
	}
}

func TestRecordContainersThatComeAndGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	record := exec.Command(outsightBinary, "record", "-i", "10ms", "-d", dir)
	log := &lockedBuffer{}
	record.Stdout, record.Stderr = log, log
	if err := record.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error { return fileOf(dir, "host") })
	c := shell(t, "passing", "while :; do :; done")
	eventually(t, time.Minute, func() error { return fileOf(dir, c.id) })
	time.Sleep(time.Second)
	c.remove()
	removed := time.Now()
	time.Sleep(time.Second)
	// Ctrl-C closes the files.
	record.Process.Signal(syscall.SIGINT)
	if err := record.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	r, host := recordingOf(t, dir, c.id), recordingOf(t, dir, "host")
	if r.End.Cut || host.End.Cut || len(r.Problems)+len(host.Problems) > 0 {
		t.Errorf("cut %v and %v, problems %v %v", r.End.Cut, host.End.Cut, r.Problems, host.Problems)
	}
	if len(r.At) < 50 || time.Unix(0, r.At[len(r.At)-1]).After(removed) {
		t.Errorf("%d rows, the last at %v, after %v when the container was gone", len(r.At),
			time.Unix(0, r.At[len(r.At)-1]), removed)
	}
	if last := time.Unix(0, host.At[len(host.At)-1]); last.Before(removed) {
		t.Errorf("the host's last row is at %v, before %v", last, removed)
	}
}

// TestKilledRecordingIsReadable: all but the last second is in the files, and nothing in the kernel.
func TestKilledRecordingIsReadable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	record := exec.Command(outsightBinary, "record", "-i", "10ms", "-d", dir)
	if err := record.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error { return fileOf(dir, "host") })
	time.Sleep(3 * time.Second)
	objects := kernelObjects(t, record.Process.Pid)
	record.Process.Kill()
	killed := time.Now()
	record.Wait()
	r := recordingOf(t, dir, "host")
	if last := time.Unix(0, r.At[len(r.At)-1]); len(r.At) < 150 || killed.Sub(last) > 2*time.Second ||
		len(r.Problems) > 0 {
		t.Errorf("%d rows, the last %v before the end, problems %v", len(r.At), killed.Sub(last), r.Problems)
	}
	eventually(t, 20*time.Second, func() error { return noneIsLeft(objects) })
}

func fileOf(dir, id string) error {
	files, err := filepath.Glob(filepath.Join(dir, filesOf(id)))
	if err == nil && len(files) == 0 {
		err = os.ErrNotExist
	}
	return err
}

func TestRecordLastMinutes(t *testing.T) {
	c := shell(t, "kept", "while :; do :; done")
	o := up(t)
	time.Sleep(3 * time.Second)
	dir := t.TempDir()
	text, code := output(t, "record", "--last", "2s", "-d", dir, "--socket", o.argument("--socket"))
	if code != 0 {
		t.Fatalf("code %d\n%s", code, text)
	}
	r := recordingOf(t, dir, c.id)
	cpu, from, to := gained(t, r, csvy.CPUNS)
	if len(r.At) < 30 || len(r.At) > 41 || cpu < 0.2*float64(to.Sub(from)) || cpu > 1.1*float64(to.Sub(from)) {
		t.Errorf("%d rows, %.0f ns of CPU in %v", len(r.At), cpu, to.Sub(from))
	}
	if text, code := output(t, "record", "--last", "2s", "-d", dir, "--socket", socket(t)); code != 1 ||
		!strings.Contains(text, "no agent is running") {
		t.Errorf("without an agent: code %d\n%s", code, text)
	}
}

// TestRecordAnAnomaly: a burst of 300 ms on all CPUs is in the list, and around it in files, also for
// the agent that follows.
func TestRecordAnAnomaly(t *testing.T) {
	data := t.TempDir()
	o := upAt(t, freePort(t), data)
	c := shell(t, "bursting", `sleep 3; while :; do
		spinning=; for i in 1 2 3 4 5 6 7 8; do busybox sh -c 'while :; do :; done' & spinning="$spinning $!"; done
		busybox usleep 300000; kill $spinning; wait; sleep 3; done`)
	var number string
	listed := func(o *outsight) error {
		text, code := output(t, "record", "--anomalies", "--each", "--socket", o.argument("--socket"))
		if code != 0 {
			t.Fatalf("code %d\n%s", code, text)
		}
		for line := range strings.Lines(text) {
			if f := strings.Fields(line); len(f) > 8 && f[3] == c.name && (number == "" || f[0] == number) {
				number = f[0]
				return nil
			}
		}
		return fmt.Errorf("no line of %s (number %q) in\n%s", c.name, number, text)
	}
	eventually(t, 90*time.Second, func() error { return listed(o) })
	o.stop()
	o = upAt(t, freePort(t), data)
	eventually(t, time.Second, func() error { return listed(o) })
	dir := t.TempDir()
	if text, code := output(t, "record", "--anomaly", number, "-d", dir, "--socket", o.argument("--socket")); code != 0 {
		t.Fatalf("code %d\n%s", code, text)
	}
	if r := recordingOf(t, dir, c.id); len(r.At) < 20 || len(r.At) > 430 || r.Head.Container.Name != c.name {
		t.Errorf("%d rows of %q", len(r.At), r.Head.Container.Name)
	}
	text, code := output(t, "report", dir)
	if code != 0 || !strings.Contains(text, c.name) || !strings.Contains(text, "busy for") {
		t.Errorf("code %d\n%s", code, text)
	}
	fails(t, nil, []string{"there is no anomaly 123456"}, "record", "--anomaly", "123456", "-d", dir, "--socket",
		o.argument("--socket"))
}

// TestRecordOnAFullDisk records onto a small file system until it is full.
func TestRecordOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	shell(t, "filling", "while :; do :; done")
	fails(t, nil, []string{"the disk is full"}, "record", "-i", "1ms", "-d", dir)
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	rows := 0
	for _, file := range files {
		r, err := csvy.Open(file)
		if err != nil {
			t.Error(err)
			continue
		}
		rows += len(r.At)
		if r.End.Cut || len(r.Problems) > 0 {
			t.Errorf("%s: cut %v, problems %v", file, r.End.Cut, r.Problems)
		}
	}
	if len(files) == 0 || rows == 0 {
		t.Errorf("%d files with %d rows", len(files), rows)
	}
}
