package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/agent"
	"outsight/internal/container"
	"outsight/internal/frame"
	"outsight/internal/kernel"
	"outsight/internal/model"
)

// TestDoctorDocument holds the fields that scripts read.
func TestDoctorDocument(t *testing.T) {
	var out, errOut bytes.Buffer
	if code := run([]string{"doctor", "--output", "json", "--socket", t.TempDir() + "/none"}, &out, &errOut); code != 0 {
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
		BoundsOf string `json:"bounds_of"`
		Bounds   []struct {
			Name     string  `json:"name"`
			Used     *uint64 `json:"used"`
			Capacity *uint64 `json:"capacity"`
			Dropped  *uint64 `json:"dropped"`
		} `json:"bounds"`
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
		case f.State == model.FeatureWorks && f.Reason == "" && f.Remedy != "":
			t.Errorf("feature %+v works as well as it can and has a remedy", f)
		case f.State == model.FeatureAbsent && (f.Reason == "" || f.Remedy == ""):
			t.Errorf("feature %+v is absent without a reason and a remedy", f)
		case f.State == model.FeatureOff && (f.Reason == "" || f.Remedy == ""):
			t.Errorf("feature %+v is off without a reason and a remedy", f)
		case f.State != model.FeatureWorks && f.State != model.FeatureAbsent && f.State != model.FeatureOff:
			t.Errorf("feature %+v has an unknown state", f)
		}
	}
	for _, name := range []string{"tp_btf/sched_switch", "CAP_BPF+CAP_PERFMON", "docker", "cgroup/memory", "snapshots",
		"uprobe/openssl", "uprobe/go-tls", "kubernetes"} {
		if !seen[name] {
			t.Errorf("feature %q is not in the document", name)
		}
	}
	bounds := make(map[string]uint64)
	for _, b := range got.Bounds {
		if b.Used == nil || b.Capacity == nil || b.Dropped == nil {
			t.Errorf("bound %q lacks a number", b.Name)
			continue
		}
		bounds[b.Name] = *b.Capacity
	}
	for _, name := range []string{"cgroups", "edges", "connection_pairs", "listeners", "container/containers",
		"container/open-files"} {
		if bounds[name] == 0 {
			t.Errorf("the capacity of %q is not in the document: %v", name, bounds)
		}
	}
	if got.BoundsOf != "this attempt" {
		t.Errorf("the bounds are of %q, want those of the attempt where no agent runs", got.BoundsOf)
	}
}

// TestDoctorAsksTheAgent: the tables of the agent that runs are shown, not those of an attempt.
func TestDoctorAsksTheAgent(t *testing.T) {
	path := t.TempDir() + "/agent.sock"
	l, err := agent.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() {
		served <- agent.ServeHTTP(ctx, l, agent.SocketHandler(func() *frame.Frame {
			return frame.NewBuilder(time.Now()).Build(&model.Snapshot{Time: time.Now(), Self: model.SelfSample{
				Drops: []model.Drop{{Name: "edges", Count: 12, Capacity: 64, Used: 63}, {Name: "cgroup_events", Count: 5}}}})
		}, nil), discard())
	}()
	r := report{Works: true}
	r.addBounds(t.Context(), path)
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	if err := r.write(&out, "text"); err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(out.String()[strings.Index(out.String(), "Bounded"):])
	want := strings.Fields("Bounded tables of agent at " + path +
		" used capacity dropped cgroup_events – – 5 edges 63 64 12 The main job can be done: 0 of 0 work.")
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// blind is a host whose kernel tells nothing.
type blind struct{}

func (blind) ReadCgroups() ([]model.CgroupCounters, error)  { return nil, nil }
func (blind) ReadEdges() ([]model.KernelEdge, error)        { return nil, errors.New("the table is away") }
func (blind) ReadListeners() ([]model.Listener, error)      { return nil, nil }
func (blind) Collect() (none container.Collection)          { return none }
func (blind) Lookup(model.CgroupID) (none *model.Container) { return none }

func (blind) Find(model.CgroupID) (none *model.Container, known bool) { return none, true }
func (blind) HandleEvent(model.CgroupEvent)                           {}

// TestDoctorNoticesCounters: what cannot be read is not said to work.
func TestDoctorNoticesCounters(t *testing.T) {
	snapshot, err := tryHost(t.Context(), agent.New(agent.Sources{Counters: blind{}, Registry: blind{}}, agent.Options{}))
	if snapshot == nil || err == nil || !strings.Contains(err.Error(), "the table is away") {
		t.Errorf("got snapshot %v and error %v, want one, and why it lacks edges", snapshot, err)
	}
}

// TestDoctorWithoutKernelPrograms: the main job cannot be done, and the rest is told nevertheless.
func TestDoctorWithoutKernelPrograms(t *testing.T) {
	r := examine(t.Context(), agent.HostOptions{Kernel: kernel.Options{KernelTypes: t.TempDir() + "/none"}})
	state := make(map[string]model.FeatureState)
	for _, f := range r.Features {
		state[f.Name] = f.State
	}
	if r.Works || state["tp_btf/sched_switch"] != model.FeatureAbsent || state["snapshots"] != model.FeatureAbsent ||
		state["cgroup/memory"] != model.FeatureWorks {
		t.Errorf("works %v, features %v", r.Works, state)
	}
	if len(r.Bounds) == 0 {
		t.Error("the tables that are there have no bounds")
	}
}
