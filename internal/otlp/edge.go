package otlp

import (
	"time"

	"outsight/internal/model"
)

// edgeStart is when the counters of e were zero: what e says, else the later start of its two
// ends, which no counter of it can be older than.
func edgeStart(e *model.Edge) (start time.Time) {
	if !e.Start.IsZero() {
		return e.Start
	}
	for _, p := range []model.Peer{e.Client, e.Server} {
		if p.Container != nil && p.Container.Started.After(start) {
			start = p.Container.Started
		}
	}
	return start
}
