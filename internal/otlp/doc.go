// Package otlp names every number of Outsight once and turns a frame into series.
//
// The table of metrics (Metrics) holds, side by side, the OpenTelemetry name with its unit and
// the name under which the metric is stored, queried and exposed. Where dashboards made for
// cAdvisor expect a container_* name, that is the stored name; what OpenTelemetry does not know
// has the prefix "outsight", and its stored name follows OpenTelemetry's rule for Prometheus.
//
// # Bounds
//
// The number of series is the number of containers and edges in the frame, which the kernel's
// tables bound, times the length of the table; every other label (type, program, name, purpose)
// takes its values from a closed set of the project's own. A label value longer than
// MaxLabelBytes is cut and ends with "…" and a hash of the whole, so that the cut shows where the value does.
package otlp
