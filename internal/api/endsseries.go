package api

import (
	"context"
	"slices"
	"time"

	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

// mostEndsEdges bounds the edges of a tenant that have series of both ends: those with the most bytes.
const mostEndsEdges = 1000

// EndsSeries makes the series of both ends of edges together for a tenant, "" without tenants: what the map of the time
// since over before now tells then. They have no time. Of the options those are used that are about frames.
func EndsSeries(o Options, over time.Duration) func(ctx context.Context, tenant string, now time.Time) ([]model.Series, error) {
	return seriesOfFrames(o, func(ctx context.Context, s *server, to time.Time) ([]model.Series, error) {
		leave, err := s.enter(ctx)
		if err != nil {
			return nil, err
		}
		defer leave()
		whole, err := s.read(ctx, to.Add(-over), to, nil)
		if err != nil {
			return nil, err
		}
		// What a host told last stays in windows that begin later, with the packets of that time.
		w := *whole.window
		w.Hosts = slices.DeleteFunc(slices.Clone(w.Hosts), func(h frame.HostSpans) bool {
			return len(h.Spans) == 0 || h.Spans[len(h.Spans)-1].After.Time.Before(w.From)
		})
		return seriesOfEnds(s.graphOf(&w, graph.Options{Brief: true, MaxEdges: mostEndsEdges})), nil
	})
}

// seriesOfEnds are those of the edges of a graph that have numbers of both ends.
func seriesOfEnds(g *graph.Graph) (all []model.Series) {
	nodes := make(map[string]*graph.Node, len(g.Nodes))
	for _, n := range g.Nodes {
		nodes[n.ID] = n
	}
	for _, e := range g.Edges {
		client, server := nodes[e.Client], nodes[e.Server]
		if client == nil || server == nil || client.Host == "" || server.Host == "" {
			continue // an end that is no container of a host, or the sum of several
		}
		base := []model.Label{model.NewLabel(otlp.LabelTransport, e.Transport),
			model.NewLabel(otlp.LabelClient, client.Name), model.NewLabel(otlp.LabelClientID, client.SeriesID),
			model.NewLabel(model.ClientHostLabel, client.Host),
			model.NewLabel(otlp.LabelServer, server.Name), model.NewLabel(otlp.LabelServerID, server.SeriesID),
			model.NewLabel(model.ServerHostLabel, server.Host)}
		for _, of := range endsMetrics {
			if v, ok := e.EndsNumber(of.key); ok && (of.split || client.Host != server.Host) {
				all = append(all, model.Series{Name: of.name, Kind: model.Gauge, Value: v,
					Labels: model.SortedLabels(slices.Concat(of.labels, base)...)})
			}
		}
	}
	return all
}

// endsMetric is a number of both ends that has a series: of the split, or else between two hosts.
type endsMetric struct {
	key, name string
	labels    []model.Label
	split     bool
}

// endsMetrics are by keys of model.EndsNumbers. Delays within one host are histograms of its agent.
var endsMetrics = func() (all []endsMetric) {
	for part, key := range map[string]string{"client": "client_seconds", "network_there": "network_there_seconds",
		"server": "server_seconds", "network_back": "network_back_seconds", "network_both": "network_both_seconds"} {
		all = append(all, endsMetric{key, model.EndsTime, []model.Label{model.NewLabel(model.PartLabel, part)}, true})
	}
	for _, direction := range []string{"there", "back"} {
		way := model.NewLabel(model.DirectionLabel, direction)
		for _, q := range []struct{ key, value string }{{"p50", "0.5"}, {"p99", "0.99"}} {
			labels := []model.Label{way, model.NewLabel(model.QuantileLabel, q.value)}
			all = append(all, endsMetric{"delay_" + direction + "_" + q.key, model.EndsDelay, labels, false},
				endsMetric{"above_minimum_" + direction + "_" + q.key, model.EndsAboveMinimum, labels, false})
			for _, part := range []string{"sender_stack", "wire", "receiver_stack"} {
				all = append(all, endsMetric{part + "_" + direction + "_" + q.key, model.EndsPart,
					append(slices.Clone(labels), model.NewLabel(model.PartLabel, part)), false})
			}
		}
		labels := []model.Label{way}
		all = append(all, endsMetric{"delay_" + direction + "_error", model.EndsDelayError, labels, false},
			endsMetric{"jitter_" + direction, model.EndsJitter, labels, false},
			endsMetric{"matched_" + direction, model.EndsMatched, labels, false})
	}
	return all
}()
