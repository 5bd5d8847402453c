package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"time"

	outsight "outsight/internal/agent"
	"outsight/internal/demo"
	"outsight/internal/predict"
)

const (
	// saturationFirst is the first rate at which the shop is asked.
	saturationFirst = 100.0
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

// watch reads the counters of this host, unless runs that were saved are judged again.
func (o *options) watch(ctx context.Context) (host *outsight.Host, stop func(), err error) {
	if o.replay != "" {
		return nil, func() {}, nil
	}
	return watch(ctx)
}

// replay judges a run that was saved again.
func (j *judge) replay(directory, name string) error {
	run, steps, err := readLoadRun(directory, name)
	if err != nil {
		return err
	}
	if j.run = run; len(steps) > 1 {
		j.times = steps[1].Asked / steps[0].Asked
	}
	for _, s := range steps {
		if err := j.add(s); err != nil {
			return err
		}
	}
	return nil
}

// measureSaturation compares the rate at which the demo shop is said to saturate with the greatest
// that it really serves, which raising the load finds.
func measureSaturation(ctx context.Context, o options) (rows []row, err error) {
	j := &judge{}
	if o.replay != "" {
		err = j.replay(o.replay, "saturation")
	} else {
		err = raiseShop(ctx, o, j)
	}
	if err != nil {
		return nil, err
	}
	lines := [][]string{{"told at this share of the greatest rate", "others take", "of one load", "off by", "of all loads so far", "by", "bounds", "off by",
		"within", "what else is told"}}
	for i := range j.limits {
		t := &j.limits[i]
		share := t.Served / j.greatest
		if share > 0.95 || t.analysis.SaturationRate == nil {
			continue // it is there
		}
		saturation := *t.analysis.SaturationRate
		off := math.Abs(saturation/j.greatest - 1)
		r := row{what: fmt.Sprintf("demo: saturation rate, told at %.0f %% of it", 100*share), value: 100 * off, unit: "% off",
			detail: fmt.Sprintf("said %.0f/s by %s, served at most %.0f/s", saturation, t.analysis.Resources[0].Name, j.greatest)}
		if share >= 0.5 {
			r.budget = saturationBudget
		}
		rows = append(rows, r)
		others := j.run.Cores
		for _, r := range t.analysis.Resources {
			if r.ParallelBy == "left" {
				others -= r.Parallel
			}
		}
		line := []string{fmt.Sprintf("%.0f %%", 100*share), fmt.Sprintf("%.2f cores", others), fmt.Sprintf("%.0f/s", saturation), fmt.Sprintf("%.0f %%", 100*off), "–", "",
			"", "", "", ""}
		if t.Limit != nil {
			r := (&limitedApp{name: "demo, told by all loads so far", byCPU: true}).row(t, j.greatest)
			r.budget = saturationBudget
			rows = append(rows, r)
			told := (&limitedApp{byCPU: true}).line(t, j.greatest)
			line = append(line[:4], told[1], t.LimitName(), told[3], told[5], told[4], told[6])
		}
		lines = append(lines, line)
	}
	text := fmt.Sprintf("The greatest rate is %.0f/s.\n\n%s\n%s", j.greatest, markdown(lines), latencyTable(j.latencies, j.greatest))
	return append(rows, latenciesAhead("demo", j.latencies, j.greatest)...), o.documentOf("analysis.md", "saturation", j.run.Machine, text)
}

// raiseShop raises the load of the demo shop until it no longer keeps up.
func raiseShop(ctx context.Context, o options, j *judge) (err error) {
	host, stop, err := watch(ctx)
	if err != nil {
		return err
	}
	defer stop()
	binary, err := filepath.Abs(filepath.Join(o.binaries, "outsight"))
	if err != nil {
		return err
	}
	shop, err := demo.Start(ctx, demo.Options{Binary: binary})
	if err != nil {
		return err
	}
	defer func() {
		if e := shop.Stop(context.WithoutCancel(ctx)); err == nil {
			err = e
		}
	}()
	j.run = newLoadRun("")
	for rate := saturationFirst; ; rate *= limitStep {
		if err := shop.SetRate(ctx, rate); err != nil {
			return err
		}
		if err := wait(ctx, 3*time.Second); err != nil {
			return err
		}
		step, err := watchLoad(ctx, host, rate, lookTime(o.look, rate, rate/saturationFirst), func() (uint64, error) {
			truth, err := shop.Truth(ctx)
			return truth.Load.Completed, err
		})
		if err != nil {
			return err
		}
		if err := j.add(step); err != nil {
			return err
		}
		if !step.keptUp() || rate > 5000 {
			return j.run.save(o.save, "saturation")
		}
	}
}

// toldLatency is what was told of the 99th percentile at a rate, which is times the greatest until then, and what was seen.
type toldLatency struct {
	at, times, seen float64
	// low and high are between what would be seen by chance in nine of ten cases.
	low, high float64
	entry     predict.Entry
}

// addLatencies puts what is seen at a rate beside what was told of it before, and adds what is told of the rates, each of which
// is times the one before, that are next to half as much again and to twice as much.
func addLatencies(told []toldLatency, run *loadRun, history *predict.History, now *loadStep, times float64) ([]toldLatency, error) {
	low, high := run.p99ByChance(now)
	for i := range told {
		if t := &told[i]; math.Abs(t.at/now.Asked-1) < 1e-6 {
			t.seen, t.low, t.high = now.p99(), low, high
		}
	}
	for _, more := range []float64{1.5, 2} {
		at := now.Asked * math.Pow(times, math.Round(math.Log(more)/math.Log(times)))
		ahead, err := history.Predict(predict.Scenario{Rate: at})
		if err != nil {
			return nil, err
		}
		if len(ahead.Entries) > 0 && (ahead.Entries[0].Then != nil || ahead.Entries[0].Saturated) {
			told = append(told, toldLatency{at: at, times: at / now.Asked, entry: ahead.Entries[0]})
		}
	}
	return told, nil
}

// tried is that it was, and served, and that something was told.
func (t *toldLatency) tried(greatest float64) bool {
	return t.entry.Then != nil && t.seen > 0 && t.at <= greatest
}

// within is that what was seen is between the bounds.
func (t *toldLatency) within() bool {
	p99 := t.entry.Then.P99
	return t.seen >= p99.Low && (p99.High == nil || t.seen <= *p99.High)
}

// byChance is that what was told may be what is seen, for chance.
func (t *toldLatency) byChance() bool {
	value := t.entry.Then.P99.Value
	return t.low <= value && value <= t.high
}

// off is by how much what was told is off, as a share.
func (t *toldLatency) off() float64 { return math.Abs(t.entry.Then.P99.Value/t.seen - 1) }

// latenciesAhead compares what was told with what was seen, at up to 80 % of the greatest rate and beyond.
func latenciesAhead(name string, told []toldLatency, greatest float64) (rows []row) {
	for _, t := range told {
		if !t.tried(greatest) {
			continue
		}
		p99 := t.entry.Then.P99
		r := row{what: fmt.Sprintf("%s: p99 at %.0f %% of the greatest rate, told at %.1f times less load", name, 100*t.at/greatest, t.times),
			value: 100 * t.off(), unit: "% off", detail: fmt.Sprintf("said %.2f ms (%s) by %s, seen %.2f ms, within: %v", 1e3*p99.Value,
				millisecondBounds(&p99), t.entry.Model, 1e3*t.seen, t.within())}
		if t.at <= 0.8*greatest {
			r.budget = latencyBudget
		}
		rows = append(rows, r)
	}
	return rows
}

// latencyTable is the same for a page.
func latencyTable(told []toldLatency, greatest float64) string {
	lines := [][]string{{"p99 at this share of the limit", "told at", "told", "bounds", "seen", "by chance", "off by", "within"}}
	for _, t := range told {
		if t.tried(greatest) {
			p99 := t.entry.Then.P99
			lines = append(lines, []string{fmt.Sprintf("%.0f %%", 100*t.at/greatest), fmt.Sprintf("%.0f %%", 100*t.at/t.times/greatest),
				fmt.Sprintf("%.1f ms", 1e3*p99.Value), millisecondBounds(&p99), fmt.Sprintf("%.1f ms", 1e3*t.seen),
				fmt.Sprintf("%.1f to %.1f ms", 1e3*t.low, 1e3*t.high), fmt.Sprintf("%.0f %%", 100*t.off()), yes(t.within())})
		}
	}
	return latencySummary(told, greatest) + "\n\n" + markdown(lines)
}

// latencyCounts is how many of what was told of p99, at up to 80 % of the limit, holds.
type latencyCounts struct {
	// all is how many there are; within their bounds, near the truth by latencyBudget.
	all, within, near int
	// closed is how many have an upper bound, and closedWithin how many of those are within their bounds.
	closed, closedWithin int
	// known is of how many chance itself lets what was seen be known to latencyBudget, and knownNear how many of those are near;
	// chance is how many of the rest are not further off than chance.
	known, knownNear, chance int
	// endless is of how many more it was told that the queue has no end, although what was asked for was served.
	endless int
}

func countLatencies(told []toldLatency, greatest float64) (c latencyCounts) {
	for _, t := range told {
		if t.entry.Then == nil && t.seen > 0 && t.at <= 0.8*greatest {
			c.endless++
		}
		if !t.tried(greatest) || t.at > 0.8*greatest {
			continue
		}
		near := 100*t.off() <= latencyBudget
		c.all++
		c.within += one(t.within())
		if t.entry.Then.P99.High != nil {
			c.closed++
			c.closedWithin += one(t.within())
		}
		c.near += one(near)
		if t.known() {
			c.known++
			c.knownNear += one(near)
		} else {
			c.chance += one(!near && t.byChance())
		}
	}
	return c
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// known is that chance makes what was seen no more than latencyBudget longer or shorter.
func (t *toldLatency) known() bool {
	const budget = latencyBudget / 100.0
	return t.high <= (1+budget)*t.seen && t.low >= (1-budget)*t.seen
}

// latencySummary says how many of what was told holds.
func latencySummary(told []toldLatency, greatest float64) string {
	c := countLatencies(told, greatest)
	text := fmt.Sprintf("At up to 80 %% of the limit, p99 is within its bounds in %d of %d, and told within %d %% in %d. What was seen is "+
		"known to %d %% itself, for chance, in %d; of those %d are told within that. Of the others that are not, %d are not further off "+
		"than chance.", c.within, c.all, latencyBudget, c.near, latencyBudget, c.known, c.knownNear, c.chance)
	if c.endless > 0 {
		text += fmt.Sprintf(" Of %d more it was told that the queue has no end.", c.endless)
	}
	return text
}

func millisecondBounds(i *predict.Interval) string {
	if i.High == nil {
		return fmt.Sprintf("%.1f ms or more", 1e3*i.Low)
	}
	return fmt.Sprintf("%.1f to %.1f ms", 1e3*i.Low, 1e3**i.High)
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
