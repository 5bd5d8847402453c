package framelog

import (
	"math/bits"
	"slices"
	"sort"
)

// streamName names the frames of one life of an agent.
type streamName struct {
	tenant, host string
	epoch        uint64
}

// stream is what is in memory of the frames of one epoch of a host.
type stream struct {
	streamName
	// first and last are the times of its frames, in nanoseconds; lastNumber is the greatest number of a frame that was
	// ever stored. They stay where retention removes frames.
	first, last int64
	lastNumber  uint64
	// key is the newest key frame, of the minute keyMinute.
	key       uint64
	keyMinute int64
	// minutes are those of which there may be frames.
	minutes minuteSet
	// segments counts the segments that have frames of it.
	segments int
}

// minuteSet is a set of minutes, with a word for each 64 of them that has some.
type minuteSet struct {
	words []minuteWord // by their base
}

type minuteWord struct {
	base int64 // the minute divided by 64
	bits uint64
}

func (s *minuteSet) find(base int64) (int, bool) {
	if n := len(s.words); n > 0 && s.words[n-1].base == base {
		return n - 1, true
	}
	at := sort.Search(len(s.words), func(i int) bool { return s.words[i].base >= base })
	return at, at < len(s.words) && s.words[at].base == base
}

func (s *minuteSet) add(minute int64) {
	at, ok := s.find(minute >> 6)
	if !ok {
		s.words = slices.Insert(s.words, at, minuteWord{base: minute >> 6})
	}
	s.words[at].bits |= 1 << (minute & 63)
}

// before is the newest minute of the set that is not after minute.
func (s *minuteSet) before(minute int64) (int64, bool) {
	at, ok := s.find(minute >> 6)
	if ok {
		if left := s.words[at].bits << (63 - minute&63); left != 0 {
			return minute - int64(bits.LeadingZeros64(left)), true
		}
	}
	if at == 0 {
		return 0, false
	}
	w := s.words[at-1]
	return w.base<<6 + 63 - int64(bits.LeadingZeros64(w.bits)), true
}

// after is the oldest minute of the set that is not before minute.
func (s *minuteSet) after(minute int64) (int64, bool) {
	at, ok := s.find(minute >> 6)
	if ok {
		if left := s.words[at].bits >> (minute & 63); left != 0 {
			return minute + int64(bits.TrailingZeros64(left)), true
		}
		at++
	}
	if at >= len(s.words) {
		return 0, false
	}
	w := s.words[at]
	return w.base<<6 + int64(bits.TrailingZeros64(w.bits)), true
}

// removeBefore forgets all minutes before one.
func (s *minuteSet) removeBefore(minute int64) {
	at, ok := s.find(minute >> 6)
	s.words = slices.Delete(s.words, 0, at)
	if ok {
		if s.words[0].bits &= ^uint64(0) << (minute & 63); s.words[0].bits == 0 {
			s.words = slices.Delete(s.words, 0, 1)
		}
	}
}

// runs are the minutes of the set as pairs of a first minute and how many follow one another.
func (s *minuteSet) runs() (all [][2]int64) {
	for _, w := range s.words {
		for left := w.bits; left != 0; {
			first := bits.TrailingZeros64(left)
			count := bits.TrailingZeros64(^(left >> first))
			minute := w.base<<6 + int64(first)
			if n := len(all); n > 0 && all[n-1][0]+all[n-1][1] == minute {
				all[n-1][1] += int64(count)
			} else {
				all = append(all, [2]int64{minute, int64(count)})
			}
			if first+count >= 64 {
				break
			}
			left &= ^uint64(0) << (first + count)
		}
	}
	return all
}
