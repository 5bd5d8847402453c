package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fails runs a command that must end by itself with exit code 1 and one clear line that has all
// the words.
func fails(t *testing.T, prepare func(*exec.Cmd), words []string, arguments ...string) {
	t.Helper()
	command := exec.Command(outsightBinary, arguments...)
	if prepare != nil {
		prepare(command)
	}
	var output lockedBuffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { command.Process.Kill() })
	err := command.Wait()
	timer.Stop()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("outsight %s: %v, want exit code 1\n%s", strings.Join(arguments, " "), err, &output)
		return
	}
	lines := strings.Split(strings.TrimSpace(output.String()), "\n")
	last := lines[len(lines)-1]
	for _, word := range words {
		if !strings.Contains(last, word) {
			t.Errorf("outsight %s: the last line does not say %q:\n%s", strings.Join(arguments, " "), word, &output)
		}
	}
	if strings.Contains(output.String(), "panic") || strings.Contains(output.String(), "goroutine ") {
		t.Errorf("outsight %s panicked:\n%s", strings.Join(arguments, " "), &output)
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fails(t, nil, []string{l.Addr().String(), "taken"}, "up", "--listen", l.Addr().String(), "--data", t.TempDir(),
		"--socket", socket(t))
}

func TestDataDirectoryNotWritable(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	// Root may write anywhere but on a read-only file system.
	if err := syscall.Mount("outsight-e2e", directory, "tmpfs", syscall.MS_RDONLY, ""); err != nil {
		t.Fatalf("mounting a read-only file system: %v", err)
	}
	defer syscall.Unmount(directory, 0)
	fails(t, nil, []string{directory, "read-only"}, "up", "--listen", freePort(t), "--data", directory, "--socket",
		socket(t))
}

func TestDataDirectoryIsAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, []byte("not a directory"), 0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, nil, []string{file, "not a directory"}, "up", "--listen", freePort(t), "--data", file, "--socket", socket(t))
}

// TestDataDirectoryCorrupt: a block whose index is garbage is set aside, and not passed over as if it had never been.
func TestDataDirectoryCorrupt(t *testing.T) {
	t.Parallel()
	const id = "01JD7Z0000000000000000000A"
	data := t.TempDir()
	block := filepath.Join(data, id)
	if err := os.MkdirAll(filepath.Join(block, "chunks"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"meta.json":     fmt.Sprintf(`{"ulid":%q,"minTime":0,"maxTime":7200000,"version":1,"compaction":{"level":1,"sources":[%q]}}`, id, id),
		"index":         "this is no index",
		"tombstones":    "",
		"chunks/000001": "this is no chunk",
	} {
		if err := os.WriteFile(filepath.Join(block, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	o := upAt(t, freePort(t), data)
	if text := o.log.String(); !strings.Contains(text, "set aside") || !strings.Contains(text, id) {
		t.Errorf("the log does not name the block: %s", text)
	}
	if kept, err := filepath.Glob(filepath.Join(data, "damaged", "*"+id)); err != nil || len(kept) != 1 {
		t.Errorf("set aside: %q, %v", kept, err)
	}
}

// TestNotRoot: one line that names the capability that is missing.
func TestNotRoot(t *testing.T) {
	t.Parallel()
	if err := os.Chmod(filepath.Dir(outsightBinary), 0o755); err != nil {
		t.Fatal(err)
	}
	fails(t, func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}, []string{"CAP_"}, "up", "--listen", freePort(t), "--data", filepath.Join(os.TempDir(), unique("nobody")))
}

// TestKillLeavesNothing: the kernel objects of an agent that was killed go with it. Nobody is left
// to remove the file of its socket; the next one replaces it and starts on the same port and data.
func TestKillLeavesNothing(t *testing.T) {
	t.Parallel()
	before := cgroupDirectories(t)
	o := up(t)
	objects := kernelObjects(t, o.command.Process.Pid)
	for _, kind := range []string{"prog", "map", "link"} {
		if len(objects[kind]) == 0 {
			t.Fatalf("the agent holds no kernel object of kind %s", kind)
		}
	}
	data, socket := o.argument("--data"), o.argument("--socket")
	o.kill()
	eventually(t, func() error { return noneIsLeft(objects) })
	for path := range cgroupDirectories(t) {
		if !before[path] && strings.Contains(path, "outsight") {
			t.Errorf("control group %s was left", path)
		}
	}
	// bpffs pins would keep objects alive past their process.
	pins, _ := filepath.Glob("/sys/fs/bpf/*outsight*")
	if len(pins) > 0 {
		t.Errorf("pinned objects were left: %v", pins)
	}
	if _, err := os.Lstat(socket); err != nil {
		t.Errorf("the file of the socket: %v, want it left by the killed agent", err)
	}
	next := upAt(t, o.address, data, "--socket", socket)
	if text := next.run("top", "--once"); !strings.Contains(text, "accounted for") {
		t.Errorf("the next agent does not answer at the same socket:\n%s", text)
	}
}

// noneIsLeft fails while the kernel has one of the objects.
func noneIsLeft(objects map[string][]string) error {
	for kind, ids := range objects {
		for _, id := range ids {
			if exec.Command("bpftool", kind, "show", "id", id).Run() == nil {
				return fmt.Errorf("%s %s is still in the kernel", kind, id)
			}
		}
	}
	return nil
}

// kernelObjects lists the ids of the kernel programs, maps and links that a process holds.
func kernelObjects(t *testing.T, pid int) map[string][]string {
	t.Helper()
	objects := map[string][]string{}
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		file, err := os.Open(info)
		if err != nil {
			continue // closed meanwhile
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			key, value, _ := strings.Cut(lines.Text(), ":")
			kind, isID := strings.CutSuffix(key, "_id")
			if !isID || kind != "prog" && kind != "map" && kind != "link" {
				continue
			}
			objects[kind] = append(objects[kind], strings.TrimSpace(value))
		}
		file.Close()
	}
	return objects
}

func cgroupDirectories(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			found[path] = true
		}
		return nil // a group that ended meanwhile
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
