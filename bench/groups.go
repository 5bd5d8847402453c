package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"outsight/internal/container"
	"outsight/internal/model"
)

// benchGroups are plain control groups that stand for containers.
type benchGroups struct {
	// roots are their parents, one in each hierarchy; the first gives the ids.
	roots      []string
	containers []*model.Container
}

// hierarchies are the directories of the controllers whose files a recording reads.
func hierarchies(l container.Layout) []string {
	if l.Subsystem == "" {
		return []string{l.MountPoint}
	}
	all := []string{l.MountPoint}
	for _, controller := range []string{"memory", "cpuacct", "cpu", "pids", "blkio", "unified"} {
		directory := filepath.Join(filepath.Dir(l.MountPoint), controller)
		if _, err := os.Stat(directory); err == nil && directory != l.MountPoint {
			all = append(all, directory)
		}
	}
	return all
}

// makeGroups makes n control groups. A process goes through all of them, so that the kernel
// programs know them; none stays.
func makeGroups(l container.Layout, n int) (*benchGroups, error) {
	g := &benchGroups{}
	parent := fmt.Sprintf("/outsight-bench-%d", os.Getpid())
	for _, hierarchy := range hierarchies(l) {
		g.roots = append(g.roots, hierarchy+parent)
		if err := os.Mkdir(hierarchy+parent, 0o755); err != nil {
			return g, err
		}
		if l.Subsystem == "" {
			// So that the groups have the files; a controller that is not there is left out.
			for _, controller := range l.Controllers() {
				os.WriteFile(filepath.Join(hierarchy+parent, "cgroup.subtree_control"), []byte("+"+controller), 0)
			}
		}
		for i := range n {
			if err := os.Mkdir(filepath.Join(hierarchy+parent, fmt.Sprint(i)), 0o755); err != nil {
				return g, err
			}
		}
	}
	for i := range n {
		var stat syscall.Stat_t
		path := filepath.Join(parent, fmt.Sprint(i))
		if err := syscall.Stat(l.MountPoint+path, &stat); err != nil {
			return g, err
		}
		g.containers = append(g.containers, &model.Container{ID: fmt.Sprintf("bench%058d", i),
			Name:    fmt.Sprintf("bench-%d", i),
			Runtime: model.Docker, Image: "bench", CgroupPath: path, Cgroup: model.CgroupID(stat.Ino), Started: time.Now()})
	}
	return g, nil
}

// visit makes a process go through all groups, so that they are in the kernel's table.
func (g *benchGroups) visit() error {
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo $$ > %s/$i/cgroup.procs; i=$((i+1)); done",
		len(g.containers), g.roots[0])
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		return fmt.Errorf("visiting the control groups: %w: %s", err, out)
	}
	return nil
}

// inGroup is a command that runs in one of the groups.
func (g *benchGroups) inGroup(i int, command ...string) []string {
	var join strings.Builder
	for _, root := range g.roots {
		fmt.Fprintf(&join, "echo $$ > %s/%d/cgroup.procs; ", root, i)
	}
	return append([]string{"sh", "-c", join.String() + `exec "$@"`, "sh"}, command...)
}

// remove removes the groups; processes in them must have ended.
func (g *benchGroups) remove() {
	for _, root := range g.roots {
		for i := range g.containers {
			directory := filepath.Join(root, fmt.Sprint(i))
			for end := time.Now().Add(5 * time.Second); os.Remove(directory) != nil && time.Now().Before(end); {
				if _, err := os.Stat(directory); err != nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		os.Remove(root)
	}
}

// Lookup and Containers make the groups the containers of a recording.
func (g *benchGroups) Lookup(id model.CgroupID) *model.Container {
	for _, c := range g.containers {
		if c.Cgroup == id {
			return c
		}
	}
	return benchHost
}

func (g *benchGroups) Containers() []*model.Container { return g.containers }

var benchHost = &model.Container{ID: model.HostContainerID, Name: "host", Runtime: model.HostRuntime}
