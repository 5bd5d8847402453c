package pull

import (
	"slices"
	"time"
)

const (
	// handOnAfter is for how long a host must have been late, and handOnReadings how many readings in a row, before its
	// reader hands it on to another server of the group.
	handOnAfter    = 3 * time.Second
	handOnReadings = 3
	// tryEvery is how often a server tries a host that it has handed on, and tells the others when it still cannot read it.
	tryEvery = 5 * time.Second
	// cannotTries is how many of such tries may be missing before it is forgotten what a server told of itself.
	cannotTries = 3
)

// handing is which servers of the group cannot read a host.
type handing struct {
	interval time.Duration
	// failed counts the readings in a row that failed, since since. tried is when a reading was begun last.
	failed       int
	since, tried time.Time
	// cannot are members that cannot read it, each until then.
	cannot map[string]time.Time
}

// fail notes that this server's reading failed, and reports whether the others are to be told that it cannot read the host.
func (h *handing) fail(member string, begun, now time.Time) bool {
	if h.failed == 0 {
		h.since = begun
	}
	h.failed++
	if h.failed < handOnReadings || now.Sub(h.since) < handOnAfter {
		return false
	}
	h.note(member, now)
	return true
}

// succeed notes that a member has read the host, and reports whether it was not able to before.
func (h *handing) succeed(member string) bool {
	_, was := h.cannot[member]
	delete(h.cannot, member)
	return was
}

// note notes that a member cannot read the host.
func (h *handing) note(member string, now time.Time) {
	if h.cannot == nil {
		h.cannot = map[string]time.Time{}
	}
	h.cannot[member] = now.Add(cannotTries * max(tryEvery, h.interval))
}

// able are the members that may be able to read the host: all of them where each has said that it is not.
func (h *handing) able(members []string, now time.Time) []string {
	if len(h.cannot) == 0 {
		return members
	}
	able := slices.DeleteFunc(slices.Clone(members), func(m string) bool { return h.isHandedOn(m, now) })
	if len(able) == 0 {
		return members
	}
	return able
}

// isHandedOn reports whether a member cannot read the host.
func (h *handing) isHandedOn(member string, now time.Time) bool { return now.Before(h.cannot[member]) }

// isDue reports whether a server that has handed the host on is to try it again.
func (h *handing) isDue(member string, now time.Time) bool {
	return h.isHandedOn(member, now) && now.Sub(h.tried) >= tryEvery
}
