package api

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"runtime"
	"slices"

	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

// promMetric is what the metadata of a metric say.
type promMetric struct {
	Type string `json:"type"`
	Help string `json:"help"`
	Unit string `json:"unit"`
}

// metadataReader is a Backend with metadata of metrics that are not in the table of names. A tenant's view is none: the
// names would show what other tenants have.
type metadataReader interface {
	Metadata(ctx context.Context, metric string, limit int) (store.Answer, error)
}

// metadata describes the metrics of the table of names, and those of others that the backend
// knows.
func (p *prometheus) metadata(r *http.Request) (store.Answer, error) {
	form := promForm{values: r.Form}
	limit := form.count("limit")
	// There is one description of each metric, so that any limit_per_metric is kept.
	form.count("limit_per_metric")
	if form.err != nil {
		return store.Answer{}, form.err
	}
	wanted := r.Form.Get("metric")
	found := map[string][]promMetric{}
	for _, m := range otlp.Metrics() {
		if wanted != "" && m.Name != wanted {
			continue
		}
		if limit > 0 && len(found) == limit {
			break
		}
		found[m.Name] = []promMetric{{Type: promType(m.Kind), Help: m.Help, Unit: promUnit(m.Unit)}}
	}
	reader, ok := p.backend.(metadataReader)
	if !ok || limit > 0 && len(found) >= limit {
		return promJSON(found)
	}
	others, err := reader.Metadata(r.Context(), wanted, limit)
	var described map[string][]promMetric
	if err == nil {
		err = json.Unmarshal(others.JSON, &described)
	}
	for _, name := range slices.Sorted(maps.Keys(described)) {
		if limit > 0 && len(found) >= limit {
			break
		}
		if _, ours := found[name]; !ours {
			found[name] = described[name]
		}
	}
	a, jsonErr := promJSON(found)
	if err != nil {
		a.Warnings = []string{"metadata of the remote store: " + err.Error()}
	}
	return a, jsonErr
}

func promType(kind model.SeriesKind) string {
	switch kind {
	case model.Counter:
		return "counter"
	case model.HistogramSeries:
		return "histogram"
	}
	return "gauge"
}

func promUnit(ucum string) string {
	switch ucum {
	case "s":
		return "seconds"
	case "By":
		return "bytes"
	}
	return ""
}

// promBuildInfo is the release of Prometheus whose API clients can expect.
func promBuildInfo(*http.Request) (store.Answer, error) {
	return promJSON(map[string]string{
		"application": "outsight", "version": store.Version(),
		"revision": "", "branch": "", "buildUser": "", "buildDate": "", "goVersion": runtime.Version(),
	})
}
