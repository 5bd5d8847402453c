package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"outsight/bench/traffic"
	"outsight/bench/truth"
	"outsight/internal/kernel"
)

// eventConnections and eventTrial: how the highest rate of events is made, and how many requests
// of each connection tell what rate that is.
const (
	eventConnections = 50
	eventTrial       = 4000
)

// measureEvents makes as many socket events as the machine can and counts those lost.
func measureEvents(ctx context.Context, o options) ([]row, error) {
	p, err := truth.Open(kernel.Options{})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	statistics, err := kernel.EnableStatistics() // for the number of runs
	if err != nil {
		return nil, err
	}
	defer statistics.Close()
	begin := time.Now()
	if _, err := traffic.Redis(ctx, traffic.Load{Connections: eventConnections, Requests: eventTrial}); err != nil {
		return nil, err
	}
	requests := eventTrial * o.events.Seconds() / time.Since(begin).Seconds()
	progress("events: %.0f requests of each of %d connections", requests, eventConnections)
	before, begin := socketEvents(p), time.Now()
	truths, err := traffic.Redis(ctx, traffic.Load{Connections: eventConnections, Requests: int(requests)})
	if err != nil {
		return nil, err
	}
	window := time.Since(begin)
	after := socketEvents(p)
	if err := truth.Check(ctx, p, truths); err != nil {
		return nil, err
	}
	lost := after.missed - before.missed + drops(p)
	made, rate := truths[0].Client.Requests, float64(after.runs-before.runs)/window.Seconds()
	r := row{what: "events lost at the highest rate", value: float64(lost), unit: "events",
		detail: fmt.Sprintf("%d socket events in %v (%.0f/s); redis-benchmark and Redis made %d transactions, and so many are counted at each end",
			after.runs-before.runs, window.Round(time.Second), rate, made)}
	progress("%s", r.detail)
	if lost != 0 {
		return nil, fmt.Errorf("%d events are lost", lost)
	}
	return []row{r}, o.document("accuracy.md", "events", markdown([][]string{
		{"time", "socket events", "per second", "transactions made", "counted at each end", "events lost"},
		{window.Round(time.Second).String(), strconv.FormatUint(after.runs-before.runs, 10), fmt.Sprintf("%.0f", rate),
			strconv.FormatUint(made, 10), strconv.FormatUint(made, 10), strconv.FormatUint(lost, 10)},
	}))
}

type eventCount struct{ runs, missed uint64 }

// socketEvents is how often the programs on sending and receiving ran, on the whole host, and how
// often the kernel did not run them.
func socketEvents(p *kernel.Probes) eventCount {
	var n eventCount
	for _, c := range p.ProgramCosts() {
		if c.Name == "tp_btf/sock_send_length" || c.Name == "tp_btf/sock_recv_length" {
			n.runs += c.Runs
			n.missed += c.Missed
		}
	}
	return n
}

// drops sums what found no room in any table.
func drops(p *kernel.Probes) uint64 {
	var sum uint64
	for _, d := range p.Drops() {
		sum += d.Count
	}
	return sum
}
