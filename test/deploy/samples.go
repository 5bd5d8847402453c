package deploy

import (
	"slices"
	"strings"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

// busy is a snapshot in which every counter that a dashboard or an alert reads grows with the
// seconds, and histograms too.
func busy(start time.Time, second int) *model.Snapshot {
	n := uint64(second + 1)
	h := func() *model.Histogram {
		return &model.Histogram{Count: 3 * n, SumNS: 6e9 * n, Offset: 0, Buckets: []uint64{n, 0, 2 * n}}
	}
	c := &model.Container{ID: "4f1d", Name: "web", Image: "web:1", Runtime: model.Docker, Started: start.Add(-time.Hour)}
	peer := &model.Container{ID: "77ab", Name: "db", Image: "db:1", Runtime: model.Docker, Started: start.Add(-time.Hour)}
	counters := func() model.EdgeCounters {
		return model.EdgeCounters{SentBytes: 100 * n, ReceivedBytes: 200 * n, Latency: h(), RTT: h()}
	}
	return &model.Snapshot{
		Time: start.Add(time.Duration(second) * time.Second), Host: model.Host{Name: "node", Cores: 4, MemoryBytes: 8 << 30},
		Containers: []model.ContainerSample{{Container: c, CPU: &model.CPUCounters{UsageNS: 1e8 * n, Voluntary: n,
			Involuntary: n, RunQueue: h()}, Forward: &model.ForwardCounters{Packets: n, Took: h()}}},
		Edges: []model.Edge{
			{Side: model.RoleClient, Client: model.Peer{Container: c}, Server: model.Peer{Container: peer},
				Counters: counters()},
			{Side: model.RoleServer, Client: model.Peer{Container: c}, Server: model.Peer{Container: peer},
				Counters: counters()},
		},
	}
}

// Everything is the batch of a second after start: of a small snapshot, and of each metric of the table that the
// snapshot has no number for, under the labels that its group has. Every counter grows with the seconds.
func Everything(start time.Time, second int) []model.Series {
	batch := otlp.FromFrame(frame.Of(busy(start, second)), otlp.SeriesOptions{})
	have := map[string]bool{}
	for _, s := range batch {
		have[s.Name] = true
	}
	at := start.Add(time.Duration(second) * time.Second)
	for _, m := range otlp.Metrics() {
		if have[m.Name] {
			continue
		}
		pairs := []string{"host", "node", "name", "web"}
		switch {
		case strings.HasPrefix(m.Name, "container_"):
			pairs = []string{"host", "node", "id", "4f1d", "image", "web:1", "name", "web"}
		case strings.HasPrefix(m.Name, "outsight_edge_"), strings.HasPrefix(m.Name, "outsight_endpoint_"):
			pairs = []string{"client", "web", "endpoint", "GET /", "host", "node", "server", "db", "side", "client",
				"status", "5xx"}
		}
		for _, side := range []string{"client", "server"} {
			var labels []model.Label
			for i := 0; i < len(pairs); i += 2 {
				l := model.Label{Name: pairs[i], Value: pairs[i+1]}
				if l.Name == "side" {
					l.Value = side
				}
				labels = append(labels, l)
			}
			s := model.Series{Name: m.Name, Kind: m.Kind, Time: at, Labels: labels, Value: float64(second+1) * 20}
			if m.Kind == model.HistogramSeries {
				s.Histogram = &model.Histogram{Count: uint64(second + 1), SumNS: uint64(second+1) * 2e9, Offset: 32,
					Buckets: []uint64{uint64(second + 1)}}
			}
			batch = append(batch, s)
			if !strings.HasPrefix(m.Name, "outsight_edge_") && !strings.HasPrefix(m.Name, "outsight_endpoint_") {
				break
			}
		}
	}
	return batch
}

// MayBeQuiet is whether a query need not answer for these samples, by the file and panel, or the alert, that asks it:
// alerts are shown to fire and not to by their own tests, but for those about latency, which have none.
func MayBeQuiet(where string) bool {
	if strings.Contains(where, ".json: ") {
		return where == "self.json: What is off"
	}
	return !slices.Contains([]string{"ContainerWaitsForCPU", "ForwardingSlow", "ProxySlow", "EdgeSlow"}, where)
}
