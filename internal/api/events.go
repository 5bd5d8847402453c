package api

import (
	"context"
	"net/http"
	"time"

	"outsight/internal/fleet"
	"outsight/internal/frame"
	"outsight/internal/framelog"
)

// maxEvents bounds the events of one answer.
const maxEvents = 200

// eventsAnswer is what happened to hosts in a window.
type eventsAnswer struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// StepSeconds is how often it was looked; what began and ended in between is not told.
	StepSeconds float64 `json:"step_seconds"`
	// Events are the newest first; Omitted is how many older ones are left out.
	Events  []fleet.Event `json:"events"`
	Omitted int           `json:"omitted,omitempty"`
}

// events answers GET /api/outsight/events: from and to as everywhere, at points=N of the window.
func (s *server) events(ctx context.Context, r *http.Request) (any, error) {
	from, to, err := s.window(r)
	if err != nil {
		return nil, err
	}
	points, err := pointsOf(r)
	if err != nil {
		return nil, err
	}
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	whole, err := s.readOnly(ctx, from, to, nil, fleet.EventColumns)
	if err != nil {
		return nil, err
	}
	answer := eventsAnswer{From: from, To: to, Events: []fleet.Event{}}
	times, step := pointTimes(whole.window, points, 1, s.Now())
	if len(times) == 0 {
		return answer, nil
	}
	var events fleet.Events
	q := framelog.Query{Times: times, Only: fleet.EventColumns}
	err = s.windowsOf(ctx, q, func(_ int, w *frame.Window) error {
		events.Visit(w)
		return nil
	})
	answer.StepSeconds, answer.Events = step.Seconds(), append(answer.Events, events.All()...)
	if n := len(answer.Events) - maxEvents; n > 0 {
		answer.Events, answer.Omitted = answer.Events[:maxEvents], n
	}
	return answer, err
}
