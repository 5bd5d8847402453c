package host

import (
	"testing"
)

func TestFindHierarchy(t *testing.T) {
	const hybrid = "9:name=systemd:/\n8:pids:/\n4:memory:/docker/4f1d\n2:cpu,cpuacct:/\n0::/\n"
	f := func(text, controller string, want uint32, ok bool) {
		t.Helper()
		if got, err := findHierarchy(text, controller); got != want || (err == nil) != ok {
			t.Errorf("%q in %q: got %d, %v, want %d", controller, text, got, err, want)
		}
	}
	f(hybrid, "memory", 4, true)
	f(hybrid, "cpu", 2, true)
	f(hybrid, "blkio", 0, false)
	f("", "memory", 0, false)
	f("x:memory:/\n", "memory", 0, false)
	f("99999999999:memory:/\n", "memory", 0, false)
}

func FuzzFindHierarchy(f *testing.F) {
	f.Add("4:memory:/docker/4f1d\n0::/\n", "memory")
	f.Add("::::\n\n:", "")
	f.Fuzz(func(t *testing.T, text, controller string) {
		if id, err := findHierarchy(text, controller); err != nil && id != 0 {
			t.Errorf("id %d with error %v", id, err)
		}
	})
}
