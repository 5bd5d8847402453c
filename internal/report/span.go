package report

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// span is a run of steps in which something held.
type span struct {
	from, to int64
	// first and last are the steps of it: step i is from t[i] to t[i+1].
	first, last int
	// openStart and openEnd: it held from the recording's begin on, or to its end.
	openStart, openEnd bool
	// step is the longer one of the steps before and after it: how exactly its ends are known.
	step int64
	// seen is the length of what was seen of it, where its begin is put before that.
	seen int64
}

func (s span) duration() time.Duration { return time.Duration(s.to - s.from) }

// lasts reports whether what was seen of it takes at least so long.
func (s span) lasts(least time.Duration) bool {
	return time.Duration(cmp.Or(s.seen, s.to-s.from)) >= least
}

// overlap is the share of s that lies within other.
func (s span) overlap(other span) float64 {
	common := min(s.to, other.to) - max(s.from, other.from)
	return float64(max(common, 0)) / float64(max(s.to-s.from, 1))
}

// mostlyIn reports whether at least half of s lies within one of the others.
func (s span) mostlyIn(others []span) bool {
	return slices.ContainsFunc(others, func(other span) bool { return s.overlap(other) >= 0.5 })
}

// hole is a time that does not end a span: a step at which the value was a little less.
const hole = 10 * time.Millisecond

// spansOf finds the runs of steps that hold, one for each neighbouring pair of times. Steps between
// them that take less than hole do not part them.
func spansOf(t []int64, holds []bool, hole time.Duration) []span {
	var list []span
	for i := 0; i < len(holds); i++ {
		if !holds[i] {
			continue
		}
		s := span{from: t[i], first: i}
		for i+1 < len(holds) && holds[i+1] {
			i++
		}
		s.to, s.last = t[i+1], i
		if n := len(list); n > 0 && s.from-list[n-1].to < int64(hole) {
			list[n-1].to, list[n-1].last = s.to, s.last
			continue
		}
		list = append(list, s)
	}
	for i := range list {
		s := &list[i]
		s.openStart, s.openEnd = s.first == 0, s.last == len(holds)-1
		if !s.openStart {
			s.step = t[s.first] - t[s.first-1]
		}
		if !s.openEnd {
			s.step = max(s.step, t[s.last+2]-t[s.last+1])
		}
	}
	return list
}

// stretch moves the ends of a span to where they are within their steps. Of a step with the value v
// between the usual one and the limit, it takes the share (v - usual) / (limit - usual): of the first
// and the last step of the span, and of the steps before and after it.
func (s span) stretch(t []int64, values []float64, usual, limit float64) span {
	part := func(step int) int64 {
		share := (values[step] - usual) / (limit - usual)
		if math.IsNaN(share) || limit <= usual {
			return 0
		}
		return int64(min(max(share, 0), 1) * float64(t[step+1]-t[step]))
	}
	several := s.first < s.last && limit > usual
	if !s.openStart {
		if several {
			s.from = t[s.first+1] - part(s.first)
		}
		s.from -= part(s.first - 1)
	}
	if !s.openEnd {
		if several {
			s.to = t[s.last] + part(s.last)
		}
		s.to += part(s.last + 1)
	}
	return s
}
