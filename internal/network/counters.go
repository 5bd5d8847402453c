package network

import "outsight/internal/model"

// fields lists the plain counters of c, all but the histogram.
func fields(c *model.EdgeCounters) [8]*uint64 {
	return [...]*uint64{
		&c.SentBytes, &c.ReceivedBytes, &c.Opens, &c.Closes, &c.Failures, &c.Retransmits, &c.Aborts, &c.Continued,
	}
}

// add adds what is between the states from and to of one edge to sum. A histogram is shared
// with to where sum had none, and copied before the first change to it: owned tells whether
// sum's histogram is its own, and add answers that for the time after.
func add(sum *model.EdgeCounters, to, from *model.EdgeCounters, owned bool) bool {
	s, t, f := fields(sum), fields(to), fields(from)
	for i := range s {
		*s[i] += *t[i] - *f[i]
	}
	gained := to.Latency
	if from.Latency != nil && gained != nil {
		gained = gained.Since(from.Latency)
	}
	switch {
	case gained == nil:
		return owned
	case sum.Latency == nil:
		sum.Latency = gained
		return gained != to.Latency
	case !owned:
		sum.Latency = sum.Latency.Clone()
	}
	sum.Latency.Merge(gained)
	return true
}

// restarted tells whether to cannot be a later state of from: a counter went down.
func restarted(to, from *model.EdgeCounters) bool {
	t, f := fields(to), fields(from)
	for i := range t {
		if *t[i] < *f[i] {
			return true
		}
	}
	return from.Latency != nil && (to.Latency == nil || to.Latency.Count < from.Latency.Count)
}
