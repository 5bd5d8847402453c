package api

import (
	"fmt"
	"testing"
	"time"

	"outsight/internal/model"
)

// Events are told from kept frames: how far apart they were looked for, the newest first, and no more than there is room
// for.
func TestEventsOfFrames(t *testing.T) {
	const peers = maxEvents / 2
	h, _, now := filled(t, 60, func(second int, s *model.Snapshot) *model.Snapshot {
		s.Probes = &model.ProbeSample{}
		for i := range peers + 5 {
			if second >= 20 && second < 40 {
				s.Probes.Sessions = append(s.Probes.Sessions, model.ProbeSession{Peer: fmt.Sprintf("peer-%03d", i),
					Interval: time.Second})
			}
		}
		return s
	})
	var a eventsAnswer
	get200(t, h, "/api/outsight/events?from=now-50s&points=25", &a)
	if len(a.Events) != maxEvents || a.Omitted != 10 || a.StepSeconds != 2 {
		t.Fatalf("%d events, %d omitted, each %v s", len(a.Events), a.Omitted, a.StepSeconds)
	}
	newest, oldest := a.Events[0], a.Events[len(a.Events)-1]
	ago := func(at time.Time) float64 { return now.Sub(at).Seconds() }
	if newest.Kind != "pair_ended" || newest.To != "peer-000" || ago(newest.Time) < 18 || ago(newest.Time) > 20 ||
		newest.WithinSeconds != 2 {
		t.Errorf("the newest is %+v", newest)
	}
	if oldest.Kind != "pair_measured" || ago(oldest.Time) < 38 || ago(oldest.Time) > 40 {
		t.Errorf("the oldest is %+v", oldest)
	}
	// Of a part of the window, and of a time without any frame.
	get200(t, h, "/api/outsight/events?from=now-15s", &a)
	if len(a.Events) != 0 || a.Events == nil {
		t.Errorf("%d events in the last 15 s", len(a.Events))
	}
	get200(t, h, "/api/outsight/events?from=now-20d&to=now-19d", &a)
	if len(a.Events) != 0 || a.Events == nil {
		t.Errorf("%d events before there was a frame", len(a.Events))
	}
}
