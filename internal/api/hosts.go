package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

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
	heard, err := s.lastReported(ctx, from, to)
	if err != nil {
		return nil, err
	}
	answer := hostsAnswer{From: from, To: to, CoveredSeconds: g.CoveredSeconds, Hosts: []hostRow{},
		Completeness: data.completeness(g)}
	for i := range hostNumbers {
		answer.Numbers = append(answer.Numbers, numbersOf([]model.Shown{hostNumbers[i].Shown})...)
	}
	for _, h := range data.hosts() {
		row := hostRow{host: h, Version: data.label(otlp.BuildInfo, h.Name, otlp.LabelVersion),
			Numbers: map[string]float64{}}
		for i := range hostNumbers {
			if v := hostNumbers[i].of(data, h.Name); v != nil {
				row.Numbers[hostNumbers[i].Key] = *v
			}
		}
		var idle, other, steal *float64
		idle, row.CoveredSeconds = data.increaseRate(otlp.HostCPUIdle, h.Name, model.Label{})
		other, _ = data.increaseRate(otlp.HostCPUOther, h.Name, model.Label{})
		steal, _ = data.increaseRate(otlp.HostCPUSteal, h.Name, model.Label{})
		row.AgentCPUCores, _ = data.increaseRate(otlp.AgentCPU, h.Name, model.Label{})
		for _, r := range data.self[otlp.AgentResidentMemory] {
			if v := last(r); r.Labels[otlp.LabelHost] == h.Name {
				row.AgentMemoryBytes = &v
			}
		}
		row.HostUse = g.Host(graph.HostCPU{Name: h.Name, Cores: h.Cores, Idle: idle, Other: other, Steal: steal})
		if at, ok := heard[h.Name]; ok {
			row.LastHeard = &at
		}
		if share, ok := g.CountedShare[h.Name]; ok {
			row.CountedShare = &share
		}
		for _, l := range answer.Completeness.Tables {
			if l.Host == h.Name {
				row.Dropped += l.Dropped
			}
		}
		answer.Hosts = append(answer.Hosts, row)
	}
	return answer, nil
}

// increaseRate is by how much a counter of a host grew per second, and over how long it was seen; of a metric
// of several, the one with that label.
func (d *windowData) increaseRate(name, host string, label model.Label) (perSecond *float64, seconds float64) {
	var first, before model.Point
	sum, n := 0.0, 0
	for _, r := range d.self[name] {
		if !ofHost(r.Labels, host, label) {
			continue
		}
		for _, p := range r.Points {
			switch {
			case n == 0:
				first = p
			case p.Value >= before.Value:
				sum += p.Value - before.Value
			default:
				sum += p.Value // it restarted
			}
			before = p
			n++
		}
	}
	if seconds = before.Time.Sub(first.Time).Seconds(); seconds <= 0 {
		return nil, 0
	}
	sum /= seconds
	return &sum, seconds
}

// label is a label of a host's newest series of that name.
func (d *windowData) label(name, host, label string) (value string) {
	for _, r := range d.self[name] {
		if r.Labels[otlp.LabelHost] == host {
			value = r.Labels[label]
		}
	}
	return value
}

// lastReported is the time of each host's newest sample in the window.
func (s *server) lastReported(ctx context.Context, from, to time.Time) (map[string]time.Time, error) {
	window := to.Sub(from)
	step := max(window/200, time.Second)
	results, err := s.querier.Instant(ctx,
		fmt.Sprintf("max by (%s) (max_over_time(timestamp(%s)[%dms:%dms]) or timestamp(%[2]s))",
			otlp.LabelHost, otlp.AgentCPU, window.Milliseconds(), step.Milliseconds()), to)
	if err != nil {
		return nil, fmt.Errorf("reading when hosts were heard of: %w", err)
	}
	heard := map[string]time.Time{}
	for _, r := range results {
		if v := last(r); v > 0 {
			heard[r.Labels[otlp.LabelHost]] = time.UnixMilli(int64(v*1000 + 0.5)).UTC()
		}
	}
	return heard, nil
}
