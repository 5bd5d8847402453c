package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Top are the n saturations because of which the most waited, in order of time; all of them if n is
// 0 or less.
func (r *Report) Top(n int) []*Saturation {
	return first(r.Saturations, n, func(a, b *Saturation) int {
		return cmp.Or(cmp.Compare(b.Waited, a.Waited), cmp.Compare(b.Duration, a.Duration))
	})
}

// longest are the n longest of those that are not short.
func (r *Report) longest(n int) []*Saturation {
	return first(r.Sustained, n, func(a, b *Saturation) int { return cmp.Compare(b.Duration, a.Duration) })
}

// first are the n first ones of an order, in order of time.
func first(list []*Saturation, n int, order func(a, b *Saturation) int) []*Saturation {
	if n <= 0 || n >= len(list) {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, order)
	list = list[:n]
	slices.SortStableFunc(list, func(a, b *Saturation) int { return a.From.Compare(b.From) })
	return list
}

const clock = "15:04:05.000"

// Text is the report for a terminal, with at most top saturations. Times are in the location.
func (r *Report) Text(top int, location *time.Location) string {
	t := textReport{Report: r, location: location}
	t.line("%s", r.title(location))
	for _, note := range r.Notes {
		t.line("%s", note)
	}
	t.line("")
	shown := r.Top(top)
	t.line("%s", r.found(len(shown)))
	for _, s := range shown {
		t.saturation(s)
	}
	if len(r.Sustained) > 0 {
		t.line("\nSaturated for longer (%d)", len(r.Sustained))
		for _, s := range r.longest(top) {
			t.line("%s  %s", s.From.In(location).Format(clock), s.Text)
		}
	}
	if len(r.Containers) > 0 {
		t.line("\nIntervals between samples, in ms")
		t.table(intervalColumns)
		t.line("\nCPU in percent of one; load and idle: seconds above and below K, half of the third quartile")
		t.table(cpuColumns)
	}
	if len(r.Problems) > 0 {
		t.line("\nWhat could not be read")
		for _, p := range r.Problems {
			t.line("%s: %s", p.Path, p.Problem)
		}
	}
	return t.b.String()
}

// title is the host and the time in one line.
func (r *Report) title(location *time.Location) string {
	parts := []string{cmp.Or(r.Host, "host not known")}
	if r.Kernel != "" {
		parts = append(parts, "kernel "+r.Kernel)
	}
	if r.Cores > 0 {
		parts = append(parts, plural(float64(r.Cores), "CPU"))
	}
	parts = append(parts, plural(float64(len(r.Containers)), "container"))
	if !r.From.IsZero() {
		parts = append(parts, fmt.Sprintf("the %s to %s", duration(ms(int64(r.To.Sub(r.From)))),
			r.To.In(location).Format("2006-01-02 "+clock)))
	}
	return strings.Join(parts, " · ")
}

// found says how many saturations there are, of which so many are shown.
func (r *Report) found(shown int) string {
	n := len(r.Saturations)
	switch {
	case n == 0:
		return "No short saturation was found."
	case shown < n:
		return fmt.Sprintf("%d short saturations; these %d made others wait the most:", n, shown)
	case n == 1:
		return "1 short saturation:"
	}
	return fmt.Sprintf("%d short saturations:", n)
}

type textReport struct {
	*Report
	location *time.Location
	b        strings.Builder
}

func (t *textReport) line(format string, args ...any) {
	t.b.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
}

func (t *textReport) saturation(s *Saturation) {
	t.line("\n%s  %s  (±%s)", s.From.In(t.location).Format(clock), s.Text, duration(s.Resolution))
	for _, l := range s.Chain[1:] {
		t.line("%12s  %s", offset(s, l.At), l.Text)
	}
	for _, note := range s.notes() {
		t.line("%12s  %s", "", note)
	}
}

// offset of a time from the begin of a saturation.
func offset(s *Saturation, at time.Time) string {
	return fmt.Sprintf("%+.0f ms", ms(int64(at.Sub(s.From))))
}

