package demo

import (
	"os"
	"reflect"
	"testing"
)

func TestParseHierarchies(t *testing.T) {
	b, err := os.ReadFile("testdata/mountinfo-hybrid.txt")
	if err != nil {
		t.Fatal(err)
	}
	got := parseHierarchies(b)
	var paths []string
	for _, h := range got {
		paths = append(paths, h.path)
		if h.v2 != (h.path == "/sys/fs/cgroup/unified") || h.cpuset != (h.path == "/sys/fs/cgroup/cpuset") {
			t.Errorf("%+v", h)
		}
	}
	want := []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpuset", "/sys/fs/cgroup/memory",
		"/sys/fs/cgroup/devices", "/sys/fs/cgroup/freezer", "/sys/fs/cgroup/blkio", "/sys/fs/cgroup/pids",
		"/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"}
	if !reflect.DeepEqual(paths, want) {
		t.Errorf("got %q, want %q", paths, want)
	}
	f := func(in string, want ...hierarchy) {
		t.Helper()
		if got := parseHierarchies([]byte(in)); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", in, got, want)
		}
	}
	f("30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
		hierarchy{path: "/sys/fs/cgroup", v2: true})
	f("41 31 0:38 / /a\\040b rw - cgroup2 x rw\n42 31 0:38 / /again rw - cgroup2 x rw\n",
		hierarchy{path: "/a b", v2: true})
	f("41 31 0:38 / /a rw - cgroup")
	f("nonsense\n")
}

func FuzzParseHierarchies(f *testing.F) {
	b, err := os.ReadFile("testdata/mountinfo-hybrid.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, h := range parseHierarchies(b) {
			if h.path == "" {
				t.Errorf("a hierarchy without a path in %q", b)
			}
		}
	})
}
