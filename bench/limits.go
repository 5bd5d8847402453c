package main

import (
	"cmp"
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
	"outsight/internal/predict"
)

const (
	// limitStep is how much more than the last one the next rate is.
	limitStep        = 1.25
	limitConnections = 64
	// toldFrom is how many times the first rate the least one is of which durations are told: two rates have to be known, and it
	// is half as much again as the second one.
	toldFrom = 1.9
	// limitLooks is how many times options.look the measurement of one application may take, beside limitStart.
	limitLooks, limitStart = 40, 3 * time.Minute
)

// limitLength bounds the measurement of one application.
func (o *options) limitLength() time.Duration { return limitStart + limitLooks*o.look }

// measureLimits raises the load of applications whose limits are not alike, and compares what is told of the limit at 15
// to 70 % of it with where it is, and what is told of durations with those at that load.
func measureLimits(ctx context.Context, o options) (rows []row, err error) {
	host, stop, err := o.watch(ctx)
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

// toldLimit is what was told after a step.
type toldLimit struct {
	*loadStep
	*predict.Prediction
}

// judge compares what is told as the load of an application is raised with what comes.
type judge struct {
	run *loadRun
	// times is how many times the load before each load is; 0 is limitStep.
	times float64

	history   predict.History
	limits    []toldLimit
	latencies []toldLatency
	greatest  float64
}

// add adds a step.
func (j *judge) add(step *loadStep) error {
	if err := j.run.add(step, &j.history); err != nil {
		return err
	}
	j.greatest = max(j.greatest, step.Served)
	p, err := j.history.Predict(predict.Scenario{Times: 1})
	if err != nil {
		return err
	}
	j.limits = append(j.limits, toldLimit{step, p})
	progress("the limit is told as %s", limitSaid(p))
	j.latencies, err = addLatencies(j.latencies, j.run, &j.history, step, cmp.Or(j.times, limitStep))
	return err
}

func (a *limitedApp) measure(ctx context.Context, host *outsight.Host, o options) (rows []row, err error) {
	j := &judge{}
	if o.replay != "" {
		err = j.replay(o.replay, a.part)
	} else {
		err = a.raise(ctx, host, o, j)
	}
	if err != nil {
		return nil, err
	}
	lines := [][]string{{"told at this share of the limit", "the limit is told as", "of", "bounds", "it is within", "off by",
		"what else is told"}}
	for _, t := range j.limits {
		if share := t.Served / j.greatest; share >= 0.15 && share <= 0.7 && t.Limit != nil {
			rows = append(rows, a.row(&t, j.greatest))
			lines = append(lines, a.line(&t, j.greatest))
		}
	}
	proof := j.run.Proof + "."
	if last := j.limits[len(j.limits)-1]; last.LimitingPool() != nil && last.LimitingPool().Ceiling {
		proof += fmt.Sprintf(" Once that was seen, the limit is told as %.0f/s (%s).", last.Limit.Value, limitBounds(last.Limit))
	}
	latencies := latenciesAhead(a.name, j.latencies, j.greatest)
	return append(rows, latencies...), o.documentOf("analysis.md", a.part, j.run.Machine, fmt.Sprintf("The limit is %.0f/s: %s\n\n%s\n%s",
		j.greatest, proof, markdown(lines), latencyTable(j.latencies, j.greatest)))
}

// raise raises the load of the application until it no longer keeps up.
func (a *limitedApp) raise(ctx context.Context, host *outsight.Host, o options, j *judge) (err error) {
	ctx, stop := context.WithTimeout(ctx, o.limitLength())
	defer stop()
	s, err := newAppStage(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	url, err := a.start(s)
	if err != nil {
		return err
	}
	if err := answers(ctx, url); err != nil {
		return err
	}
	j.run = newLoadRun(s.name)
	for rate := a.first; ; rate *= limitStep {
		step, err := s.look(ctx, host, url, rate, lookTime(o.look, rate, rate/a.first))
		if err != nil {
			return err
		}
		if err := j.add(step); err != nil {
			return err
		}
		if !step.keptUp() {
			if j.run.Proof, err = a.proof(s, step); err != nil {
				return err
			}
			progress("%s: %s", a.name, j.run.Proof)
			return j.run.save(o.save, a.part)
		}
	}
}

// line is what was told at a rate as a line of a table.
func (a *limitedApp) line(t *toldLimit, greatest float64) []string {
	off, of := fmt.Sprintf("%.0f %%", 100*math.Abs(t.Limit.Value/greatest-1)), "CPU time"
	first := t.LimitingPool()
	if first != nil {
		of = fmt.Sprintf("%.0f connections", first.Open)
		if first.Ceiling {
			of = fmt.Sprintf("%.0f at a time", first.Open)
		}
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
	rate := fmt.Sprintf("%.0f/s", t.Limit.Value)
	if t.UpperBound {
		rate = "at most " + rate
	}
	return []string{fmt.Sprintf("%.0f %%", 100*t.Served/greatest), rate, of, limitBounds(t.Limit),
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
	share := 100 * t.Served / greatest
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
	if p.UpperBound {
		text = "it cannot be told; at most " + text
	}
	for _, d := range p.Doubts {
		text += "; in doubt, as " + d.Text
	}
	if p.AtMost != "" {
		text += "; at most, as " + p.AtMost
	}
	return text
}

// look asks at a rate.
func (s *appStage) look(ctx context.Context, host *outsight.Host, url string, rate float64, length time.Duration) (step *loadStep, err error) {
	const settle = 2 * time.Second
	// It is ended when all has been seen.
	pace := traffic.Pace{Rate: rate, Connections: limitConnections, Duration: length + time.Minute, Random: true}
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
	return watchLoad(ctx, host, rate, length, func() (uint64, error) { return answered.Load(), nil })
}

// watchLoad looks at what is asked for at a rate; answered counts the requests that were.
func watchLoad(ctx context.Context, host *outsight.Host, rate float64, length time.Duration, answered func() (uint64, error)) (*loadStep, error) {
	frames, err := collectFrames(ctx, host)
	if err != nil {
		return nil, err
	}
	busyBefore, err := notIdle()
	before, failed := answered()
	begin := time.Now()
	err = errors.Join(err, failed, wait(ctx, length))
	after, failed := answered()
	took := time.Since(begin)
	step := &loadStep{Asked: rate, Served: float64(after-before) / took.Seconds(), Seconds: took.Seconds(), frames: frames()}
	busy, broken := notIdle()
	step.Idle = 1 - (busy-busyBefore)/float64(took)/float64(runtime.NumCPU())
	return step, errors.Join(err, failed, broken)
}

// notIdle is the time in ns in which CPUs had something to do.
func notIdle() (float64, error) {
	return hostTicks(append(stealPlaces[:1:1], busyPlaces...))
}
