package fleet

import (
	"cmp"
	"slices"
	"strings"

	"outsight/internal/frame"
)

// Completeness is how much of what happened in a window the numbers cover.
type Completeness struct {
	WindowSeconds  float64 `json:"window_seconds"`
	CoveredSeconds float64 `json:"covered_seconds"`
	// State is "incomplete" where a number of a node, an edge or an endpoint lacks something that happened in the covered
	// time, else "complete".
	State string `json:"state"`
	// Tables that dropped something in the window. What it was, and so which numbers lack it, is in Affects of each.
	Tables []Loss `json:"tables"`
	// Sinks that missed frames in the window. Counters go on in the next one, so what is missing are points of charts; it
	// does not make the answer incomplete.
	Sinks []Loss `json:"sinks"`
}

// Loss is a bounded table or queue, or another counter of drops, that grew in the window.
type Loss struct {
	Host string `json:"host"`
	Name string `json:"name"`
	// Dropped updates in the window. Used and Capacity are entries at its end, 0 where unknown.
	Dropped  float64 `json:"dropped"`
	Used     float64 `json:"used,omitempty"`
	Capacity float64 `json:"capacity,omitempty"`
	// Full means that the whole capacity is used. Otherwise the drops have another cause: a kernel without memory at that
	// moment, or a program that was already running.
	Full bool `json:"full,omitempty"`
	// Affects are the numbers that lack what was dropped.
	Affects Affected `json:"affects,omitempty"`
}

// Affected names the numbers that lack what a table dropped; empty where it may be any.
type Affected string

// What a table may affect.
const (
	AffectsUsage      Affected = "usage"      // CPU, memory and I/O of containers
	AffectsDisks      Affected = "disks"      // latency and queue time of disks
	AffectsEdges      Affected = "edges"      // bytes, requests and latency of edges
	AffectsEndpoints  Affected = "endpoints"  // requests by what they ask for; those of the edge are right
	AffectsContention Affected = "contention" // who waited for a CPU behind whom
	AffectsEnergy     Affected = "energy"     // cycles, cache misses and joules
	AffectsNames      Affected = "names"      // numbers are right, and some are under another name
	AffectsFlight     Affected = "flight"     // ticks of the flight recorder
	AffectsHistory    Affected = "history"    // points of charts
	AffectsEnded      Affected = "ended"      // what ended is in a sum under another name
)

// affectedBy is what a table affects, by the first matching prefix of its name.
var affectedBy = []struct {
	prefix  string
	affects Affected
}{
	{"cgroups", AffectsUsage}, {"thread_states", AffectsUsage}, {"reclaim_", AffectsUsage},
	{"oom_victims", AffectsUsage}, {"file_threads", AffectsUsage},
	{"disk", AffectsDisks},
	{"edge_clients", AffectsNames}, {"edge", AffectsEdges}, {"connections", AffectsEdges}, {"multipath_", AffectsEdges},
	{"datagram_", AffectsEdges},
	{"http2_connections", AffectsEdges}, {"http2_streams", AffectsEdges},
	{"endpoints", AffectsEndpoints}, {"other_endpoints", AffectsEndpoints}, {"http2_", AffectsEndpoints},
	{"tls_", AffectsEndpoints}, {"dns_", AffectsEndpoints},
	{"contention", AffectsContention}, {"contending_", AffectsContention},
	{"counter_", AffectsEnergy}, {"energy_", AffectsEnergy},
	{"connection_pairs", AffectsNames}, {"listeners", AffectsNames}, {"forwarded_", AffectsNames},
	{"process", AffectsNames}, {"network ", AffectsNames},
	{"container/", AffectsNames}, {"container-", AffectsNames}, {"cgroup_events", AffectsNames},
	{"kubernetes/", AffectsNames},
	{"recorder/", AffectsFlight},
	{"store/", AffectsHistory}, {"export/", AffectsHistory}, {"ingest/", AffectsHistory},
	{"frame/", AffectsEnded},
}

// Affects is what a table affects that dropped something, by the table's name.
func Affects(name string) Affected {
	for _, a := range affectedBy {
		if strings.HasPrefix(name, a.prefix) {
			return a.affects
		}
	}
	return ""
}

