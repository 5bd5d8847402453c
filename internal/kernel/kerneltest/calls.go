package kerneltest

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"outsight/internal/kernel/host"
)

// What older verifiers allow a chain of calls. Newer ones give the functions of some programs stacks of their
// own, so that loading them here does not prove it.
const (
	maxStack  = 512
	maxFrames = 8
)

// CallsFitOlderVerifiers fails a test if a program of one of the objects takes more than older verifiers allow.
func CallsFitOlderVerifiers(t *testing.T, objects map[string]func() (*ebpf.CollectionSpec, error)) {
	t.Helper()
	for name, load := range objects {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for _, program := range spec.Programs {
			order, functions := host.FunctionsOf(program.Instructions)
			if stack, chain := deepest(functions, order[0], usedStack); stack > maxStack {
				t.Errorf("%s: %d bytes of stack, %d are allowed: %v", name, stack, maxStack, chain)
			}
			if frames, chain := deepest(functions, order[0], func(asm.Instructions) int { return 1 }); frames > maxFrames {
				t.Errorf("%s: %d functions deep, %d are allowed: %v", name, frames, maxFrames, chain)
			}
		}
	}
}

// deepest is the chain of calls that takes most.
func deepest(functions map[string]asm.Instructions, name string, takes func(asm.Instructions) int) (most int,
	chain []string) {
	for _, callee := range functions[name].FunctionReferences() {
		if n, c := deepest(functions, callee, takes); n > most {
			most, chain = n, c
		}
	}
	return most + takes(functions[name]), append([]string{name}, chain...)
}

// usedStack is what a function takes of the stack, as the kernel counts it: by what it reaches below the
// frame pointer, in units of 32 bytes.
func usedStack(function asm.Instructions) int {
	used := 1
	for i, ins := range function {
		switch {
		case ins.Dst == asm.R10 || ins.Src == asm.R10 && ins.OpCode.Class().IsLoad():
			used = max(used, -int(ins.Offset))
		case ins.Src == asm.R10 && i+1 < len(function):
			if next := function[i+1]; next.OpCode == asm.Add.Op(asm.ImmSource) && next.Dst == ins.Dst {
				used = max(used, -int(next.Constant))
			}
		}
	}
	return (used + 31) / 32 * 32
}
