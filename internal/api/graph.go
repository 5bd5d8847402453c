package api

import (
	"context"
	"net/http"
	"time"

	"outsight/internal/graph"
)

// graphAnswer is the service map of a window, with what the page needs to chart each number.
type graphAnswer struct {
	*graph.Graph
	Hosts        []host       `json:"hosts"`
	Completeness completeness `json:"completeness"`
	Numbers      numbers      `json:"numbers"`
	// Matches holds, for each node's ID, what follows an id label to select the node.
	Matches map[string]string `json:"matches"`
}

type numbers struct {
	Usage []number `json:"usage"`
	Side  []number `json:"side"`
}

func (s *server) graph(ctx context.Context, r *http.Request) (any, error) {
	from, to, err := s.window(r)
	if err != nil {
		return nil, err
	}
	g, data, err := s.build(ctx, from, to)
	if err != nil {
		return nil, err
	}
	answer := graphAnswer{Graph: g, Hosts: data.hosts(), Completeness: data.completeness(g),
		Numbers: numbers{usageNumbers, sideNumbers}, Matches: map[string]string{}}
	for _, n := range g.Nodes {
		answer.Matches[n.ID] = idMatch(n)
	}
	return answer, nil
}

func (s *server) build(ctx context.Context, from, to time.Time) (*graph.Graph, *windowData, error) {
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	data, err := s.read(ctx, from, to)
	if err != nil {
		return nil, nil, err
	}
	g := graph.FromSeries(data.input)
	g.Limit(s.MaxEdges)
	return g, &data, nil
}
