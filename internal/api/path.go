package api

import (
	"context"
	"net/http"
	"time"

	"outsight/internal/graph"
)

// pathAnswer is what operational analysis and the critical path tell of a window.
type pathAnswer struct {
	From           time.Time `json:"from"`
	To             time.Time `json:"to"`
	CoveredSeconds float64   `json:"covered_seconds"`
	*graph.Analysis
	CriticalPath *graph.Path `json:"critical_path,omitempty"`
	// Formulas say how the numbers are computed, by their names here.
	Formulas map[string]string `json:"formulas"`
	// ArrivalQuery is the arrival rate of all entries, with $window for a duration.
	ArrivalQuery string       `json:"arrival_query,omitempty"`
	Completeness completeness `json:"completeness"`
}

var pathFormulas = map[string]string{
	"arrival_rate":     "λ = Σ requests/s from outside at the entries; of a resource, all that it serves",
	"parallel":         "min(cores, busy threads, quota); of a host's CPUs, cores - CPU time per second of what is not the application",
	"utilisation":      "U = CPU time per second / min(cores, busy threads, quota)",
	"demand":           "D = U / λ",
	"max_arrival_rate": "what the node serves per second / U",
	"saturation_rate":  "λ_sat = 1 / max D",
	"latency":          "Σ response times / requests, the mean",
	"threads":          "threads of the node, busy or not",
	"own":              "mean time to answer - Σ calls per request × mean round trip",
	"next":             "calls of the next hop per request × mean round trip",
	"others":           "Σ calls of other servers per request × mean round trip",
	"score":            "Σ of the percentile over the hops",
}

// path answers operational analysis and the critical path by percentile=p50, p75, p90 or p99.
func (s *server) path(ctx context.Context, r *http.Request) (any, error) {
	percentile, err := graph.ParsePercentile(r.URL.Query().Get("percentile"))
	if err != nil {
		return nil, badRequest("%w", err)
	}
	g, data, err := s.grouped(ctx, r, allEdges)
	if err != nil {
		return nil, err
	}
	a := g.Analyse(data.cores())
	return pathAnswer{g.From, g.To, g.CoveredSeconds, a, g.CriticalPath(percentile, a.Entries), pathFormulas, arrivalQuery(g, a.Entries), data.completeness(g)}, nil
}
