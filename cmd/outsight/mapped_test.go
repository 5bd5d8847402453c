package main

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

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
