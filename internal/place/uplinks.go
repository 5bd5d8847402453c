package place

// uplinks are the bytes that each host exchanges with others, with the most of them found in a time that grows with the
// logarithm of the hosts: a binary tree of maxima, the hosts' own in its second half. Shares of all bytes between
// containers.
type uplinks []float64

func newUplinks(hosts int) uplinks { return make(uplinks, 2*hosts) }

func (u uplinks) of(host int) float64 { return u[len(u)/2+host] }

func (u uplinks) add(host int, bytes float64) {
	at := len(u)/2 + host
	u[at] += bytes
	for at >>= 1; at > 0; at >>= 1 {
		u[at] = max(u[2*at], u[2*at+1])
	}
}

// most is that of the hosts from one to before another.
func (u uplinks) most(from, to int) (most float64) {
	n := len(u) / 2
	for a, b := from+n, to+n; a < b; a, b = a>>1, b>>1 {
		if a&1 == 1 {
			most = max(most, u[a])
			a++
		}
		if b&1 == 1 {
			b--
			most = max(most, u[b])
		}
	}
	return most
}

// busiest is the most of all hosts.
func (u uplinks) busiest() float64 { return u.most(0, len(u)/2) }

// without is the most of all hosts but two.
func (u uplinks) without(a, b int) float64 {
	low, high := min(a, b), max(a, b)
	return max(u.most(0, low), u.most(low+1, high), u.most(high+1, len(u)/2))
}

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
	left, gets := s.uplinks.of(from), s.uplinks.of(to)
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
	return s.weights.Uplink * (max(left, gets, s.uplinks.without(from, to)) - s.uplinks.busiest())
}
