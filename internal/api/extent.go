package api

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// extentAnswer is the time range with data; both nil if there is none.
type extentAnswer struct {
	From *time.Time `json:"from"`
	To   *time.Time `json:"to"`
}

// extent answers GET /api/outsight/extent: from when to when there are frames of any host.
func (s *server) extent(ctx context.Context, _ *http.Request) (any, error) {
	if s.Log == nil {
		return nil, errNoLog
	}
	hosts, err := s.Log.Hosts(ctx, s.framesOf())
	if err != nil {
		return nil, fmt.Errorf("reading from when to when there is data: %w", err)
	}
	var a extentAnswer
	for _, h := range hosts {
		first, last := h.First.UTC(), h.Last.UTC()
		if a.From == nil || first.Before(*a.From) {
			a.From = &first
		}
		if a.To == nil || last.After(*a.To) {
			a.To = &last
		}
	}
	return a, nil
}
