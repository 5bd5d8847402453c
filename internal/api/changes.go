package api

import (
	"context"
	"net/http"
	"time"

	"outsight/internal/fleet"
	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/graph"
)

// maxChanges bounds the changes of one answer.
const maxChanges = 100

// changesAnswer is what changed from a window to a later one of the same length.
type changesAnswer struct {
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	BeforeFrom time.Time `json:"before_from"`
	BeforeTo   time.Time `json:"before_to"`
	*graph.Difference
	Completeness       fleet.Completeness `json:"completeness"`
	BeforeCompleteness fleet.Completeness `json:"before_completeness"`
}

// changes compares a window with one that was ago=5m, 1d and so on earlier; the default is its own length.
func (s *server) changes(ctx context.Context, r *http.Request) (any, error) {
	from, to, err := s.window(r)
	if err != nil {
		return nil, err
	}
	by, err := graph.ParseGrouping(r.URL.Query().Get("by"))
	if err != nil {
		return nil, badRequest("%w", err)
	}
	ago := to.Sub(from)
	if text := r.URL.Query().Get("ago"); text != "" {
		if ago, err = parseDuration(text); err != nil {
			return nil, badRequest("ago=%q: %w", text, err)
		}
		if ago < to.Sub(from) {
			return nil, badRequest("ago=%s: the two windows of %s would overlap", text, to.Sub(from))
		}
	}
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	var windows []*windowData
	times := []time.Time{from.Add(-ago), to.Add(-ago), from, to}
	if times[1].Equal(from) {
		times = append(times[:1], from, to)
	}
	q := framelog.Query{Times: times, Only: graphColumns}
	err = s.windowsOf(ctx, q, func(_ int, w *frame.Window) error {
		windows = append(windows, &windowData{window: w})
		return nil
	})
	if err != nil {
		return nil, err
	}
	then, data := windows[0], windows[len(windows)-1]
	before, after := s.graphOf(then.window, graph.Options{By: by}), s.graphOf(data.window, graph.Options{By: by})
	return changesAnswer{after.From, after.To, before.From, before.To, graph.Compare(before, after, maxChanges),
		data.completeness(after), then.completeness(before)}, nil
}
