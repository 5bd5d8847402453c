package container

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
)

// Helpers for tests on real control groups and a real Docker, which need root.

// hostLayout is the layout of the machine that the tests run on.
func hostLayout(t testing.TB) Layout {
	t.Helper()
	l, err := Detect(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// mounts of all hierarchies of a layout but cpuset, whose new groups take no process until
// their CPUs have been set.
func (l *Layout) mounts() map[string]bool {
	all := make(map[string]bool)
	for controller, point := range l.v1 {
		if controller != "cpuset" {
			all[point] = true
		}
	}
	if l.unified != "" {
		all[l.unified] = true
	}
	return all
}

// makeGroup makes a control group in all hierarchies and removes it, with the group above it,
// when the test ends.
func makeGroup(t testing.TB, l Layout, path string) model.CgroupID {
	t.Helper()
	for point := range l.mounts() {
		if err := os.MkdirAll(point+path, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			removeGroup(t, point+path)
			os.Remove(filepath.Dir(point + path)) // fails while another test's group is in it
		})
	}
	return groupID(t, l, path)
}

func removeGroup(t testing.TB, directory string) {
	t.Helper()
	eventually(t, func() error {
		if err := os.Remove(directory); err != nil && !os.IsNotExist(err) {
			return err // its processes have not quite ended
		}
		return nil
	})
}

func groupID(t testing.TB, l Layout, path string) model.CgroupID {
	t.Helper()
	stat, err := statDirectory(l.MountPoint + path)
	if err != nil {
		t.Fatal(err)
	}
	return model.CgroupID(stat.Ino)
}

// enter starts a command inside of a control group and ends it with the test.
func enter(t testing.TB, l Layout, path string, command ...string) *exec.Cmd {
	t.Helper()
	var script strings.Builder
	for point := range l.mounts() {
		fmt.Fprintf(&script, "echo $$ > %s%s/cgroup.procs\n", point, path)
	}
	script.WriteString("exec \"$@\"")
	cmd := exec.Command("/bin/sh", append([]string{"-ec", script.String(), "sh"}, command...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	eventually(t, func() error {
		text, err := os.ReadFile(l.MountPoint + path + "/cgroup.procs")
		if err != nil || len(text) == 0 {
			return fmt.Errorf("no process in %s yet: %v", path, err)
		}
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		if err != nil || strings.TrimSpace(string(comm)) == "sh" {
			return fmt.Errorf("command is %q yet: %v", comm, err)
		}
		return nil
	})
	return cmd
}

// patience bounds every wait. It is generous: only what is broken takes as long.
const patience = 3 * time.Minute

// eventually waits for what other processes do.
func eventually(t testing.TB, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still after %v: %v", patience, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// testID is a container's id that no runtime has made.
func testID(n int) string { return fmt.Sprintf("05c7%060x", n) }
