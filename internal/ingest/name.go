package ingest

import (
	"github.com/prometheus/otlptranslator"
)

// metricKey is how a request names a metric.
type metricKey struct {
	name, unit string
	kind       uint8
	monotonic  bool
	ours       bool
}

// metric is a metric of which points are read.
type metric struct {
	number uint64
	// name under which it is stored, empty where it cannot be.
	name string
}

var metricNamer = otlptranslator.NewMetricNamer("", otlptranslator.UnderscoreEscapingWithSuffixes)

// metricOf returns the metric, from the cache or a new one. Names of the project's own agents are not translated;
// others become those that Prometheus makes of them.
func (r *reading) metricOf(name, unit []byte, kind uint8, monotonic bool) *metric {
	if len(name) > maxNameBytes || len(unit) > maxNameBytes {
		return &metric{}
	}
	key := metricKey{string(name), string(unit), kind, monotonic, r.origin.ours}
	if m := r.metrics[key]; m != nil {
		return m
	}
	m := &metric{number: uint64(len(r.metrics)) + 1, name: key.name}
	if !key.ours {
		var err error
		if m.name, err = metricNamer.Build(otlptranslator.Metric{Name: key.name, Unit: key.unit,
			Type: key.otlpType()}); err != nil {
			m.name = ""
		}
	}
	if !isMetricName(m.name) || len(m.name) > maxNameBytes {
		m.name = ""
	}
	r.metrics[key] = m
	r.holdOrigin(setBytes + len(name) + len(unit) + len(m.name))
	return m
}

func (k *metricKey) otlpType() otlptranslator.MetricType {
	switch {
	case k.kind == gaugeData:
		return otlptranslator.MetricTypeGauge
	case k.kind == sumData && k.monotonic:
		return otlptranslator.MetricTypeMonotonicCounter
	case k.kind == sumData:
		return otlptranslator.MetricTypeNonMonotonicCounter
	case k.kind == histogramData:
		return otlptranslator.MetricTypeHistogram
	case k.kind == exponentialData:
		return otlptranslator.MetricTypeExponentialHistogram
	}
	return otlptranslator.MetricTypeSummary
}

func isMetricName(name string) bool {
	for i, c := range []byte(name) {
		if !(c == '_' || c == ':' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return name != ""
}
