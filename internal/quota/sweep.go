package quota

import "time"

// A tenant that sends nothing for idleSweeps is evicted: its name may have been in one request alone. Sweeps are
// counted and not time, so that a clock that jumps makes no tenant idle.
const (
	sweepInterval = time.Minute
	idleSweeps    = 60
)

// sweep decides when to look for idle tenants.
type sweep struct{ last time.Time }

func (s *sweep) due(now time.Time) bool {
	if now.Sub(s.last).Abs() < sweepInterval {
		return false
	}
	s.last = now
	return true
}
