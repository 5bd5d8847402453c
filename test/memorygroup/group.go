// Package memorygroup runs processes of tests in a memory cgroup of their own.
package memorygroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Group is a cgroup whose memory is limited.
type Group struct {
	dir      string
	peakFile string
}

// New makes a cgroup for at most limitBytes of memory, and no swap: of v1 if that has the memory controller, else of
// v2. It is removed when the test ends; processes in it have to be ended by cleanups that are registered after New. It
// needs root.
func New(t testing.TB, limitBytes int64) (*Group, error) {
	t.Helper()
	limit := strconv.FormatInt(limitBytes, 10)
	root, limitFile, peakFile := "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"
	swapFile, swapLimit := "memory.memsw.limit_in_bytes", limit // memory and swap together
	if _, err := os.Stat(filepath.Join(root, limitFile)); err != nil {
		root, limitFile, peakFile = "/sys/fs/cgroup", "memory.max", "memory.peak"
		swapFile, swapLimit = "memory.swap.max", "0"
	}
	dir, err := os.MkdirTemp(root, "outsight-test-")
	if err != nil {
		return nil, fmt.Errorf("making a memory cgroup (it needs root): %w", err)
	}
	t.Cleanup(func() { remove(t, dir) })
	if err := os.WriteFile(filepath.Join(dir, limitFile), []byte(limit), 0); err != nil {
		return nil, fmt.Errorf("limiting the memory of cgroup %q to %d bytes: %w", dir, limitBytes, err)
	}
	// Without the file the kernel does not account swap.
	err = os.WriteFile(filepath.Join(dir, swapFile), []byte(swapLimit), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("limiting the swap of cgroup %q: %w", dir, err)
	}
	return &Group{dir, peakFile}, nil
}

// remove retries: the kernel takes the last process out of a cgroup a moment after it was waited for.
func remove(t testing.TB, dir string) {
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := os.Remove(dir)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("removing the memory cgroup: %v", err)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Command is a program that runs in the group. A shell joins the group and becomes the program, so that none of the
// program's memory is counted elsewhere.
func (g *Group) Command(name string, arguments ...string) *exec.Cmd {
	script := append([]string{"-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, g.dir, name}, arguments...)
	return exec.Command("sh", script...)
}

// PeakBytes is the most memory that the group has had. The error is errors.ErrUnsupported where the kernel does not
// count it: in cgroup v2 before Linux 5.19.
func (g *Group) PeakBytes() (int64, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, g.peakFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("reading the peak of memory cgroup %q: %w", g.dir, errors.ErrUnsupported)
	}
	if err != nil {
		return 0, fmt.Errorf("reading the peak of a memory cgroup: %w", err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the peak of memory cgroup %q: %w", g.dir, err)
	}
	return n, nil
}
