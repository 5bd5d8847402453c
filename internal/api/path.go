package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"outsight/internal/fleet"
	"outsight/internal/graph"
)

// pathAnswer is the operational analysis and the critical path of a window.
type pathAnswer struct {
	From           time.Time `json:"from"`
	To             time.Time `json:"to"`
	CoveredSeconds float64   `json:"covered_seconds"`
	*graph.Analysis
	CriticalPath *graph.Path `json:"critical_path,omitempty"`
	// Formulas say how the numbers are computed, by their names here.
	Formulas map[string]string `json:"formulas"`
	// ArrivalQuery is the arrival rate of all entries, with $window for a duration.
	ArrivalQuery string             `json:"arrival_query,omitempty"`
	Completeness fleet.Completeness `json:"completeness"`
}

var pathFormulas = map[string]string{
	"arrival_rate":     "λ = Σ requests/s from outside at the entries; of a resource, all that it serves",
	"parallel":         "min(cores, busy threads, quota); of a host's CPUs, cores - CPU time per second of what is not the application",
	"utilisation":      "U = CPU time per second / min(cores, busy threads, quota)",
	"demand":           "D = U / λ",
	"max_arrival_rate": "what the node serves per second / U",
	"saturation_rate":  "λ_sat = 1 / max D",
	"latency":          "Σ response times / requests, the mean",
	"served":           "the statistic of all that the node answers",
	"weight":           "the statistic of the calls from the hop before, as the server counts them",
	"whole":            "the statistic of what the entry answers; by the mean, Σ (network + own + others) over the hops",
	"calls":            "Π over the hops before: calls of the next one / requests served",
	"network":          "Σ (mean round trip - mean time to answer) of the calls, for one request at the entry",
	"threads":          "threads of the node, busy or not",
	"own":              "mean time to answer - Σ calls per request × mean round trip, times the calls for one request at the entry",
	"next":             "calls of the next hop per request × mean round trip",
	"others":           "Σ calls of other servers per request × mean round trip, times the calls for one request at the entry",
}

// path answers operational analysis and the critical path by percentile=mean, p50, p75, p90 or p99. former=ID,ID,... is
// the path of the answer before, by the IDs of its nodes or how they begin: it is kept unless another is clearly ahead.
func (s *server) path(ctx context.Context, r *http.Request) (any, error) {
	by, err := graph.ParseStatistic(r.URL.Query().Get("percentile"))
	if err != nil {
		return nil, badRequest("%w", err)
	}
	g, data, err := s.grouped(ctx, r, graph.Options{}, analysisColumns)
	if err != nil {
		return nil, err
	}
	a := g.Analyse(data.cores())
	return pathAnswer{g.From, g.To, g.CoveredSeconds, a, g.CriticalPath(by, a.Entries, previousWindow(r)), pathFormulas,
		s.arrivalQuery(g, a.Entries), data.completeness(g)}, nil
}

// previousWindow are the nodes of a path that was answered before.
func previousWindow(r *http.Request) []string {
	text := r.URL.Query().Get("former")
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
