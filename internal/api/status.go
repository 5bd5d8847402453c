package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

// statusAnswer is what is watched, by what, and what is missing.
type statusAnswer struct {
	Version  string        `json:"version"`
	Now      time.Time     `json:"now"`
	Sources  []string      `json:"sources"`
	Hosts    []hostStatus  `json:"hosts"`
	Features []feature     `json:"features"`
	Drops    []drop        `json:"drops"`
	Programs []programCost `json:"programs"`
	Refusals []refusal     `json:"refusals"`
	Quotas   []quota       `json:"quotas"`
	// Completeness is that of the last 5 minutes.
	Completeness completeness `json:"completeness"`
}

type hostStatus struct {
	Name         string `json:"name"`
	Kernel       string `json:"kernel,omitempty"`
	Cores        int    `json:"cores"`
	MemoryBytes  uint64 `json:"memory_bytes"`
	CgroupLayout string `json:"cgroup_layout,omitempty"`
	// AgentCPUSeconds and AgentMemoryBytes are what the agent itself uses.
	AgentCPUSeconds  float64 `json:"agent_cpu_seconds"`
	AgentMemoryBytes uint64  `json:"agent_memory_bytes"`
	// UnmatchedShare is the share, 0 to 1, of edges whose other end is in no known container.
	UnmatchedShare float64 `json:"unmatched_share"`
}

type feature struct {
	Host     string             `json:"host"`
	Name     string             `json:"name"`
	Purpose  string             `json:"purpose"`
	State    model.FeatureState `json:"state"`
	Reason   string             `json:"reason,omitempty"`
	Remedy   string             `json:"remedy,omitempty"`
	Required bool               `json:"required,omitempty"`
}

type drop struct {
	Host     string `json:"host"`
	Name     string `json:"name"`
	Count    uint64 `json:"count"`
	Used     uint64 `json:"used,omitempty"`
	Capacity uint64 `json:"capacity,omitempty"`
}

// quota is what a tenant has of what the server divides among tenants.
type quota struct {
	Tenant     string `json:"tenant"`
	What       string `json:"what"`
	Used       int64  `json:"used"`
	Limit      int64  `json:"limit"`
	Guaranteed int64  `json:"guaranteed"`
	Refused    uint64 `json:"refused"`
}

// quotas are those of all tenants, or of the tenant whose view this is.
func (s *server) quotas() []quota {
	all := []quota{}
	if s.Quotas != nil {
		for _, q := range s.Quotas(s.Tenant) {
			all = append(all, quota(q))
		}
	}
	return append(all, s.queryQuotas()...)
}

type programCost struct {
	Host       string  `json:"host"`
	Name       string  `json:"name"`
	Runs       uint64  `json:"runs"`
	RunSeconds float64 `json:"run_seconds"`
}

func (s *server) status(ctx context.Context, _ *http.Request) (any, error) {
	now := s.Now().Truncate(time.Millisecond)
	a := &statusAnswer{Version: s.Version, Now: now, Sources: s.Sources, Hosts: []hostStatus{}, Features: []feature{},
		Drops: []drop{}, Programs: []programCost{}, Refusals: s.refusals(), Quotas: s.quotas()}
	if a.Sources == nil {
		a.Sources = []string{}
	}
	var snapshot *model.Snapshot
	if s.Snapshot != nil {
		snapshot = s.Snapshot()
	}
	if snapshot != nil {
		a.fromSnapshot(snapshot)
	} else if err := s.statusFromStore(ctx, a); err != nil {
		return nil, err
	}
	if s.Options.Features != nil && s.Tenant == "" {
		for _, f := range s.Options.Features() {
			a.Features = append(a.Features, feature{serverName, f.Name, f.Purpose, f.State, f.Reason, f.Remedy, f.Required})
		}
	}
	if s.Bounds != nil && s.Tenant == "" {
		for _, d := range s.Bounds(ctx) {
			a.Drops = append(a.Drops, drop{serverName, d.Name, d.Count, d.Used, d.Capacity})
		}
	}
	g, data, err := s.build(ctx, now.Add(-defaultFrom), now, graph.ByContainer, s.MaxEdges)
	if err != nil {
		return nil, err
	}
	a.Completeness = data.completeness(g)
	return a, nil
}

// serverName is what a server's own bounds are listed under, beside the hosts.
const serverName = "server"

