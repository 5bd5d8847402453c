package api

import (
	"cmp"
	"slices"
	"strings"

	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

// completeness tells how much of what happened the numbers are about.
type completeness struct {
	WindowSeconds  float64 `json:"window_seconds"`
	CoveredSeconds float64 `json:"covered_seconds"`
	// State is "complete" where all that happened in the covered time is in the answer and under
	// its own name, else "incomplete".
	State string `json:"state"`
	// Tables that had no room for something in the window. It is then counted under "others" or
	// not at all; what a table's name stands for says which.
	Tables []loss `json:"tables"`
	// Sinks that missed snapshots in the window. Counters go on in the next one, so what is
	// missing are points of charts; it does not make the answer incomplete.
	Sinks []loss `json:"sinks"`
	// EndedOmitted is how many containers that ended in the window are left out.
	EndedOmitted int `json:"ended_omitted"`
}

// loss is a bounded table or queue that overflowed in the window.
type loss struct {
	Host string `json:"host"`
	Name string `json:"name"`
	// Dropped updates in the window. Used and Capacity are entries at its end, 0 where unknown.
	Dropped  float64 `json:"dropped"`
	Used     float64 `json:"used,omitempty"`
	Capacity float64 `json:"capacity,omitempty"`
}

const (
	// sinkPrefix is what the names of the queues to the agent's sinks begin with.
	sinkPrefix = "agent/sink-"
	// openFiles is the bound on descriptors that are kept open: past it readings cost more, and
	// nothing is lost.
	openFiles = "container/open-files"
	// untoldCloses are ends of connections that were found later than they happened.
	untoldCloses = "untold_closes"
	// anomalies are surroundings of older anomalies that newer ones took the room of.
	anomalies = "recorder/anomaly-bytes"
)

const incomplete = "incomplete"

func (d *windowData) completeness(g *graph.Graph) completeness {
	c := completeness{WindowSeconds: d.input.To.Sub(d.input.From).Seconds(), CoveredSeconds: d.input.To.Sub(d.observed).Seconds(),
		State: "complete", Tables: []loss{}, Sinks: []loss{}, EndedOmitted: d.endedOmitted}
	for _, l := range d.losses() {
		switch {
		case strings.HasPrefix(l.Name, sinkPrefix):
			c.Sinks = append(c.Sinks, l)
		case l.Name != openFiles && l.Name != untoldCloses && l.Name != anomalies:
			c.Tables = append(c.Tables, l)
		}
	}
	// A connection without a room of its own goes on to be counted long after it found none.
	if len(c.Tables) > 0 || c.EndedOmitted > 0 || g.Unplaced != nil {
		c.State = incomplete
	}
	return c
}

// losses are what dropped something in the window, in order of host and name.
func (d *windowData) losses() []loss {
	all := map[[2]string]*loss{}
	of := func(r model.QueryResult) *loss {
		host, name := r.Labels[otlp.LabelHost], r.Labels[otlp.LabelName]
		return get(all, [2]string{host, name}, loss{Host: host, Name: name})
	}
	before := map[*loss]float64{}
	for _, r := range d.self[otlp.Drops] {
		l := of(r)
		for _, p := range r.Points {
			if last, ok := before[l]; ok && p.Value >= last {
				l.Dropped += p.Value - last
			} else if ok {
				l.Dropped += p.Value // it restarted
			}
			before[l] = p.Value
		}
	}
	for _, r := range d.self[otlp.Entries] {
		of(r).Used = last(r)
	}
	for _, r := range d.self[otlp.Capacity] {
		of(r).Capacity = last(r)
	}
	losses := slices.DeleteFunc(values(all), func(l loss) bool { return l.Dropped == 0 })
	slices.SortFunc(losses, func(a, b loss) int { return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Name, b.Name)) })
	return losses
}
