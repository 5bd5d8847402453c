package api

import (
	"net/http"
	"runtime"

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

// promMetadata describes the metrics of the table of names.
func promMetadata(r *http.Request) (store.Answer, error) {
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
	return promJSON(found)
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

// promBuildInfo tells clients which release of Prometheus they may take this for.
func promBuildInfo(*http.Request) (store.Answer, error) {
	return promJSON(map[string]string{
		"application": "outsight", "version": store.Version(),
		"revision": "", "branch": "", "buildUser": "", "buildDate": "", "goVersion": runtime.Version(),
	})
}
