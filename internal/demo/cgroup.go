package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// hierarchy is a mounted cgroup hierarchy.
type hierarchy struct {
	path string
	// v2 is true for the unified hierarchy, and not a controller's own.
	v2     bool
	cpuset bool
}

// readHierarchies lists the cgroup hierarchies of a mountinfo file, each once.
func readHierarchies(procFS string) ([]hierarchy, error) {
	path := filepath.Join(procFS, "self/mountinfo")
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("finding the control groups: %w", err)
	}
	list := parseHierarchies(b)
	if len(list) == 0 {
		return nil, fmt.Errorf("finding the control groups: %q names none", path)
	}
	return list, nil
}

// parseHierarchies reads lines of "id parent major:minor root mountpoint options [fields] -
// type source superoptions".
func parseHierarchies(mountinfo []byte) []hierarchy {
	var list []hierarchy
	seen := map[string]bool{} // by device: a hierarchy can be mounted twice
	lines := bufio.NewScanner(bytes.NewReader(mountinfo))
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 6 || len(right) < 3 || !strings.HasPrefix(right[0], "cgroup") || seen[left[2]] {
			continue
		}
		seen[left[2]] = true
		list = append(list, hierarchy{
			path: unescapeMount(left[4]), v2: right[0] == "cgroup2",
			cpuset: strings.Contains(","+right[2]+",", ",cpuset,"),
		})
	}
	return list
}

func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// cgroups makes the same groups in every hierarchy, as container runtimes do.
type cgroups struct {
	hierarchies []hierarchy
	parent      string // name of the group that holds all others
}

func (g cgroups) make(id string) error {
	for _, h := range g.hierarchies {
		dir := h.path
		for _, name := range []string{g.parent, id} {
			dir = filepath.Join(dir, name)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("making a control group: %w", err)
			}
			if err := h.prepare(dir, name == g.parent); err != nil {
				return fmt.Errorf("making control group %q: %w", dir, err)
			}
		}
	}
	return nil
}

// prepare gives a new group what it needs before a process can join, or controllers to pass on.
func (h hierarchy) prepare(dir string, passOn bool) error {
	if h.cpuset && !h.v2 {
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			b, err := os.ReadFile(filepath.Join(filepath.Dir(dir), f))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, f), b, 0); err != nil {
				return err
			}
		}
	}
	if !h.v2 || !passOn {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(string(b)) {
		// Whatever can be had is worth having, and none of it is needed to run.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
	}
	return nil
}

func (g cgroups) join(id string, pid int) error {
	for _, h := range g.hierarchies {
		procs := filepath.Join(h.path, g.parent, id, "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("moving process %d into a control group: %w", pid, err)
		}
	}
	return nil
}

// remove kills what still runs in the groups and removes them all, the parent included.
func (g cgroups) remove(ctx context.Context) error {
	for {
		var errs []error
		for _, h := range g.hierarchies {
			errs = append(errs, removeGroup(filepath.Join(h.path, g.parent)))
		}
		err := errors.Join(errs...)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing control groups: %w", err)
		case <-time.After(5 * time.Millisecond): // a killed process takes a moment to leave
		}
	}
}

func removeGroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, removeGroup(filepath.Join(dir, e.Name())))
		}
	}
	if err := killGroup(dir); err != nil {
		errs = append(errs, err)
	}
	if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
		errs = append(errs, &fs.PathError{Op: "rmdir", Path: dir, Err: err})
	}
	return errors.Join(errs...)
}

func killGroup(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, f := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return fmt.Errorf("reading the processes of %q: %w", dir, err)
		}
		if pid == 0 { // a process of another pid namespace, which kill would take for ourselves
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("killing process %d: %w", pid, err)
		}
	}
	return nil
}
