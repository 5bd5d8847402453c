package otlp

import "outsight/internal/model"

// Metric is one row of the table of names.
type Metric struct {
	// Name under which the metric is stored and exposed.
	Name string
	// OTel is the OpenTelemetry name, Unit its unit in UCUM ("s", "By", "{thread}"). One OTel
	// metric may be several rows, told apart by an attribute that is part of Name here.
	OTel, Unit string
	Kind       model.SeriesKind
	// Help says what is counted, without the name and the unit.
	Help string

	// Exactly one of these reads the metric's values.
	container func(*model.ContainerSample, *collector)
	edge      func(*model.Edge, *collector)
	host      func(*model.Snapshot, *collector)
}

// Metrics is the table of all metrics, in the order in which Convert returns their series.
func Metrics() []Metric {
	all := make([]Metric, 0, len(containerMetrics)+len(edgeMetrics)+len(hostMetrics))
	all = append(all, containerMetrics...)
	all = append(all, edgeMetrics...)
	return append(all, hostMetrics...)
}

// seconds turns nanoseconds into seconds.
func seconds(ns uint64) float64 { return float64(ns) / 1e9 }

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
