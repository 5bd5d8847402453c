package block

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// worker reads and writes on request, and answers when it has.
const worker = `
import os, sys
f = os.open("/dev/zero", os.O_RDWR)
os.write(1, b"ready\n")
while True:
    n = int(os.read(0, 16) or b"0")
    if n == 0: break
    for i in range(n):
        os.read(f, 1000); os.write(f, b"x" * 300)
    os.write(1, b"ready\n")
`

type ioWorker struct {
	pid int
	in  io.WriteCloser
	out *bufio.Reader
	end func()
}

func startWorker(g *kerneltest.Group, t *testing.T) *ioWorker {
	t.Helper()
	cmd := shell(g, "python3", "-c", worker)
	in, out := kerneltest.StartTalking(t, cmd)
	w := &ioWorker{pid: cmd.Process.Pid, in: in, out: out}
	ended := false
	w.end = func() {
		if !ended {
			ended = true
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(w.end)
	w.await(t)
	return w
}

func (w *ioWorker) await(t *testing.T) {
	t.Helper()
	if line, err := w.out.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the worker said %q, %v", line, err)
	}
	// It sleeps in its next read, which counts when it is done.
	kerneltest.Eventually(t, "the worker waits", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.pid))
		return err == nil && strings.Contains(string(stat), ") S ")
	})
}

func (w *ioWorker) work(t *testing.T, n int) {
	t.Helper()
	fmt.Fprintf(w.in, "%d\n", n)
	w.await(t)
}

// file is what the kernel's own file of the process says.
func (w *ioWorker) file(t *testing.T) (c model.FileCounters) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", w.pid))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(text), "rchar: %d\nwchar: %d\nsyscr: %d\nsyscw: %d\n", &c.ReadBytes, &c.WriteBytes,
		&c.Reads, &c.Writes); err != nil {
		t.Fatal(err)
	}
	return c
}

func filesOf(t *testing.T, p *blockAndGroups, id model.CgroupID) model.FileCounters {
	t.Helper()
	all, err := p.groups.ReadCgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.ID == id && c.Files != nil {
			return *c.Files
		}
	}
	return model.FileCounters{}
}

func minus(a, b model.FileCounters) model.FileCounters {
	from := b.Plain()
	for i, n := range a.Plain() {
		*n -= *from[i]
	}
	return a
}

// TestFilesAreThoseOfTheProcesses holds the counters against the kernel's file of each process, by both ways of looking at
// threads.
func TestFilesAreThoseOfTheProcesses(t *testing.T) {
	for _, iterator := range []bool{false, true} {
		t.Run(fmt.Sprintf("iterator=%v", iterator), func(t *testing.T) { filesAreThoseOfTheProcesses(t, iterator) })
	}
}

// filesAreThoseOfTheProcesses has one that is older than the programs, one that is younger, and both together after their
// ends.
func filesAreThoseOfTheProcesses(t *testing.T, iterator bool) {
	g := diskGroup(t, "files", nil)
	older := startWorker(g, t)
	p := openDisks(t, Options{filesByIterator: iterator})
	if iterator != p.Works(filesIterator.Name) {
		t.Fatalf("threads are looked at by another way: %+v", p.Features())
	}
	before := older.file(t)
	if got := filesOf(t, p, g.ID(t)); got != (model.FileCounters{}) {
		t.Errorf("before anything was done: %+v", got)
	}
	older.work(t, 40)
	want := minus(older.file(t), before)
	if want.Reads < 40 || want.WriteBytes < 40*300 {
		t.Fatalf("the process has done %+v", want)
	}
	if got := filesOf(t, p, g.ID(t)); got != want {
		t.Errorf("counted %+v, the process has done %+v", got, want)
	}
	younger := startWorker(g, t)
	younger.work(t, 7)
	add := younger.file(t)
	for i, n := range want.Plain() {
		*n += *add.Plain()[i]
	}
	if got := filesOf(t, p, g.ID(t)); got != want {
		t.Errorf("counted %+v, both processes have done %+v", got, want)
	}
	if again := filesOf(t, p, g.ID(t)); again != want {
		t.Errorf("at a second look %+v, want %+v", again, want)
	}
	// What they do last is counted at their ends: the read that tells of it, and Python's own farewell.
	younger.end()
	older.end()
	got := filesOf(t, p, g.ID(t))
	if last := minus(got, want); last.Reads < 2 || last.Reads > 64 || last.ReadBytes > 1<<16 || last.WriteBytes != 0 {
		t.Errorf("at their ends %+v more", last)
	}
}

// TestFilesOfShortProcesses has processes that no look sees.
func TestFilesOfShortProcesses(t *testing.T) {
	p := openDisks(t, Options{})
	g := diskGroup(t, "shortfiles", nil)
	const processes = 20
	// The process reads its own file last: what is in it, that reading and the writing of it are all it did.
	const script = `import os
f = os.open("/proc/self/io", os.O_RDONLY)
text = os.read(f, 4096)
os.write(1, text)
os._exit(0)`
	var want model.FileCounters
	for range processes {
		out, err := shell(g, "python3", "-c", script).Output()
		if err != nil {
			t.Fatal(err)
		}
		var c model.FileCounters
		if _, err := fmt.Sscanf(string(out), "rchar: %d\nwchar: %d\nsyscr: %d\nsyscw: %d\n", &c.ReadBytes,
			&c.WriteBytes, &c.Reads, &c.Writes); err != nil {
			t.Fatal(err)
		}
		want.ReadBytes += c.ReadBytes + uint64(len(out))
		want.WriteBytes += c.WriteBytes + uint64(len(out))
		want.Reads += c.Reads + 1
		want.Writes += c.Writes + 1
	}
	if got := filesOf(t, p, g.ID(t)); got != want {
		t.Errorf("%d processes: %+v, want %+v", processes, got, want)
	}
}
