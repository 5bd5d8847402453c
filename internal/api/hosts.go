package api

import (
	"context"
	"net/http"
	"time"

	"outsight/internal/fleet"
	"outsight/internal/graph"
)

// hostsAnswer is how each host is used, and by which agent it is watched.
type hostsAnswer struct {
	From           time.Time `json:"from"`
	To             time.Time `json:"to"`
	CoveredSeconds float64   `json:"covered_seconds"`
	Hosts          []hostRow `json:"hosts"`
	// Numbers are the registry's that hosts have, with their queries.
	Numbers []number `json:"numbers"`
	// Probes are what was measured of the network between them.
	Probes       []fleet.Probe      `json:"probes"`
	Completeness fleet.Completeness `json:"completeness"`
}

type hostRow struct {
	host
	graph.HostUse
	// Version of the agent, LastHeard when it wrote last; nil where not known.
	Version   string     `json:"version,omitempty"`
	LastHeard *time.Time `json:"last_heard,omitempty"`
	// CoveredSeconds is how much of the window was observed on this host.
	CoveredSeconds float64 `json:"covered_seconds"`
	// AgentCPUCores and AgentMemoryBytes are what the agent itself takes.
	AgentCPUCores    *float64 `json:"agent_cpu_cores,omitempty"`
	AgentMemoryBytes *float64 `json:"agent_memory_bytes,omitempty"`
	// CountedShare is the share of received bytes that is counted in an edge; nil where none were received.
	CountedShare *float64 `json:"counted_share,omitempty"`
	// Dropped is how many updates were lost in full tables during the window.
	Dropped float64 `json:"dropped"`
	// Numbers are those of the answer's Numbers that could be had, by their keys.
	Numbers map[string]float64 `json:"numbers"`
}

// hostList answers GET /api/outsight/hosts: from and to as everywhere.
func (s *server) hostList(ctx context.Context, r *http.Request) (any, error) {
	from, to, err := s.window(r)
	if err != nil {
		return nil, err
	}
	g, data, err := s.build(ctx, from, to, graph.Options{MaxEdges: s.MaxEdges, Brief: true}, analysisColumns)
	if err != nil {
		return nil, err
	}
	answer := hostsAnswer{From: from, To: to, CoveredSeconds: g.CoveredSeconds, Hosts: data.hostRows(g),
		Completeness: data.completeness(g)}
	answer.Numbers = s.numbersOf(fleet.Numbers)
	if answer.Probes, err = s.probesOf(ctx, from, to, nil); err != nil {
		return nil, err
	}
	for i := range answer.Hosts {
		for _, l := range answer.Completeness.Tables {
			if l.Host == answer.Hosts[i].Name {
				answer.Hosts[i].Dropped += l.Dropped
			}
		}
	}
	return answer, nil
}

// host is a machine in the window.
type host struct {
	Name        string   `json:"name"`
	Cores       float64  `json:"cores"`
	MemoryBytes *float64 `json:"memory_bytes,omitempty"`
}

// machines are the hosts of the window.
func (d *windowData) machines() []host {
	all := []host{}
	for _, h := range d.hosts() {
		all = append(all, host{h.Name, h.Cores, h.MemoryBytes})
	}
	return all
}

// hostRows are all hosts, but for what they dropped. g is by containers.
func (d *windowData) hostRows(g *graph.Graph) []hostRow {
	rows := []hostRow{}
	all := d.hosts()
	for i := range all {
		h := &all[i]
		row := hostRow{host: host{h.Name, h.Cores, h.MemoryBytes}, Version: h.Version, Numbers: h.Numbers,
			CoveredSeconds: h.CoveredSeconds, AgentCPUCores: h.AgentCPUCores, AgentMemoryBytes: &h.AgentMemoryBytes,
			HostUse: g.Host(graph.HostCPU{Name: h.Name, Cores: h.Cores, Idle: h.Idle, Other: h.Other, Steal: h.Steal})}
		if at := h.LastHeard.UTC(); !at.Before(d.window.From) {
			row.LastHeard = &at
		}
		if share, ok := g.CountedShare[h.Name]; ok {
			row.CountedShare = &share
		}
		rows = append(rows, row)
	}
	return rows
}
