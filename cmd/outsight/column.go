package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"outsight/internal/graph"
)

// column of the table of containers.
type column struct {
	// name in --sort, empty for what cannot be sorted by; key that sorts by it.
	name, key, title string
	width            int
	// need is the order in which columns are left out in a narrow terminal; 0 is never.
	need int
	// optional columns are left out where they say nothing.
	optional bool
	// left is whether cells begin at the left, as words do.
	left bool
	cell func(row) string
	// value to sort by; NaN sorts last.
	value func(row) float64
	// alarm reports whether a reader should look at a value.
	alarm func(row) bool
}

const (
	nameWidthMin, nameWidthMax = 16, 40
	imageWidthMin              = 16
	gap                        = 2
	leastNeed                  = 9
	// longWait is from which rate on waiting for a CPU is an alarm, in ms per second: a tenth of a thread's time.
	longWait = 100
)

// columns after the name, in order.
var columns = []column{
	{name: "cpu", key: "c", title: "CPU", width: 7,
		cell:  func(n row) string { return percent(usage(n).CPUCores) },
		value: func(n row) float64 { return value(usage(n).CPUCores) }},
	{name: "wait", key: "w", title: "wait p99", width: 9, need: 5,
		cell:  func(n row) string { return graph.Duration(usage(n).RunQueueP99) },
		value: func(n row) float64 { return seconds(usage(n).RunQueueP99) },
		alarm: func(n row) bool { return seconds(usage(n).RunQueueP99) >= 0.02 }},
	{name: "behind", key: "b", title: "waited behind", width: 21, need: 2, optional: true, left: true,
		cell:  waitedBehind,
		value: waitedRate,
		alarm: func(n row) bool { return waitedRate(n) >= longWait }},
	{name: "throttled", key: "h", title: "throttled", width: 9, need: 6, optional: true,
		cell:  func(n row) string { return percent(usage(n).ThrottledShare) },
		value: func(n row) float64 { return value(usage(n).ThrottledShare) },
		alarm: func(n row) bool { return value(usage(n).ThrottledShare) > 0 }},
	{name: "memory", key: "m", title: "memory", width: 9,
		cell:  func(n row) string { return graph.Bytes(usage(n).WorkingSetBytes) },
		value: func(n row) float64 { return value(usage(n).WorkingSetBytes) },
		alarm: func(n row) bool { return limitShare(n) >= 0.9 }},
	{name: "limit", key: "", title: "of limit", width: 8, need: 7, optional: true,
		cell: func(n row) string {
			if s := limitShare(n); !math.IsNaN(s) {
				return percent(&s)
			}
			return "–"
		},
		value: limitShare,
		alarm: func(n row) bool { return limitShare(n) >= 0.9 }},
	{name: "net", key: "n", title: "net in", width: 10, need: 4,
		cell: func(n row) string { return graph.BytesPerSecond(usage(n).NetworkReceiveBytes) },
		value: func(n row) float64 {
			return sum(usage(n).NetworkReceiveBytes, usage(n).NetworkTransmitBytes)
		}},
	{title: "net out", width: 10, need: 4,
		cell: func(n row) string { return graph.BytesPerSecond(usage(n).NetworkTransmitBytes) }},
	{name: "disk", key: "d", title: "disk read", width: 10, need: 8,
		cell:  func(n row) string { return graph.BytesPerSecond(usage(n).DiskReadBytes) },
		value: func(n row) float64 { return sum(usage(n).DiskReadBytes, usage(n).DiskWriteBytes) }},
	{title: "disk write", width: 10, need: 8,
		cell: func(n row) string { return graph.BytesPerSecond(usage(n).DiskWriteBytes) }},
	{name: "requests", key: "r", title: "served", width: 8,
		cell:  func(n row) string { return graph.PerSecond(served(n).TransactionsPerSecond) },
		value: func(n row) float64 { return value(served(n).TransactionsPerSecond) }},
	{title: "p50", width: 9, need: 3,
		cell: func(n row) string { return graph.Duration(served(n).P50) }},
	{name: "latency", key: "l", title: "p99", width: 9, need: 1,
		cell:  func(n row) string { return graph.Duration(served(n).P99) },
		value: func(n row) float64 { return seconds(served(n).P99) }},
	{name: "threads", key: "t", title: "threads", width: 7, need: 9,
		cell:  func(n row) string { return count(usage(n).Threads) },
		value: func(n row) float64 { return value(usage(n).Threads) }},
}

// byName is the sort column of those that want none of the numbers.
const byName = -1

// columnNamed is the index of the column that --sort names, byName for "name", less for none.
func columnNamed(name string) int {
	if name == "name" {
		return len(columns)
	}
	return slices.IndexFunc(columns, func(c column) bool { return c.name != "" && c.name == name })
}

func sortNames() string {
	names := []string{"name"}
	for _, c := range columns {
		if c.name != "" {
			names = append(names, c.name)
		}
	}
	return strings.Join(names, ", ")
}

var (
	noUsage graph.Usage
	noSide  graph.Side
)

func usage(n row) *graph.Usage {
	if n.Usage == nil {
		return &noUsage
	}
	return n.Usage
}

func served(n row) *graph.Side {
	if n.Served == nil {
		return &noSide
	}
	return n.Served
}

// waitedBehind is how much a container waited for a CPU and what most of it was behind, as in "38 ms/s batch".
func waitedBehind(n row) string {
	if !n.waitKnown {
		return "–"
	}
	return n.wait.Short()
}

// waitedRate is in ms per second.
func waitedRate(n row) float64 {
	switch {
	case !n.waitKnown:
		return math.NaN()
	case n.wait == nil:
		return 0
	}
	return n.wait.Rate
}

// number is 0 and value is NaN for what could not be had.
func number(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

func value(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

func seconds(s *graph.Seconds) float64 {
	if s == nil {
		return math.NaN()
	}
	return float64(*s)
}

func sum(a, b *float64) float64 { return value(a) + value(b) }

func limitShare(n row) float64 {
	u := usage(n)
	if number(u.MemoryLimitBytes) == 0 {
		return math.NaN()
	}
	return value(u.WorkingSetBytes) / *u.MemoryLimitBytes
}

// percent writes a share: "71.2 %".
func percent(v *float64) string {
	switch {
	case v == nil:
		return "–"
	case *v == 0:
		return "0 %"
	case *v < 0.0005:
		return "<0.1 %"
	}
	return fmt.Sprintf("%.1f %%", 100**v)
}

func count(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f", *v)
}

func bytesText(v float64) string { return graph.Bytes(&v) }
