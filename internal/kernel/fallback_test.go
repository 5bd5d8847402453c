package kernel

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"outsight/internal/model"
)

// What older verifiers allow a chain of calls. Newer ones give the functions of some programs stacks of their
// own, so that loading them here does not prove it.
const (
	maxStack  = 512
	maxFrames = 8
)

func TestCallsFitOlderVerifiers(t *testing.T) {
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){
		"cgroups": loadCgroups, "edges": loadEdges, "datagrams": loadDatagrams, "tls": loadTls, "contention": loadContention, "reclaim": loadReclaim, "counters": loadCounters,
	} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for _, program := range spec.Programs {
			order, functions := functionsOf(program.Instructions)
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
func deepest(functions map[string]asm.Instructions, name string, takes func(asm.Instructions) int) (most int, chain []string) {
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

// A kernel whose verifier refuses HTTP/2 loses HTTP/2, and nothing else.
func TestRefusedHTTP2(t *testing.T) {
	p, err := Open(Options{Controller: controller(), types: kernelTypes, prepare: func(spec *ebpf.CollectionSpec) {
		for _, program := range spec.Programs {
			_, functions := functionsOf(program.Instructions)
			for i, ins := range functions["http2_walk"] {
				if ins.OpCode.JumpOp() == asm.Exit {
					functions["http2_walk"][i] = asm.Mov.Reg(asm.R0, asm.R10)
				}
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	for _, f := range p.Features() {
		ofEdges := slices.ContainsFunc(edgeHooks, func(h hook) bool { return h.name == f.Name })
		if absent := f.State == model.FeatureAbsent; ofEdges && absent != (f.Name == http2Hook.name) {
			t.Errorf("%s is %s: %s", f.Name, f.State, f.Reason)
		}
	}
	port := say(t, slices.Repeat([]turn{{[]string{"GET /users/7 HTTP/1.1\r\n\r\n"}, []string{okay}}}, 5)...)
	expect(t, p, port, map[string]uint64{"GET /users/{} 2xx": 5})
	at := serveEchoes(t)
	conn := callEchoes(t, at)
	for range 10 {
		if err := call(t.Context(), conn, "Sleep", 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		if c := edge(t, p, at, role).Counters; c.SentBytes == 0 || c.ReceivedBytes == 0 || c.Requests == 0 {
			t.Errorf("%v: %d bytes sent, %d received, %d requests", role, c.SentBytes, c.ReceivedBytes, c.Requests)
		}
	}
}
