package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"outsight/bench/traffic"
	"outsight/bench/truth"
	"outsight/internal/kernel"
	"outsight/internal/model"
)

// paces are the rates at which latencies are compared. With few requests a second the run is
// longer, for the sake of the highest quantile.
var paces = []traffic.Pace{
	{Rate: 100, Connections: 4, Duration: 8 * time.Second},
	{Rate: 10_000, Connections: 200, Duration: 5 * time.Second},
	{Rate: 0, Connections: 256, Duration: 5 * time.Second},
}

// logRoom is how many transactions a run may log: more than the machine can do.
const logRoom = 1 << 21

// quantileBudget is in percent: the design's bound.
const quantileBudget = 1.1

// accuracyRun is one distribution at one pace.
type accuracyRun struct {
	delay          traffic.Delay
	pace           traffic.Pace
	seen           traffic.Seen
	client, server truth.Latencies
}

// measureAccuracy compares the quantiles of histograms with those of single transactions by the
// same clock, and with what the client itself saw.
func measureAccuracy(ctx context.Context, o options) ([]row, error) {
	p, err := truth.Open(kernel.Options{LogTransactions: logRoom})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var rows []row
	var runs []accuracyRun
	for _, delay := range traffic.Delays {
		for _, pace := range paces {
			run, err := compareOnce(ctx, p, delay, pace)
			if err != nil {
				return nil, fmt.Errorf("%s at %s: %w", delay.Name, rateName(pace), err)
			}
			runs = append(runs, run)
			r := run.row()
			rows = append(rows, r)
			progress("%s: %.3g %% (%s)", r.what, r.value, r.detail)
		}
	}
	return rows, o.document("accuracy.md", "percentiles", accuracyTables(runs))
}

func compareOnce(ctx context.Context, p *kernel.Probes, delay traffic.Delay, pace traffic.Pace) (accuracyRun, error) {
	run := accuracyRun{delay: delay, pace: pace}
	server, err := traffic.StartDelayServer()
	if err != nil {
		return run, err
	}
	defer server.Stop()
	if run.seen, err = pace.Run(ctx, server.Client(delay)); err != nil {
		return run, err
	}
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		if _, err := truth.Settled(ctx, p, server.Address, role); err != nil {
			return run, err
		}
	}
	log, err := p.Transactions()
	if err != nil {
		return run, err
	}
	if run.client, err = truth.CompareLatencies(p, log, server.Address, model.RoleClient); err != nil {
		return run, err
	}
	if run.server, err = truth.CompareLatencies(p, log, server.Address, model.RoleServer); err != nil {
		return run, err
	}
	slices.Sort(run.seen.Plain)
	slices.Sort(run.seen.Corrected)
	return run, run.check(uint64(len(run.seen.Plain)))
}

// check is the claim itself, in exact numbers: every transaction is logged and counted, in the
// same bucket.
func (r accuracyRun) check(requests uint64) error {
	for _, l := range []truth.Latencies{r.client, r.server} {
		if l.Counted != requests || l.Logged != requests || l.Misplaced != 0 {
			return fmt.Errorf("of %d requests %d are counted and %d logged, %d misplaced", requests, l.Counted,
				l.Logged, l.Misplaced)
		}
	}
	return nil
}

func (r accuracyRun) row() row {
	return row{what: fmt.Sprintf("worst error of p50 to p99.9: %s, %s", r.delay.Name, rateName(r.pace)),
		value: 100 * max(r.client.WorstError(), r.server.WorstError()), unit: "%", budget: quantileBudget,
		detail: fmt.Sprintf("%d transactions at %.0f/s, all in their buckets at both ends", r.client.Counted,
			float64(r.client.Counted)/r.pace.Duration.Seconds())}
}

func rateName(p traffic.Pace) string {
	if p.Rate == 0 {
		return "as fast as answered"
	}
	return fmt.Sprintf("%.0f/s", p.Rate)
}

// accuracyTables makes a table for each distribution.
func accuracyTables(runs []accuracyRun) string {
	var text strings.Builder
	for _, delay := range traffic.Delays {
		lines := [][]string{{"rate", "transactions", "", "client's end: exact", "Outsight", "error",
			"server's end: exact", "Outsight", "error",
			"client itself: plain", "corrected"}}
		for _, r := range runs {
			if r.delay.Name == delay.Name {
				lines = append(lines, r.lines()...)
			}
		}
		fmt.Fprintf(&text, "### Delays: %s\n\n%s\n", delay.Name, markdown(lines))
	}
	return text.String()
}

func (r accuracyRun) lines() [][]string {
	var lines [][]string
	for i, level := range truth.Levels {
		c, s := r.client.Quantiles[i], r.server.Quantiles[i]
		line := []string{"", "", "p" + strconv.FormatFloat(100*level, 'g', -1, 64),
			milliseconds(c.Exact), milliseconds(c.Told), percent(c.Error()), milliseconds(s.Exact),
			milliseconds(s.Told), percent(s.Error()),
			milliseconds(truth.Exact(r.seen.Plain, level).Seconds()), "–"}
		if i == 0 {
			line[0], line[1] = rateName(r.pace), strconv.FormatUint(r.client.Counted, 10)
		}
		if r.seen.Corrected != nil {
			line[10] = milliseconds(truth.Exact(r.seen.Corrected, level).Seconds())
		}
		lines = append(lines, line)
	}
	return lines
}

func milliseconds(seconds float64) string { return fmt.Sprintf("%.4g ms", 1000*seconds) }

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }
