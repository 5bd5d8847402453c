package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"outsight/bench/traffic"
	"outsight/bench/truth"
	"outsight/internal/kernel"
)

// protocols are what requests and bytes are counted of, by programs that keep books.
var protocols = []struct {
	name string
	run  func(context.Context, traffic.Load) ([]traffic.Truth, error)
}{
	{"HTTP/1.1: Go to nginx", traffic.HTTP},
	{"gRPC, multiplexed: Go to Go", traffic.GRPC},
	{"Redis: redis-benchmark", traffic.Redis},
	{"PostgreSQL: pgbench", traffic.Postgres},
}

var countedLoads = []traffic.Load{
	{Connections: 1, Requests: 1000},
	{Connections: 100, Requests: 100},
	{Connections: 5000, Requests: 2},
	{Connections: 100, OneRequestEach: true},
	{Connections: 5000, OneRequestEach: true},
}

// measureCounts holds requests and bytes against the books of the programs. They must be equal to
// the last byte, at both ends; what is not is in the table.
func measureCounts(ctx context.Context, o options) ([]row, error) {
	p, err := truth.Open(kernel.Options{})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var rows []row
	lines := [][]string{{"traffic", "connections", "requests", "bytes sent", "bytes received", "Outsight, both ends"}}
	for _, protocol := range protocols {
		for _, l := range countedLoads {
			begin := time.Now()
			truths, err := protocol.run(ctx, l)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", protocol.name, loadName(l), err)
			}
			differences := truth.Check(ctx, p, truths)
			t, verdict := truths[0], "equal"
			detail := fmt.Sprintf("%d requests, %d bytes sent, %d received", t.Client.Requests, t.Client.SentBytes,
				t.Client.ReceivedBytes)
			var unequal float64
			if differences != nil {
				verdict, unequal = strings.ReplaceAll(differences.Error(), "\n", "; "), 1
				detail = verdict
			}
			rows = append(rows, row{what: fmt.Sprintf("not exact: %s, %s", protocol.name, loadName(l)), value: unequal,
				unit: "of 1", detail: detail})
			lines = append(lines, append(countsLine(protocol.name, l, t), verdict))
			progress("%s, %s: %s (%v)", protocol.name, loadName(l), verdict, time.Since(begin).Round(time.Second/10))
		}
	}
	return rows, o.document("accuracy.md", "counts", markdown(lines))
}

func countsLine(name string, l traffic.Load, t traffic.Truth) []string {
	return []string{name, loadName(l), strconv.FormatUint(t.Client.Requests, 10), strconv.FormatUint(t.Client.SentBytes,
		10), strconv.FormatUint(t.Client.ReceivedBytes, 10)}
}

func loadName(l traffic.Load) string {
	if l.OneRequestEach {
		return fmt.Sprintf("%d, one request each", l.Connections)
	}
	return fmt.Sprintf("%d, kept alive", l.Connections)
}
