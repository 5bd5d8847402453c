package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"outsight/bench/traffic"
	outsight "outsight/internal/agent"
	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/predict"
)

const (
	// limitStretches is in how many stretches of time a rate is watched, and limitStep how much more than the last one the
	// next rate is.
	limitStretches   = 4
	limitStep        = 1.25
	limitConnections = 64
	// limitLength bounds the measurement of one application.
	limitLength = 8 * time.Minute
)

// measureLimits raises the load of applications whose limits are not alike, and compares what is told of the limit at 15
// to 70 % of it with where it is, and what is told of durations with those at that load.
func measureLimits(ctx context.Context, o options) (rows []row, err error) {
	host, stop, err := watch(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	for i := range limitedApps {
		a := &limitedApps[i]
		if !strings.Contains(a.name, o.apps) {
			continue
		}
		more, err := a.measure(ctx, host, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.name, err)
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// toldLimit is what was told at a rate.
type toldLimit struct {
	served float64
	*predict.Prediction
}

func (a *limitedApp) measure(ctx context.Context, host *outsight.Host, o options) (rows []row, err error) {
	ctx, stop := context.WithTimeout(ctx, limitLength)
	defer stop()
	s, err := newAppStage(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	url, err := a.start(s)
	if err != nil {
		return nil, err
	}
	if err := answers(ctx, url); err != nil {
		return nil, err
	}
	var history predict.History
	var told []toldLimit
	var ahead []toldLatency
	greatest, proof := 0.0, ""
	for rate := a.first; ; rate *= limitStep {
		step, err := s.look(ctx, host, url, rate, o.look, &history)
		if err != nil {
			return nil, err
		}
		greatest = max(greatest, step.served)
		p, err := history.Predict(predict.Scenario{Times: 1})
		if err != nil {
			return nil, err
		}
		told = append(told, toldLimit{step.served, p})
		progress("%s: asked for %.0f/s, served %.0f/s; %s", a.name, rate, step.served, limitSaid(p))
		if ahead, err = addLatencies(ahead, &history, step, limitStep, 2, 3); err != nil {
			return nil, err
		}
		if !step.keptUp(o.look) {
			if proof, err = a.proof(s, step); err != nil {
				return nil, err
			}
			progress("%s: %s", a.name, proof)
			break
		}
	}
	lines := [][]string{{"told at this share of the limit", "the limit is told as", "of", "bounds", "it is within", "off by",
		"what else is told"}}
	for _, t := range told {
		if share := t.served / greatest; share >= 0.15 && share <= 0.7 && t.Limit != nil {
			rows = append(rows, a.row(&t, greatest))
			lines = append(lines, a.line(&t, greatest))
		}
	}
	latencies := latenciesAhead(a.name, ahead, greatest)
	return append(rows, latencies...), o.document("analysis.md", a.part, fmt.Sprintf("The limit is %.0f/s: %s.\n\n%s\n%s",
		greatest, proof, markdown(lines), latencyTable(ahead, greatest)))
}

// line is what was told at a rate as a line of a table.
func (a *limitedApp) line(t *toldLimit, greatest float64) []string {
	off, of := fmt.Sprintf("%.0f %%", 100*math.Abs(t.Limit.Value/greatest-1)), "CPU time"
	first := t.LimitingPool()
	if first != nil {
		of = fmt.Sprintf("%.0f connections", first.Open)
	} else if !a.byCPU {
		off = "–"
	}
	var also []string
	for i := range t.Pools {
		if pool := &t.Pools[i]; pool.Limit != nil && pool.Limit.Value < t.Limit.Value {
			also = append(also, fmt.Sprintf("%.0f connections are busy at %.0f/s", pool.Open, pool.Limit.Value))
		}
	}
	switch {
	case len(t.Doubts) > 0 && first != nil:
		also = append(also, "it may be another one")
	case len(t.Doubts) > 0:
		also = append(also, "it cannot be told")
	}
	if t.AtMost != "" {
		also = append(also, "at most that")
	}
	return []string{fmt.Sprintf("%.0f %%", 100*t.served/greatest), fmt.Sprintf("%.0f/s", t.Limit.Value), of, limitBounds(t.Limit),
		yes(t.within(greatest)), off, strings.Join(also, "; ")}
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// within is that the limit is within the bounds.
func (t *toldLimit) within(greatest float64) bool {
	return t.Limit.Low <= greatest && (t.Limit.High == nil || greatest <= *t.Limit.High)
}

// row compares what was told with where the limit is. Where it is not CPU time, no interval without a doubt may be wrong.
func (a *limitedApp) row(t *toldLimit, greatest float64) row {
	share := 100 * t.served / greatest
	r := row{what: fmt.Sprintf("%s: told at %.0f %% of the limit", a.name, share), unit: "% off",
		value: 100 * math.Abs(t.Limit.Value/greatest-1), detail: fmt.Sprintf("%s; it is %.0f/s, within: %v", limitSaid(t.Prediction),
			greatest, t.within(greatest))}
	if a.byCPU && share <= 33 {
		r.budget = saturationBudget
	}
	return r
}

func limitBounds(i *predict.Interval) string {
	if i.High == nil {
		return fmt.Sprintf("%.0f or more", i.Low)
	}
	return fmt.Sprintf("%.0f to %.0f", i.Low, *i.High)
}

// limitSaid is what is told of the limit.
func limitSaid(p *predict.Prediction) string {
	if p.Limit == nil {
		return "no limit is told"
	}
	text := fmt.Sprintf("%.0f/s (%s) by %s", p.Limit.Value, limitBounds(p.Limit), p.LimitName())
	for _, d := range p.Doubts {
		text += "; in doubt, as " + d.Text
	}
	if p.AtMost != "" {
		text += "; at most, as " + p.AtMost
	}
	return text
}

// appStep is what was seen while an application was asked at a rate.
type appStep struct {
	asked, served float64
	// idle is the share of the time in which the host's CPUs have nothing to do.
	idle     float64
	graph    *graph.Graph
	analysis *graph.Analysis
}

// keptUp is that what was asked for in a time was served, but for chance: requests come at random.
func (s *appStep) keptUp(during time.Duration) bool {
	return s.served >= saturated*s.asked-3*math.Sqrt(s.asked/during.Seconds())
}

// usage is what a container used.
func (s *appStep) usage(name string) *graph.Usage {
	for _, n := range s.graph.Nodes {
		if n.Name == name {
			return n.Usage
		}
	}
	return nil
}

// p99 is that of the entry in seconds, 0 where it is not known.
func (s *appStep) p99() float64 {
	if len(s.analysis.Entries) == 0 || s.analysis.Entries[0].P99 == nil {
		return 0
	}
	return float64(*s.analysis.Entries[0].P99)
}

// look asks at a rate and adds what is seen meanwhile to the history, if there is one.
func (s *appStage) look(ctx context.Context, host *outsight.Host, url string, rate float64, length time.Duration,
	history *predict.History) (step *appStep, err error) {
	const settle = 2 * time.Second
	// It ends when all has been seen.
	pace := traffic.Pace{Rate: rate, Connections: limitConnections, Duration: limitLength, Random: true}
	asking, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	var answered atomic.Uint64
	go func() {
		_, err := pace.Run(asking, func(context.Context) (traffic.Asker, error) { return newPageAsker(url, &answered), nil })
		if asking.Err() != nil {
			err = ctx.Err()
		}
		done <- err
	}()
	defer func() {
		stop()
		err = errors.Join(err, <-done)
	}()
	if err := wait(ctx, settle); err != nil {
		return nil, err
	}
	busyBefore, err := notIdle()
	if err != nil {
		return nil, err
	}
	first := newFrame(ctx, host)
	last := first
	begin, before := time.Now(), answered.Load()
	for range limitStretches {
		if err := wait(ctx, length/limitStretches); err != nil {
			return nil, err
		}
		now := newFrame(ctx, host)
		if now == nil || last == nil {
			return nil, ctx.Err()
		}
		if history != nil {
			_, a, cores := s.analysed(last, now)
			history.Add(a, cores, nil)
		}
		last = now
	}
	took := time.Since(begin)
	busy, err := notIdle()
	step = &appStep{asked: rate, served: float64(answered.Load()-before) / took.Seconds(),
		idle: 1 - (busy-busyBefore)/float64(took)/float64(runtime.NumCPU())}
	step.graph, step.analysis, _ = s.analysed(first, last)
	return step, err
}

// notIdle is the time in ns in which CPUs had something to do.
func notIdle() (float64, error) {
	return hostTicks(append(stealPlaces[:1:1], busyPlaces...))
}

// analysed is the graph of the application between two frames, and its analysis.
func (s *appStage) analysed(from, to *frame.Frame) (*graph.Graph, *graph.Analysis, map[string]float64) {
	g := graph.FromFrames(&frame.Window{From: from.Time, To: to.Time, Hosts: []frame.HostSpans{{Host: to.Host,
		Spans: []frame.Span{{Before: from, After: to}}}}}, graph.Options{})
	s.only(g)
	cores := map[string]float64{to.Host: float64(runtime.NumCPU())}
	return g, g.AnalyseWithConnections(cores), cores
}

// newFrame waits for the next one; nil where ctx ends.
func newFrame(ctx context.Context, host *outsight.Host) *frame.Frame {
	last := host.Frame()
	for host.Frame() == last {
		if wait(ctx, 5*time.Millisecond) != nil {
			return nil
		}
	}
	return host.Frame()
}
