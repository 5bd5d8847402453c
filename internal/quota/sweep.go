package quota

import "time"

// A tenant that sends nothing for idleSweeps is forgotten: its name may have been for one request. Sweeps are counted
// and not time, so that a clock that jumps makes nobody idle.
const (
	sweepPause = time.Minute
	idleSweeps = 60
)

// sweep tells when it is time to look for idle tenants.
type sweep struct{ last time.Time }

func (s *sweep) due(now time.Time) bool {
	if now.Sub(s.last).Abs() < sweepPause {
		return false
	}
	s.last = now
	return true
}
