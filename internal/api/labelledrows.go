package api

import (
	"cmp"
	"slices"

	"outsight/internal/fleet"
	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/model"
)

// labelledKey distinguishes series with labels of their own.
type labelledKey struct {
	metric, host string
	// container is the ID of the container that it is of, and name its name; both are empty where it is of the host.
	// The ID is empty where it is of containers that ended a while ago and are summed.
	container, name string
	labels          [frame.MaxLabels]string
}

// labelledRow is what such a series did in a window.
type labelledRow struct {
	labelledKey
	info *model.Metric
	// value is what a counter gained, or a level at the end.
	value float64
	// seconds are how much of the window was observed of its host.
	seconds float64
	// durations are what a histogram gained; nil where it is none.
	durations *model.Histogram
}

// ofHost reports whether the series is of the host itself.
func (r *labelledRow) ofHost() bool { return r.container == "" && r.name == "" }

// nodeID is the ID of the container's node.
func (r *labelledRow) nodeID() string {
	if r.container == model.HostContainerID {
		return r.container + "/" + r.host
	}
	return r.container
}

// rate is per second, of a counter.
func (r *labelledRow) rate() (float64, bool) {
	return r.value / r.seconds, r.info.Kind == model.Counter && r.seconds > 0
}

// labelledOf are the series of a window of the metrics that are wanted, in order.
func labelledOf(w *frame.Window, want func(metric string) bool) []labelledRow {
	all := map[labelledKey]*labelledRow{}
	for i := range w.Hosts {
		h := &w.Hosts[i]
		seconds := fleet.Covered(h).Seconds()
		for k := range h.Spans {
			addLabelled(all, beforeOf(h, k), h.Spans[k].After, k == len(h.Spans)-1, seconds, want)
			addHostColumns(all, h, k, seconds, want)
		}
	}
	rows := values(all)
	slices.SortFunc(rows, func(a, b labelledRow) int { return a.compare(&b.labelledKey) })
	return rows
}

func (k *labelledKey) compare(o *labelledKey) int {
	return cmp.Or(cmp.Compare(k.metric, o.metric), cmp.Compare(k.host, o.host), cmp.Compare(k.name, o.name),
		cmp.Compare(k.container, o.container), slices.Compare(k.labels[:], o.labels[:]))
}

// beforeOf is what a span's counters are counted from: nil where they began at 0 in it.
func beforeOf(h *frame.HostSpans, span int) *frame.Frame {
	if before := h.Spans[span].Before; before != nil || span > 0 {
		return before
	}
	return h.Spans[span].After // when its counters began is not in the window
}

// addLabelled adds what the rows of the table gained between two frames, and the levels of the newest one.
func addLabelled(all map[labelledKey]*labelledRow, before, f *frame.Frame, newest bool, seconds float64,
	want func(string) bool) {
	t := &f.Tables[frame.Labelled]
	wanted := make(map[uint64]bool, 64) // by the index of the metric's name
	var d *frame.Difference
	for row := range t.IDs {
		index := t.Attributes[frame.LabelledMetric][row]
		ok, known := wanted[index]
		if !known {
			ok = want(f.Strings[index])
			wanted[index] = ok
		}
		if !ok {
			continue
		}
		info, known := frame.LabelledMetrics[f.Strings[index]]
		if !known { // of a newer agent
			continue
		}
		if d == nil {
			d = frame.Since(frame.Labelled, before, f)
		}
		key, ok := keyOfLabelled(f, row, f.Host)
		if !ok {
			continue
		}
		switch r := get(all, key, labelledRow{labelledKey: key, info: &info, seconds: seconds}); info.Kind {
		case model.Gauge:
			if level, ok := frame.LabelledLevel(t, row, info.Per()); ok && newest {
				r.value = level
			} else {
				delete(all, key)
			}
		case model.HistogramSeries:
			var gained frame.Durations
			gained.Reset()
			d.AddHistogram(&gained, 0, row)
			if r.durations == nil {
				r.durations = &model.Histogram{}
			}
			gained.AddTo(r.durations)
		default:
			n, _ := d.Gain(0, row)
			r.value += float64(n) / info.Per()
		}
	}
}

// keyOfLabelled says which series a row is; ok is false where what it is of is not there.
func keyOfLabelled(f *frame.Frame, row int, host string) (key labelledKey, ok bool) {
	t := &f.Tables[frame.Labelled]
	key = labelledKey{metric: f.Text(frame.Labelled, frame.LabelledMetric, row), host: host}
	for i := range key.labels {
		key.labels[i] = f.Text(frame.Labelled, frame.LabelledLabels+frame.Attribute(i), row)
	}
	if frame.TableID(t.Attributes[frame.LabelledTable][row]) != frame.Containers {
		return key, true
	}
	at, ok := f.Tables[frame.Containers].Find(uint32(t.Attributes[frame.LabelledOwner][row]))
	if ok {
		key.container = f.Text(frame.Containers, frame.ContainerKey, at)
		key.name = f.Text(frame.Containers, frame.ContainerName, at)
		if key.name == "" {
			key.name = key.container
		}
	}
	return key, ok
}

// addHostColumns adds what columns of hosts gained in a span, and the levels of the newest one, as if they were series.
func addHostColumns(all map[labelledKey]*labelledRow, h *frame.HostSpans, span int, seconds float64,
	want func(string) bool) {
	f := h.Spans[span].After
	t := &f.Tables[frame.Hosts]
	if len(t.IDs) == 0 {
		return
	}
	d := frame.Since(frame.Hosts, beforeOf(h, span), f)
	for i := range frame.Schema[frame.Hosts].Columns {
		c := &frame.Schema[frame.Hosts].Columns[i]
		if c.Kind == frame.Integral || c.Kind == frame.Highest || !want(c.Metric) {
			continue
		}
		info := hostMetrics[c.Metric]
		key := labelledKey{metric: c.Metric, host: h.Host}
		if at := slices.Index(info.Labels, c.Label.Name); at >= 0 {
			key.labels[at] = c.Label.Value
		}
		n, ok := uint64(0), false
		if c.Kind == frame.Counter {
			n, ok = d.Gain(i, 0)
		} else if span == len(h.Spans)-1 {
			n, ok = t.Columns[i].At(0)
		}
		if !ok {
			continue
		}
		v := float64(n) / c.Per
		if c.Kind == frame.LevelFloat {
			v = frame.Float(n)
		}
		get(all, key, labelledRow{labelledKey: key, info: &info, seconds: seconds}).value += v
	}
}

// hostMetrics are the metrics of hosts, by their stored names.
var hostMetrics = func() map[string]model.Metric {
	all := map[string]model.Metric{}
	for i := range model.HostRows {
		all[model.HostRows[i].Name] = model.HostRows[i].Metric(model.OfHost)
	}
	return all
}()

// nodesOf gives each container's node ID that of its node in a grouping. g is by containers; nil where by is.
func nodesOf(g *graph.Graph, by graph.Grouping) func(r *labelledRow) string {
	if g == nil {
		return func(r *labelledRow) string { return r.nodeID() }
	}
	groups := make(map[string]string, len(g.Nodes))
	for _, n := range g.Nodes {
		groups[n.ID] = by.NodeOf(n)
	}
	return func(r *labelledRow) string { return cmp.Or(groups[r.nodeID()], r.nodeID()) }
}
