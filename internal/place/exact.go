package place

import "context"

// maxExact is how many placements Exact tries at most before it gives up.
const maxExact = 3_000_000

// exact is the placement that costs least, found by trying all that keep the rules; nil where these are too many.
// It ends early with the context.
func exact(ctx context.Context, from *state) *state {
	placements := 1.0
	var free []int
	for n := range from.units {
		hosts := len(from.Hosts)
		if allowed := from.units[n].allowed; allowed != nil {
			hosts = count(allowed)
		}
		if hosts > 1 {
			free = append(free, n)
			placements *= float64(hosts)
		}
	}
	if placements > maxExact {
		return nil
	}
	s := newState(from.compiled, from.at)
	best, least := append([]int32(nil), s.at...), s.cost()
	for _, n := range free {
		s.remove(n)
	}
	tried := 0
	var try func(k int)
	try = func(k int) {
		if k == len(free) {
			tried++
			if cost := s.cost(); cost < least-1e-12 {
				least = cost
				copy(best, s.at)
			}
			return
		}
		for h := range s.Hosts {
			if tried%checkEvery == 0 && ctx.Err() != nil {
				return
			}
			if s.room(free[k], h, -1) {
				s.add(free[k], h)
				try(k + 1)
				s.remove(free[k])
			}
		}
	}
	try(0)
	return newState(from.compiled, best)
}
