package place

import "math"

// uplinks are the bytes that each host exchanges with others, as shares of all bytes between containers, and the sum of
// their fourth powers.
type uplinks struct {
	of      []float64
	sum     float64
	changes int // since the sum was summed anew
}

// anewAfter is after how many changes of each host the powers are summed anew, and lost beside which part of what it was
// a sum from which something was taken away is: of a small rest the root would be mostly what rounding left.
const (
	anewAfter = 16
	lost      = 1e-6
)

func (u *uplinks) add(host int, bytes float64) {
	before, sum := u.of[host], u.sum
	u.of[host] += bytes
	u.sum += fourth(u.of[host]) - fourth(before)
	if u.changes++; u.changes >= anewAfter*len(u.of) || u.sum < lost*sum {
		u.sum, u.changes = u.without(-1, -1), 0
	}
}

// without is the sum of all hosts but two.
func (u *uplinks) without(a, b int) (sum float64) {
	for h, v := range u.of {
		if h != a && h != b {
			sum += fourth(v)
		}
	}
	return sum
}

func fourth(v float64) float64 { return v * v * v * v }

// norm is the fourth root of a sum of fourth powers. It is at least the greatest of them and at most that of as many as
// the greatest, so that the busiest uplink counts most; but unlike the greatest alone, each move changes it, by which a
// search finds its way.
func norm(sum float64) float64 { return math.Sqrt(math.Sqrt(max(0, sum))) }

// nowhere is where a unit is that is on no host.
const nowhere = -1

// cross adds the bytes of a unit's links, or takes them away where sign is -1, to the uplinks of its host and those of
// the hosts that it talks to.
func (s *state) cross(n int, sign float64) {
	if s.uplinks == nil {
		return
	}
	host := s.at[n]
	for _, l := range s.units[n].links {
		if other := s.at[l.to]; other != nowhere && other != host {
			s.uplinks.add(int(host), sign*l.bytes)
			s.uplinks.add(int(other), sign*l.bytes)
		}
	}
}

// deltaUplinks is what moving a unit adds to the cost of the busiest uplink. What other hosts than the two exchange stays:
// the unit is elsewhere for them before and after.
func (s *state) deltaUplinks(n, to int) float64 {
	from := int(s.at[n])
	if s.uplinks == nil || from == to {
		return 0
	}
	left, gets := s.uplinks.of[from], s.uplinks.of[to]
	for _, l := range s.units[n].links {
		switch int(s.at[l.to]) {
		case from:
			left, gets = left+l.bytes, gets+l.bytes
		case to:
			left, gets = left-l.bytes, gets-l.bytes
		case nowhere:
		default:
			left, gets = left-l.bytes, gets+l.bytes
		}
	}
	rest := s.uplinks.sum - fourth(s.uplinks.of[from]) - fourth(s.uplinks.of[to])
	if rest < lost*s.uplinks.sum {
		rest = s.uplinks.without(from, to)
	}
	return s.weights.Uplink * (norm(rest+fourth(left)+fourth(gets)) - norm(s.uplinks.sum))
}
