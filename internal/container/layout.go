package container

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Layout says which control group hierarchies this host has and which of them gives the
// numbers of model.CgroupID.
type Layout struct {
	// Name is "v1", "v2" or "hybrid".
	Name string
	// Subsystem is the kernel's name of the controller whose hierarchy gives the ids: "memory"
	// or "cpu"; "" for the default hierarchy (v2).
	Subsystem string
	// MountPoint of that hierarchy.
	MountPoint string

	// v1 maps a controller to the mount point of its hierarchy.
	v1 map[string]string
	// unified is the mount point of the v2 hierarchy, "" where there is none; v2 holds the
	// controllers that it has.
	unified string
	v2      []string
}

// defaultCgroupRoot is where mountinfo files of other mount namespaces name the hierarchies.
const defaultCgroupRoot = "/sys/fs/cgroup"

// controllers of v1: the options of a mount hold many other words, and the names of hierarchies
// without a controller ("name=systemd").
var controllers = []string{"cpu", "cpuacct", "memory", "blkio", "pids", "io", "cpuset",
	"devices", "freezer", "net_cls", "net_prio", "perf_event", "hugetlb", "rdma", "misc"}

// Detect finds the hierarchies in the mount table of Options.ProcRoot/self. It fails where no
// hierarchy is mounted that could give ids.
func Detect(o Options) (Layout, error) {
	o = o.withDefaults()
	name := filepath.Join(o.ProcRoot, "self/mountinfo")
	file, err := os.Open(name)
	if err != nil {
		return Layout{}, fmt.Errorf("reading the mount table: %w", err)
	}
	defer file.Close()
	mounts, err := parseMounts(file)
	if err != nil {
		return Layout{}, fmt.Errorf("reading the mount table %q: %w", name, err)
	}
	l := layoutOf(mounts, o.CgroupRoot)
	if l.unified != "" {
		list, err := os.ReadFile(filepath.Join(l.unified, "cgroup.controllers"))
		if err != nil {
			return Layout{}, fmt.Errorf("reading the controllers of the v2 hierarchy: %w", err)
		}
		l.v2 = strings.Fields(string(list))
	}
	if l.MountPoint == "" {
		return Layout{}, fmt.Errorf("no cgroup hierarchy with memory or cpu, and no v2 one, is mounted as a whole below %q "+
			"(mount table %q)",
			o.CgroupRoot, name)
	}
	return l, nil
}

// Controllers of the v2 hierarchy.
func (l *Layout) Controllers() []string { return slices.Clone(l.v2) }

// BlockMount is where the hierarchy is mounted that accounts block I/O; "" where there is none.
func (l *Layout) BlockMount() string {
	if point, _ := l.controller("blkio"); point != "" {
		return point
	}
	point, _ := l.controller("io")
	return point
}

func layoutOf(mounts []mount, root string) Layout {
	l := Layout{v1: make(map[string]string)}
	for _, m := range below(mounts, root) {
		if m.kind == "cgroup2" {
			if l.unified == "" {
				l.unified = m.point
			}
			continue
		}
		for _, c := range m.controllers {
			if l.v1[c] == "" {
				l.v1[c] = m.point
			}
		}
	}
	switch {
	case len(l.v1) == 0:
		l.Name = "v2"
	case l.unified == "":
		l.Name = "v1"
	default:
		l.Name = "hybrid"
	}
	l.MountPoint = l.unified
	for _, c := range []string{"memory", "cpu"} {
		if l.v1[c] != "" {
			l.Subsystem, l.MountPoint = c, l.v1[c]
			break
		}
	}
	return l
}

// below keeps the mounts at or below root. A mount table of another mount namespace names
// /sys/fs/cgroup instead: there the paths are moved to root.
func below(mounts []mount, root string) []mount {
	pick := func(from string) (found []mount) {
		for _, m := range mounts {
			rest, ok := strings.CutPrefix(m.point, from)
			if ok && (rest == "" || rest[0] == '/') {
				m.point = root + rest
				found = append(found, m)
			}
		}
		return found
	}
	if found := pick(root); len(found) > 0 {
		return found
	}
	return pick(defaultCgroupRoot)
}

// controller is the mount point of the hierarchy that has the controller, and whether it is the
// v2 one; "" where no hierarchy has it.
func (l *Layout) controller(name string) (point string, v2 bool) {
	if point := l.v1[name]; point != "" {
		return point, false
	}
	if l.unified != "" && slices.Contains(l.v2, name) {
		return l.unified, true
	}
	return "", false
}

// mount is a mounted control group hierarchy.
type mount struct {
	point, kind string
	controllers []string
}

// parseMounts reads control group mounts from the text of a mountinfo file, see proc(5). A
// mount that shows only a part of a hierarchy (bind mounts in containers) is left out: paths
// below it are not those of the kernel.
func parseMounts(r io.Reader) ([]mount, error) {
	var mounts []mount
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		before, after, found := strings.Cut(lines.Text(), " - ")
		where, fs := strings.Fields(before), strings.Fields(after)
		if !found || len(where) < 6 || len(fs) < 2 {
			return nil, fmt.Errorf("line %q is not of the form of a mount", lines.Text())
		}
		kind := fs[0]
		if kind != "cgroup" && kind != "cgroup2" || where[3] != "/" {
			continue
		}
		m := mount{point: UnescapeMount(where[4]), kind: kind}
		if kind == "cgroup" && len(fs) > 2 {
			m.controllers = controllersOf(fs[2])
		}
		mounts = append(mounts, m)
	}
	return mounts, lines.Err()
}

func controllersOf(options string) []string {
	var found []string
	for word := range strings.SplitSeq(options, ",") {
		if slices.Contains(controllers, word) {
			found = append(found, word)
		}
	}
	return found
}

// UnescapeMount undoes the octal escapes (\040) of a path in a mount table, see proc(5).
func UnescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
