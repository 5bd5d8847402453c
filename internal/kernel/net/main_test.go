package net

import (
	"testing"

	"outsight/internal/kernel/kerneltest"
)

func TestMain(m *testing.M) {
	kerneltest.Main(m, map[string]func(string) int{
		"listen":    func(string) int { return manyListeners() },
		"streams":   func(string) int { return untilInputEnds(holdStreams) },
		"datagrams": func(string) int { return untilInputEnds(sendToMany) },
	})
}

// open opens the module by itself.
func open(t *testing.T, o Options) *Net {
	t.Helper()
	o.WithoutEndpoints = o.WithoutEndpoints || kerneltest.Emulated()
	return openReading(t, o)
}

// openReading reads requests also on an emulated machine, which takes long to verify the parsers.
func openReading(t *testing.T, o Options) *Net {
	t.Helper()
	p := New(o)
	kerneltest.Open(t, p)
	return p
}
