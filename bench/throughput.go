package main

import (
	"context"
	"fmt"
)

// load is a program whose throughput and latency are taken with and without the agent.
type load struct {
	name, unit string
	// budget is of the throughput lost, latencyBudget of the p99 added, both in percent; 0 is none.
	budget, latencyBudget float64
	// paced loads have a rate of their own: only their latency is compared.
	paced bool
	// start starts the server; run makes one run against it.
	start starter
}

type starter func(context.Context, options) (run runner, stop func(), err error)

type runner func(context.Context) (result, error)

// result of one run; p99 in seconds is 0 where the program does not tell it.
type result struct{ speed, p99 float64 }

func measureThroughput(ctx context.Context, o options) ([]row, error) {
	var rows []row
	for _, l := range overheadLoads {
		measured, err := l.compare(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		rows = append(rows, measured...)
	}
	return rows, o.document("overhead.md", "overhead", rowsTable(rows))
}

// compare takes turns: without, with, with, without, ... so that a drift of the machine's speed
// weighs on both alike. The results are medians of the pairs.
func (l load) compare(ctx context.Context, o options) ([]row, error) {
	run, stop, err := l.start(ctx, o)
	if err != nil {
		return nil, err
	}
	defer stop()
	if _, err := run(ctx); err != nil { // warm up
		return nil, err
	}
	var without, with []result
	for pair := range o.pairs {
		var plain, watched result
		for turn := range 2 {
			if turn == pair%2 {
				plain, err = run(ctx)
			} else {
				watched, err = l.watched(ctx, o, run)
			}
			if err != nil {
				return nil, err
			}
		}
		without, with = append(without, plain), append(with, watched)
		progress("%s: pair %d of %d: %.4g without, %.4g with, %.2f %% lost; p99 %.3g ms and %.3g ms", l.name, pair+1, o.pairs,
			plain.speed, watched.speed, 100*(1-watched.speed/plain.speed), 1000*plain.p99, 1000*watched.p99)
	}
	return l.rows(without, with), nil
}

func (l load) watched(ctx context.Context, o options, run runner) (result, error) {
	a, err := startAgent(ctx, o, "outsight agent")
	if err != nil {
		return result{}, err
	}
	defer a.stop()
	return run(ctx)
}

func (l load) rows(without, with []result) []row {
	var losses, added, speeds, watchedSpeeds, p99s, watchedP99s []float64
	for i := range without {
		losses = append(losses, 100*(1-with[i].speed/without[i].speed))
		added = append(added, 100*(with[i].p99/without[i].p99-1))
		speeds, watchedSpeeds = append(speeds, without[i].speed), append(watchedSpeeds, with[i].speed)
		p99s, watchedP99s = append(p99s, 1000*without[i].p99), append(watchedP99s, 1000*with[i].p99)
	}
	var rows []row
	if !l.paced {
		low, high := quartile(losses, 1), quartile(losses, 3)
		rows = append(rows, row{what: l.name + ": throughput lost", value: median(losses), unit: "%", budget: l.budget, low: low, high: high,
			detail: fmt.Sprintf("%d pairs, quartiles %.2f and %.2f; medians %.4g without, %.4g with %s",
				len(without), low, high, median(speeds), median(watchedSpeeds), l.unit)})
	}
	if without[0].p99 > 0 {
		low, high := quartile(added, 1), quartile(added, 3)
		rows = append(rows, row{what: l.name + ": p99 added", value: median(added), unit: "%", budget: l.latencyBudget, low: low, high: high,
			detail: fmt.Sprintf("%d pairs, quartiles %.2f and %.2f; medians %.3g ms without, %.3g ms with",
				len(without), low, high, median(p99s), median(watchedP99s))})
	}
	return rows
}
