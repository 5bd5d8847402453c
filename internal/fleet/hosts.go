// Package fleet says how hosts and their agents did in a window of frames: how much of each host was used, what works
// on it, and what found no room in a table. Its functions are pure.
package fleet

import (
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// Host is a host in a window. A number that could not be had is nil.
type Host struct {
	Name                          string
	Kernel, CgroupLayout, Version string
	Cores                         float64
	MemoryBytes                   *float64
	// Idle ran nothing, Other is of control groups that found no room in the kernel's table, Steal was taken by a
	// hypervisor: CPUs, as means of the covered time.
	Idle, Other, Steal *float64
	// AgentCPUCores is the mean over the covered time, AgentCPUSeconds what the agent took since its start.
	AgentCPUCores                     *float64
	AgentCPUSeconds, AgentMemoryBytes float64
	// UnmatchedShare is the share, 0 to 1, of edges whose other end is in no container that the host knows.
	UnmatchedShare float64
	// CoveredSeconds is how much of the window was observed. LastHeard is the time of the newest frame.
	CoveredSeconds float64
	LastHeard      time.Time
	// Numbers are those that the registry has of hosts, by their keys.
	Numbers map[string]float64
}

// Numbers are those that the registry has of hosts, in its order.
var Numbers = model.Numbers(model.HostRows, model.HostGroups)

// Hosts are those of a window, in order of their names.
func Hosts(w *frame.Window) []Host {
	all := make([]Host, 0, len(w.Hosts))
	for i := range w.Hosts {
		if len(w.Hosts[i].Spans) > 0 {
			all = append(all, hostOf(&w.Hosts[i]))
		}
	}
	return all
}

func hostOf(of *frame.HostSpans) Host {
	s := spans{HostSpans: of}
	for i := range of.Spans {
		s.differences = append(s.differences, frame.Since(frame.Hosts, s.before(i), of.Spans[i].After))
	}
	last := of.Spans[len(of.Spans)-1].After
	h := Host{Name: of.Host, LastHeard: last.Time, CoveredSeconds: Covered(of).Seconds(), Numbers: map[string]float64{},
		Idle: s.rate("cpu_idle"), Other: s.rate("cpu_other"), Steal: s.rate("cpu_steal"), AgentCPUCores: s.rate("agent_cpu"),
		MemoryBytes: s.level("memory")}
	number := func(v *float64) float64 {
		if v == nil {
			return 0
		}
		return *v
	}
	h.Cores, h.AgentMemoryBytes = number(s.level("cores")), number(s.level("agent_memory"))
	h.AgentCPUSeconds, h.UnmatchedShare = number(s.level("agent_cpu")), number(s.level("edges_unmatched"))
	if len(last.Tables[frame.Hosts].IDs) > 0 {
		h.Kernel = last.Text(frame.Hosts, frame.HostKernel, 0)
		h.CgroupLayout = last.Text(frame.Hosts, frame.HostCgroupLayout, 0)
	}
	eachLabelled(last, metricBuild, func(row int, labels []string) { h.Version = labels[0] })
	for i := range Numbers {
		if v := s.number(&Numbers[i]); v != nil {
			h.Numbers[Numbers[i].Key] = *v
		}
	}
	return h
}

// Covered is how much of a window was observed of a host: from its first frame to its last.
func Covered(of *frame.HostSpans) time.Duration {
	if len(of.Spans) == 0 {
		return 0
	}
	first := of.Spans[0].Before
	if first == nil {
		first = of.Spans[0].After
	}
	return max(of.Spans[len(of.Spans)-1].After.Time.Sub(first.Time), 0)
}

// spans are those of a host, with the differences of its own table.
type spans struct {
	*frame.HostSpans
	differences []*frame.Difference
}

// before is what a span is counted from: nothing where its agent began in the window. The start of what only one frame
// tells of is not known.
func (s *spans) before(i int) *frame.Frame {
	if i == 0 && s.Spans[i].Before == nil {
		return s.Spans[i].After
	}
	return s.Spans[i].Before
}

// number is one of the registry's, nil where it could not be had.
func (s *spans) number(n *model.Shown) *float64 {
	switch n.Formula {
	case model.Rate:
		return s.rate(n.Of[0])
	case model.MeanLevel:
		return s.rate(n.Of[0] + ".integral")
	case model.PeakLevel:
		return s.level(n.Of[0] + ".highest")
	}
	return s.level(n.Of[0])
}

// level is the last value of a column, in its unit.
func (s *spans) level(name string) *float64 {
	column := frame.Column(frame.Hosts, name)
	t := &s.Spans[len(s.Spans)-1].After.Tables[frame.Hosts]
	if len(t.IDs) == 0 || column >= len(t.Columns) {
		return nil
	}
	n, ok := t.Columns[column].At(0)
	if !ok {
		return nil
	}
	info := &frame.Schema[frame.Hosts].Columns[column]
	float := info.Kind == frame.LevelFloat ||
		info.Kind == frame.Highest && frame.Schema[frame.Hosts].Columns[info.Of].Kind == frame.LevelFloat
	v := float64(n) / info.Per
	if float {
		v = frame.Float(n)
	}
	return &v
}

// rate is what a counter gained per second of the covered time; nil where that is 0.
func (s *spans) rate(name string) *float64 {
	column := frame.Column(frame.Hosts, name)
	info := &frame.Schema[frame.Hosts].Columns[column]
	seconds, sum, some := Covered(s.HostSpans).Seconds(), 0.0, false
	for i, d := range s.differences {
		if len(d.After.IDs) == 0 {
			continue
		}
		n, ok := d.Gain(column, 0)
		if !ok {
			continue
		}
		if i > 0 && s.Spans[i].Before == nil && info.File && s.Spans[i-1].After.Boot == s.Spans[i].After.Boot {
			n = goesOn(&s.Spans[i-1].After.Tables[frame.Hosts], column, n)
		}
		sum, some = sum+float64(n)/info.Per, true
	}
	if !some || seconds <= 0 {
		return nil
	}
	sum /= seconds
	return &sum
}

// goesOn is what a counter of a file gained after the last frame of another agent on the same host.
func goesOn(before *frame.Table, column int, n uint64) uint64 {
	if len(before.IDs) == 0 || column >= len(before.Columns) {
		return 0
	}
	was, ok := before.Columns[column].At(0)
	switch {
	case !ok:
		return 0
	case n < was:
		return n
	}
	return n - was
}
