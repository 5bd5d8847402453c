package net

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"outsight/internal/kernel/host"
	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

func TestCallsFitOlderVerifiers(t *testing.T) {
	kerneltest.CallsFitOlderVerifiers(t, map[string]func() (*ebpf.CollectionSpec, error){
		"edges": loadEdges, "datagrams": loadDatagrams, "tls": loadTls,
	})
}

// A kernel whose verifier refuses HTTP/2 loses HTTP/2, and nothing else.
func TestRefusedHTTP2(t *testing.T) {
	p := New(Options{Prepare: func(spec *ebpf.CollectionSpec) {
		for _, program := range spec.Programs {
			_, functions := host.FunctionsOf(program.Instructions)
			for i, ins := range functions["http2_walk"] {
				if ins.OpCode.JumpOp() == asm.Exit {
					functions["http2_walk"][i] = asm.Mov.Reg(asm.R0, asm.R10)
				}
			}
		}
	}})
	t.Cleanup(func() { p.Close() })
	_ = p.Open(kerneltest.Kernel(t)) // its features tell
	for _, f := range p.Features() {
		ofEdges := slices.ContainsFunc(edgeHooks, func(h host.Hook) bool { return h.Name == f.Name })
		if absent := f.State == model.FeatureAbsent; ofEdges && absent != (f.Name == http2Hook.Name) {
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

// TestStepsOfVerification: the verifier takes no more than a million steps for a program, those of older kernels take
// more of them than newer ones, and each takes time when the agent starts.
func TestStepsOfVerification(t *testing.T) {
	p := openReading(t, Options{})
	counts := 0
	for _, program := range p.Programs() {
		info, err := program.Program.Info()
		if err != nil {
			t.Fatal(err)
		}
		steps, ok := info.VerifiedInstructions()
		if !ok {
			t.Fatal("the kernel does not tell how many steps it took") // before 5.16
		}
		if steps > 400_000 {
			t.Errorf("%s: %d steps of verification, want 400,000 or less", program.Name, steps)
		}
		if slices.ContainsFunc(slices.Concat(dataWays...), func(h host.Hook) bool { return h.Name == program.Name }) {
			t.Logf("%s: %d", program.Name, steps)
			counts++
		}
	}
	if counts < 2 {
		t.Errorf("%d programs count transfers, want one or more for each direction", counts)
	}
}
