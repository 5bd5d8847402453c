package api

import (
	"context"
	"net/http"
	"time"

	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

// hostsAnswer is how each host is used, and by which agent it is watched.
type hostsAnswer struct {
	From           time.Time `json:"from"`
	To             time.Time `json:"to"`
	CoveredSeconds float64   `json:"covered_seconds"`
	Hosts          []hostRow `json:"hosts"`
	// Numbers are the registry's that hosts have, with their queries.
	Numbers      []number     `json:"numbers"`
	Completeness completeness `json:"completeness"`
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
	g, data, err := s.build(ctx, from, to, graph.ByContainer, s.MaxEdges)
	if err != nil {
		return nil, err
	}
	answer := hostsAnswer{From: from, To: to, CoveredSeconds: g.CoveredSeconds, Hosts: data.hostRows(g),
		Completeness: data.completeness(g)}
	for i := range hostNumbers {
		answer.Numbers = append(answer.Numbers, s.numbersOf([]model.Shown{hostNumbers[i].Shown})...)
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

// The columns of hosts that the views show.
var (
	coresColumn, memoryColumn         = hostColumn("cores"), hostColumn("memory")
	idleColumn, otherColumn           = hostColumn("cpu_idle"), hostColumn("cpu_other")
	stealColumn                       = hostColumn("cpu_steal")
	agentCPUColumn, agentMemoryColumn = hostColumn("agent_cpu"), hostColumn("agent_memory")
	unmatchedColumn                   = hostColumn("edges_unmatched")
)

func hostColumn(name string) int { return frame.Column(frame.Hosts, name) }

// host is a machine in the window.
type host struct {
	Name        string   `json:"name"`
	Cores       float64  `json:"cores"`
	MemoryBytes *float64 `json:"memory_bytes,omitempty"`
}

func (h newestSpan) host() host {
	cores, _ := hostValue(h.frame, coresColumn)
	return host{Name: h.Host, Cores: cores, MemoryBytes: hostLevel(h.frame, memoryColumn)}
}

func (d *windowData) hosts() []host {
	all := []host{}
	for _, h := range d.newest() {
		all = append(all, h.host())
	}
	return all
}

// hostRows are all hosts, but for what they dropped. g is by containers.
func (d *windowData) hostRows(g *graph.Graph) []hostRow {
	rows, versions := []hostRow{}, map[string]string{}
	own := d.own()
	for i := range own {
		if own[i].metric == otlp.BuildInfo {
			versions[own[i].host] = own[i].label(otlp.LabelVersion)
		}
	}
	for _, h := range d.newest() {
		row := hostRow{host: h.host(), Version: versions[h.Host], Numbers: map[string]float64{},
			CoveredSeconds: observed(h.HostSpans).Seconds(), AgentCPUCores: hostRate(h.HostSpans, agentCPUColumn),
			AgentMemoryBytes: hostLevel(h.frame, agentMemoryColumn)}
		for i := range hostNumbers {
			if v := hostNumbers[i].of(h); v != nil {
				row.Numbers[hostNumbers[i].Key] = *v
			}
		}
		row.HostUse = g.Host(graph.HostCPU{Name: h.Host, Cores: row.Cores, Idle: hostRate(h.HostSpans, idleColumn),
			Other: hostRate(h.HostSpans, otherColumn), Steal: hostRate(h.HostSpans, stealColumn)})
		if at := h.frame.Time.UTC(); !at.Before(d.from) {
			row.LastHeard = &at
		}
		if share, ok := g.CountedShare[h.Host]; ok {
			row.CountedShare = &share
		}
		rows = append(rows, row)
	}
	return rows
}
