package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"outsight/internal/graph"
)

// baselineAnswer is how fast each edge answered in the hour before a window: what is usual for it.
type baselineAnswer struct {
	From           time.Time        `json:"from"`
	To             time.Time        `json:"to"`
	CoveredSeconds float64          `json:"covered_seconds"`
	Edges          map[string]usual `json:"edges"`
}

// usual is of the end of an edge whose numbers are shown.
type usual struct {
	Transactions float64        `json:"transactions"`
	P50          *graph.Seconds `json:"p50,omitempty"`
	P90          *graph.Seconds `json:"p90,omitempty"`
	P99          *graph.Seconds `json:"p99,omitempty"`
}

const (
	baselineLength = time.Hour
	// A live window begins later each second, and its past hour is as good a minute later. So many answers are kept.
	baselineStep = time.Minute
	baselineKept = 16
)

// baselines are answers by grouping and end.
type baselines struct {
	mu      sync.Mutex
	entries map[baselineKey]baselineAnswer
}

type baselineKey struct {
	by graph.Grouping
	to time.Time
}

// baseline answers GET /api/outsight/baseline, with the parameters of the graph. It is a request of its own, so that
// the map does not wait for it.
func (s *server) baseline(ctx context.Context, r *http.Request) (any, error) {
	from, _, err := s.window(r)
	if err != nil {
		return nil, err
	}
	by, err := graph.ParseGrouping(r.URL.Query().Get("by"))
	if err != nil {
		return nil, badRequest("%w", err)
	}
	key := baselineKey{by, from.Truncate(baselineStep)}
	s.baselines.mu.Lock()
	a, known := s.baselines.entries[key]
	s.baselines.mu.Unlock()
	if known {
		return a, nil
	}
	g, _, err := s.build(ctx, key.to.Add(-baselineLength), key.to, graph.Options{By: by}, graphColumns)
	if err != nil {
		return nil, err
	}
	a = baselineAnswer{g.From, g.To, g.CoveredSeconds, make(map[string]usual, len(g.Edges))}
	for _, e := range g.Edges {
		if side := e.Best(); side != nil && side.Of(graph.Transactions) > 0 {
			// The graph's memory is used again.
			a.Edges[e.ID] = usual{side.Of(graph.Transactions), copied(side.P50), copied(side.P90), copied(side.P99)}
		}
	}
	s.baselines.keep(key, a)
	return a, nil
}

func copied(s *graph.Seconds) *graph.Seconds {
	if s == nil {
		return nil
	}
	seconds := *s
	return &seconds
}

func (b *baselines) keep(key baselineKey, a baselineAnswer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries == nil {
		b.entries = map[baselineKey]baselineAnswer{}
	}
	for len(b.entries) >= baselineKept {
		for old := range b.entries { // any: those in use come again
			delete(b.entries, old)
			break
		}
	}
	b.entries[key] = a
}
