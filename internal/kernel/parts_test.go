package kernel

import (
	"slices"
	"testing"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// Every kernel program costs something, and is of exactly one part.
func TestEveryProgramIsOfOnePart(t *testing.T) {
	p := open(t, Options{TLS: !kerneltest.Emulated(), Counters: countersIfAny(), WithoutEndpoints: kerneltest.Emulated()})
	of := map[string][]string{}
	for _, part := range p.Parts() {
		for _, program := range part.Programs {
			of[program] = append(of[program], part.Name)
		}
	}
	loaded := map[string]bool{}
	for _, cost := range p.ProgramCosts() {
		loaded[cost.Name] = true
		if len(of[cost.Name]) != 1 {
			t.Errorf("%s is of the parts %v, want one", cost.Name, of[cost.Name])
		}
	}
	for program, parts := range of {
		if !loaded[program] {
			t.Errorf("%s of %v is not loaded", program, parts)
		}
	}
	parts := p.Parts()
	fixed := slices.IndexFunc(parts, func(p model.Part) bool { return p.Fixed })
	if fixed < 0 || slices.ContainsFunc(parts[fixed:], func(p model.Part) bool { return !p.Fixed }) {
		t.Errorf("those that are shed must come before those that are not: %+v", parts)
	}
}

// countersIfAny are software events, which every machine has, where the kernel can count them.
func countersIfAny() CounterMode {
	if kerneltest.WithoutEdges() {
		return CountersOff
	}
	return CountersSoftware
}

// open opens all modules.
func open(t *testing.T, o Options) *Probes {
	t.Helper()
	o.Controller, o.Types = kerneltest.Controller(), kerneltest.Types
	p, err := Open(o)
	if err != nil {
		t.Fatalf("opening the probes (this test needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	kerneltest.Check(t, p.Features())
	return p
}
