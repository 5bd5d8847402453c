package fleet

import (
	"outsight/internal/frame"
)

// The metrics that are read, by their stored names.
var (
	metricDrops    = metric("outsight_drops_total", "name")
	metricEntries  = metric("outsight_entries", "name")
	metricCapacity = metric("outsight_capacity", "name")
	metricRuns     = metric("outsight_program_runs_total", "program")
	metricRunTime  = metric("outsight_program_run_seconds_total", "program")
	metricBuild    = metric("outsight_build_info", "version")
)

// metric is the name of a metric of the registry, whose first label is the one given.
func metric(name, label string) string {
	if m, ok := frame.LabelledMetrics[name]; !ok || m.Labels[0] != label {
		panic("BUG: no metric " + name + " with the label " + label)
	}
	return name
}

// eachLabelled calls f for the rows of a metric of the host, with their labels.
func eachLabelled(f *frame.Frame, metric string, each func(row int, labels []string)) {
	t := &f.Tables[frame.Labelled]
	for row := range t.IDs {
		if t.Attribute(frame.LabelledTable, row) != uint64(frame.Hosts) ||
			f.Text(frame.Labelled, frame.LabelledMetric, row) != metric {
			continue
		}
		var labels [frame.MaxLabels]string
		for i := range labels {
			labels[i] = f.Text(frame.Labelled, frame.LabelledLabels+frame.Attribute(i), row)
		}
		each(row, labels[:])
	}
}

// valueIn is the value of a row in its metric's unit.
func valueIn(f *frame.Frame, metric string, row int) float64 {
	t := &f.Tables[frame.Labelled]
	if len(t.Columns) == 0 {
		return 0
	}
	n, _ := t.Columns[0].At(row)
	m := frame.LabelledMetrics[metric]
	return float64(n) / m.Per()
}
