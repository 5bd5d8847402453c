package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"outsight/internal/fleet"
	"outsight/internal/frame"
	"outsight/internal/graph"
)

// graphAnswer is the service map of a window, with what the page needs to chart each number.
type graphAnswer struct {
	*graph.Graph
	Hosts        []host             `json:"hosts"`
	Completeness fleet.Completeness `json:"completeness"`
	Numbers      numbers            `json:"numbers"`
	// Matches holds, for each node's and each edge's ID, the label matchers of its series.
	Matches     map[string]nodeMatches `json:"matches"`
	EdgeMatches map[string]string      `json:"edge_matches"`

	// describe fills in all but the graph.
	describe func()
}

// encode writes the lists of nodes and edges apart from the rest, which takes a fraction of the time, and the rest
// meanwhile.
func (a *graphAnswer) encode() (parts [][]byte, release func(), err error) {
	type plain graphAnswer
	var rest []byte
	var failed error
	nodes, edges, release, err := a.Graph.ListsJSON(func() {
		a.describe()
		rest, failed = json.Marshal(struct {
			*plain
			// They hide those of the graph.
			Nodes *[]any `json:"nodes,omitempty"`
			Edges *[]any `json:"edges,omitempty"`
		}{plain: (*plain)(a)})
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, release, err
	}
	return slices.Concat([][]byte{[]byte(`{"nodes":`)}, nodes, [][]byte{[]byte(`,"edges":`)}, edges,
		[][]byte{{','}, rest[1:], {'\n'}}), release, nil
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
	// Ends are those of both ends of an edge together, Probe what is measured between two hosts.
	Ends  []number `json:"ends"`
	Probe []number `json:"probe"`
}

func (s *server) graph(ctx context.Context, r *http.Request) (any, error) {
	o := graph.Options{MaxEdges: s.MaxEdges, Brief: true, Node: r.URL.Query().Get("node")}
	if h := heldOf(ctx); h != nil {
		o.Memory = &h.graph
	}
	g, data, err := s.grouped(ctx, r, o, graphColumns)
	if err != nil {
		return nil, err
	}
	by, err := graph.ParseGrouping(r.URL.Query().Get("by"))
	if err != nil {
		return nil, badRequest("%w", err)
	}
	answer := &graphAnswer{Graph: g, Numbers: allNumbers, Matches: map[string]nodeMatches{},
		EdgeMatches: map[string]string{}}
	answer.describe = func() {
		answer.Hosts, answer.Completeness = data.machines(), data.completeness(g)
		if s.PromQL == PromQLOff {
			answer.Numbers = numbersWithoutQueries
		}
		if g.OmittedEdges > 0 {
			answer.Completeness.State = fleet.Incomplete
		}
		s.match(answer, by)
	}
	return answer, nil
}

// match adds the matchers of the series that there are.
func (s *server) match(a *graphAnswer, by graph.Grouping) {
	if s.PromQL == PromQLOff {
		return
	}
	nodes := make(map[string]*graph.Node, len(a.Nodes))
	for _, n := range a.Nodes {
		m := nodeMatches{Usage: usageMatch(n)}
		if s.PromQL == PromQLFull {
			m.Served, m.Called = servedMatch(n, by), calledMatch(n, by)
		}
		a.Matches[n.ID] = m
		nodes[n.ID] = n
	}
	if s.PromQL != PromQLFull {
		return
	}
	for _, e := range a.Edges {
		a.EdgeMatches[e.ID] = edgeMatch(nodes[e.Client], nodes[e.Server], e.Transport, by)
	}
}

// grouped is the map that a request asks for: a window, what a node is (by=container, pod, process, workload, namespace
// or host) and the least share of all bytes that an edge is shown with (share=0 to 1).
func (s *server) grouped(ctx context.Context, r *http.Request, o graph.Options, only *frame.Projection) (*graph.Graph,
	*windowData, error) {
	from, to, err := s.window(r)
	if err != nil {
		return nil, nil, err
	}
	if o.By, err = graph.ParseGrouping(r.URL.Query().Get("by")); err != nil {
		return nil, nil, badRequest("%w", err)
	}
	share := 0.0
	if text := r.URL.Query().Get("share"); text != "" {
		if share, err = strconv.ParseFloat(text, 64); err != nil || !(share >= 0 && share <= 1) {
			return nil, nil, badRequest("share=%q, want a number from 0 to 1", text)
		}
	}
	g, data, err := s.build(ctx, from, to, o, only)
	if err == nil {
		g.HideBelow(share)
	}
	return g, data, err
}

// build is the graph of a window and of some columns; nil for all.
func (s *server) build(ctx context.Context, from, to time.Time, o graph.Options, only *frame.Projection) (*graph.Graph,
	*windowData, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	data, err := s.readOnly(ctx, from, to, nil, only)
	if err != nil {
		return nil, nil, err
	}
	return s.graphOf(data.window, o), data, nil
}

// held is what a request has until its answer is encoded: a slot among large computations, and the memory of frames and
// of the graph.
type held struct {
	leave  func()
	memory frame.Memory
	graph  graph.Memory
}

// release gives it back. It may be called again.
func (h *held) release() {
	h.memory.Release()
	h.graph.Release()
	if h.leave != nil {
		h.leave()
		h.leave = nil
	}
}

type heldKey struct{}

// hold adds a holder of resources to the context of a request.
func hold(ctx context.Context) (context.Context, *held) {
	h := &held{}
	return context.WithValue(ctx, heldKey{}, h), h
}

// heldOf is nil for what holds nothing.
func heldOf(ctx context.Context) *held {
	h, _ := ctx.Value(heldKey{}).(*held)
	return h
}

// enter waits for a slot for a large computation. A request with held resources keeps it until they are released.
func (s *server) enter(ctx context.Context) (leave func(), err error) {
	h := heldOf(ctx)
	if h != nil && h.leave != nil {
		return func() {}, nil
	}
	if leave, err = s.Busy.Enter(ctx, s.Tenant); err != nil {
		return nil, err
	}
	if h == nil {
		return leave, nil
	}
	h.leave = leave
	return func() {}, nil
}
