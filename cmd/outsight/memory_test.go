package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"syscall"
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

// Pages of a mapped file go where there are too many, stay where there are few, and come back with what they held.
func TestMappedFilesGo(t *testing.T) {
	const size = 16 << 20
	dir := t.TempDir()
	want := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	name := filepath.Join(dir, "chunks")
	if err := os.WriteFile(name, want, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	mapped, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mapped)
	resident := func() (sum uint64) {
		t.Helper()
		all, err := mappingsBelow(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != 1 {
			t.Fatalf("%d mappings of files in the directory, want 1", len(all))
		}
		return all[0].resident
	}
	if !bytes.Equal(mapped, want) {
		t.Fatal("the file holds something else")
	}
	if n := resident(); n != size {
		t.Fatalf("%d bytes are resident, want all %d", n, size)
	}
	if err := letMappedGo(dir, size); err != nil || resident() != size {
		t.Fatalf("%d bytes are resident within the bound, %v", resident(), err)
	}
	if err := letMappedGo(dir, size-1); err != nil {
		t.Fatal(err)
	}
	if n := resident(); n > size/2 {
		t.Errorf("%d bytes are resident, want hardly any", n)
	}
	if !bytes.Equal(mapped, want) {
		t.Error("what the file held is lost")
	}
}
