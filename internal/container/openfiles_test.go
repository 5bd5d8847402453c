package container

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"outsight/internal/model"
)

// filesLooked reads until the open files have been counted once more.
func filesLooked(t *testing.T, f *Files, c *model.Container) *Usage {
	t.Helper()
	for range filesEvery - 1 {
		readOne(t, f, c)
	}
	return readOne(t, f, c)
}

// The files that this process has open, and may: before and after it opens some more.
func TestOpenFiles(t *testing.T) {
	group := t.TempDir()
	path := "/docker/" + idA
	f := NewFiles(Layout{Name: "v2", MountPoint: group, unified: group, v2: []string{"pids"}}, Options{})
	t.Cleanup(f.Close)
	c := &model.Container{ID: idA, CgroupPath: path, Cgroup: 7}
	writeFile(t, group+path+"/cgroup.procs", fmt.Sprintf("%d\n", os.Getpid()))
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	u := filesLooked(t, f, c)
	if u.Err != nil {
		t.Fatal(u.Err)
	}
	if u.OpenFilesLimit == 0 {
		if s, err := os.Stat("/proc/self/fd"); err != nil || s.Size() > 0 {
			t.Fatalf("no open files, where the directory's size is %d, %v", s.Size(), err)
		}
		t.Skip("this kernel, before 6.2, does not tell the number of open files")
	}
	if u.OpenFilesLimit != limit.Cur {
		t.Errorf("limit %d, want %d", u.OpenFilesLimit, limit.Cur)
	}
	before := u.OpenFiles
	const more = 57
	for range more {
		file, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	u = filesLooked(t, f, c)
	if own := uint64(len(entries)); u.OpenFiles < before+more || u.OpenFiles > own+5 || u.OpenFiles+5 < own {
		t.Errorf("%d open files, before %d; its directory has %d", u.OpenFiles, before, own)
	}
	writeFile(t, group+path+"/cgroup.procs", "")
	if u = filesLooked(t, f, c); u.OpenFilesLimit != 0 || u.OpenFiles != 0 {
		t.Errorf("without a process: %d of %d", u.OpenFiles, u.OpenFilesLimit)
	}
}

func TestThreadsLimit(t *testing.T) {
	f, c, directory := v2Group(t)
	expect := func(text string, want uint64) {
		t.Helper()
		f.Close()
		writeFile(t, filepath.Join(directory, "pids.max"), text)
		for range limitEvery {
			readOne(t, f, c)
		}
		if u := readOne(t, f, c); u.Err != nil || u.ThreadsLimit != want || u.Threads == nil {
			t.Errorf("%q: %d, %v", text, u.ThreadsLimit, u.Err)
		}
	}
	if u := readOne(t, f, c); u.Err != nil || u.ThreadsLimit != 0 {
		t.Errorf("without the file: %d, %v", u.ThreadsLimit, u.Err)
	}
	expect("max\n", 0)
	expect("512\n", 512)
}

func TestFileLimitWithoutText(t *testing.T) {
	kernel, text := Files{proc: newProcesses("/proc", "")}, Files{proc: processes{root: "/proc"}, buffer: make(textBuffer, 4096)}
	if !kernel.proc.ownNumbers {
		t.Fatal("/proc has other numbers than this process")
	}
	a, errA := kernel.fileLimitOf(os.Getpid())
	if b, errB := text.fileLimitOf(os.Getpid()); errA != nil || errB != nil || a != b || a == 0 {
		t.Errorf("%d (%v) by the system call, %d (%v) in the file", a, errA, b, errB)
	}
	none := exec.Command("true")
	if err := none.Run(); err != nil {
		t.Fatal(err)
	}
	if n, err := kernel.fileLimitOf(none.Process.Pid); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("of a process that has ended: %d (%v)", n, err)
	}
	if other := newProcesses(t.TempDir(), ""); other.ownNumbers {
		t.Error("an empty directory has this process's numbers")
	}
}

func TestFileLimit(t *testing.T) {
	const head = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max processes             31452                31452                processes \n"
	f := func(text string, want uint64, ok bool) {
		t.Helper()
		if got, err := parseFileLimit([]byte(text)); got != want || (err == nil) != ok {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	f(head+"Max open files            1024                 524288               files     \n", 1024, true)
	f(head+"Max open files            unlimited            unlimited            files     \n", 0, true)
	f(head, 0, false)
	f(head+"Max open files            \n", 0, false)
	f(head+"Max open files            -1 2 files\n", 0, false)
	f(head+"Max open files            99999999999999999999 2 files\n", 0, false)
}

func FuzzFileLimit(f *testing.F) {
	text, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("Max open files 1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if n, err := parseFileLimit(text); err != nil && n != 0 {
			t.Errorf("%d and %v", n, err)
		}
	})
}
