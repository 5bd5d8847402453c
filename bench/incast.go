package main

import (
	"context"
	"fmt"
	"time"

	"outsight/bench/incast"
	"outsight/bench/incast/shaped"
)

// planHosts are the numbers of hosts that are planned.
var planHosts = []int{1000, 10000, 100000}

// measureIncast simulates a controller that reads many hosts at once: paper 004's figures 10 and 11 and its observations
// beside ours, and a plan for more hosts.
func measureIncast(ctx context.Context, o options) (rows []row, err error) {
	text := ""
	clusters := []incast.Cluster{incast.Cluster1(), incast.Cluster2()}
	results := make([]map[incastKey]incast.Result, len(clusters))
	for i, c := range clusters {
		table, found, err := incastFigure(c)
		if err != nil {
			return nil, fmt.Errorf("simulating %s: %w", c.Name, err)
		}
		results[i] = found
		text += fmt.Sprintf("Figure %d, %s: reads of 128 KB from each host.\n\n%s\n", 10+i, c.Name, table)
	}
	if err := o.document("incast.md", "figures", text); err != nil {
		return nil, err
	}
	plan, delay, rows, err := incastPlan()
	if err != nil {
		return nil, err
	}
	observations := incastObservations(clusters, results, delay)
	if err := o.document("incast.md", "observations", observations); err != nil {
		return nil, err
	}
	if err := o.document("incast.md", "plan", plan); err != nil {
		return nil, err
	}
	real, err := incastReal(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Printf("%s\n%s\n%s\n%s", observations, text, plan, real)
	return rows, o.document("incast.md", "real", real)
}

// incastKey is a run of a figure.
type incastKey struct {
	hosts int
	flow  incast.Flow
}

// incastFigure runs all policies and numbers of hosts of a cluster.
func incastFigure(c incast.Cluster) (string, map[incastKey]incast.Result, error) {
	found := map[incastKey]incast.Result{}
	lines := [][]string{{"hosts", "policy", "time of all", "mean of a host", "link used", "longest queue", "marked",
		"pauses", "time paused", "thread busy"}}
	for _, hosts := range c.Hosts {
		cell := fmt.Sprint(hosts)
		for _, p := range c.Policies() {
			r, err := incast.Run(c.With(hosts, p))
			if err != nil {
				return "", nil, err
			}
			found[incastKey{hosts, p.Flow}] = r
			lines = append(lines, []string{cell, p.Flow.String(), milliseconds(r.Elapsed.Seconds()), milliseconds(r.Latency.Mean.Seconds()),
				percent(r.Utilisation), kilobytes(r.QueueMost), percent(r.MarkedShare()), fmt.Sprint(r.Pauses),
				percent(r.Paused), percent(r.Thread)})
			cell = ""
		}
	}
	return markdown(lines), found, nil
}

// incastObservations puts what paper 004 says in section 6.3 beside what the simulation gives.
func incastObservations(clusters []incast.Cluster, results []map[incastKey]incast.Result, delay map[incast.Flow]time.Duration) string {
	begins := func(cluster int, flow incast.Flow, is func(incast.Result) bool) string {
		for _, hosts := range clusters[cluster].Hosts {
			if is(results[cluster][incastKey{hosts, flow}]) {
				return fmt.Sprintf("from %d hosts on", hosts)
			}
		}
		return "never"
	}
	over := func(cluster int, flow incast.Flow, from int, number func(incast.Result) float64) string {
		low, high := 1.0, 0.0
		for _, hosts := range clusters[cluster].Hosts {
			if hosts >= from {
				one := number(results[cluster][incastKey{hosts, flow}])
				low, high = min(low, one), max(high, one)
			}
		}
		return percent(low) + " to " + percent(high)
	}
	pauses := func(r incast.Result) bool { return r.Pauses > 0 }
	marks := func(r incast.Result) bool { return r.Marked > 0 }
	used := func(r incast.Result) float64 { return r.Utilisation }
	timePaused := func(r incast.Result) float64 { return r.Paused }
	most := func(cluster int) string {
		s := clusters[cluster].Setup
		return fmt.Sprint(s.MostHosts(100 * time.Millisecond))
	}
	return markdown([][]string{
		{"what", "paper 004", "here"},
		{"Cluster1, no flow control: pauses", "from 256 hosts on", begins(0, incast.Unlimited, pauses)},
		{"Cluster1, no flow control, pauses begun: time paused", "about 99 %", over(0, incast.Unlimited, 256, timePaused)},
		{"Cluster1, BDP-FC: pauses", "never", begins(0, incast.BDP, pauses)},
		{"Cluster1, Credit-FC of 8 MB: pauses", "never", begins(0, incast.Credit, pauses)},
		{"Cluster1, Credit-FC: link used", "saturated", over(0, incast.Credit, 0, used)},
		{"Cluster1, Paced: pauses", "", begins(0, incast.Paced, pauses)},
		{"Cluster1, Paced: link used", "", over(0, incast.Paced, 0, used)},
		{"Cluster2, BDP-FC: packets marked", "a large part", over(1, incast.BDP, 0, func(r incast.Result) float64 { return r.MarkedShare() })},
		{"Cluster2, Credit-FC of 1 MB: packets marked", "never", begins(1, incast.Credit, marks)},
		{"Cluster2, Credit-FC with 4 KB for each flow (256 hosts and more): link used", "half", over(1, incast.Credit, 256, used)},
		{"Cluster2, Paced: packets marked", "", begins(1, incast.Paced, marks)},
		{"Cluster2, Paced: link used", "", over(1, incast.Paced, 0, used)},
		{"100 Gbit/s beside others, Credit-FC of 256 KB: wait in the queue", "20 µs at most", delay[incast.Credit].String()},
		{"100 Gbit/s beside others, Paced: wait in the queue", "", delay[incast.Paced].String()},
		{"n = B·U/S of 128 KB in 100 ms with headers, Cluster1", "", most(0)},
		{"the same, Cluster2", "1,000 at least", most(1)},
	})
}

// incastPlan reads many hosts in groups beside packets of others; delay is how long one of those waits.
func incastPlan() (text string, delay map[incast.Flow]time.Duration, rows []row, err error) {
	lines := [][]string{{"hosts", "policy", "time of all", "hosts a second", "p99 of a host", "link used with others",
		"longest queue", "mean queue", "marked", "pauses", "others wait", "thread busy"}}
	delay = map[incast.Flow]time.Duration{}
	for _, hosts := range planHosts {
		cell := fmt.Sprint(hosts)
		for _, p := range incast.PlanPolicies() {
			s := incast.Plan(hosts, p)
			r, err := incast.Run(s)
			if err != nil {
				return "", nil, nil, fmt.Errorf("planning %d hosts: %w", hosts, err)
			}
			delay[p.Flow] = r.OthersDelay
			rate := float64(hosts) / r.Elapsed.Seconds()
			lines = append(lines, []string{cell, p.Flow.String(), milliseconds(r.Elapsed.Seconds()), fmt.Sprintf("%.0f", rate),
				milliseconds(r.Latency.P99.Seconds()), percent(r.Utilisation + r.OthersUsed), kilobytes(r.QueueMost),
				kilobytes(int(r.QueueMean)), percent(r.MarkedShare()), fmt.Sprint(r.Pauses),
				fmt.Sprintf("%.1f µs", r.OthersDelay.Seconds()*1e6), percent(r.Thread)})
			rows = append(rows, row{what: fmt.Sprintf("%d hosts, %v: time of all", hosts, p.Flow), value: r.Elapsed.Seconds(),
				unit: "s", detail: "simulated"})
			cell = ""
		}
	}
	s := incast.Plan(1, incast.Policy{})
	return markdown(lines) + fmt.Sprintf("\nn = B·U/S with headers is %d hosts a second with nobody else on the link, "+
			"and %.0f beside the others.\n", s.MostHosts(time.Second), (1-s.Load.Others)*float64(s.MostHosts(time.Second))),
		delay, rows, nil
}

// incastReal reads 32 hosts over a real link that tbf shapes, and simulates the same.
func incastReal(ctx context.Context) (string, error) {
	const queue, timeout = 192 << 10, 100 * time.Millisecond
	load := incast.Load{Hosts: 32, Bytes: 64 << 10, Fragment: 4 << 10}
	lines := [][]string{{"policy", "", "time of all", "median of a host", "longest of a host", "dropped", "requests repeated"}}
	for _, p := range []incast.Policy{{}, {Flow: incast.Credit, Bytes: 1 << 20}, {Flow: incast.Credit, Bytes: 512 << 10},
		{Flow: incast.Credit, Bytes: 128 << 10}} {
		s := shaped.Setup(incast.Gbit/10, queue, load, p, timeout)
		real, err := shaped.Read(ctx, s)
		if err != nil {
			return "", fmt.Errorf("reading over a shaped link: %w", err)
		}
		simulated, err := incast.Run(s)
		if err != nil {
			return "", err
		}
		name := p.Flow.String()
		if p.Bytes > 0 {
			name += ", " + kilobytes(p.Bytes)
		}
		lines = append(lines,
			[]string{name, "real", milliseconds(real.Elapsed.Seconds()), milliseconds(real.P50.Seconds()),
				milliseconds(real.Most.Seconds()), fmt.Sprint(real.Drops), fmt.Sprint(real.Repeated)},
			[]string{"", "simulated", milliseconds(simulated.Elapsed.Seconds()), milliseconds(simulated.Latency.P50.Seconds()),
				milliseconds(simulated.Latency.Most.Seconds()), fmt.Sprint(simulated.Dropped), fmt.Sprint(simulated.Repeated)})
	}
	return fmt.Sprintf("%d hosts of %s over 100 Mbit/s with a queue of %s; what has not come after %v is asked for again.\n\n%s",
		load.Hosts, kilobytes(load.Bytes), kilobytes(queue), timeout, markdown(lines)), nil
}

func kilobytes(n int) string { return fmt.Sprintf("%.0f KB", float64(n)/1024) }
