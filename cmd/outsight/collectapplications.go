package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/region"
)

// applicationSeries is the name of an application's metric with its labels.
func applicationSeries(m *region.ApplicationFigure) string {
	if m.Labels == "" {
		return m.Name
	}
	return m.Name + "{" + m.Labels + "}"
}

// applicationValue is its value in its unit.
func applicationValue(m *region.ApplicationFigure) float64 {
	switch {
	case m.Kind == model.Gauge:
		return m.Level
	case m.Fine:
		return float64(m.Count) / model.ApplicationFine
	}
	return float64(m.Count)
}

// writeApplications writes applications' own metrics, if there are some: how fast counters grow, and of gauges what they
// say.
func (r *collectResult) writeApplications(out io.Writer, w *tabwriter.Writer, over time.Duration) error {
	s := r.Sample
	if s.ApplicationsError != nil {
		if _, err := fmt.Fprintf(out, "applications' own metrics are LATE  %s\n", graph.Clean(whyLate(s.ApplicationsError))); err != nil {
			return err
		}
	}
	if n := s.ApplicationsRefused + s.ApplicationsLeftOut; n > 0 {
		if _, err := fmt.Fprintf(out, "%d of applications' own metrics are left out\n", n); err != nil {
			return err
		}
	}
	type key struct{ container, series string }
	of := func(s *region.Sample, m *region.ApplicationFigure) key {
		return key{s.Dictionary.Containers[m.Container].ID, applicationSeries(m)}
	}
	before := map[key]float64{}
	if r.Before != nil {
		for i := range r.Before.Applications {
			m := &r.Before.Applications[i]
			before[of(r.Before, m)] = applicationValue(m)
		}
	}
	all := slices.Clone(s.Applications)
	name := func(m *region.ApplicationFigure) string { return s.Dictionary.Containers[m.Container].Name }
	slices.SortStableFunc(all, func(a, b region.ApplicationFigure) int { return cmp.Compare(name(&a), name(&b)) })
	head := "CONTAINER\tAPPLICATION'S METRIC\tVALUE\tPER SECOND\tUNIT\t\n"
	for i := range all {
		m := &all[i]
		value, rate := applicationValue(m), nothing
		if was := before[of(s, m)]; m.Kind == model.Counter && value >= was {
			rate = figureText((value - was) / over.Seconds())
		}
		fmt.Fprintf(w, head+"%s\t%s\t%s\t%s\t%s\t\n", graph.Clean(name(m)), graph.Clean(applicationSeries(m)), figureText(value), rate,
			cmp.Or(strings.Trim(graph.Clean(m.Unit), "{}"), nothing))
		head = ""
	}
	return w.Flush()
}

func figureText(n float64) string { return strconv.FormatFloat(n, 'g', 6, 64) }
