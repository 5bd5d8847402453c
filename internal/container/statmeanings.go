package container

import (
	"os"

	"outsight/internal/model"
)

// statMeanings are which of the kernel's counters are which lines of memory.stat. The kernel numbers its counters by
// a table of its own, so this is found out by comparing values: a counter that once differed from a line is not that
// line. Where all that are left say the same, the line says it, too. Should the true one be excluded all the same, then
// comparisons fail, and all are candidates again.
type statMeanings struct {
	candidates  [statLines][]statCandidate
	hasRefaults bool
}

// statCandidate is a counter and the unit of it in the file.
type statCandidate struct {
	word int
	unit int64
}

const statLines = 7

// lines are what is used of memory.stat.
func (s *memoryStat) lines() [statLines]*uint64 {
	return [statLines]*uint64{&s.rss, &s.cache, &s.inactiveFile, &s.faults, &s.majorFaults, &s.anonRefaults,
		&s.fileRefaults}
}

func newStatMeanings() *statMeanings {
	m := &statMeanings{}
	for line := range m.candidates {
		for word := range len(model.StatWords{}) {
			m.candidates[line] = append(m.candidates[line], statCandidate{word, 1},
				statCandidate{word, int64(os.Getpagesize())})
		}
	}
	return m
}

// in is what the file shows of the counter. Those of CPUs are flushed one after the other, so a counter may be negative
// meanwhile; the file says 0 then.
func (c statCandidate) in(words *model.StatWords) uint64 {
	return uint64(max(words[c.word], 0) * c.unit)
}

// fits reports whether the file excludes none of the counters.
func (m *statMeanings) fits(words model.StatWords, file memoryStat) bool {
	if m.hasRefaults != file.hasRefaults {
		return false
	}
	for line, value := range file.lines() {
		for _, c := range m.candidates[line] {
			if c.in(&words) != *value {
				return false
			}
		}
	}
	return true
}

// narrow excludes the counters that differ from the file. It answers false, and excludes none, where a line would have
// no counter left.
func (m *statMeanings) narrow(words *model.StatWords, file *memoryStat) bool {
	var left [statLines][]statCandidate
	for line, value := range file.lines() {
		for _, c := range m.candidates[line] {
			if c.in(words) == *value {
				left[line] = append(left[line], c)
			}
		}
		if left[line] == nil {
			return false
		}
	}
	m.candidates, m.hasRefaults = left, file.hasRefaults
	return true
}

// stat is what the file would say; ok is false where the counters that are left do not agree.
func (m *statMeanings) stat(words *model.StatWords) (s memoryStat, ok bool) {
	for line, value := range s.lines() {
		for i, c := range m.candidates[line] {
			n := words[c.word] * c.unit
			if n < 0 || i > 0 && uint64(n) != *value {
				return s, false
			}
			*value = uint64(n)
		}
	}
	s.hasRefaults = m.hasRefaults
	return s, true
}
