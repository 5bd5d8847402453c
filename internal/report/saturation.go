package report

import (
	"cmp"
	"math"
	"slices"
	"time"

	"outsight/internal/csvy"
)

// Kind of a saturation.
type Kind string

// The kinds of saturation.
const (
	// HostCPU: all CPUs of the host were busy.
	HostCPU Kind = "host-cpu"
	// Quota: the container had used up its CPU quota.
	Quota Kind = "cpu-quota"
	// OneCPU: one thread had all the CPU time that one thread can have.
	OneCPU Kind = "one-cpu"
	// RunQueue: threads waited for a CPU, and it is not known what for.
	RunQueue Kind = "run-queue"
	// MemoryLimit: the container was at its memory limit.
	MemoryLimit Kind = "memory-limit"
	// DiskTime: a disk request was under way all the time.
	DiskTime Kind = "disk-time"
	// Stall: requests were unanswered, and nothing was done about them.
	Stall Kind = "stall"
)

// Saturation is a resource at its limit for some time.
type Saturation struct {
	Kind Kind `json:"kind"`
	// Container whose resource it is; for HostCPU the one that took the most CPU, which may be the
	// host's own processes.
	Container string    `json:"container"`
	ID        string    `json:"id"`
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	Duration  float64   `json:"duration_ms"`
	// Earliest is before From where the begin cannot be seen: a stall begins after the last byte
	// that was sent or received, and shows with the first request.
	Earliest time.Time `json:"earliest"`
	// Resolution is the step of the recording around the ends.
	Resolution float64 `json:"resolution_ms"`
	// OpenStart and OpenEnd: the recording begins or ends within it.
	OpenStart bool   `json:"open_start"`
	OpenEnd   bool   `json:"open_end"`
	Text      string `json:"text"`
	// CPU is who used it meanwhile, most first.
	CPU     []Share  `json:"cpu"`
	Effects []Effect `json:"effects"`
	// Chain is cause and effects in order of time.
	Chain []Link `json:"chain"`
	// Waited sums what waited because of it: thread-milliseconds in run queues, and
	// request-milliseconds beyond the usual.
	Waited float64 `json:"waited_ms"`

	span span
	line *timeline // nil: the host
}

// The least values of saturation: shares of the limit, or threads.
const (
	hostCPULevel = 0.95
	quotaLevel   = 0.97
	oneCPULeast  = 0.9
	oneCPUMost   = 1.2
	waitLevel    = 0.5
	memoryLevel  = 0.98
	diskLevel    = 0.95
	// starved is how many threads wait on average where lack of CPU explains that nothing is done.
	starved = 0.3
	// stallCPU is the most CPU that a stalled container uses, of one, to take requests in.
	stallCPU = 0.1
)

// find fills in the saturations.
func (r *Report) find(o Options) {
	var all []*Saturation
	add := func(kind Kind, l *timeline, spans []span) {
		for _, s := range spans {
			if s.lasts(o.Shortest) {
				all = append(all, &Saturation{Kind: kind, span: s, line: l})
			}
		}
	}
	host := r.hostSpans()
	add(HostCPU, nil, host)
	var queued []queuedSpans
	for _, l := range r.lines {
		quota := l.quotaSpans()
		add(Quota, l, quota)
		disk := l.diskSpans()
		add(DiskTime, l, disk)
		add(MemoryLimit, l, l.memorySpans())
		explained := slices.Concat(host, quota)
		without := func(spans, others []span) []span {
			return slices.DeleteFunc(spans, func(s span) bool { return s.mostlyIn(others) })
		}
		if r.Cores != 1 {
			add(OneCPU, l, without(l.oneCPUSpans(), explained))
		}
		queued = append(queued, queuedSpans{l, without(l.waitSpans(), explained)})
		add(Stall, l, without(l.stallSpans(), slices.Concat(quota, disk)))
	}
	for _, q := range alone(queued) {
		add(RunQueue, q.line, q.spans)
	}
	slices.SortStableFunc(all, func(a, b *Saturation) int { return cmp.Compare(a.span.from, b.span.from) })
	for _, s := range all {
		r.complete(s)
		if s.span.duration() > o.Longest {
			r.Sustained = append(r.Sustained, s)
		} else {
			r.Saturations = append(r.Saturations, s)
		}
	}
}

// queuedSpans are the times in which threads of a container waited for a CPU.
type queuedSpans struct {
	line  *timeline
	spans []span
}

// alone leaves of the spans that several containers have at a time the one of the container that
// waited the most; the others are its effects.
func alone(queued []queuedSpans) []queuedSpans {
	type one struct {
		line   *timeline
		span   span
		waited float64
	}
	var all []one
	for _, q := range queued {
		for _, s := range q.spans {
			all = append(all, one{q.line, s, q.line.of(csvy.RunQueueNS).gained(s.from, s.to)})
		}
	}
	slices.SortStableFunc(all, func(a, b one) int { return cmp.Compare(b.waited, a.waited) })
	var kept []queuedSpans
	var taken []span
	for _, o := range all {
		if !o.span.mostlyIn(taken) {
			taken = append(taken, o.span)
			kept = append(kept, queuedSpans{o.line, []span{o.span}})
		}
	}
	return kept
}

