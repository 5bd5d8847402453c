package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"outsight/bench/traffic"
	"outsight/bench/truth"
)

// overheadLoads are compared with and without the agent. Both ends run on the watched host.
var overheadLoads = []load{
	{name: "iperf3 128 KB", budget: 1, packetBudget: 1, start: iperf("128K")},
	{name: "iperf3 8 KB", start: iperf("8K")},
	{name: "iperf3 1 KB", packetBudget: 3, start: iperf("1K")},
	{name: "iperf3 UDP 64 bytes", packetBudget: 5, start: iperf("64", "-u", "-b", "0")},
	redisLoad,
	{name: "redis-benchmark GET, --times-only", budget: 2, timesOnly: true, start: redisBenchmark(100_000)},
	{name: "redis-benchmark GET, 16 pipelined", latency: true, start: redisBenchmark(1_000_000, "-P", "16")},
	{name: "wrk on nginx, kept alive", latency: true, start: wrk()},
	{name: "wrk on nginx, one request per connection", latency: true, start: wrk("-H", "Connection: close")},
	{name: fmt.Sprintf("nginx at %d requests/s", pacedRate), paced: true, latency: true, latencyBudget: 2, start: paced},
	{name: "gRPC, unary calls", latency: true, start: callGRPC},
}

var redisLoad = load{name: "redis-benchmark GET", latency: true, budget: 2, packetBudget: 1,
	start: redisBenchmark(100_000)}

func iperf(length string, arguments ...string) starter {
	return func(ctx context.Context, o options) (runner, func(), error) {
		address, err := freeAddress()
		if err != nil {
			return nil, nil, err
		}
		host, port, _ := net.SplitHostPort(address)
		server, err := startServer(ctx, address, "iperf3", "-s", "-B", host, "-p", port)
		if err != nil {
			return nil, nil, err
		}
		seconds := strconv.FormatFloat(o.run.Seconds(), 'f', 0, 64)
		return func(ctx context.Context) (result, error) {
			all := append([]string{"-c", host, "-p", port, "-l", length, "-t", seconds, "-J"}, arguments...)
			out, err := output(ctx, "iperf3", all...)
			if err != nil {
				return result{}, err
			}
			return iperfResult(out)
		}, server.stop, nil
	}
}

func iperfResult(out []byte) (result, error) {
	var told struct {
		End struct {
			SumReceived struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	if err := json.Unmarshal(out, &told); err != nil || told.End.SumReceived.BitsPerSecond == 0 {
		return result{}, fmt.Errorf("no result of iperf3: %v: %s", err, out)
	}
	return result{speed: told.End.SumReceived.BitsPerSecond / 1e9}, nil
}

// redisResult: requests per second, then average, least, p50, p95, p99 and greatest latency in ms.
var redisResult = regexp.MustCompile(`"GET","([\d.]+)","[\d.]+","[\d.]+","[\d.]+","[\d.]+","([\d.]+)"`)

// redisBenchmark runs for as long as asked for where the machine answers rate requests a second.
func redisBenchmark(rate float64, arguments ...string) starter {
	return func(ctx context.Context, o options) (runner, func(), error) {
		server, _, err := traffic.StartRedis(ctx)
		if err != nil {
			return nil, nil, err
		}
		all := append([]string{"-h", server.Address.Addr().String(), "-p", port(server.Address), "-t", "get", "-c",
			"50", "--csv",
			"-n", strconv.Itoa(int(rate * o.run.Seconds()))}, arguments...)
		return func(ctx context.Context) (result, error) {
			out, err := output(ctx, "redis-benchmark", all...)
			if err != nil {
				return result{}, err
			}
			found := redisResult.FindSubmatch(out)
			if found == nil {
				return result{}, fmt.Errorf("no result of redis-benchmark: %s", out)
			}
			return parseResult(string(found[1]), string(found[2])+"ms")
		}, server.Stop, nil
	}
}

var (
	wrkSpeed   = regexp.MustCompile(`Requests/sec:\s+([\d.]+)`)
	wrkLatency = regexp.MustCompile(`99%\s+([\d.]+[mu]?s)`)
)

func wrk(arguments ...string) starter {
	return func(ctx context.Context, o options) (runner, func(), error) {
		server, err := traffic.StartNginx(ctx)
		if err != nil {
			return nil, nil, err
		}
		seconds := strconv.FormatFloat(o.run.Seconds(), 'f', 0, 64) + "s"
		all := append(append([]string{"-t", "2", "-c", "50", "-d", seconds, "--latency"}, arguments...),
			fmt.Sprintf("http://%s/", server.Address))
		return func(ctx context.Context) (result, error) {
			out, err := output(ctx, "wrk", all...)
			if err != nil {
				return result{}, err
			}
			speed, latency := wrkSpeed.FindSubmatch(out), wrkLatency.FindSubmatch(out)
			if speed == nil || latency == nil || strings.Contains(string(out), "Non-2xx") {
				return result{}, fmt.Errorf("no result of wrk: %s", out)
			}
			return parseResult(string(speed[1]), string(latency[1]))
		}, server.Stop, nil
	}
}

// pacedRate is in requests per second: a third, or less, of what two slow cores can do.
const pacedRate = 2000

// paced asks nginx at a fixed rate; latencies begin when a request was meant to be sent.
func paced(ctx context.Context, o options) (runner, func(), error) {
	server, err := traffic.StartNginx(ctx)
	if err != nil {
		return nil, nil, err
	}
	pace := traffic.Pace{Rate: pacedRate, Connections: 50, Duration: o.run}
	return func(ctx context.Context) (result, error) {
		seen, err := pace.Run(ctx, traffic.HTTPClient(server))
		return pacedResult(seen.Corrected, o.run, err)
	}, server.Stop, nil
}

func callGRPC(_ context.Context, o options) (runner, func(), error) {
	server, err := traffic.StartGRPC()
	if err != nil {
		return nil, nil, err
	}
	pace := traffic.Pace{Connections: 32, Duration: o.run}
	return func(ctx context.Context) (result, error) {
		seen, err := pace.Run(ctx, traffic.GRPCClient(server))
		return pacedResult(seen.Plain, o.run, err)
	}, server.Stop, nil
}

func pacedResult(latencies []time.Duration, window time.Duration, err error) (result, error) {
	if err != nil {
		return result{}, err
	}
	slices.Sort(latencies)
	return result{speed: float64(len(latencies)) / window.Seconds(), p99: truth.Exact(latencies, 0.99).Seconds()}, nil
}

func parseResult(speed, p99 string) (result, error) {
	s, err := strconv.ParseFloat(speed, 64)
	if err != nil {
		return result{}, err
	}
	d, err := time.ParseDuration(p99)
	return result{s, d.Seconds()}, err
}

func port(address netip.AddrPort) string { return strconv.Itoa(int(address.Port())) }
