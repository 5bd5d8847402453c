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
	if len(p.Features()) < len(p.Sched.Hooks())+len(p.Net.Hooks()) {
		t.Errorf("only %d features are reported", len(p.Features()))
	}
	required := 0
	for _, f := range p.Features() {
		if f.State == model.FeatureOff {
			continue // it was not asked for
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
