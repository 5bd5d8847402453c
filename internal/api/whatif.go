package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"outsight/internal/fleet"
	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/predict"
)

// whatifAnswer is what would be if more came, or containers were others.
type whatifAnswer struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// StepSeconds is how long a stretch of time is of which rates and CPU times are taken.
	StepSeconds float64 `json:"step_seconds"`
	*predict.Prediction
}

const (
	// whatifLength is how far back a request looks by default.
	whatifLength = time.Hour
	// Bounds of what a scenario may have.
	maxTimes, maxRate, maxReplicas, maxQuota = 1000, 1e9, 10_000, 10_000
)

// whatif answers GET /api/outsight/whatif: load=2x (of the mean rate of the window) or 400/s, and, each several times,
// replicas=NAME:3, quota=NAME:2 (cores), move=NAME:HOST and down=HOST. It learns from the stretches of the window (from=now-1h, points=60) what
// resources take at which rate.
func (s *server) whatif(ctx context.Context, r *http.Request) (any, error) {
	scenario, err := scenarioOf(r)
	if err != nil {
		return nil, err
	}
	from, to, err := s.windowOf(r, windowBounds{whatifLength, minWindow, maxWindow, maxQuery})
	if err != nil {
		return nil, err
	}
	_, t, leave, err := s.stretches(ctx, r, from, to, nil, 1)
	if err != nil {
		return nil, err
	}
	defer leave()
	var history predict.History
	err = s.eachStretch(ctx, &t, nil, func(_ int, w *frame.Window) {
		cores := (&windowData{window: w}).cores()
		watts := map[string]float64{}
		for host, p := range fleet.PowerOf(w) {
			watts[host] = p.Idle + p.Work
		}
		history.Add(s.graphOf(w, graph.Options{}).AnalyseWithConnections(cores), cores, watts)
	})
	if err != nil {
		return nil, err
	}
	p, err := history.PredictWithin(ctx, scenario)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, badRequest("%w", err)
	}
	return whatifAnswer{from, to, t.step.Seconds(), p}, nil
}

func scenarioOf(r *http.Request) (s predict.Scenario, err error) {
	query := r.URL.Query()
	if s.Times, s.Rate, err = loadOf(query.Get("load")); err != nil {
		return s, err
	}
	replicas, err := byName("replicas", query["replicas"], maxReplicas)
	if err != nil {
		return s, err
	}
	s.Replicas = map[string]int{}
	for name, n := range replicas {
		if s.Replicas[name] = int(n); n != float64(int(n)) || n < 1 {
			return s, badRequest("replicas=%s:%v, want a whole number from 1", name, n)
		}
	}
	if s.Quota, err = byName("quota", query["quota"], maxQuota); err != nil {
		return s, err
	}
	s.Move, s.Down = map[string]string{}, query["down"]
	for _, text := range query["move"] {
		at := strings.LastIndexByte(text, ':')
		if at < 1 || at == len(text)-1 {
			return s, badRequest("move=%q, want NAME:HOST", text)
		}
		s.Move[text[:at]] = text[at+1:]
	}
	return s, nil
}

// loadOf is how many times the load is to be, or the rate.
func loadOf(text string) (times, rate float64, err error) {
	if text == "" {
		return 1, 0, nil
	}
	number, isTimes := strings.CutSuffix(text, "x")
	number, isRate := strings.CutSuffix(number, "/s")
	n, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || isTimes == isRate || !(n > 0) || isTimes && n > maxTimes || n > maxRate:
		return 0, 0, badRequest("load=%q, want how many times as in 2x, or a rate as in 400/s", text)
	case isTimes:
		return n, 0, nil
	default:
		return 0, n, nil
	}
}

// byName parses NAME:NUMBER.
func byName(what string, all []string, most float64) (map[string]float64, error) {
	values := map[string]float64{}
	for _, text := range all {
		at := strings.LastIndexByte(text, ':')
		if at < 1 {
			return nil, badRequest("%s=%q, want NAME:NUMBER", what, text)
		}
		n, err := strconv.ParseFloat(text[at+1:], 64)
		if err != nil || !(n > 0 && n <= most) {
			return nil, badRequest("%s=%q, want a number above 0, at most %v, after the colon", what, text, most)
		}
		values[text[:at]] = n
	}
	return values, nil
}
