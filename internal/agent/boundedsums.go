package agent

import (
	"time"

	"golang.org/x/time/rate"
)

// maxGone bounds the containers whose sums are kept after they ended, in case that they start again.
const maxGone = 1024

// boundedSums are counters of one container by their labels. Those that find no room share that of the zero key.
type boundedSums[K comparable] struct {
	total map[K]uint64
	most  int
	// fresh admits keys: twice as many as may be, and then as many in each hour. A store keeps their series for about as
	// long.
	fresh *rate.Limiter
}

func newBoundedSums[K comparable](most int) boundedSums[K] {
	return boundedSums[K]{total: make(map[K]uint64), most: most,
		fresh: rate.NewLimiter(rate.Limit(float64(most)/time.Hour.Seconds()), 2*most)}
}

// add says whether the sums have changed.
func (s *boundedSums[K]) add(now time.Time, key K, n uint64) bool {
	before, known := s.total[key]
	if !known && (len(s.total) >= s.most || !s.fresh.AllowN(now, 1)) {
		var rest K
		key = rest
		before, known = s.total[key]
	}
	s.total[key] = before + n
	return !known || n > 0
}

// mayBeForgotten says whether no key was new for so long that beginning anew admits no more of them.
func (s *boundedSums[K]) mayBeForgotten(now time.Time) bool {
	return s.fresh.TokensAt(now) >= float64(s.fresh.Burst())
}

// forgetGone forgets the sums of containers that are not present, but for what they may not have again before its time.
func forgetGone[S interface{ mayBeForgotten(time.Time) bool }](now time.Time, of map[string]S,
	present map[string]bool) {
	gone := 0
	for id, sums := range of {
		if present[id] {
			continue
		}
		if sums.mayBeForgotten(now) || gone >= maxGone {
			delete(of, id)
			continue
		}
		gone++
	}
}
