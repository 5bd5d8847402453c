package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"time"

	outsight "outsight/internal/agent"
	"outsight/internal/demo"
	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/predict"
)

const (
	// saturationLook is how long the shop is watched at a rate, in so many stretches, and saturationStep how much more than
	// the last one the next rate is.
	saturationLook, saturationStretches = 20 * time.Second, 4
	saturationStep                      = 1.15
	// saturated is the share of what is asked for below which the shop no longer keeps up.
	saturated = 0.97
	// The budgets are in percent.
	saturationBudget = 10
	latencyBudget    = 20
)

// watch reads the counters of this host in this process until stop.
func watch(ctx context.Context) (host *outsight.Host, stop func(), err error) {
	if host, err = outsight.Open(outsight.HostOptions{}); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = host.Run(ctx) // ends with ctx alone
	}()
	return host, func() {
		cancel()
		<-ended
		host.Close()
	}, nil
}

// measureSaturation compares the rate at which the demo shop is said to saturate with the greatest
// that it really serves, which raising the load finds.
func measureSaturation(ctx context.Context, o options) (rows []row, err error) {
	host, stop, err := watch(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	binary, err := filepath.Abs(filepath.Join(o.binaries, "outsight"))
	if err != nil {
		return nil, err
	}
	shop, err := demo.Start(ctx, demo.Options{Binary: binary})
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := shop.Stop(context.WithoutCancel(ctx)); err == nil {
			err = e
		}
	}()
	type guess struct {
		at, saturation float64
		by             string
		line           *predict.Prediction // of all loads until then
	}
	var guesses []guess
	var history predict.History
	var told []toldLatency
	greatest := 0.0
	for rate := 100.0; ; rate *= saturationStep {
		if err := shop.SetRate(ctx, rate); err != nil {
			return nil, err
		}
		if err := wait(ctx, 3*time.Second); err != nil {
			return nil, err
		}
		from, before, err := moment(ctx, host, shop)
		if err != nil {
			return nil, err
		}
		last, after := from, before
		for range saturationStretches {
			if err := wait(ctx, saturationLook/saturationStretches); err != nil {
				return nil, err
			}
			var now *frame.Frame
			if now, after, err = moment(ctx, host, shop); err != nil {
				return nil, err
			}
			a, cores := analysed(last, now)
			history.Add(a, cores, nil)
			last = now
		}
		to := last
		served := float64(after-before) / to.Time.Sub(from.Time).Seconds()
		greatest = max(greatest, served)
		a, _ := analysed(from, to)
		line, err := history.Predict(predict.Scenario{Times: 1})
		if err != nil {
			return nil, err
		}
		for i := range told {
			if t := &told[i]; t.at == rate && len(a.Entries) > 0 && a.Entries[0].P99 != nil {
				t.seen = float64(*a.Entries[0].P99)
			}
		}
		for _, steps := range []int{3, 5} { // 1.5 and 2.0 times
			at := rate
			for range steps {
				at *= saturationStep
			}
			ahead, err := history.Predict(predict.Scenario{Rate: at})
			if err != nil {
				return nil, err
			}
			if len(ahead.Entries) > 0 && ahead.Entries[0].Then != nil {
				told = append(told, toldLatency{at: at, times: at / rate, entry: ahead.Entries[0]})
			}
		}
		if a.SaturationRate != nil {
			guesses = append(guesses, guess{served, *a.SaturationRate, a.Resources[0].Name, line})
		}
		fmt.Printf("asked for %.0f/s, served %.0f/s", rate, served)
		if a.SaturationRate != nil {
			fmt.Printf("; said to saturate at %.0f/s by %s", *a.SaturationRate, a.Resources[0].Name)
		}
		fmt.Println()
		if served < saturated*rate || rate > 5000 {
			break
		}
	}
	for _, g := range guesses {
		share := g.at / greatest
		if share > 0.95 {
			continue // it is there
		}
		r := row{what: fmt.Sprintf("demo: saturation rate, told at %.0f %% of it", 100*share),
			value: 100 * math.Abs(g.saturation/greatest-1), unit: "% off",
			detail: fmt.Sprintf("said %.0f/s by %s, served at most %.0f/s", g.saturation, g.by, greatest)}
		if share >= 0.5 {
			r.budget = saturationBudget
		}
		rows = append(rows, r)
		if g.line.Limit == nil {
			continue
		}
		high := math.Inf(1)
		if g.line.Limit.High != nil {
			high = *g.line.Limit.High
		}
		rows = append(rows, row{what: fmt.Sprintf("demo: saturation rate, told by all loads up to %.0f %% of it", 100*share),
			value: 100 * math.Abs(g.line.Limit.Value/greatest-1), unit: "% off", budget: saturationBudget,
			detail: fmt.Sprintf("said %.0f/s (%.0f to %.0f) by %s of %d stretches", g.line.Limit.Value, g.line.Limit.Low, high,
				g.line.LimitedBy, g.line.Stretches)})
	}
	return append(rows, latenciesAhead(told, greatest)...), nil
}

// toldLatency is what was told of the 99th percentile at a rate, which is times the greatest until then, and what was seen.
type toldLatency struct {
	at, times, seen float64
	entry           predict.Entry
}

// latenciesAhead compares what was told with what was seen, at up to 80 % of the greatest rate and beyond.
func latenciesAhead(told []toldLatency, greatest float64) (rows []row) {
	for _, t := range told {
		if t.seen == 0 || t.at > greatest {
			continue // it was not tried, or not served
		}
		p99 := t.entry.Then.P99
		bounds := "without an upper bound"
		within := t.seen >= p99.Low
		if p99.High != nil {
			bounds = fmt.Sprintf("to %.2f", 1e3**p99.High)
			within = within && t.seen <= *p99.High
		}
		r := row{what: fmt.Sprintf("demo: p99 at %.0f %% of the greatest rate, told at %.1f times less load", 100*t.at/greatest, t.times),
			value: 100 * math.Abs(p99.Value/t.seen-1), unit: "% off",
			detail: fmt.Sprintf("said %.2f ms (%.2f %s) by %s, seen %.2f ms, within: %v", 1e3*p99.Value, 1e3*p99.Low, bounds,
				t.entry.Model, 1e3*t.seen, within)}
		if t.at <= 0.8*greatest {
			r.budget = latencyBudget
		}
		rows = append(rows, r)
	}
	return rows
}

// analysed is the analysis of what lies between two frames of this host.
func analysed(from, to *frame.Frame) (*graph.Analysis, map[string]float64) {
	g := graph.FromFrames(&frame.Window{From: from.Time, To: to.Time, Hosts: []frame.HostSpans{{Host: to.Host,
		Spans: []frame.Span{{Before: from, After: to}}}}}, graph.Options{})
	cores := map[string]float64{to.Host: float64(runtime.NumCPU())}
	return g.Analyse(cores), cores
}

// moment is a frame, and how many requests the load generator has had answered by then.
func moment(ctx context.Context, host *outsight.Host, shop *demo.Shop) (*frame.Frame, uint64, error) {
	last := host.Frame()
	for host.Frame() == last {
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return nil, 0, err
		}
	}
	truth, err := shop.Truth(ctx)
	return host.Frame(), truth.Load.Completed, err
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
