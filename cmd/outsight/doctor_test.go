package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"outsight/internal/model"
)

// TestDoctorDocument holds the fields that scripts read.
func TestDoctorDocument(t *testing.T) {
	var out, errOut bytes.Buffer
	if code := run([]string{"doctor", "--output", "json"}, &out, &errOut); code != 0 {
		t.Fatalf("exit code %d: %s", code, &errOut)
	}
	var got struct {
		Works *bool `json:"works"`
		Host  struct {
			Name         string `json:"name"`
			Kernel       string `json:"kernel"`
			Cores        int    `json:"cores"`
			MemoryBytes  uint64 `json:"memory_bytes"`
			CgroupLayout string `json:"cgroup_layout"`
		} `json:"host"`
		Features []struct {
			Name     string             `json:"name"`
			Purpose  string             `json:"purpose"`
			State    model.FeatureState `json:"state"`
			Required *bool              `json:"required"`
			Reason   string             `json:"reason"`
			Remedy   string             `json:"remedy"`
		} `json:"features"`
	}
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Works == nil || !*got.Works || got.Host.Name == "" || got.Host.Kernel == "" || got.Host.Cores < 1 ||
		got.Host.MemoryBytes == 0 || got.Host.CgroupLayout == "" {
		t.Errorf("got %+v, want a host on which the main job can be done", got)
	}
	seen := make(map[string]bool)
	for _, f := range got.Features {
		if seen[f.Name] {
			t.Errorf("feature %q is there twice", f.Name)
		}
		seen[f.Name] = true
		switch {
		case f.Name == "" || f.Purpose == "" || f.Required == nil:
			t.Errorf("feature %+v lacks a field", f)
		case f.State == model.FeatureWorks && (f.Reason != "" || f.Remedy != ""):
			t.Errorf("feature %+v works and has a reason why not", f)
		case f.State == model.FeatureAbsent && (f.Reason == "" || f.Remedy == ""):
			t.Errorf("feature %+v is absent without a reason and a remedy", f)
		case f.State != model.FeatureWorks && f.State != model.FeatureAbsent:
			t.Errorf("feature %+v has an unknown state", f)
		}
	}
	for _, name := range []string{"tp_btf/sched_switch", "CAP_BPF+CAP_PERFMON", "docker", "files/memory"} {
		if !seen[name] {
			t.Errorf("feature %q is not in the document", name)
		}
	}
}
