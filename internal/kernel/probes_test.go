package kernel

import (
	"path/filepath"
	"testing"

	"outsight/internal/model"
)

func TestKernelWithoutTypes(t *testing.T) {
	p, err := Open(Options{KernelTypes: filepath.Join(t.TempDir(), "vmlinux")})
	if err != nil {
		t.Fatalf("nothing is left of the rest: %v", err)
	}
	if len(p.Features()) < len(cgroupHooks)+len(edgeHooks) {
		t.Errorf("only %d features are reported", len(p.Features()))
	}
	required := 0
	for _, f := range p.Features() {
		if f.State == model.FeatureOff {
			continue // nobody asked for it
		}
		if f.State != model.FeatureAbsent || f.Reason == "" || f.Remedy == "" {
			t.Errorf("%+v: want it absent, with reason and remedy", f)
		}
		if f.Required {
			required++
		}
	}
	if required == 0 {
		t.Error("the main job seems to work")
	}
	if _, err := p.ReadCgroups(); err == nil {
		t.Error("control groups are read without a program")
	}
	if _, err := p.ReadEdges(); err == nil {
		t.Error("edges are read without a program")
	}
	p.ForgetCgroup(1)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, open := <-p.Events(); open {
		t.Error("an event of a closed probe")
	}
}

// A program that the kernel refuses costs its feature and no other.
func TestRefusedProgram(t *testing.T) {
	p := open(t, Options{})
	k, err := readKernel(p.options)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := loadEdges()
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range p.edges.maps.Maps {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	spec.Programs["tcp_retransmit_skb"].AttachTo = "no_such_tracepoint"
	if err := p.attach(k, spec, p.edges.maps, retransmitHook); err == nil {
		t.Error("attached to a tracepoint that does not exist")
	}
	last := p.features[len(p.features)-1]
	if last.State != model.FeatureAbsent || last.Reason == "" || last.Remedy != retransmitHook.remedy {
		t.Errorf("got %+v, want it absent, with reason and remedy", last)
	}
	p.features = p.features[:len(p.features)-1]
	if _, err := p.ReadEdges(); err != nil {
		t.Errorf("the rest: %v", err)
	}
}

func TestFindHierarchy(t *testing.T) {
	const hybrid = "9:name=systemd:/\n8:pids:/\n4:memory:/docker/4f1d\n2:cpu,cpuacct:/\n0::/\n"
	f := func(text, controller string, want uint32, ok bool) {
		t.Helper()
		if got, err := findHierarchy(text, controller); got != want || (err == nil) != ok {
			t.Errorf("%q in %q: got %d, %v, want %d", controller, text, got, err, want)
		}
	}
	f(hybrid, "memory", 4, true)
	f(hybrid, "cpu", 2, true)
	f(hybrid, "blkio", 0, false)
	f("", "memory", 0, false)
	f("x:memory:/\n", "memory", 0, false)
	f("99999999999:memory:/\n", "memory", 0, false)
}

func FuzzFindHierarchy(f *testing.F) {
	f.Add("4:memory:/docker/4f1d\n0::/\n", "memory")
	f.Add("::::\n\n:", "")
	f.Fuzz(func(t *testing.T, text, controller string) {
		if id, err := findHierarchy(text, controller); err != nil && id != 0 {
			t.Errorf("id %d with error %v", id, err)
		}
	})
}
