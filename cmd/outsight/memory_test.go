package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestMachineMemory(t *testing.T) {
	f := func(meminfo, v2, v1 string, want int64) {
		t.Helper()
		dir := t.TempDir()
		for name, text := range map[string]string{"meminfo": meminfo, "memory.max": v2, "memory/memory.limit_in_bytes": v1} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if text == "" {
				continue
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := machineMemory(filepath.Join(dir, "meminfo"), dir); got != want {
			t.Errorf("%q, %q, %q: %d, want %d", meminfo, v2, v1, got, want)
		}
	}
	const eight = "MemTotal:        8388608 kB\nMemFree:          100 kB\n"
	f(eight, "", "", 8<<30)
	f("Other: 1 kB\n"+eight, "max\n", "", 8<<30)
	f(eight, "1073741824\n", "", 1<<30)
	f(eight, "", "9223372036854771712\n", 8<<30) // v1 without a limit
	f(eight, "", "536870912\n", 512<<20)
	f("", "536870912\n", "", 512<<20)
	f("", "", "", math.MaxInt64)
	f("MemTotal: much\n", "nothing\n", "", math.MaxInt64)
	if got := machineMemory("/proc/meminfo", "/sys/fs/cgroup"); got <= 0 || got == math.MaxInt64 {
		t.Errorf("this machine has %d bytes", got)
	}
}
