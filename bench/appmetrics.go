package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"outsight/internal/appmetrics"
	"outsight/internal/model"
)

const (
	appmetricsUpdates = 20_000_000
	appmetricsTurns   = 9
	// appmetricsFiles are as many as paper 004 registers, and registrationBudget what they may take.
	appmetricsFiles    = 40
	registrationBudget = 5 // ms
)

// measureAppmetrics takes what an application pays for a metric of its own, and what the agent does for files of 40
// processes.
func measureAppmetrics(ctx context.Context, o options) ([]row, error) {
	program, remove, err := buildWork(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	progress("appmetrics: %d turns of %d updates", appmetricsTurns, appmetricsUpdates)
	rows, err := updateCost(ctx, program)
	if err != nil {
		return nil, err
	}
	progress("appmetrics: files of %d processes", appmetricsFiles)
	more, err := registrationCost(ctx, program)
	if err != nil {
		return nil, err
	}
	rows = append(rows, more...)
	return rows, o.document("appmetrics.md", "appmetrics", rowsTable(rows))
}

// buildWork compiles a program with metrics of its own.
func buildWork(ctx context.Context) (program string, remove func(), err error) {
	directory, err := os.MkdirTemp("", "outsight-bench-appmetrics")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(directory) }
	program = filepath.Join(directory, "work")
	if output, err := exec.CommandContext(ctx, "cc", "-std=gnu11", "-O2", "-o", program,
		"bench/appmetrics/work.c").CombinedOutput(); err != nil {
		remove()
		return "", nil, fmt.Errorf("cc: %w\n%s", err, output)
	}
	return program, remove, nil
}

// updateCost is of updates and of plain additions, in turns.
func updateCost(ctx context.Context, program string) ([]row, error) {
	output, err := exec.CommandContext(ctx, program, fmt.Sprint(appmetricsUpdates), fmt.Sprint(appmetricsTurns)).Output()
	if err != nil {
		return nil, err
	}
	var plain, update []float64
	for line := range strings.Lines(string(output)) {
		var p, u float64
		if _, err := fmt.Sscan(line, &p, &u); err != nil {
			return nil, fmt.Errorf("the program has printed %q: %w", line, err)
		}
		plain, update = append(plain, p), append(update, u)
	}
	return []row{quartiles("a plain atomic addition", "ns", plain, 0),
		quartiles("an update of an application's metric", "ns", update, 0)}, nil
}

// registrationCost is what a collector takes to open the files of processes, and to read them.
func registrationCost(ctx context.Context, program string) (_ []row, err error) {
	var events []model.CgroupEvent
	for range appmetricsFiles {
		command := exec.CommandContext(ctx, program)
		in, err := command.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := command.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := command.Start(); err != nil {
			return nil, err
		}
		defer func() { in.Close(); command.Wait() }()
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		events = append(events, model.CgroupEvent{Kind: model.MetricsFile, PID: command.Process.Pid, ID: 1,
			Path: model.MetricsFilePrefix + strings.TrimSpace(line)})
	}
	var opening, reading []float64
	owner := func(model.CgroupID) string { return "bench" }
	for range appmetricsTurns {
		c := appmetrics.New(appmetrics.Options{})
		begun := time.Now()
		for _, e := range events {
			c.Offer(e)
		}
		opening = append(opening, time.Since(begun).Seconds()*1e3)
		c.Read(owner) // their descriptors
		begun = time.Now()
		c.Read(owner)
		reading = append(reading, time.Since(begun).Seconds()*1e3)
		if all := c.Of("bench"); len(all) != 1 {
			return nil, fmt.Errorf("%d metrics were read, want the sum of one", len(all))
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		c.Run(ended) // closes the files
	}
	return []row{quartiles(fmt.Sprintf("files of %d processes opened", appmetricsFiles), "ms", opening, registrationBudget),
		quartiles(fmt.Sprintf("one reading of %d files", appmetricsFiles), "ms", reading, 0)}, nil
}

// quartiles is the median of several runs, with their quartiles.
func quartiles(what, unit string, values []float64, budget float64) row {
	return row{what: what, value: median(values), unit: unit, budget: budget, low: quartile(values, 1),
		high: quartile(values, 3), detail: fmt.Sprintf("median of %d turns", len(values))}
}