// notes are who had the CPU, and what is not known of the ends.
func (s *Saturation) notes() []string {
	var notes []string
	var shares []string
	for _, share := range s.CPU[:min(len(s.CPU), 4)] {
		if s.Kind == Stall || s.Kind == MemoryLimit || s.Kind == DiskTime {
			break // it is not about the CPU
		}
		shares = append(shares, fmt.Sprintf("%s %.2f (usually %.2f)", share.Container, share.CPUs, share.Usual))
	}
	if len(shares) > 0 {
		notes = append(notes, "CPUs: "+strings.Join(shares, ", "))
	}
	if s.Earliest.Before(s.From) {
		notes = append(notes, fmt.Sprintf("the last byte was received or sent %s before",
			duration(ms(int64(s.From.Sub(s.Earliest))))))
	}
	switch {
	case s.OpenStart && s.OpenEnd:
		notes = append(notes, "it lasts all of the recording")
	case s.OpenStart:
		notes = append(notes, "the recording begins within it")
	case s.OpenEnd:
		notes = append(notes, "the recording ends within it")
	}
	return notes
}

// column of a table of containers.
type column struct {
	title string
	cell  func(*Container) string
}

func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.01:
		return fmt.Sprintf("%.4f", v)
	case v < 100:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func optionalNumber(d *Distributed, of func(*Distributed) float64) string {
	if d == nil {
		return "–"
	}
	return number(of(d))
}

var intervalColumns = []column{
	{"rows", func(c *Container) string { return fmt.Sprint(c.Rows) }},
	{"mean", func(c *Container) string { return number(c.Intervals.Mean) }},
	{"sd", func(c *Container) string { return number(c.Intervals.SD) }},
	{"p50", func(c *Container) string { return number(c.Intervals.P50) }},
	{"p90", func(c *Container) string { return number(c.Intervals.P90) }},
	{"p99", func(c *Container) string { return number(c.Intervals.P99) }},
	{"max", func(c *Container) string { return number(c.Intervals.Max) }},
	{"worst off", func(c *Container) string { return number(c.Intervals.Worst) }},
	{"late p99", func(c *Container) string {
		return optionalNumber(c.Lateness, func(d *Distributed) float64 { return d.P99 })
	}},
	{"cost p99", func(c *Container) string {
		return optionalNumber(c.Cost, func(d *Distributed) float64 { return d.P99 })
	}},
	{"missing", func(c *Container) string { return fmt.Sprint(c.MissingTicks) }},
	{"lost", func(c *Container) string { return fmt.Sprint(c.LostTicks) }},
}

var cpuColumns = []column{
	{"mean", func(c *Container) string { return number(c.CPU.Mean) }},
	{"sd", func(c *Container) string { return number(c.CPU.SD) }},
	{"max", func(c *Container) string { return number(c.CPU.Max) }},
	{"K", func(c *Container) string { return number(c.CPU.K) }},
	{"load s", func(c *Container) string { return fmt.Sprint(c.CPU.Load.Windows) }},
	{"mean", func(c *Container) string { return number(c.CPU.Load.Mean) }},
	{"sd", func(c *Container) string { return number(c.CPU.Load.SD) }},
	{"idle s", func(c *Container) string { return fmt.Sprint(c.CPU.Idle.Windows) }},
	{"mean", func(c *Container) string { return number(c.CPU.Idle.Mean) }},
	{"sd", func(c *Container) string { return number(c.CPU.Idle.SD) }},
}

// rows of a table: those of the containers and, of the CPU, that of all.
func (r *Report) rows(columns []column) []*Container {
	rows := r.Containers
	if len(rows) > 1 && &columns[0] == &cpuColumns[0] {
		rows = append(slices.Clip(rows), &Container{Name: "all", CPU: r.CPU})
	}
	return rows
}

func (t *textReport) table(columns []column) {
	rows := t.rows(columns)
	width := utf8.RuneCountInString("container")
	for _, c := range rows {
		width = max(width, utf8.RuneCountInString(c.Name))
	}
	pad := func(s string, width int) string { return strings.Repeat(" ", max(width-utf8.RuneCountInString(s), 0)) }
	header := "container" + pad("container", width)
	for _, c := range columns {
		header += fmt.Sprintf("  %9s", c.title)
	}
	t.line("%s", header)
	for _, row := range rows {
		line := row.Name + pad(row.Name, width)
		for _, c := range columns {
			cell := c.cell(row)
			line += "  " + pad(cell, 9) + cell
		}
		t.line("%s", line)
	}
}
