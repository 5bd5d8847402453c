package e2e

import (
	"fmt"
	"math"
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
	r, err := openRecording(dir, id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func openRecording(dir, id string) (*csvy.Recording, error) {
	files, err := filepath.Glob(filepath.Join(dir, filesOf(id)))
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("%d files of %s in %s", len(files), id, dir)
	}
	if err != nil {
		return nil, err
	}
	return csvy.Open(files[0])
}

// hasRows waits until the file of a container that is being written has rows, the last of them after a time.
func hasRows(t *testing.T, dir, id string, rows int, after time.Time) (r *csvy.Recording) {
	t.Helper()
	eventually(t, func() (err error) {
		if r, err = openRecording(dir, id); err != nil {
			return err
		}
		if n := len(r.At); n < rows || !time.Unix(0, r.At[n-1]).After(after) {
			return fmt.Errorf("the file of %s has %d rows, want %d and one after %v", id, n, rows, after)
		}
		return nil
	})
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

// checkRecorded holds the CPU time of a recording against the kernel's file of the same time.
func checkRecorded(t *testing.T, r *csvy.Recording, c container, files *cpuFiles) {
	t.Helper()
	cpu, from, to := gained(t, r, csvy.CPUNS)
	// A row is written when its tick comes, which may be an interval late.
	stretch{point{from, 0}, point{to, cpu / 1e9}}.check(t, c, files, 50*time.Millisecond)
}

func TestRecordEveryFormat(t *testing.T) {
	t.Parallel()
	c := shell(t, "recorded", "while :; do :; done")
	other := shell(t, "not-recorded", "busybox sleep 1000")
	for _, format := range []string{"csvy", "radvisor", "parquet"} {
		t.Run(format, func(t *testing.T) {
			dir := t.TempDir()
			files := sampleCPUFiles([]container{c})
			text, code := output(t, "record", "--format", format, "-d", dir, "--for", "3s", "--containers", c.name)
			files.close(t, time.Now())
			if code != 0 || !strings.Contains(text, "Recorded in "+dir) {
				t.Fatalf("code %d\n%s", code, text)
			}
			r := recordingOf(t, dir, c.id)
			if len(r.Problems) > 0 || r.End.Cut || string(r.Format) != format {
				t.Errorf("format %s, problems %v, cut %v", r.Format, r.Problems, r.End.Cut)
			}
			if len(r.At) < 40 {
				t.Fatalf("%d rows in 3 s", len(r.At))
			}
			// One each 50 ms, until a busy machine ends it.
			span := time.Duration(r.At[len(r.At)-1] - r.At[0])
			if most := int(span/(50*time.Millisecond)) + 2; len(r.At) > most {
				t.Errorf("%d rows in %v, want %d at most", len(r.At), span, most)
			}
			checkRecorded(t, r, c, files)
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
	hasRows(t, dir, "host", 1, time.Time{})
	c := shell(t, "passing", "while :; do :; done")
	hasRows(t, dir, c.id, 50, time.Time{})
	c.remove()
	removed := time.Now()
	hasRows(t, dir, "host", 1, removed)
	// Ctrl-C closes the files.
	record.Process.Signal(syscall.SIGINT)
	if err := record.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	r, host := recordingOf(t, dir, c.id), recordingOf(t, dir, "host")
	if r.End.Cut || host.End.Cut || len(r.Problems)+len(host.Problems) > 0 {
		t.Errorf("cut %v and %v, problems %v %v", r.End.Cut, host.End.Cut, r.Problems, host.Problems)
	}
	if last := time.Unix(0, r.At[len(r.At)-1]); last.After(removed) {
		t.Errorf("the last row is at %v, after %v when the container was gone", last, removed)
	}
}

// TestKilledRecordingIsReadable: what was written so far is in the files, and nothing in the kernel.
func TestKilledRecordingIsReadable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	record := exec.Command(outsightBinary, "record", "-i", "10ms", "-d", dir)
	if err := record.Start(); err != nil {
		t.Fatal(err)
	}
	rows := len(hasRows(t, dir, "host", 150, time.Time{}).At)
	objects := kernelObjects(t, record.Process.Pid)
	record.Process.Kill()
	record.Wait()
	if r := recordingOf(t, dir, "host"); len(r.At) < rows || len(r.Problems) > 0 {
		t.Errorf("%d rows, %d were in the file before, problems %v", len(r.At), rows, r.Problems)
	}
	eventually(t, func() error { return noneIsLeft(objects) })
}

func TestRecordLastMinutes(t *testing.T) {
	t.Parallel()
	c := shell(t, "kept", "while :; do :; done")
	files := sampleCPUFiles([]container{c})
	o := shared(t)
	var r *csvy.Recording
	var dir string
	eventually(t, func() error {
		dir = t.TempDir()
		text, code := output(t, "record", "--last", "2s", "-d", dir, "--socket", o.argument("--socket"))
		if code != 0 {
			return fmt.Errorf("code %d\n%s", code, text)
		}
		var err error
		if r, err = openRecording(dir, c.id); err != nil {
			return err
		}
		if len(r.At) < 30 {
			return fmt.Errorf("%d rows are there yet", len(r.At))
		}
		return nil
	})
	files.close(t, time.Now())
	if len(r.At) > 41 {
		t.Errorf("%d rows in 2 s", len(r.At))
	}
	checkRecorded(t, r, c, files)
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
	eventually(t, func() error { return listed(o) })
	o.stop()
	o = upAt(t, freePort(t), data)
	eventually(t, func() error { return listed(o) })
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
