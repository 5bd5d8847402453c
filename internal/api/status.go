package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"outsight/internal/fleet"
	"outsight/internal/graph"
	"outsight/internal/model"
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
	// Silent are hosts that were not heard of for half a minute or more, the last to fall silent first.
	Silent []silentHost `json:"silent"`
	// PromQL says of what series are made: "full", "containers" or "off".
	PromQL PromQL `json:"promql"`
	// Completeness is that of the last 5 minutes.
	Completeness fleet.Completeness `json:"completeness"`
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

// silentHost is a host of which there was no frame for a while.
type silentHost struct {
	Name      string    `json:"name"`
	LastHeard time.Time `json:"last_heard"`
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
		Drops: []drop{}, Programs: []programCost{}, Silent: []silentHost{}, PromQL: s.PromQL, Refusals: s.refusals(), Quotas: s.quotas()}
	if a.Sources == nil {
		a.Sources = []string{}
	}
	g, data, err := s.build(ctx, now.Add(-defaultFrom), now, graph.Options{MaxEdges: s.MaxEdges, Brief: true}, nil)
	if err != nil {
		return nil, err
	}
	a.Completeness = data.completeness(g)
	a.add(fleet.StatusOf(data.window))
	if err := s.addSilent(ctx, a); err != nil {
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
	return a, nil
}

// serverName is what a server's own bounds are listed under, beside the hosts.
const serverName = "server"

// add adds what agents told.
func (a *statusAnswer) add(s fleet.Status) {
	for i := range s.Hosts {
		h := &s.Hosts[i]
		memory := 0.0
		if h.MemoryBytes != nil {
			memory = *h.MemoryBytes
		}
		a.Hosts = append(a.Hosts, hostStatus{Name: h.Name, Kernel: h.Kernel, Cores: int(h.Cores),
			MemoryBytes: uint64(memory), CgroupLayout: h.CgroupLayout, AgentCPUSeconds: h.AgentCPUSeconds,
			AgentMemoryBytes: uint64(h.AgentMemoryBytes), UnmatchedShare: h.UnmatchedShare})
	}
	for _, f := range s.Features {
		a.Features = append(a.Features, feature{f.Host, f.Name, f.Purpose, f.State, f.Reason, f.Remedy, f.Required})
	}
	for _, d := range s.Drops {
		a.Drops = append(a.Drops, drop{d.Host, d.Name, d.Count, d.Used, d.Capacity})
	}
	for _, p := range s.Programs {
		a.Programs = append(a.Programs, programCost(p))
	}
}

const (
	// silentAfter is after how long without a frame a host is listed as silent.
	silentAfter = 30 * time.Second
	// maxSilent bounds the list.
	maxSilent = 1000
)

// addSilent adds the hosts that were not heard of lately, those first that fell silent last.
func (s *server) addSilent(ctx context.Context, a *statusAnswer) error {
	hosts, err := s.Log.Hosts(ctx, s.framesOf())
	if err != nil {
		return fmt.Errorf("reading which hosts are silent: %w", err)
	}
	for _, h := range hosts {
		if a.Now.Sub(h.Last) >= silentAfter {
			a.Silent = append(a.Silent, silentHost{h.Name, h.Last.UTC()})
		}
	}
	slices.SortStableFunc(a.Silent, func(x, y silentHost) int { return y.LastHeard.Compare(x.LastHeard) })
	a.Silent = a.Silent[:min(len(a.Silent), maxSilent)]
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