// hostSpans: the recorded containers together use at least 0.95 of all CPUs. Those that were not
// recorded are missing from the sum.
func (r *Report) hostSpans() []span {
	if r.Cores == 0 {
		return nil
	}
	usage := hostUsage(r.lines, r.grid)
	limit := float64(r.Cores)
	return stretched(r.grid, usage, limit, atLeast(usage, hostCPULevel*limit))
}

func atLeast(values []float64, least float64) []bool {
	holds := make([]bool, len(values))
	for i, v := range values {
		holds[i] = v >= least
	}
	return holds
}

func stretched(t []int64, values []float64, limit float64, holds []bool) []span {
	spans := spansOf(t, holds, hole)
	if len(spans) == 0 {
		return nil // mostly: what is usual takes longer to find than all of the rest
	}
	usual := median(values)
	for i := range spans {
		spans[i] = spans[i].stretch(t, values, usual, limit)
	}
	return spans
}

// quotaSpans: over a period of the quota, the container used at least 0.97 of it; where the
// throttled time is known, it must have grown as well. A span covers all of the period from where
// the container used more than the quota's rate.
func (l *timeline) quotaSpans() []span {
	cpu, quota, period := l.of(csvy.CPUNS), l.of(csvy.CPUQuotaNS), l.of(csvy.CPUPeriodNS)
	if len(quota.v) == 0 || len(cpu.t) < 2 {
		return nil
	}
	holds := make([]bool, len(cpu.t)-1)
	for i := 1; i < len(cpu.t); i++ {
		length := period.level(cpu.t[i])
		if math.IsNaN(length) || length <= 0 {
			length = float64(100 * time.Millisecond)
		}
		limit := quota.level(cpu.t[i])
		begin := max(cpu.t[i]-int64(length), cpu.t[0])
		share := float64(cpu.t[i]-begin) / length
		// A part of a period says little: the quota may be used at once.
		if math.IsNaN(limit) || math.IsInf(limit, 1) || limit <= 0 || share < 0.5 ||
			cpu.gained(begin, cpu.t[i]) < quotaLevel*limit*share {
			continue
		}
		first := i - 1
		for j := i - 1; j >= 0 && cpu.t[j] >= begin; j-- {
			if cpu.gained(cpu.t[j], cpu.t[j+1]) >= limit/length*float64(cpu.t[j+1]-cpu.t[j]) {
				first = j
			}
		}
		for j := first; j < i; j++ {
			holds[j] = true
		}
	}
	throttled := l.of(csvy.ThrottledNS)
	around := int64(throttled.step())
	return slices.DeleteFunc(spansOf(cpu.t, holds, hole), func(s span) bool {
		return len(throttled.v) > 0 && throttled.gained(s.from-around, s.to+around) == 0
	})
}

// oneCPUSpans: in each step the container used 0.9 to 1.2 CPUs, and less than 0.3 threads waited
// for more. A container that serves requests must have had two at once: else nobody waited.
func (l *timeline) oneCPUSpans() []span {
	cpu, waits, served := l.of(csvy.CPUNS), l.of(csvy.RunQueueNS), l.of(csvy.RequestsServing)
	usage := cpu.rates()
	holds := make([]bool, len(usage))
	for i, u := range usage {
		wait := waits.gained(cpu.t[i], cpu.t[i+1]) / float64(cpu.t[i+1]-cpu.t[i])
		holds[i] = u >= oneCPULeast && u <= oneCPUMost && wait < starved
	}
	spans := stretched(cpu.t, usage, 1, holds)
	if greatest(served.v) < 1 {
		return spans
	}
	return slices.DeleteFunc(spans, func(s span) bool { return greatest(served.between(s.from, s.to)) < 2 })
}

func greatest(values []float64) float64 {
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	return most
}

// waitSpans: at least half a thread, on average, waited for a CPU.
func (l *timeline) waitSpans() []span {
	waits := l.of(csvy.RunQueueNS)
	rates := waits.rates()
	return stretched(waits.t, rates, 1, atLeast(rates, waitLevel))
}

// memorySpans: at both ends of each step, memory was at least 0.98 of its limit.
func (l *timeline) memorySpans() []span {
	memory, limit := l.of(csvy.MemoryBytes), l.of(csvy.MemoryLimitBytes)
	holds := make([]bool, max(len(memory.t)-1, 0))
	full := func(i int) bool {
		most := limit.level(memory.t[i])
		return most > 0 && memory.v[i] >= memoryLevel*most
	}
	for i := range holds {
		holds[i] = full(i) && full(i+1)
	}
	return spansOf(memory.t, holds, hole)
}

