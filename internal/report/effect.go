package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"outsight/internal/csvy"
)

// Share of the CPU that a container used during a saturation.
type Share struct {
	Container string  `json:"container"`
	CPUs      float64 `json:"cpus"`
	// Usual is its use over all of the recording.
	Usual float64 `json:"usual_cpus"`
}

// What an effect is.
type What string

// The effects: threads waited for a CPU; a container waited for more replies than usual; more
// requests to it than usual had no reply yet.
const (
	WaitedForCPU     What = "waited-for-cpu"
	WaitedForReplies What = "waited-for-replies"
	Unanswered       What = "unanswered-requests"
)

// Effect of a saturation on a container.
type Effect struct {
	Container string    `json:"container"`
	What      What      `json:"what"`
	From      time.Time `json:"from"`
	// Waited is in thread-milliseconds or request-milliseconds.
	Waited float64 `json:"waited_ms"`
	// Most requests at a time, and the usual number; 0 for threads.
	Most  float64 `json:"most"`
	Usual float64 `json:"usual"`
	Text  string  `json:"text"`
}

// Link of a chain: what happened, in order of time.
type Link struct {
	At        time.Time `json:"at"`
	Container string    `json:"container"`
	Text      string    `json:"text"`
}

// complete adds to a saturation who had the CPU, what waited, and the chain.
func (r *Report) complete(s *Saturation) {
	s.From, s.To = time.Unix(0, s.span.from), time.Unix(0, s.span.to)
	s.Earliest = s.From
	s.Duration, s.Resolution = ms(s.span.to-s.span.from), ms(s.span.step)
	s.OpenStart, s.OpenEnd = s.span.openStart, s.span.openEnd
	s.CPU = r.shares(s.span)
	if s.line != nil {
		s.Container, s.ID = s.line.name, s.line.header.Container.Key()
	} else if taker := r.taker(s.span); taker != nil {
		s.Container, s.ID = taker.name, taker.header.Container.Key()
	}
	if s.Kind == Stall {
		s.Earliest = time.Unix(0, s.line.earliest(s.span))
	}
	s.Effects = r.effects(s)
	s.Waited = s.own()
	for _, e := range s.Effects {
		s.Waited += e.Waited
	}
	s.Text = r.describe(s)
	s.Chain = []Link{{s.From, s.Container, s.Text}}
	for _, e := range s.Effects {
		s.Chain = append(s.Chain, Link{e.From, e.Container, e.Text})
	}
}

// own is what the container itself waited, or let wait, where that is no effect of its own: threads in
// the run queue, and requests to one that stalls.
func (s *Saturation) own() float64 {
	switch s.Kind {
	case RunQueue:
		return s.line.of(csvy.RunQueueNS).gained(s.span.from, s.span.to) / 1e6
	case Stall:
		average, _ := meanAndSD(s.line.of(csvy.RequestsServing).between(s.span.from, s.span.to))
		return average * s.Duration
	}
	return 0
}

func ms(ns int64) float64 { return float64(ns) / float64(time.Millisecond) }

// usual is what a counter gains per ns over all of the recording.
func (s *series) usual() float64 {
	n := len(s.t)
	if n < 2 {
		return 0
	}
	return s.gained(s.t[0], s.t[n-1]) / float64(s.t[n-1]-s.t[0])
}

// shares are the containers that used more than 0.01 CPUs, most first.
func (r *Report) shares(s span) []Share {
	shares := []Share{}
	for _, l := range r.lines {
		cpu := l.of(csvy.CPUNS)
		if used := cpu.gained(s.from, s.to) / float64(s.to-s.from); used >= 0.01 {
			shares = append(shares, Share{l.name, used, cpu.usual()})
		}
	}
	slices.SortStableFunc(shares, func(a, b Share) int { return cmp.Compare(b.CPUs, a.CPUs) })
	return shares[:min(len(shares), 8)]
}

// taker is who used the most CPU, the host's own processes among them: a container whose use rose from nearly
// nothing to a little has not made all CPUs busy.
func (r *Report) taker(s span) *timeline {
	var taker *timeline
	most := math.Inf(-1)
	for _, l := range r.lines {
		if used := l.of(csvy.CPUNS).gained(s.from, s.to); used > most {
			taker, most = l, used
		}
	}
	return taker
}

// effects of a saturation, in order of time.
func (r *Report) effects(s *Saturation) []Effect {
	effects := []Effect{}
	for _, l := range r.lines {
		if s.Kind == HostCPU || s.Kind == RunQueue && l != s.line {
			effects = append(effects, l.waitedForCPU(s.span)...)
		}
		var waited []Effect
		if l != s.line {
			waited = l.waited(s.span, csvy.RequestsAsking, WaitedForReplies)
		}
		// Who waits for replies cannot reply itself, and a stall says so already.
		if waited == nil && (l != s.line || s.Kind != Stall) {
			waited = l.waited(s.span, csvy.RequestsServing, Unanswered)
		}
		effects = append(effects, waited...)
	}
	slices.SortStableFunc(effects, func(a, b Effect) int { return a.From.Compare(b.From) })
	return effects
}

