package memorygroup

import (
	"errors"
	"os"
	"testing"
)

const testLimit = 64 << 20

// A program that takes more than the group's limit is killed; one that takes less is not, and is counted.
func TestLimit(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making a memory cgroup needs root")
	}
	g, err := New(t, testLimit)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := g.Command("head", "-c", "1000000", "/dev/zero").Output(); err != nil || len(out) != 1_000_000 {
		t.Fatalf("a small program wrote %d bytes: %v", len(out), err)
	}
	switch peak, err := g.PeakBytes(); {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		t.Error(err)
	case peak <= 0 || peak > testLimit:
		t.Errorf("the peak is %d bytes, want at most %d", peak, testLimit)
	}
	// tail keeps all of its input while that has no end of a line.
	if err := g.Command("sh", "-c", "head -c 200000000 /dev/zero | tail -n 1 > /dev/null").Run(); err == nil {
		t.Error("a program with 200 MB was not killed")
	}
}
