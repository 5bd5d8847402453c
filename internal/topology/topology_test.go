package topology

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// tree writes a sysfs: ids are package, die and core of each CPU; a die of -1 has no file.
func tree(t *testing.T, online string, ids ...[3]int) string {
	t.Helper()
	root := t.TempDir()
	write(t, root, "online", online)
	for cpu, id := range ids {
		for i, name := range []string{"physical_package_id", "die_id", "core_id"} {
			if i == 1 && id[i] < 0 {
				continue
			}
			write(t, root, fmt.Sprintf("cpu%d/topology/%s", cpu, name), fmt.Sprintln(id[i]))
		}
	}
	return root
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, "devices/system/cpu", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTwoSocketsOfTwoThreads(t *testing.T) {
	// Cores are numbered in each socket by itself.
	m := New(tree(t, "0-7\n", [3]int{0, 0, 0}, [3]int{0, 0, 1}, [3]int{1, 0, 0}, [3]int{1, 0, 1}, [3]int{0, 0, 0},
		[3]int{0, 0, 1}, [3]int{1, 0, 0}, [3]int{1, 0, 1}), 16)
	if changed, err := m.Refresh(); !changed || err != nil {
		t.Fatalf("got %v, %v", changed, err)
	}
	for cpu := range 4 {
		if m.CPUs[cpu].Core != m.CPUs[cpu+4].Core || m.CPUs[cpu].Package != cpu/2 || m.CPUs[cpu+4].Package != cpu/2 {
			t.Errorf("CPUs %d and %d: %+v, %+v, want siblings in package %d", cpu, cpu+4, m.CPUs[cpu], m.CPUs[cpu+4], cpu/2)
		}
	}
	if m.CPUs[0].Core == m.CPUs[2].Core || !m.SharedCores() || !slices.Equal(m.Packages, []int{0, 1}) {
		t.Errorf("got %+v in packages %v, want four cores in two", m.CPUs, m.Packages)
	}
	if m.CPUs[8].Online || m.CPUs[8].Core != -1 {
		t.Errorf("CPU 8 is %+v, want nothing known", m.CPUs[8])
	}
	if changed, err := m.Refresh(); changed || err != nil {
		t.Errorf("the second time: %v, %v, want no change", changed, err)
	}
}

func TestPlacesThatAreMissing(t *testing.T) {
	// A virtual machine without package ids, and one CPU without files.
	m := New(tree(t, "0-2", [3]int{-1, -1, 0}, [3]int{-1, -1, 1}), 3)
	changed, err := m.Refresh()
	if !changed || err == nil {
		t.Errorf("got %v, %v, want an error for CPU 2", changed, err)
	}
	if m.SharedCores() || m.CPUs[0].Package != 0 || m.CPUs[1].Core == m.CPUs[0].Core || m.CPUs[2].Core < 0 {
		t.Errorf("got %+v, want three cores", m.CPUs)
	}
	if _, err := New(t.TempDir(), 2).Refresh(); err == nil {
		t.Error("without a list of CPUs: want an error")
	}
	if _, err := New(tree(t, "0-1", [3]int{0, 0, 0}, [3]int{0, 0, 1}), 1).Refresh(); err == nil {
		t.Error("with more CPUs than possible: want an error")
	}
}

func TestParseList(t *testing.T) {
	good := func(text string, want ...int) {
		t.Helper()
		if got, err := ParseList(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	good("\n")
	good("0\n", 0)
	good("0-2,5", 0, 1, 2, 5)
	good("5,0-1,1", 0, 1, 5)
	for _, bad := range []string{"x", "1-", "-1", "2-1", "8192", "0-99999999", "0,,1", "0-1-2"} {
		if got, err := ParseList(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

func FuzzParseList(f *testing.F) {
	f.Add("0-3,8\n")
	f.Add("0-8191,0-8191")
	f.Fuzz(func(t *testing.T, text string) {
		cpus, err := ParseList(text)
		if err != nil {
			return
		}
		if len(cpus) > MaxCPUs || !slices.IsSorted(cpus) {
			t.Errorf("%q: %d CPUs, sorted %v", text, len(cpus), slices.IsSorted(cpus))
		}
	})
}