// waitedForCPU: the container's threads waited 5 ms or more, and for at least a tenth of the time and
// twice as much as usual.
func (l *timeline) waitedForCPU(s span) []Effect {
	waits := l.of(csvy.RunQueueNS)
	length := float64(s.to - s.from)
	waited := waits.gained(s.from, s.to)
	if waited < 5e6 || waited < 0.1*length || waited < 2*waits.usual()*length {
		return nil
	}
	from := s.from
	for i := waits.after(s.from); i < len(waits.t) && waits.t[i] <= s.to; i++ {
		if i > 0 && waits.v[i]-waits.v[i-1] >= 0.1*float64(waits.t[i]-waits.t[i-1]) {
			from = max(waits.t[i-1], s.from)
			break
		}
	}
	return []Effect{{
		Container: l.name, What: WaitedForCPU, From: time.Unix(0, from), Waited: waited / 1e6,
		Text: fmt.Sprintf("%s: threads waited %s for a CPU", l.name, duration(waited/1e6)),
	}}
}

// waited: on average over the time, there were more requests under way than usual, by half a
// request and one standard deviation.
func (l *timeline) waited(s span, column string, what What) []Effect {
	requests := l.of(column)
	during := requests.between(s.from, s.to)
	if len(during) == 0 {
		return nil
	}
	mean, sd := l.usually(column)
	average, _ := meanAndSD(during)
	if average < mean+max(0.5, sd) {
		return nil
	}
	e := Effect{Container: l.name, What: what, Most: greatest(during), Usual: mean, From: time.Unix(0, s.from)}
	e.Waited = (average - mean) * ms(s.to-s.from)
	for i := requests.after(s.from); i < len(requests.t) && requests.t[i] <= s.to; i++ {
		if requests.v[i] >= mean+0.5 {
			e.From = time.Unix(0, requests.t[i])
			break
		}
	}
	if what == WaitedForReplies {
		e.Text = fmt.Sprintf("%s: up to %s waited for replies (usually %.1f)", l.name, plural(e.Most, "request"), mean)
	} else {
		e.Text = fmt.Sprintf("%s: up to %s to it had no reply (usually %.1f)", l.name, plural(e.Most, "request"), mean)
	}
	return []Effect{e}
}

// usually is a gauge's mean and standard deviation over all of the recording.
func (l *timeline) usually(column string) (mean, sd float64) {
	if known, ok := l.levels[column]; ok {
		return known[0], known[1]
	}
	mean, sd = meanAndSD(l.of(column).v)
	if l.levels == nil {
		l.levels = map[string][2]float64{}
	}
	l.levels[column] = [2]float64{mean, sd}
	return mean, sd
}

// describe says what a saturation is, in one sentence.
func (r *Report) describe(s *Saturation) string {
	length := duration(s.Duration)
	cpu := 0.0
	for _, share := range s.CPU {
		if share.Container == s.Container {
			cpu = share.CPUs
		}
	}
	switch s.Kind {
	case HostCPU:
		return fmt.Sprintf("%s: took %.2f of %d CPUs, all of which were busy for %s", s.Container, cpu, r.Cores, length)
	case Quota:
		return fmt.Sprintf("%s: at its CPU quota for %s", s.Container, length)
	case OneCPU:
		return fmt.Sprintf("%s: one thread's worth of CPU (%.2f) for %s", s.Container, cpu, length)
	case RunQueue:
		text := fmt.Sprintf("%s: threads waited %s for a CPU within %s", s.Container, duration(s.own()), length)
		for _, share := range s.CPU {
			if share.Container != s.Container {
				return fmt.Sprintf("%s, while %s had %.2f", text, share.Container, share.CPUs)
			}
		}
		return text
	case MemoryLimit:
		return fmt.Sprintf("%s: at its memory limit for %s", s.Container, length)
	case DiskTime:
		return fmt.Sprintf("%s: had a disk request under way for %s", s.Container, length)
	}
	most := greatest(s.line.of(csvy.RequestsServing).between(s.span.from, s.span.to))
	return fmt.Sprintf("%s: stood still for %s: up to %s unanswered, no CPU used and nothing sent", s.Container, length,
		plural(most, "request"))
}

func plural(n float64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%.0f %ss", n, noun)
}

// duration writes milliseconds for people.
func duration(ms float64) string {
	switch {
	case ms >= 10_000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 1000:
		return fmt.Sprintf("%.2f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 1:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f µs", ms*1000)
}
