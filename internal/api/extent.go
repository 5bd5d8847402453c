package api

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"outsight/internal/otlp"
)

// extentAnswer is the time range with data; both nil if there is none (in the last maxWindow, if Options.Oldest does
// not return how far to look).
type extentAnswer struct {
	From *time.Time `json:"from"`
	To   *time.Time `json:"to"`
}

const (
	// extentKept is how long an answer is used again.
	extentKept = 30 * time.Second
	// Of the last day all samples are looked at, and of the days before one minute of each hour: it takes as long as
	// a day does. Agents that ran for less than an hour, days ago, may be missed where later data are there.
	extentDay, extentFine     = 24 * time.Hour, 2 * time.Minute
	extentCoarse, extentProbe = time.Hour, time.Minute
	// extentMost is how far is looked back at most: two steps of that look have as many minutes as a query may have
	// points.
	extentMost = 15 * 365 * 24 * time.Hour
)

type extents struct {
	mu   sync.Mutex
	at   time.Time
	last extentAnswer
}

// extent answers GET /api/outsight/extent.
func (s *server) extent(ctx context.Context, _ *http.Request) (any, error) {
	now := s.Now().Truncate(time.Second)
	s.extents.mu.Lock()
	at, last := s.extents.at, s.extents.last
	s.extents.mu.Unlock()
	if age := now.Sub(at); !at.IsZero() && age >= 0 && age < extentKept {
		return last, nil
	}
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	a, err := s.readExtent(ctx, now)
	if err != nil {
		return nil, err
	}
	s.extents.mu.Lock()
	s.extents.at, s.extents.last = now, a
	s.extents.mu.Unlock()
	return a, nil
}

func (s *server) readExtent(ctx context.Context, now time.Time) (extentAnswer, error) {
	type look struct{ length, step, back time.Duration }
	var first, last time.Time
	length, step := s.extentLook(now)
	looks := []look{{extentDay, extentFine, extentFine}, {length, step, extentProbe}, {length, step, step}}
	for i, l := range looks {
		if i == 2 && !first.IsZero() {
			break // all is read only where there is next to nothing
		}
		x, y, err := s.hasData(ctx, now.Add(-l.length), now, l.step, l.back)
		if err != nil {
			return extentAnswer{}, err
		}
		if x.IsZero() {
			continue
		}
		// What a look found lies up to a step before its first point, and after its last one.
		if first.IsZero() || x.Before(first) {
			if first, _, err = s.hasData(ctx, x.Add(-l.step), x, extentProbe, extentProbe); err != nil {
				return extentAnswer{}, err
			}
		}
		if last.IsZero() || y.After(last) {
			if _, last, err = s.hasData(ctx, y.Add(-l.back), minTime(y.Add(l.step), now), extentProbe, extentProbe); err != nil {
				return extentAnswer{}, err
			}
		}
	}
	if first.IsZero() || last.IsZero() {
		return extentAnswer{}, nil
	}
	first, _, err := s.hasData(ctx, first.Add(-extentProbe), first, time.Second, time.Second)
	if err != nil || first.IsZero() {
		return extentAnswer{}, err
	}
	_, last, err = s.hasData(ctx, last.Add(-extentProbe), minTime(last.Add(extentProbe), now), time.Second, time.Second)
	if err != nil || last.IsZero() {
		return extentAnswer{}, err
	}
	return extentAnswer{&first, &last}, nil
}

// extentLook is how far back to look in steps of which length: as many steps, however long the store keeps samples.
func (s *server) extentLook(now time.Time) (length, step time.Duration) {
	length, step = maxWindow, extentCoarse
	if s.Oldest == nil {
		return length, step
	}
	if oldest := s.Oldest(); !oldest.IsZero() && now.Sub(oldest) > length {
		length = min(now.Sub(oldest)+extentCoarse, extentMost)
		step = (length / (2 * maxWindow / extentCoarse)).Truncate(extentProbe) + extentProbe
	}
	return length, step
}

// hasData is the first and the last of the steps at which an agent was heard of within so long before; zero where none
// was.
func (s *server) hasData(ctx context.Context, from, to time.Time, step, back time.Duration) (first, last time.Time,
	err error) {
	results, err := s.querier.Range(ctx, fmt.Sprintf("count(last_over_time(%s[%dms]))", otlp.AgentCPU,
		back.Milliseconds()), from, to, step)
	if err != nil {
		return first, last, fmt.Errorf("reading from when to when there is data: %w", err)
	}
	for _, r := range results {
		if n := len(r.Points); n > 0 {
			return r.Points[0].Time, r.Points[n-1].Time, nil
		}
	}
	return first, last, nil
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
