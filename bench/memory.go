package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"

	"outsight/internal/store"
)

// benchChurn is the default share of edges that ends each minute in the rows with churn.
const benchChurn = 0.05

// measureMemory finds what a series takes in memory: in the store alone, and in a server that is busy.
func measureMemory(ctx context.Context, o options) ([]row, error) {
	rows, err := measureStoreMemory(ctx)
	if err != nil {
		return nil, err
	}
	if err := leaveFirstCPU(); err != nil {
		return nil, err
	}
	var resident, each float64
	for _, churn := range []float64{0, o.churn} {
		m, err := measureIngest(ctx, o, churn)
		if err != nil {
			return nil, err
		}
		if churn == 0 {
			resident, each = m.resident, float64(m.seriesOfAgent)
		}
		rows = append(rows, m.memoryRows()...)
	}
	const agents = 1000
	series := agents * each
	return rows, o.document("server.md", "memory", rowsTable(rows)+fmt.Sprintf(`
**%d agents** like these have %d × %.0f = %.2f million series. Where none of them ends, they take %.0f GB of resident
memory, of all servers together.
`, agents, agents, each, series/1e6, series*resident/1e9))
}

var memoryLine = regexp.MustCompile(`(?m)^memory: (.*)\|(\d+)\|(.*)$`)

// measureStoreMemory runs the test that measures the store, whose clock is its own.
func measureStoreMemory(ctx context.Context) (rows []row, err error) {
	out, err := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-tags", "long", "-run", "^TestMemoryPerSeries$",
		"./bench").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("measuring the store's memory: %w: %s", err, out)
	}
	for _, m := range memoryLine.FindAllSubmatch(out, -1) {
		bytes, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			return nil, fmt.Errorf("measuring the store's memory: %w", err)
		}
		rows = append(rows, row{what: "store: memory in use per series in memory; " + string(m[1]), value: bytes, unit: "B",
			budget: store.SeriesBytes, detail: string(m[3])})
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("measuring the store's memory: the test printed no figures: %s", out)
	}
	return rows, nil
}