func (a *statusAnswer) fromSnapshot(s *model.Snapshot) {
	name := s.Host.Name
	a.Hosts = append(a.Hosts, hostStatus{Name: name, Kernel: s.Host.Kernel, Cores: s.Host.Cores,
		MemoryBytes:  s.Host.MemoryBytes,
		CgroupLayout: s.Host.CgroupLayout, AgentCPUSeconds: float64(s.Self.CPUNS) / 1e9, AgentMemoryBytes: s.Self.RSSBytes,
		UnmatchedShare: model.UnmatchedShare(s.Edges)})
	for _, f := range s.Self.Features {
		a.Features = append(a.Features, feature{name, f.Name, f.Purpose, f.State, f.Reason, f.Remedy, f.Required})
	}
	for _, d := range s.Self.Drops {
		a.Drops = append(a.Drops, drop{name, d.Name, d.Count, d.Used, d.Capacity})
	}
	for _, p := range s.Self.Programs {
		a.Programs = append(a.Programs, programCost{name, p.Name, p.Runs, float64(p.RunTimeNS) / 1e9})
	}
}

// statusFromStore adds what remote agents reported, which is less: no reasons.
func (s *server) statusFromStore(ctx context.Context, a *statusAnswer) error {
	results, err := s.querier.Instant(ctx,
		`{`+model.NameLabel+`=~"outsight_.+",`+model.NameLabel+`!~"outsight_edge_.+"}`, a.Now)
	if err != nil {
		return fmt.Errorf("reading the status: %w", err)
	}
	hosts, drops, programs := map[string]*hostStatus{}, map[[2]string]*drop{}, map[[2]string]*programCost{}
	for _, r := range results {
		v, name, l := max(0, last(r)), r.Labels[otlp.LabelHost], r.Labels
		h := get(hosts, name, hostStatus{Name: name})
		of := [2]string{name, l[otlp.LabelName] + l[otlp.LabelProgram]}
		switch l[model.NameLabel] {
		case otlp.HostCores:
			h.Cores = int(v)
		case otlp.HostMemory:
			h.MemoryBytes = uint64(v)
		case otlp.AgentCPU:
			h.AgentCPUSeconds = v
		case otlp.AgentResidentMemory:
			h.AgentMemoryBytes = uint64(v)
		case otlp.EdgesUnmatched:
			h.UnmatchedShare = v
		case otlp.Drops:
			get(drops, of, drop{Host: name, Name: of[1]}).Count = uint64(v)
		case otlp.Entries:
			get(drops, of, drop{Host: name, Name: of[1]}).Used = uint64(v)
		case otlp.Capacity:
			get(drops, of, drop{Host: name, Name: of[1]}).Capacity = uint64(v)
		case otlp.ProgramRuns:
			get(programs, of, programCost{Host: name, Name: of[1]}).Runs = uint64(v)
		case otlp.ProgramRunTime:
			get(programs, of, programCost{Host: name, Name: of[1]}).RunSeconds = v
		case otlp.FeatureAvailable:
			state := model.FeatureAbsent
			if v == 1 {
				state = model.FeatureWorks
			}
			a.Features = append(a.Features, feature{Host: name, Name: l[otlp.LabelName], Purpose: l[otlp.LabelPurpose],
				State: state})
		}
	}
	a.Hosts, a.Drops, a.Programs = values(hosts), values(drops), values(programs)
	slices.SortFunc(a.Hosts, func(x, y hostStatus) int { return strings.Compare(x.Name, y.Name) })
	slices.SortFunc(a.Drops, func(x, y drop) int { return strings.Compare(x.Host+"\x00"+x.Name, y.Host+"\x00"+y.Name) })
	slices.SortFunc(a.Programs, func(x, y programCost) int {
		return strings.Compare(x.Host+"\x00"+x.Name,
			y.Host+"\x00"+y.Name)
	})
	slices.SortFunc(a.Features, func(x, y feature) int {
		return strings.Compare(x.Host+"\x00"+x.Name,
			y.Host+"\x00"+y.Name)
	})
	return nil
}

func get[K comparable, V any](m map[K]*V, key K, initial V) *V {
	if m[key] == nil {
		m[key] = &initial
	}
	return m[key]
}

func values[K comparable, V any](m map[K]*V) []V {
	all := make([]V, 0, len(m))
	for _, v := range m {
		all = append(all, *v)
	}
	return all
}