// diskSpans: disk requests were under way for at least 0.95 of the time.
func (l *timeline) diskSpans() []span {
	disk := l.of(csvy.DiskTimeNS)
	rates := disk.rates()
	return stretched(disk.t, rates, 1, atLeast(rates, diskLevel))
}

// stallMargin is how far around a stall the requests are looked for that are unanswered in any case: long
// polls and the like.
const stallMargin = 2 * time.Second

// stallSpans: in each step there were unanswered requests, not fewer at its end than at its begin,
// and more than are always there; not a byte was sent; less than 0.5 CPUs were used; and the
// container did not wait for a reply itself, at both ends. Over all of the span it used at most 0.1
// CPUs, and less than 0.3 threads waited for one. The first request arrived and the first reply went
// within the steps before and after: half of each is added.
//
// A stall can begin before the first request shows it, and after the last byte that was sent or
// received. Where the container used CPU between the two, that is taken for the begin: it is what a
// timer, a collection or whoever takes a lock does first. Else the begin is put in the middle, and at
// most 10 ms before the first request.
func (l *timeline) stallSpans() []span {
	served, called, sent := l.of(csvy.RequestsServing), l.of(csvy.RequestsAsking), l.of(csvy.SentBytes)
	cpu, waits := l.of(csvy.CPUNS), l.of(csvy.RunQueueNS)
	t := served.t
	if len(t) < 2 || len(sent.t) == 0 || greatest(served.v) < 1 {
		return nil
	}
	silent := func(i int) bool { return sent.gained(t[i], t[i+1]) == 0 }
	holds := make([]bool, len(t)-1)
	for i := range holds {
		waiting := called.level(t[i]) >= 1 && called.level(t[i+1]) >= 1
		holds[i] = served.v[i] >= 1 && served.v[i+1] >= served.v[i] && silent(i) && !waiting &&
			cpu.gained(t[i], t[i+1]) < 0.5*float64(t[i+1]-t[i])
	}
	spans := spansOf(t, holds, 0)
	for i := range spans {
		s := &spans[i]
		if !s.openStart && served.v[s.first-1] < served.v[s.first] && silent(s.first-1) {
			s.from -= (t[s.first] - t[s.first-1]) / 2
		}
		if !s.openEnd {
			s.to += (t[s.last+2] - t[s.last+1]) / 2
		}
		s.seen = s.to - s.from
		if begin, ok := l.stirred(s.first - 1); ok {
			s.from = min(begin, s.from)
		} else {
			last := l.earliest(*s) - s.step/2 // the last byte, within its step
			s.from -= min(max(s.from-last, 0)/2, int64(mostBefore))
		}
	}
	return slices.DeleteFunc(spans, func(s span) bool {
		always := slices.Min(served.between(s.from-int64(stallMargin), s.to+int64(stallMargin)))
		length := float64(s.to - s.from)
		return served.level(t[s.first]) <= always && always > 0 || cpu.gained(s.from, s.to) > stallCPU*length ||
			waits.gained(s.from, s.to) >= starved*length
	})
}

// mostBefore is how long before its first request a stall is put at most, without a sign of it.
const mostBefore = 10 * time.Millisecond

// stirs is the least CPU time, in ns, of a step that is a sign of life.
const stirs = 20_000

// stirred looks for the last step before the given one in which the container used CPU without
// having sent or received a byte, and without a request. It is the middle of that step.
func (l *timeline) stirred(before int) (at int64, found bool) {
	served, cpu := l.of(csvy.RequestsServing), l.of(csvy.CPUNS)
	t := served.t
	for i := before; i > 0 && l.quiet(i-1) && t[before]-t[i-1] < int64(100*time.Millisecond); i-- {
		if cpu.gained(t[i-1], t[i]) >= stirs {
			return (t[i-1] + t[i]) / 2, true
		}
	}
	return 0, false
}

// quiet reports a step without a byte sent or received, and without a request at its begin.
func (l *timeline) quiet(step int) bool {
	served := l.of(csvy.RequestsServing)
	from, to := served.t[step], served.t[step+1]
	return served.v[step] < 1 && l.of(csvy.SentBytes).gained(from, to) == 0 &&
		l.of(csvy.ReceivedBytes).gained(from, to) == 0
}

// earliest is when a stall may have begun: at the end of the last step with a byte sent or received
// or an unanswered request.
func (l *timeline) earliest(s span) int64 {
	served := l.of(csvy.RequestsServing)
	i := s.first
	if i > 0 && served.v[i-1] < 1 {
		i-- // the step in which the first request arrived
	}
	for i > 0 && l.quiet(i-1) {
		i--
	}
	return min(served.t[i], s.from)
}