// Counts reports whether a number of a node, an edge or an endpoint is affected.
func (a Affected) Counts() bool {
	return a == AffectsUsage || a == AffectsEdges || a == AffectsEndpoints || a == ""
}

const (
	// sinkPrefix is what the names of the queues to the agent's sinks begin with.
	sinkPrefix = "agent/sink-"
	// openFiles is the bound on descriptors that are kept open: past it readings cost more, and nothing is lost.
	openFiles = "container/open-files"
	// unwatchedGroups are control groups of which files are read since the kernel program's table is full.
	unwatchedGroups = "cgroup/figures"
	// unreportedCloses are ends of connections that were found later than they happened.
	unreportedCloses = "untold_closes"
	// postponedThreads are threads that are looked at in a later reading.
	postponedThreads = "container/postponed-threads"
	// packetSamples are packets to other hosts that are not compared with what these have.
	packetSamples = "packet_samples"
	// anomalies counts recordings of older anomalies that were evicted by newer ones.
	anomalies = "recorder/anomaly-bytes"
)

// States of Completeness.
const (
	Complete   = "complete"
	Incomplete = "incomplete"
)

// listenerBounds are what the bounds of a listener's connections are called, behind the listener's name.
var listenerBounds = []string{"/connections", "/unauthenticated-connections", "/slow-readers"}

// losesNoNumber reports whether a limit costs time, age or a connection, and no number.
func losesNoNumber(name string) bool {
	switch name {
	case openFiles, unwatchedGroups, unreportedCloses, anomalies, postponedThreads, packetSamples:
		return true
	}
	return slices.ContainsFunc(listenerBounds, func(bound string) bool { return strings.HasSuffix(name, bound) })
}

// CompletenessOf is that of a window. unplaced says that connections were counted that are in no edge (Graph.Unplaced).
func CompletenessOf(w *frame.Window, unplaced bool) Completeness {
	c := Completeness{WindowSeconds: w.To.Sub(w.From).Seconds(), State: Complete, Tables: []Loss{}, Sinks: []Loss{}}
	for i := range w.Hosts {
		c.CoveredSeconds = max(c.CoveredSeconds, Covered(&w.Hosts[i]).Seconds())
	}
	for _, l := range Losses(w) {
		switch {
		case strings.HasPrefix(l.Name, sinkPrefix):
			c.Sinks = append(c.Sinks, l)
		case !losesNoNumber(l.Name):
			l.Affects = Affects(l.Name)
			c.Tables = append(c.Tables, l)
		}
	}
	// A connection without a room of its own goes on to be counted long after it found none.
	if unplaced || slices.ContainsFunc(c.Tables, func(l Loss) bool { return l.Affects.Counts() }) {
		c.State = Incomplete
	}
	return c
}

// Losses are what dropped something in the window, in order of host and name.
func Losses(w *frame.Window) []Loss {
	losses := []Loss{}
	for i := range w.Hosts {
		losses = append(losses, lossesOf(&w.Hosts[i])...)
	}
	return losses
}

func lossesOf(of *frame.HostSpans) (losses []Loss) {
	s := spans{HostSpans: of}
	dropped := map[string]float64{}
	for i := range of.Spans {
		after := of.Spans[i].After
		d := frame.Since(frame.Labelled, s.before(i), after)
		eachLabelled(after, metricDrops, func(row int, labels []string) {
			if n, _ := d.Gain(0, row); n > 0 {
				dropped[labels[0]] += float64(n)
			}
		})
	}
	if len(dropped) == 0 {
		return nil
	}
	last := of.Spans[len(of.Spans)-1].After
	used, capacity := map[string]float64{}, map[string]float64{}
	for metric, into := range map[string]map[string]float64{metricEntries: used, metricCapacity: capacity} {
		eachLabelled(last, metric, func(row int, labels []string) { into[labels[0]] = valueIn(last, metric, row) })
	}
	for name, n := range dropped {
		l := Loss{Host: of.Host, Name: name, Dropped: n, Used: used[name], Capacity: capacity[name]}
		l.Full = l.Capacity > 0 && l.Used >= l.Capacity
		losses = append(losses, l)
	}
	slices.SortFunc(losses, func(a, b Loss) int { return cmp.Compare(a.Name, b.Name) })
	return losses
}
