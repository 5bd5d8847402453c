package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLayoutOf(t *testing.T) {
	check := func(file, root, name, subsystem, point string) Layout {
		t.Helper()
		text, err := os.Open("testdata/mountinfo/" + file)
		if err != nil {
			t.Fatal(err)
		}
		defer text.Close()
		mounts, err := parseMounts(text)
		if err != nil {
			t.Fatal(err)
		}
		l := layoutOf(mounts, root)
		if l.Name != name || l.Subsystem != subsystem || l.MountPoint != point {
			t.Errorf("%s: %q %q %q, want %q %q %q", file, l.Name, l.Subsystem, l.MountPoint, name, subsystem, point)
		}
		return l
	}
	check("hybrid", "/sys/fs/cgroup", "hybrid", "memory", "/sys/fs/cgroup/memory")
	check("v2", "/sys/fs/cgroup", "v2", "", "/sys/fs/cgroup")
	check("v2", "/host/cgroup", "v2", "", "/host/cgroup")
	check("hybrid", "/host/cgroup", "hybrid", "memory", "/host/cgroup/memory")
	check("v1-no-memory", "/sys/fs/cgroup", "v1", "cpu", "/sys/fs/cgroup/cpu,cpuacct")
	// Paths below a mount that shows a part of a hierarchy are not the kernel's.
	check("in-container", "/sys/fs/cgroup", "v2", "", "")

	l := check("v1-comounted", "/sys/fs/cgroup", "v1", "memory", "/sys/fs/cgroup/memory")
	for _, c := range []string{"cpu", "cpuacct"} {
		if l.v1[c] != "/sys/fs/cgroup/cpu,cpuacct" {
			t.Errorf("%s is at %q", c, l.v1[c])
		}
	}
	if len(l.v1) != 7 { // cpu, cpuacct, net_cls, net_prio, blkio, memory, pids
		t.Errorf("controllers: %v", l.v1)
	}
}

func TestDetectFails(t *testing.T) {
	check := func(mountinfo, want string) {
		t.Helper()
		root := t.TempDir()
		if mountinfo != "" {
			text, err := os.ReadFile("testdata/mountinfo/" + mountinfo)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(root, "self/mountinfo"), string(text))
		}
		_, err := Detect(Options{ProcRoot: root, CgroupRoot: filepath.Join(root, "cgroup")})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", mountinfo, err, want)
		}
	}
	check("", "mount table")
	check("in-container", "no cgroup hierarchy")
	check("v2", "cgroup.controllers") // mounted in the table, not in the tree
}

func TestDetectControllersOfV2(t *testing.T) {
	root := t.TempDir()
	text, err := os.ReadFile("testdata/mountinfo/v2")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(root, "self/mountinfo"), string(text))
	writeFile(t, filepath.Join(root, "cgroup/cgroup.controllers"), "cpuset cpu io memory hugetlb pids rdma misc\n")
	l, err := Detect(Options{ProcRoot: root, CgroupRoot: filepath.Join(root, "cgroup")})
	if err != nil {
		t.Fatal(err)
	}
	if point, v2 := l.controller("io"); point != filepath.Join(root, "cgroup") || !v2 {
		t.Errorf("io is at %q, v2 %v", point, v2)
	}
	if point, _ := l.controller("blkio"); point != "" {
		t.Errorf("blkio is at %q", point)
	}
}

func TestDetectHere(t *testing.T) {
	l := hostLayout(t)
	if _, err := statDirectory(l.MountPoint); err != nil {
		t.Error(err)
	}
	if l.Subsystem != "" && !strings.Contains(l.MountPoint, l.Subsystem) {
		t.Errorf("%+v", l)
	}
}

func TestUnescape(t *testing.T) {
	check := func(in, want string) {
		t.Helper()
		if got := UnescapeMount(in); got != want {
			t.Errorf("UnescapeMount(%q) = %q, want %q", in, got, want)
		}
	}
	check(`/sys/fs/my\040group`, "/sys/fs/my group")
	check(`/a\134b`, `/a\b`)
	check(`/short\04`, `/short\04`)
	check(`/not\9xx`, `/not\9xx`)
}

func FuzzParseMounts(f *testing.F) {
	for _, name := range []string{"hybrid", "v2", "v1-comounted", "in-container"} {
		text, err := os.ReadFile("testdata/mountinfo/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		mounts, err := parseMounts(strings.NewReader(text))
		if err != nil {
			return
		}
		l := layoutOf(mounts, "/sys/fs/cgroup")
		if l.Subsystem != "" && l.v1[l.Subsystem] != l.MountPoint {
			t.Errorf("%+v", l)
		}
	})
}

func writeFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
