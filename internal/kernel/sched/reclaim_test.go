package sched

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

const memoryFile = "OUTSIGHT_TEST_FILE"

// useMemory reads a file again and again, or takes memory until it is killed.
func useMemory(name string) int {
	if name == "take-memory" {
		for all := [][]byte{}; ; {
			block := make([]byte, 1<<20)
			for i := range block {
				block[i] = byte(i) // touched, and not all alike
			}
			all = append(all, block)
		}
	}
	for range 3 {
		file, err := os.Open(os.Getenv(memoryFile))
		if err == nil {
			_, err = io.Copy(io.Discard, file)
			file.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

// limitMemory gives a group a limit, swap included.
func limitMemory(t *testing.T, g *kerneltest.Group, bytes int) {
	t.Helper()
	files := []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
	if kerneltest.Controller() == "" {
		files = []string{"memory.max", "memory.swap.max"}
	}
	if err := os.WriteFile(filepath.Join(g.Dirs[0], files[0]), []byte(fmt.Sprint(bytes)), 0); err != nil {
		t.Fatal(err)
	}
	swap := bytes
	if kerneltest.Controller() == "" {
		swap = 0
	}
	_ = os.WriteFile(filepath.Join(g.Dirs[0], files[1]), []byte(fmt.Sprint(swap)), 0) // there without swap, it needs none
}

func command(g *kerneltest.Group, work string) *exec.Cmd {
	var procs []string
	for _, dir := range g.Dirs {
		procs = append(procs, filepath.Join(dir, "cgroup.procs"))
	}
	cmd := exec.Command(os.Args[0], procs...)
	cmd.Env = append(os.Environ(), kerneltest.WorkloadVariable+"="+work)
	cmd.Stderr = os.Stderr
	return cmd
}

// forgetPages takes a file out of the page cache.
func forgetPages(t *testing.T, name string) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := errors.Join(file.Sync(), unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
		t.Fatal(err)
	}
}

// A group that reads a file larger than its limit frees memory itself, again and again. Nobody else does because of it.
func TestReclaimOfALimitedGroup(t *testing.T) {
	p := open(t, Options{})
	file := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(file, make([]byte, 96<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	limited, free := kerneltest.NewGroup(t, "limited"), kerneltest.NewGroup(t, "free")
	limitMemory(t, limited, 32<<20)
	run := func(g *kerneltest.Group) (model.ReclaimCounters, time.Duration) {
		t.Helper()
		forgetPages(t, file) // they would stay charged to whom had them first
		cmd := command(g, "read-file")
		cmd.Env = append(cmd.Env, memoryFile+"="+file)
		begun := time.Now()
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		return readGroup(t, p, g.ID(t)).Reclaim, time.Since(begun)
	}
	r, took := run(limited)
	t.Logf("%+v in %v", r, took)
	// 32 MiB are at most freed at a time, usually a 128 KiB.
	if r.LimitStalls < 3*(96-32)/32 {
		t.Errorf("%d stalls while %d MiB were read with room for 32", r.LimitStalls, 3*96)
	}
	if r.LimitNS == 0 || r.LimitNS > uint64(took)*uint64(p.cgroups.cpus) {
		t.Errorf("stalled %v of %v", time.Duration(r.LimitNS), took)
	}
	if other, _ := run(free); other.LimitStalls != 0 {
		t.Errorf("without a limit: %+v", other)
	}
	for _, d := range p.Drops() {
		if (d.Name == "reclaim_stalls" || d.Name == "oom_victims") && d.Count != 0 {
			t.Errorf("%+v", d)
		}
	}
	id := limited.ID(t)
	p.Forget(id)
	if left := readGroup(t, p, id).Reclaim; left != (model.ReclaimCounters{}) {
		t.Errorf("%+v of a group whose slot was released", left)
	}
}

// Who is killed for lack of memory is reported with the group and the name.
func TestVictimIsTold(t *testing.T) {
	if types, err := kerneltest.Types.Kernel(); err != nil {
		t.Fatal(err)
	} else if !victimIsTask(types) {
		t.Skip("this kernel tells the number of the process alone (before 6.10)")
	}
	p := open(t, Options{})
	g := kerneltest.NewGroup(t, "taker")
	limitMemory(t, g, 32<<20)
	cmd := command(g, "take-memory")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("it ended with %v, want it killed", err)
	}
	for timeout := time.After(kerneltest.Patience()); ; {
		select {
		case e := <-p.Events():
			if e.Kind != model.OOMKill {
				continue
			}
			name := filepath.Base(os.Args[0])
			if e.ID != g.ID(t) || e.PID != pid || e.Path != name[:min(len(name), 15)] ||
				time.Since(e.Time) > kerneltest.Patience() {
				t.Errorf("got %+v, want process %d %q of group %d", e, pid, name, g.ID(t))
			}
			return
		case <-timeout:
			t.Fatal("no event of it")
		}
	}
}
