package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"outsight/internal/graph"
	"outsight/internal/store"
)

// graphAnswer is the service map of a window, with what the page needs to chart each number.
type graphAnswer struct {
	*graph.Graph
	Hosts        []host       `json:"hosts"`
	Completeness completeness `json:"completeness"`
	Numbers      numbers      `json:"numbers"`
	// Matches holds, for each node's and each edge's ID, the label matchers of its series.
	Matches     map[string]nodeMatches `json:"matches"`
	EdgeMatches map[string]string      `json:"edge_matches"`
}

// nodeMatches select the series of a node's usage, and of the edges on which it is the server or
// the client.
type nodeMatches struct {
	Usage  string `json:"usage"`
	Served string `json:"served"`
	Called string `json:"called"`
}

type numbers struct {
	Usage []number `json:"usage"`
	Side  []number `json:"side"`
	// Endpoint are those of an endpoint, whose series have labels for protocol and endpoint.
	Endpoint []number `json:"endpoint"`
}

func (s *server) graph(ctx context.Context, r *http.Request) (any, error) {
	g, data, err := s.grouped(ctx, r)
	if err != nil {
		return nil, err
	}
	answer := graphAnswer{Graph: g, Hosts: data.hosts(), Completeness: data.completeness(g),
		Numbers: numbers{usageNumbers, sideNumbers, endpointNumbers}, Matches: map[string]nodeMatches{}, EdgeMatches: map[string]string{}}
	by, err := graph.ParseGrouping(r.URL.Query().Get("by"))
	if err != nil {
		return nil, badRequest("%w", err)
	}
	nodes := map[string]*graph.Node{}
	for _, n := range g.Nodes {
		answer.Matches[n.ID] = nodeMatches{usageMatch(n), servedMatch(n, by), calledMatch(n, by)}
		nodes[n.ID] = n
	}
	for _, e := range g.Edges {
		answer.EdgeMatches[e.ID] = edgeMatch(nodes[e.Client], nodes[e.Server], e.Transport, by)
	}
	return answer, nil
}

// grouped is the map that a request asks for: a window, what a node is (by=container, pod, process,
// workload, namespace or host) and the least share of all bytes that an edge is shown with (share=0 to 1).
func (s *server) grouped(ctx context.Context, r *http.Request) (*graph.Graph, *windowData, error) {
	from, to, err := s.window(r)
	if err != nil {
		return nil, nil, err
	}
	by, err := graph.ParseGrouping(r.URL.Query().Get("by"))
	if err != nil {
		return nil, nil, badRequest("%w", err)
	}
	share := 0.0
	if text := r.URL.Query().Get("share"); text != "" {
		if share, err = strconv.ParseFloat(text, 64); err != nil || !(share >= 0 && share <= 1) {
			return nil, nil, badRequest("share=%q, want a number from 0 to 1", text)
		}
	}
	g, data, err := s.build(ctx, from, to, by)
	if err == nil {
		g.HideBelow(share)
	}
	return g, data, err
}

// maxHeatNodes bounds the nodes of a heat map.
const maxHeatNodes = 200

// heatAnswer is the matrix of bytes between the nodes of a window.
type heatAnswer struct {
	From           time.Time `json:"from"`
	To             time.Time `json:"to"`
	CoveredSeconds float64   `json:"covered_seconds"`
	*graph.HeatMap
	Completeness completeness `json:"completeness"`
}

func (s *server) heatMap(ctx context.Context, r *http.Request) (any, error) {
	g, data, err := s.grouped(ctx, r)
	if err != nil {
		return nil, err
	}
	return heatAnswer{g.From, g.To, g.CoveredSeconds, g.HeatMap(maxHeatNodes), data.completeness(g)}, nil
}

// build is the graph of a window, or of one near it that the store has at hand.
func (s *server) build(ctx context.Context, from, to time.Time, by graph.Grouping) (*graph.Graph, *windowData, error) {
	from, to = s.near(from, to)
	return s.buildOf(ctx, from, to, by)
}

// buildOf is the graph of a window.
func (s *server) buildOf(ctx context.Context, from, to time.Time, by graph.Grouping) (*graph.Graph, *windowData, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	data, err := s.read(ctx, from, to)
	if err != nil {
		return nil, nil, err
	}
	data.input.By, data.input.Own, data.input.MaxEdges = by, true, s.MaxEdges
	if all, ok := ctx.Value(held{}).(*[]*store.Values); ok {
		*all = append(*all, data.values) // whose histograms the graph has
	}
	g := graph.FromSeries(data.input)
	data.forgetSeries()
	g.ErrorBound = max(g.ErrorBound, s.RelativeError)
	return g, &data, nil
}

// held is, in the context of a request, the list of values that are held until it is answered.
type held struct{}

// hold holds values until release.
func hold(ctx context.Context) (_ context.Context, release func()) {
	var all []*store.Values
	return context.WithValue(ctx, held{}, &all), func() {
		for _, v := range all {
			v.Release()
		}
	}
}

// enter waits for room to compute something large.
func (s *server) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.Busy <- struct{}{}:
		return func() { <-s.Busy }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
