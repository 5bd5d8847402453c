package api

import (
	"cmp"
	"slices"
	"strings"

	"outsight/internal/graph"
	"outsight/internal/otlp"
)

// completeness is how much of what happened the numbers cover.
type completeness struct {
	WindowSeconds  float64 `json:"window_seconds"`
	CoveredSeconds float64 `json:"covered_seconds"`
	// State is "incomplete" where a number of a node, an edge or an endpoint lacks something that
	// happened in the covered time, else "complete".
	State string `json:"state"`
	// Tables that dropped something in the window. What it was, and so which numbers lack it, is in
	// Affects of each.
	Tables []loss `json:"tables"`
	// Sinks that missed snapshots in the window. Counters go on in the next one, so what is
	// missing are points of charts; it does not make the answer incomplete.
	Sinks []loss `json:"sinks"`
	// EndedOmitted is how many containers that ended in the window are left out: none, since a frame has what ended.
	EndedOmitted int `json:"ended_omitted"`
}

// loss is a bounded table or queue, or another counter of drops, that grew in the window.
type loss struct {
	Host string `json:"host"`
	Name string `json:"name"`
	// Dropped updates in the window. Used and Capacity are entries at its end, 0 where unknown.
	Dropped  float64 `json:"dropped"`
	Used     float64 `json:"used,omitempty"`
	Capacity float64 `json:"capacity,omitempty"`
	// Full means that the whole capacity is used. Otherwise the drops have another cause: a kernel without memory at
	// that moment, or a program that was already running.
	Full bool `json:"full,omitempty"`
	// Affects are the numbers that lack what was dropped.
	Affects affected `json:"affects,omitempty"`
}

// affected names the numbers that lack what a table dropped.
type affected string

const (
	affectsUsage      affected = "usage"      // CPU, memory and I/O of containers
	affectsDisks      affected = "disks"      // latency and queue time of disks
	affectsEdges      affected = "edges"      // bytes, requests and latency of edges
	affectsEndpoints  affected = "endpoints"  // requests by what they ask for; those of the edge are right
	affectsContention affected = "contention" // who waited for a CPU behind whom
	affectsEnergy     affected = "energy"     // cycles, cache misses and joules
	affectsNames      affected = "names"      // numbers are right, and some are under another name
	affectsFlight     affected = "flight"     // ticks of the flight recorder
	affectsHistory    affected = "history"    // points of charts
)

// affectedBy is what a table affects, by the first matching prefix of its name. An unknown table may affect everything,
// which is "".
var affectedBy = []struct {
	prefix  string
	affects affected
}{
	{"cgroups", affectsUsage}, {"thread_states", affectsUsage}, {"reclaim_", affectsUsage},
	{"oom_victims", affectsUsage}, {"file_threads", affectsUsage},
	{"disk", affectsDisks},
	{"edge_clients", affectsNames}, {"edge", affectsEdges}, {"connections", affectsEdges}, {"multipath_", affectsEdges},
	{"datagram_", affectsEdges}, {"http2_connections", affectsEdges}, {"http2_streams", affectsEdges},
	{"endpoints", affectsEndpoints}, {"other_endpoints", affectsEndpoints}, {"http2_", affectsEndpoints},
	{"tls_", affectsEndpoints}, {"dns_", affectsEndpoints},
	{"contention", affectsContention}, {"contending_", affectsContention},
	{"counter_", affectsEnergy}, {"energy_", affectsEnergy},
	{"connection_pairs", affectsNames}, {"listeners", affectsNames}, {"forwarded_", affectsNames},
	{"process", affectsNames}, {"network ", affectsNames},
	{"container/", affectsNames}, {"container-", affectsNames}, {"cgroup_events", affectsNames},
	{"kubernetes/", affectsNames},
	{"recorder/", affectsFlight},
	{"store/", affectsHistory}, {"export/", affectsHistory}, {"ingest/", affectsHistory},
}

func affects(name string) affected {
	for _, a := range affectedBy {
		if strings.HasPrefix(name, a.prefix) {
			return a.affects
		}
	}
	return ""
}

// counts reports whether a number of a node, an edge or an endpoint is affected.
func (a affected) counts() bool {
	return a == affectsUsage || a == affectsEdges || a == affectsEndpoints || a == ""
}

const (
	// sinkPrefix is what the names of the queues to the agent's sinks begin with.
	sinkPrefix = "agent/sink-"
	// openFiles is the bound on descriptors that are kept open: past it readings cost more, and
	// nothing is lost.
	openFiles = "container/open-files"
	// unreportedCloses are ends of connections that were found later than they happened.
	unreportedCloses = "untold_closes"
	// postponedThreads are threads that are looked at in a later reading.
	postponedThreads = "container/postponed-threads"
	// anomalies counts recordings of older anomalies that were evicted by newer ones.
	anomalies = "recorder/anomaly-bytes"
)

const incomplete = "incomplete"

// listenerBounds are what the bounds of a listener's connections are called, behind the listener's name.
var listenerBounds = []string{"/connections", "/unauthenticated-connections", "/slow-readers"}

// losesNoNumber reports whether a limit costs time, age or a connection, and no number.
func losesNoNumber(name string) bool {
	switch name {
	case openFiles, unreportedCloses, anomalies, postponedThreads:
		return true
	}
	return slices.ContainsFunc(listenerBounds, func(bound string) bool { return strings.HasSuffix(name, bound) })
}

func (d *windowData) completeness(g *graph.Graph) completeness {
	c := completeness{WindowSeconds: d.to.Sub(d.from).Seconds(),
		CoveredSeconds: g.CoveredSeconds, State: "complete", Tables: []loss{}, Sinks: []loss{}}
	for _, l := range d.losses() {
		switch {
		case strings.HasPrefix(l.Name, sinkPrefix):
			c.Sinks = append(c.Sinks, l)
		case !losesNoNumber(l.Name):
			l.Affects = affects(l.Name)
			c.Tables = append(c.Tables, l)
		}
	}
	lacking := slices.ContainsFunc(c.Tables, func(l loss) bool { return l.Affects.counts() })
	// A connection without a room of its own goes on to be counted long after it found none.
	if lacking || g.Unplaced != nil {
		c.State = incomplete
	}
	return c
}

// ownMetrics are what losses and the version of an agent are made of.
var ownMetrics = map[string]bool{otlp.Drops: true, otlp.Entries: true, otlp.Capacity: true, otlp.BuildInfo: true}

// own are the rows of ownMetrics.
func (d *windowData) own() []labelledRow {
	if d.rows == nil {
		d.rows = labelledOf(d.window, func(metric string) bool { return ownMetrics[metric] })
	}
	return d.rows
}

// losses are what dropped something in the window, in order of host and name.
func (d *windowData) losses() []loss {
	all := map[[2]string]*loss{}
	rows := d.own()
	for i := range rows {
		r := &rows[i]
		if r.metric == otlp.BuildInfo {
			continue
		}
		name := r.label(otlp.LabelName)
		l := get(all, [2]string{r.host, name}, loss{Host: r.host, Name: name})
		switch r.metric {
		case otlp.Drops:
			l.Dropped += r.value
		case otlp.Entries:
			l.Used = r.value
		case otlp.Capacity:
			l.Capacity = r.value
		}
	}
	for _, l := range all {
		l.Full = l.Capacity > 0 && l.Used >= l.Capacity
	}
	losses := slices.DeleteFunc(values(all), func(l loss) bool { return l.Dropped == 0 })
	slices.SortFunc(losses, func(a, b loss) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host),
			cmp.Compare(a.Name, b.Name))
	})
	return losses
}
