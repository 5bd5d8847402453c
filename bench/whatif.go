package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"outsight/internal/predict"
)

const (
	// whatifFirst is the first of whatifRates rates from which it is learnt, each of which is whatifStep times the one before:
	// up to about two thirds of the limit.
	whatifFirst, whatifStep, whatifRates = 18, 1.4, 4
	// whatifShare is the share of the limit that is told, at which durations are compared, and whatifMore what is asked for
	// to find the limit.
	whatifShare, whatifMore = 0.6, 1.4
)

// tried is a scenario that is told, and then made so.
type triedScenario struct {
	name     string
	scenario func(*loadRun) predict.Scenario
	apply    func(*appStage) error
}

var triedScenarios = []triedScenario{
	{"as it is", func(*loadRun) predict.Scenario { return predict.Scenario{} }, func(*appStage) error { return nil }},
	{"a quota of twice as much", func(r *loadRun) predict.Scenario {
		return predict.Scenario{Quota: map[string]float64{r.container("worker"): 2 * workerQuota}}
	}, func(s *appStage) error { return s.setQuota(2 * workerQuota) }},
	{"a second replica", func(r *loadRun) predict.Scenario {
		return predict.Scenario{Replicas: map[string]int{r.container("worker"): 2}}
	}, func(s *appStage) error {
		if err := s.setQuota(workerQuota); err != nil {
			return err
		}
		redis, err := s.address("redis")
		if err != nil {
			return err
		}
		second, err := s.runWorker("worker-2", redis)
		if err != nil {
			return err
		}
		if err := answers(s.ctx, "http://"+second+":8080/"); err != nil {
			return err
		}
		first, err := s.address("worker")
		if err != nil {
			return err
		}
		if err := s.writeNginx(first, second); err != nil {
			return err
		}
		_, err = s.docker("exec", s.container("front"), "/usr/sbin/nginx", "-c", "/etc/app/nginx.conf", "-s", "reload")
		return err
	}},
}

func (s *appStage) setQuota(cores float64) error {
	_, err := s.docker("update", "--cpus", fmt.Sprint(cores), s.container("worker"))
	return err
}

// measureWhatif learns from an application at lower loads what it would be like with another quota and with a second
// replica, makes it so, and compares.
func measureWhatif(ctx context.Context, o options) (rows []row, err error) {
	ctx, end := context.WithTimeout(ctx, o.limitLength())
	defer end()
	var run *loadRun
	var look func(rate float64) (*loadStep, error)
	apply := func(func(*appStage) error) error { return nil }
	if o.replay != "" {
		var steps []*loadStep
		if run, steps, err = readLoadRun(o.replay, "whatif"); err != nil {
			return nil, err
		}
		look = func(float64) (*loadStep, error) {
			step := steps[0]
			steps = steps[1:]
			return step, nil
		}
	} else {
		host, stop, err := watch(ctx)
		if err != nil {
			return nil, err
		}
		defer stop()
		s, err := newAppStage(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		url, err := startWorkerApp(s)
		if err != nil {
			return nil, err
		}
		if err := answers(ctx, url); err != nil {
			return nil, err
		}
		run = newLoadRun(s.name)
		look = func(rate float64) (*loadStep, error) { return s.look(ctx, host, url, rate, o.look) }
		apply = func(what func(*appStage) error) error { return what(s) }
	}
	var history predict.History
	rate := float64(whatifFirst)
	for range whatifRates {
		step, err := look(rate)
		if err == nil {
			err = run.add(step, &history)
		}
		if err != nil {
			return nil, err
		}
		rate *= whatifStep
	}
	lines := [][]string{{"", "", "told", "bounds", "measured", "off by", "within"}}
	for _, t := range triedScenarios {
		scenario := t.scenario(run)
		scenario.Times = 1
		p, err := history.Predict(scenario)
		if err != nil {
			return nil, err
		}
		if p.Limit == nil {
			return nil, fmt.Errorf("no limit is told with %s", t.name)
		}
		if err := apply(t.apply); err != nil {
			return nil, err
		}
		var calm, full *loadStep
		if calm, err = look(whatifShare * p.Limit.Value); err == nil {
			err = run.add(calm, nil)
		}
		if err == nil {
			full, err = look(whatifMore * p.Limit.Value)
		}
		if err == nil {
			err = run.add(full, nil)
		}
		if err != nil {
			return nil, err
		}
		scenario.Rate = calm.Asked
		then, err := history.Predict(scenario)
		if err != nil {
			return nil, err
		}
		if len(then.Entries) == 0 || then.Entries[0].Then == nil {
			return nil, fmt.Errorf("no durations are told with %s", t.name)
		}
		p99 := then.Entries[0].Then.P99
		for _, c := range []struct {
			what, unit   string
			told         predict.Interval
			seen, factor float64
			budget       float64
		}{
			{"limit", "/s", *p.Limit, full.Served, 1, saturationBudget},
			{fmt.Sprintf("p99 at %.0f/s", scenario.Rate), " ms", p99, calm.p99(), 1e3, latencyBudget},
		} {
			bounds := fmt.Sprintf("%.1f or more", c.factor*c.told.Low)
			if c.told.High != nil {
				bounds = fmt.Sprintf("%.1f to %.1f", c.factor*c.told.Low, c.factor**c.told.High)
			}
			told, seen := fmt.Sprintf("%.1f%s", c.factor*c.told.Value, c.unit), fmt.Sprintf("%.1f%s", c.factor*c.seen, c.unit)
			off := 100 * math.Abs(c.told.Value/c.seen-1)
			inside := c.told.Low <= c.seen && (c.told.High == nil || c.seen <= *c.told.High)
			progress("what-if: %s: %s told %s (%s), measured %s", t.name, c.what, told, bounds, seen)
			rows = append(rows, row{what: fmt.Sprintf("what-if, %s: %s", t.name, c.what), value: off, unit: "% off", budget: c.budget,
				detail: fmt.Sprintf("told %s (%s), measured %s, within: %v", told, bounds, seen, inside)})
			lines = append(lines, []string{t.name, c.what, told, bounds, seen, fmt.Sprintf("%.0f %%", off), yes(inside)})
		}
	}
	return rows, errors.Join(run.save(o.save, "whatif"), o.documentOf("analysis.md", "whatif-run", run.Machine, markdown(lines)))
}
