package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

// contentionAnswer is what containers waited for a CPU behind in a window.
type contentionAnswer struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	*graph.Waits
}

// maxWaits bounds the containers of one answer.
const maxWaits = 200

// contention answers which containers others waited behind for a CPU: for all containers, for the one of node=ID or
// name, or with edge=ID for the server of an edge, whose waits are in the edge's latency. A node that did not wait, or
// is unknown, has no entry.
func (s *server) contention(ctx context.Context, r *http.Request) (any, error) {
	from, to, err := s.window(r)
	if err != nil {
		return nil, err
	}
	node := r.URL.Query().Get("node")
	if edge := r.URL.Query().Get("edge"); edge != "" {
		_, server, found := strings.Cut(edge, ">")
		if !found || node != "" {
			return nil, badRequest(`edge=%q, want the ID of an edge, as in "client>server", and no node`, edge)
		}
		node = strings.TrimSuffix(server, "/udp")
	}
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	waits, err := s.readWaits(ctx, from, to)
	if err != nil {
		return nil, err
	}
	if node != "" {
		only := waits.Of(node)
		waits.Containers = waits.Containers[:0]
		if only != nil {
			waits.Containers = append(waits.Containers, only)
		}
	}
	if len(waits.Containers) > maxWaits {
		waits.Containers = waits.Containers[:maxWaits]
	}
	return contentionAnswer{from, to, waits}, nil
}

// readWaits asks the store for the values at both ends of a window, and around restarts of agents.
func (s *server) readWaits(ctx context.Context, from, to time.Time) (*graph.Waits, error) {
	data := windowData{observed: to, input: graph.Input{From: from, To: to}}
	times, err := s.moments(ctx, &data)
	if err != nil {
		return nil, err
	}
	in := graph.WaitsInput{From: data.observed, To: to}
	for into, name := range map[*[]model.QueryResult]string{&in.Waits: otlp.ContainerRunQueueWaitBy,
		&in.Preemptions: otlp.ContainerPreemptionsBy} {
		series := map[string]*model.QueryResult{}
		for _, at := range times {
			results, err := s.querier.Instant(ctx, fmt.Sprintf("last_over_time(%s[%ds])", name, int(recent.Seconds())), at)
			if err != nil {
				return nil, fmt.Errorf("reading who disturbs whom at %s: %w", at.Format(time.RFC3339), err)
			}
			for _, r := range results {
				key := fmt.Sprint(r.Labels)
				if series[key] == nil {
					series[key] = &model.QueryResult{Labels: r.Labels}
				}
				series[key].Points = append(series[key].Points, r.Points...)
			}
		}
		for _, r := range series {
			*into = append(*into, *r)
		}
	}
	return graph.WaitsFromSeries(in), nil
}
