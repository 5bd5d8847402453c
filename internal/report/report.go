package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"outsight/internal/csvy"
)

// Options of an analysis. The zero value works.
type Options struct {
	// Shortest and Longest are the durations of a short saturation: 10 ms and 1 s if 0. A longer
	// one is sustained.
	Shortest, Longest time.Duration
	// Sampling is the length of the windows of which load and idle phases are made: 1 s if 0.
	Sampling time.Duration
}

func (o Options) withDefaults() Options {
	if o.Shortest == 0 {
		o.Shortest = 10 * time.Millisecond
	}
	if o.Longest == 0 {
		o.Longest = time.Second
	}
	if o.Sampling == 0 {
		o.Sampling = time.Second
	}
	return o
}

// Report is what recordings of one host show.
type Report struct {
	Host   string    `json:"host"`
	Kernel string    `json:"kernel"`
	Cores  int       `json:"cores"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	// Containers in order of their name.
	Containers []*Container `json:"containers"`
	// CPU is of all recorded containers together.
	CPU Utilisation `json:"cpu"`
	// Saturations lasted from Options.Shortest to Options.Longest, in order of time. Sustained ones
	// lasted longer.
	Saturations []*Saturation `json:"saturations"`
	Sustained   []*Saturation `json:"sustained"`
	Problems    []FileProblem `json:"problems"`
	Notes       []string      `json:"notes"`

	lines []*timeline
	grid  []int64
}

// FileProblem is something that could not be read.
type FileProblem struct {
	Path string `json:"path"`
	csvy.Problem
}

// Container is what its recording shows.
type Container struct {
	Name  string    `json:"name"`
	ID    string    `json:"id"`
	Image string    `json:"image"`
	Files int       `json:"files"`
	Rows  int       `json:"rows"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	// Cut is true where the last file ends without having been closed properly.
	Cut bool `json:"cut"`
	// Intervals between rows; Lateness and Cost are of ticks, and nil where the file has none.
	Intervals Intervals    `json:"intervals"`
	Lateness  *Distributed `json:"lateness"`
	Cost      *Distributed `json:"tick_cost"`
	// MissingTicks have no row; of them LostTicks could not be stored.
	MissingTicks uint64      `json:"missing_ticks"`
	LostTicks    uint64      `json:"lost_ticks"`
	CPU          Utilisation `json:"cpu"`
}

// Analyse makes a report of recordings of one host. Files of one container are put together.
func Analyse(recordings []*csvy.Recording, o Options) *Report {
	o = o.withDefaults()
	r := &Report{Containers: []*Container{}, Saturations: []*Saturation{}, Sustained: []*Saturation{},
		Problems: []FileProblem{}, Notes: []string{}}
	for _, rec := range recordings {
		for _, p := range rec.Problems {
			r.Problems = append(r.Problems, FileProblem{rec.Path, p})
		}
	}
	r.lines = timelines(recordings)
	r.aboutHost()
	for _, l := range r.lines {
		r.Containers = append(r.Containers, l.container(o))
	}
	r.grid = gridOf(r.lines)
	r.CPU = utilisation(r.grid, hostUsage(r.lines, r.grid), o.Sampling)
	r.find(o)
	return r
}

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// aboutHost fills in the host and the time, and notes what makes the recordings hard to compare.
func (r *Report) aboutHost() {
	hosts := map[string]bool{}
	clocks := map[bool]bool{}
	for _, l := range r.lines {
		if l.passed > 0 {
			r.note("%s: %d rows are not later than the one before them and were passed over: its files overlap in time, or "+
				"its clock was set back.", l.name, l.passed)
		}
		h := &l.header.Host
		hosts[h.Name] = true
		clocks[l.monotonic] = true
		r.Host, r.Kernel = h.Name, h.Kernel
		if r.Cores = h.OnlineCores; r.Cores == 0 {
			r.Cores = h.Cores
		}
		if n := len(l.t); n > 0 {
			from, to := time.Unix(0, l.t[0]), time.Unix(0, l.t[n-1])
			if r.From.IsZero() || from.Before(r.From) {
				r.From = from
			}
			if to.After(r.To) {
				r.To = to
			}
		}
	}
	if len(hosts) > 1 {
		r.note("The recordings are of %d hosts: what is said of one container and another is only as good as their clocks "+
			"agree.", len(hosts))
	}
	if len(clocks) > 1 {
		r.note("Some recordings have no monotonic time: against the others they are only as exact as the wall clock.")
	}
	if r.Cores == 0 && len(r.lines) > 0 {
		r.note("The recordings do not say how many CPUs the host has: saturation of the whole host is not looked for.")
	}
}

// timelines puts the files of each container together, in order of the containers' names.
func timelines(recordings []*csvy.Recording) []*timeline {
	byKey := map[string][]*csvy.Recording{}
	var keys []string
	for _, rec := range recordings {
		key := rec.Head.Host.Name + "\x00" + rec.Head.Container.Key()
		if byKey[key] == nil {
			keys = append(keys, key)
		}
		byKey[key] = append(byKey[key], rec)
	}
	var lines []*timeline
	for _, key := range keys {
		lines = append(lines, newTimeline(byKey[key]))
	}
	seen := map[string]int{}
	for _, l := range lines {
		if seen[l.name]++; seen[l.name] > 1 { // names are how a report distinguishes containers
			l.name = fmt.Sprintf("%s (%d)", l.name, seen[l.name])
		}
	}
	slices.SortFunc(lines, func(a, b *timeline) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.header.Container.Key(), b.header.Container.Key()))
	})
	return lines
}
