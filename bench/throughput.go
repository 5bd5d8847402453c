package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"regexp"
	"strconv"
)

// load is a program whose throughput is taken with and without the agent.
type load struct {
	name   string
	unit   string
	budget float64
	// serve starts the server at an address; once returns the throughput of one run.
	serve func(ctx context.Context, host, port string) (*process, error)
	once  func(ctx context.Context, o options, host, port string) (float64, error)
}

var loads = []load{
	{
		name: "iperf3 128 KB throughput lost", unit: "Gbit/s", budget: 1,
		serve: func(ctx context.Context, host, port string) (*process, error) {
			return startServer(ctx, net.JoinHostPort(host, port), "iperf3", "-s", "-B", host, "-p", port)
		},
		once: runIperf,
	},
	{
		name: "redis-benchmark GET throughput lost, both ends here", unit: "requests/s", budget: 2,
		serve: func(ctx context.Context, host, port string) (*process, error) {
			return startServer(ctx, net.JoinHostPort(host, port), "redis-server", "--bind", host, "--port", port, "--save", "", "--dir", "/tmp")
		},
		once: runRedis,
	},
}

func measureThroughput(ctx context.Context, o options) ([]row, error) {
	var rows []row
	for _, l := range loads {
		r, err := l.compare(ctx, o)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// compare takes turns: without, with, with, without, ... so that a drift of the machine's speed
// weighs on both alike. The result is the median of the pairs' losses.
func (l load) compare(ctx context.Context, o options) (row, error) {
	address, err := freeAddress()
	if err != nil {
		return row{}, err
	}
	host, port, _ := net.SplitHostPort(address)
	server, err := l.serve(ctx, host, port)
	if err != nil {
		return row{}, err
	}
	defer server.stop()
	if _, err := l.once(ctx, o, host, port); err != nil { // warm up
		return row{}, err
	}
	var losses, without, with []float64
	for pair := range o.pairs {
		var plain, watched float64
		for turn := range 2 {
			if turn == pair%2 {
				plain, err = l.once(ctx, o, host, port)
			} else {
				watched, err = l.watched(ctx, o, host, port)
			}
			if err != nil {
				return row{}, err
			}
		}
		without, with = append(without, plain), append(with, watched)
		losses = append(losses, 100*(1-watched/plain))
		progress("%s: pair %d of %d: %.4g without, %.4g with, %.2f %% lost", l.name, pair+1, o.pairs, plain, watched, losses[pair])
	}
	low, high := quartile(losses, 1), quartile(losses, 3)
	return row{what: l.name, value: median(losses), unit: "%", budget: l.budget, low: low, high: high,
		detail: fmt.Sprintf("median of %d pairs, quartiles %.2f and %.2f; medians %.4g without, %.4g with %s",
			o.pairs, low, high, median(without), median(with), l.unit)}, nil
}

func (l load) watched(ctx context.Context, o options, host, port string) (float64, error) {
	a, err := startAgent(ctx, o, "outsight agent")
	if err != nil {
		return 0, err
	}
	defer a.stop()
	return l.once(ctx, o, host, port)
}

func runIperf(ctx context.Context, o options, host, port string) (float64, error) {
	out, err := output(ctx, "iperf3", "-c", host, "-p", port, "-l", "128K", "-t", strconv.FormatFloat(o.run.Seconds(), 'f', 0, 64), "-J")
	if err != nil {
		return 0, err
	}
	var result struct {
		End struct {
			SumReceived struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	if err := json.Unmarshal(out, &result); err != nil || result.End.SumReceived.BitsPerSecond == 0 {
		return 0, fmt.Errorf("no result of iperf3: %v: %s", err, out)
	}
	return result.End.SumReceived.BitsPerSecond / 1e9, nil
}

var redisResult = regexp.MustCompile(`"GET","([\d.]+)"`)

func runRedis(ctx context.Context, _ options, host, port string) (float64, error) {
	out, err := output(ctx, "redis-benchmark", "-h", host, "-p", port, "-t", "get", "-n", "300000", "-c", "50", "--csv")
	if err != nil {
		return 0, err
	}
	found := redisResult.FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("no result of redis-benchmark: %s", out)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}
