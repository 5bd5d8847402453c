package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"outsight/internal/fleet"
	"outsight/internal/graph"
	"outsight/internal/model"
)

// containersAnswer is a table of everything that used the hosts in a window.
type containersAnswer struct {
	From           time.Time          `json:"from"`
	To             time.Time          `json:"to"`
	CoveredSeconds float64            `json:"covered_seconds"`
	ErrorBound     float64            `json:"error_bound"`
	Hosts          []host             `json:"hosts"`
	Completeness   fleet.Completeness `json:"completeness"`
	Containers     []containerRow     `json:"containers"`
}

type containerRow struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Kind      graph.Kind `json:"kind"`
	Host      string     `json:"host"`
	Image     string     `json:"image,omitempty"`
	Runtime   string     `json:"runtime,omitempty"`
	Pod       string     `json:"pod,omitempty"`
	Namespace string     `json:"namespace,omitempty"`
	Workload  string     `json:"workload,omitempty"`
	// WorkloadKind is what the workload is, as in "Deployment".
	WorkloadKind string   `json:"workload_kind,omitempty"`
	Started      *float64 `json:"started,omitempty"`
	Gone         bool     `json:"gone,omitempty"`
	// Usage, Served and Called hold the numbers that could be had, by key.
	Usage  map[string]cell `json:"usage"`
	Served map[string]cell `json:"served,omitempty"`
	Called map[string]cell `json:"called,omitempty"`
}

// cell is a number with the query that tells nearly the same, where there are its series. The value is exact over the
// window; the query extrapolates, as PromQL does.
type cell struct {
	Value json.RawMessage `json:"value"`
	Unit  string          `json:"unit"`
	Query string          `json:"query,omitempty"`
}

func (s *server) containers(ctx context.Context, r *http.Request) (any, error) {
	from, to, err := s.window(r)
	if err != nil {
		return nil, err
	}
	g, data, err := s.build(ctx, from, to, graph.Options{MaxEdges: s.MaxEdges}, graphColumns)
	if err != nil {
		return nil, err
	}
	answer := containersAnswer{From: from, To: to, CoveredSeconds: g.CoveredSeconds, ErrorBound: g.ErrorBound,
		Hosts: data.machines(), Completeness: data.completeness(g), Containers: []containerRow{}}
	for _, n := range g.Nodes {
		if n.Usage == nil {
			continue
		}
		row := containerRow{ID: n.SeriesID, Name: n.Name, Kind: n.Kind, Host: n.Host, Image: n.Image, Runtime: n.Runtime,
			Pod: n.PodName, Namespace: n.PodNamespace, Workload: n.Workload, WorkloadKind: n.WorkloadKind,
			Started: n.StartedSeconds, Gone: n.Gone}
		row.Usage, err = s.cells(n.Usage, usageMatch(n), g.CoveredSeconds)
		if err == nil && n.Served != nil {
			row.Served, err = s.cells(n.Served, servedMatch(n, graph.ByContainer), g.CoveredSeconds)
		}
		if err == nil && n.Called != nil {
			row.Called, err = s.cells(n.Called, calledMatch(n, graph.ByContainer), g.CoveredSeconds)
		}
		if err != nil {
			return nil, fmt.Errorf("listing container %q: %w", n.Name, err)
		}
		answer.Containers = append(answer.Containers, row)
	}
	return answer, nil
}

// numbered has numbers: graph.Usage and graph.Side.
type numbered interface {
	Each(f func(n *model.Shown, value json.RawMessage)) error
}

// cells pairs numbers with their queries, by their JSON keys.
func (s *server) cells(of numbered, match string, seconds float64) (map[string]cell, error) {
	row := map[string]cell{}
	err := of.Each(func(n *model.Shown, value json.RawMessage) {
		if n.PromQL != "" {
			row[n.Key] = cell{Value: value, Unit: n.Unit, Query: s.known(expand(n.PromQL, match, seconds))}
		}
	})
	return row, err
}
