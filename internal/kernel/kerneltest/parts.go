package kerneltest

import (
	"testing"

	"outsight/internal/kernel/host"
)

// Shed gives a part of a module up.
func Shed(t *testing.T, m host.Module, part string) {
	t.Helper()
	if err := host.NewParts(m).Shed(part); err != nil {
		t.Fatal(err)
	}
}

// Restore takes it up again.
func Restore(t *testing.T, m host.Module, part string) {
	t.Helper()
	if err := host.NewParts(m).Restore(part); err != nil {
		t.Fatal(err)
	}
}
