package fleet

import (
	"cmp"
	"slices"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// Feature is a hook, counter or runtime of a host.
type Feature struct {
	Host string
	model.Feature
}

// Drop is a bounded table or queue of a host's agent.
type Drop struct {
	Host string
	model.Drop
}

// Program is what a kernel program costs on a host since its agent's start.
type Program struct {
	Host, Name string
	Runs       uint64
	RunSeconds float64
}

// Status is what is watched, by what, and what is missing, at the end of a window.
type Status struct {
	Hosts    []Host
	Features []Feature
	Drops    []Drop
	Programs []Program
}

// StatusOf is the status of the hosts of a window, in order of their names.
func StatusOf(w *frame.Window) Status {
	s := Status{Hosts: Hosts(w)}
	for i := range w.Hosts {
		if n := len(w.Hosts[i].Spans); n > 0 {
			s.add(w.Hosts[i].Host, w.Hosts[i].Spans[n-1].After)
		}
	}
	return s
}

func (s *Status) add(host string, f *frame.Frame) {
	t := &f.Tables[frame.Features]
	for row := range t.IDs {
		text := func(a frame.Attribute) string { return f.Text(frame.Features, a, row) }
		s.Features = append(s.Features, Feature{host, model.Feature{Name: text(frame.FeatureName),
			Purpose: text(frame.FeaturePurpose), State: model.FeatureState(text(frame.FeatureState)),
			Reason: text(frame.FeatureReason), Remedy: text(frame.FeatureRemedy),
			Required: t.Attribute(frame.FeatureRequired, row) != 0}})
	}
	drops, programs := map[string]*model.Drop{}, map[string]*Program{}
	number := func(metric string, into func(name string, v float64)) {
		eachLabelled(f, metric, func(row int, labels []string) { into(labels[0], valueIn(f, metric, row)) })
	}
	drop := func(name string) *model.Drop {
		if drops[name] == nil {
			drops[name] = &model.Drop{Name: name}
		}
		return drops[name]
	}
	number(metricDrops, func(name string, v float64) { drop(name).Count = uint64(v) })
	number(metricEntries, func(name string, v float64) { drop(name).Used = uint64(v) })
	number(metricCapacity, func(name string, v float64) { drop(name).Capacity = uint64(v) })
	program := func(name string) *Program {
		if programs[name] == nil {
			programs[name] = &Program{Host: host, Name: name}
		}
		return programs[name]
	}
	number(metricRuns, func(name string, v float64) { program(name).Runs = uint64(v) })
	number(metricRunTime, func(name string, v float64) { program(name).RunSeconds = v })
	from, begin := len(s.Drops), len(s.Programs)
	for _, d := range drops {
		s.Drops = append(s.Drops, Drop{host, *d})
	}
	for _, p := range programs {
		s.Programs = append(s.Programs, *p)
	}
	slices.SortFunc(s.Drops[from:], func(x, y Drop) int { return cmp.Compare(x.Name, y.Name) })
	slices.SortFunc(s.Programs[begin:], func(x, y Program) int { return cmp.Compare(x.Name, y.Name) })
}
