package graph

var (
	sideByKey = func() map[string]*sideNumber {
		all := map[string]*sideNumber{}
		for i := range sideNumbers {
			all[sideNumbers[i].Key] = &sideNumbers[i]
		}
		return all
	}()
	usageByKey = func() map[string]int {
		all := map[string]int{}
		for i := range usageNumbers {
			all[usageNumbers[i].Key] = i
		}
		return all
	}()
)

// Number is the number with that key in the JSON; ok is false where it could not be had, or s is nil. A duration past
// the end of its histogram is infinite.
func (s *Side) Number(key string) (v float64, ok bool) {
	n := sideByKey[key]
	if n == nil || s == nil {
		return 0, false
	}
	return n.of(s)
}

// Number is the number with that key in the JSON; ok is false where it could not be had, or u is nil.
func (u *Usage) Number(key string) (v float64, ok bool) {
	i, known := usageByKey[key]
	if !known || u == nil || u.known>>i&1 == 0 {
		return 0, false
	}
	return u.numbers[i], true
}

// Number is the number with that key in the JSON; ok is false where it could not be had.
func (e *Endpoint) Number(key string) (v float64, ok bool) {
	seconds := func(s *Seconds) (float64, bool) {
		if s == nil {
			return 0, false
		}
		return float64(*s), true
	}
	rate := func(v *float64) (float64, bool) {
		if v == nil {
			return 0, false
		}
		return *v, true
	}
	switch key {
	case "requests":
		return e.Requests, true
	case "error_share":
		return e.ErrorShare, true
	case "requests_per_second":
		return rate(e.RequestsPerSecond)
	case "errors_per_second":
		return rate(e.ErrorsPerSecond)
	case "p50":
		return seconds(e.P50)
	case "p99":
		return seconds(e.P99)
	case "mean":
		return seconds(e.Mean)
	}
	return 0, false
}

// IsNumber reports whether a node's usage, and a side of an edge, have a number with that key.
func IsNumber(key string) (ofUsage, ofSide bool) {
	_, ofUsage = usageByKey[key]
	_, ofSide = sideByKey[key]
	return ofUsage, ofSide
}

// NodeOf is the ID of the node of a grouping that a container's node is a part of: its own where it is in no group.
func (by Grouping) NodeOf(container *Node) string {
	if group := by.containerGroup(container); group != nil {
		return group.ID
	}
	return container.ID
}
