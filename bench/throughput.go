package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"outsight/bench/truth"
	"outsight/internal/kernel"
)

// load is a program whose throughput and latency are taken with and without the agent.
type load struct {
	name string
	// budget is of the throughput lost, latencyBudget of the p99 added, both in percent; 0 is none.
	budget, latencyBudget float64
	// packetBudget is of the throughput lost by packets alone, in percent; 0: it is not taken.
	packetBudget float64
	// paced loads have a rate of their own: only their latency is compared.
	paced bool
	// timesOnly: requests are timed and not read (--times-only).
	timesOnly bool
	// latency: the program tells its p99.
	latency bool
	// start starts the server; run makes one run against it.
	start starter
}

type starter func(context.Context, options) (run runner, stop func(), err error)

type runner func(context.Context) (result, error)

// turnPairs is how many pairs of short turns stand for one pair of runs.
const turnPairs = 40

// packetTurn is how long packets are observed, or not: in each turn there is one slice of time.
const packetTurn = time.Second

// result of one run; p99 in seconds is 0 where the program does not tell it.
type result struct{ speed, p99 float64 }

func measureThroughput(ctx context.Context, o options) ([]row, error) {
	var rows []row
	exactly := slices.ContainsFunc(overheadLoads, func(l load) bool { return l.name == o.loads })
	for _, l := range overheadLoads {
		if !strings.Contains(l.name, o.loads) || exactly && l.name != o.loads {
			continue
		}
		measured, err := l.compare(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		rows = append(rows, measured...)
	}
	if o.loads != "" {
		return rows, nil
	}
	return rows, o.document("overhead.md", "overhead", rowsTable(rows))
}

// compare tells what a load loses, and what it waits longer.
func (l load) compare(ctx context.Context, o options) ([]row, error) {
	var rows []row
	if !l.paced {
		lost, err := l.compareSpeed(ctx, o)
		if err != nil {
			return nil, err
		}
		rows = append(rows, lost)
	}
	if l.packetBudget > 0 {
		lost, err := l.comparePackets(ctx, o)
		if err != nil {
			return nil, err
		}
		rows = append(rows, lost...)
	}
	if l.latency {
		added, err := l.compareLatency(ctx, o)
		if err != nil {
			return nil, err
		}
		rows = append(rows, added)
	}
	return rows, nil
}

// compareSpeed attaches the kernel programs to one long run and takes them away, in short turns.
func (l load) compareSpeed(ctx context.Context, o options) (row, error) {
	return l.speedLost(ctx, o, l.name+": throughput lost", l.budget, turn, o.pairs*turnPairs,
		kernel.Options{WithoutEndpoints: l.timesOnly}, func(p *kernel.Probes) toggles { return toggles{p.Pause, p.Resume} })
}

// comparePackets attaches the hooks of packets and takes them away, while all other programs are attached: first for
// slices of time, in turns as long as one takes to come again, and then for all packets.
func (l load) comparePackets(ctx context.Context, o options) ([]row, error) {
	shed := func(p *kernel.Probes) toggles {
		return toggles{func() error { return p.Shed("packets") }, func() error { return p.Restore("packets") }}
	}
	sliced, err := l.speedLost(ctx, o, l.name+": throughput lost by packets, in slices", l.packetBudget, packetTurn,
		o.pairs*turnPairs/4, kernel.Options{Packets: kernel.PacketsInSlices}, shed)
	if err != nil {
		return nil, err
	}
	all, err := l.speedLost(ctx, o, l.name+": throughput lost by packets, all observed", 0, turn, o.pairs*turnPairs,
		kernel.Options{Packets: kernel.PacketsAll}, shed)
	return []row{sliced, all}, err
}

// speedLost compares the speed of one long run in turns.
func (l load) speedLost(ctx context.Context, o options, what string, budget float64, turn time.Duration, pairs int,
	opened kernel.Options, of func(*kernel.Probes) toggles) (row, error) {
	o.run = time.Duration(2*pairs)*turn*2 + 10*time.Second // it is cut short when the turns are over
	run, stop, err := l.start(ctx, o)
	if err != nil {
		return row{}, err
	}
	defer stop()
	p, err := truth.Open(opened)
	if err != nil {
		return row{}, err
	}
	defer p.Close()
	losses, speed, err := lossInTurns(ctx, of(p), run, pairs, turn)
	if err != nil {
		return row{}, err
	}
	observed, err := observedShare(p)
	if err != nil {
		return row{}, err
	}
	low, high := interval(losses)
	lost := row{what: what, value: median(losses), unit: "%", budget: budget, low: low,
		high: high,
		detail: fmt.Sprintf("%d pairs of turns of %v, 95 %% sure between %.2f and %.2f; %.3g MB/s without", len(losses),
			turn, low, high, speed/1e6)}
	if observed > 0 {
		lost.detail += fmt.Sprintf("; %.3g %% of the packets were observed", 100*observed)
	}
	progress("%s: %.2f %% (%s)", lost.what, lost.value, lost.detail)
	return lost, nil
}

// observedShare is how many of the packets received were observed.
func observedShare(p *kernel.Probes) (float64, error) {
	edges, err := p.ReadEdges()
	if err != nil {
		return 0, err
	}
	var received, observed uint64
	for i := range edges {
		n := &edges[i].Counters.Packets
		received, observed = received+n.ReceivedPackets, observed+n.Observed
	}
	return float64(observed) / float64(max(received, 1)), nil
}

// compareLatency takes turns: without, with, with, without, ... so that a drift of the machine's
// speed weighs on both alike. The result is the median of the pairs.
func (l load) compareLatency(ctx context.Context, o options) (row, error) {
	run, stop, err := l.start(ctx, o)
	if err != nil {
		return row{}, err
	}
	defer stop()
	if _, err := run(ctx); err != nil { // warm up
		return row{}, err
	}
	var added, p99s, watchedP99s []float64
	for pair := range o.pairs {
		var plain, watched result
		for i := range 2 {
			if i == pair%2 {
				plain, err = run(ctx)
			} else {
				watched, err = l.watched(ctx, o, run)
			}
			if err != nil {
				return row{}, err
			}
		}
		added = append(added, 100*(watched.p99/plain.p99-1))
		p99s, watchedP99s = append(p99s, 1000*plain.p99), append(watchedP99s, 1000*watched.p99)
		progress("%s: pair %d of %d: p99 %.3g ms without, %.3g ms with", l.name, pair+1, o.pairs, 1000*plain.p99,
			1000*watched.p99)
	}
	low, high := quartile(added, 1), quartile(added, 3)
	return row{what: l.name + ": p99 added", value: median(added), unit: "%", budget: l.latencyBudget, low: low,
		high: high,
		detail: fmt.Sprintf("%d pairs, quartiles %.2f and %.2f; medians %.3g ms without, %.3g ms with",
			len(added), low, high, median(p99s), median(watchedP99s))}, nil
}

func (l load) watched(ctx context.Context, o options, run runner) (result, error) {
	a, err := startAgent(ctx, o, "outsight agent")
	if err != nil {
		return result{}, err
	}
	defer a.stop()
	return run(ctx)
}
