package report

import (
	_ "embed" // for the page's template
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"

	"outsight/internal/csvy"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the template shows.
type page struct {
	*Report
	Heading   string
	Found     string
	Overview  []plot
	Kinds     []legend
	Shown     []section
	Longer    []section
	Intervals table
	CPUs      table
}

type section struct {
	*Saturation
	Anchor string
	Class  string
	When   string
	Links  []timedText
	Notes  []string
	Plots  []plot
}

type timedText struct{ At, Text string }

type table struct {
	Titles []string
	Rows   [][]string
}

// HTML writes the report as one page that needs nothing else, with at most top saturations.
func (r *Report) HTML(w io.Writer, top int, location *time.Location) error {
	shown := r.Top(top)
	p := page{
		Report: r, Heading: r.title(location), Found: r.found(len(shown)), Intervals: r.cells(intervalColumns),
		CPUs: r.cells(cpuColumns),
	}
	for i, s := range shown {
		p.Shown = append(p.Shown, r.section(s, fmt.Sprintf("s%d", i+1), location))
	}
	for i, s := range r.longest(top) {
		p.Longer = append(p.Longer, r.section(s, fmt.Sprintf("l%d", i+1), location))
	}
	for _, s := range slices.Concat(p.Shown, p.Longer) {
		l := legend{s.Class, string(s.Kind)}
		if !slices.Contains(p.Kinds, l) {
			p.Kinds = append(p.Kinds, l)
		}
	}
	p.Overview = r.overview(slices.Concat(p.Shown, p.Longer), location)
	if err := pageTemplate.Execute(w, p); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

func (r *Report) cells(columns []column) table {
	t := table{Titles: []string{"container"}}
	for _, c := range columns {
		t.Titles = append(t.Titles, c.title)
	}
	for _, row := range r.rows(columns) {
		cells := []string{row.Name}
		for _, c := range columns {
			cells = append(cells, c.cell(row))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// overview is all of the time: the CPU of all containers, the threads that waited for one and the
// requests without a reply, with the saturations marked.
func (r *Report) overview(sections []section, location *time.Location) []plot {
	if len(r.grid) < 2 {
		return nil
	}
	from, to := r.grid[0], r.grid[len(r.grid)-1]
	var bands []band
	for _, s := range sections {
		bands = append(bands, band{s.span.from, s.span.to, s.Class, s.Text, s.Anchor})
	}
	sum := func(of func(*timeline) stepLine) stepLine {
		total := stepLine{t: r.grid, v: make([]float64, len(r.grid)-1)}
		for _, l := range r.lines {
			line := of(l)
			at := 0
			for i := range total.v {
				for at+1 < len(line.v) && line.t[at+1] <= r.grid[i] {
					at++
				}
				if at < len(line.v) && line.t[at] <= r.grid[i] && line.v[at] > 0 {
					total.v[i] += line.v[at]
				}
			}
		}
		return thin(total, from, to, plotWidth/2)
	}
	step := axisStep(to - from)
	layout := "15:04:05"
	if step < time.Second {
		layout = clock
	}
	label := func(t int64) string { return time.Unix(0, t).In(location).Format(layout) }
	draw := func(title string, line stepLine, limit float64) plot {
		return drawPlot(title, from, to, 120, []stepLine{line}, bands, limit, step, label, 0)
	}
	plots := []plot{draw("CPUs used by all recorded containers",
		thin(stepLine{t: r.grid, v: hostUsage(r.lines, r.grid)}, from, to, plotWidth/2), float64(r.Cores))}
	if waiting := sum(func(l *timeline) stepLine { return l.rate(csvy.RunQueueNS) }); anyAbove(waiting.v) {
		plots = append(plots, draw("Threads that waited for a CPU", waiting, 0))
	}
	if open := sum(func(l *timeline) stepLine { return l.gauge(csvy.RequestsServing) }); anyAbove(open.v) {
		plots = append(plots, draw("Requests without a reply", open, 0))
	}
	return plots
}

func anyAbove(values []float64) bool {
	return slices.ContainsFunc(values, func(v float64) bool { return v > 0 })
}

// axisStep makes five to twelve marks of a length of time.
func axisStep(length int64) time.Duration {
	for _, step := range []time.Duration{time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
		10 * time.Millisecond, 20 * time.Millisecond,
		50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second,
		2 * time.Second, 5 * time.Second,
		10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		time.Hour, 3 * time.Hour, 6 * time.Hour} {
		if length/int64(step) <= 12 {
			return step
		}
	}
	return 24 * time.Hour
}

// rate is a counter's gain per ns in each step; gauge a gauge's value from each sample to the next.
func (l *timeline) rate(name string) stepLine {
	s := l.of(name)
	return stepLine{l.name, s.t, s.rates()}
}

func (l *timeline) gauge(name string) stepLine {
	s := l.of(name)
	return stepLine{l.name, s.t, s.v[:max(len(s.v)-1, 0)]}
}

// lineMost is how many lines a plot has at most.
const lineMost = 6

// section is one saturation with what the containers did around it.
func (r *Report) section(s *Saturation, anchor string, location *time.Location) section {
	out := section{
		Saturation: s, Anchor: anchor, Class: "kind-" + string(s.Kind),
		When: s.From.In(location).Format("2006-01-02 " + clock), Notes: s.notes(),
	}
	for _, l := range s.Chain {
		out.Links = append(out.Links, timedText{offset(s, l.At), l.Text})
	}
	pad := min(max(s.span.to-s.span.from, int64(100*time.Millisecond)), int64(2*time.Second))
	from, to := s.span.from-pad, s.span.to+pad
	bands := []band{{s.span.from, s.span.to, out.Class, s.Text, ""}}
	step := axisStep(to - from)
	label := func(t int64) string { return fmt.Sprintf("%+d ms", (t-s.span.from)/int64(time.Millisecond)) }
	if step >= time.Second {
		label = func(t int64) string { return fmt.Sprintf("%+d s", (t-s.span.from)/int64(time.Second)) }
	}
	draw := func(title string, lines []stepLine, limit float64) {
		if len(lines) == 0 {
			return
		}
		for i := range lines {
			lines[i] = around(lines[i], from, to)
		}
		out.Plots = append(out.Plots, drawPlot(title, from, to, 130, lines[:min(len(lines), lineMost)], bands, limit, step,
			label, s.span.from))
	}
	byName := map[string]*timeline{}
	for _, l := range r.lines {
		byName[l.name] = l
	}
	var cpu, waits, requests []stepLine
	limit := 0.0
	if s.Kind == HostCPU {
		cpu = append(cpu, stepLine{"all", r.grid, hostUsage(r.lines, r.grid)})
		limit = float64(r.Cores)
	}
	used := false
	switch s.Kind {
	case OneCPU:
		limit = 1
	case Quota:
		limit = s.line.of(csvy.CPUQuotaNS).level(s.span.to) / s.line.of(csvy.CPUPeriodNS).level(s.span.to)
	}
	for _, share := range s.CPU {
		if s.Kind == Stall && share.Container != s.Container {
			continue
		}
		cpu = append(cpu, byName[share.Container].rate(csvy.CPUNS))
		used = used || share.Container == s.Container
	}
	if l := s.line; l != nil && !used && len(l.of(csvy.CPUNS).t) > 1 {
		cpu = append([]stepLine{l.rate(csvy.CPUNS)}, cpu...)
	}
	if s.Kind == Stall {
		own := s.line.gauge(csvy.RequestsServing)
		own.name += ": not answered"
		requests = append(requests, own)
	}
	if s.Kind == RunQueue {
		waits = append(waits, s.line.rate(csvy.RunQueueNS))
	}
	for _, e := range s.Effects {
		l := byName[e.Container]
		switch {
		case e.What == WaitedForCPU && l != s.line:
			waits = append(waits, l.rate(csvy.RunQueueNS))
		case e.What == WaitedForReplies:
			line := l.gauge(csvy.RequestsAsking)
			line.name += ": waits for replies"
			requests = append(requests, line)
		case e.What == Unanswered:
			line := l.gauge(csvy.RequestsServing)
			line.name += ": not answered"
			requests = append(requests, line)
		}
	}
	if s.Kind == Stall {
		draw("Requests", requests, 0)
		requests = nil
	}
	draw("CPUs used", cpu, limit)
	draw("Threads that waited for a CPU", waits, 0)
	draw("Requests", requests, 0)
	return out
}

// around is the part of a line from one time to another.
func around(l stepLine, from, to int64) stepLine {
	first, _ := slices.BinarySearch(l.t, from)
	last, _ := slices.BinarySearch(l.t, to)
	first = max(first-1, 0)
	last = min(last+1, len(l.v))
	if first >= last {
		return stepLine{name: l.name}
	}
	return stepLine{l.name, l.t[first : last+1], l.v[first:last]}
}
