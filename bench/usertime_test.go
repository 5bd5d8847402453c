package main

import (
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestWhereabouts: a process that computes is found in user space, one that has the kernel fill memory in the kernel.
func TestWhereabouts(t *testing.T) {
	f := func(what string, work func() error, least, most float64) {
		t.Helper()
		w, err := sampleProcess(os.Getpid())
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
			t.Skipf("this user may not sample the kernel: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		begun, err := ownCPU()
		for now := begun; now-begun < 2000*samplePeriod; {
			if err == nil {
				err = work()
			}
			if err == nil {
				now, err = ownCPU()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		user, all, err := w.read()
		if err != nil {
			t.Fatal(err)
		}
		if part, _, _ := share(user, all); all < 1000 || part < least || part > most {
			t.Errorf("%s: %d of %d samples are in user space, want %v to %v %%", what, user, all, least, most)
		}
	}
	sum := 0
	f("computing", func() error {
		for i := range 1_000_000 {
			sum += i * i
		}
		return nil
	}, 80, 100)
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zeros.Close()
	b := make([]byte, 1<<20)
	f("reading", func() error {
		// Not Read: with the race detector it takes longer in user space than in the kernel.
		if _, _, err := unix.Syscall(unix.SYS_READ, zeros.Fd(), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b))); err != 0 {
			return err
		}
		return nil
	}, 0, 20)
}
