package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// measureRegionRegister takes how long an agent takes to open the files of 40 processes with metrics, and what programs pay
// that do nothing but tell what Go and Python count themselves.
func measureRegionRegister(ctx context.Context, o options) ([]row, error) {
	program, remove, err := buildWork(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	rows, err := registrationCost(ctx, program)
	if err != nil {
		return nil, err
	}
	worker := filepath.Join(filepath.Dir(program), "goworker")
	if _, err := output(ctx, "go", "build", "-o", worker, "./internal/appmetrics/testdata/goworker"); err != nil {
		return nil, err
	}
	for _, of := range []struct {
		language string
		command  []string
	}{{"Go", []string{worker}}, {"Python", []string{"python3", "internal/appmetrics/testdata/worker.py"}}} {
		used, err := runtimeCost(ctx, of.command)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", of.language, err)
		}
		rows = append(rows, row{what: "a program that waits and tells each second what " + of.language + " counts", value: used.share(),
			unit: "% of a core", detail: fmt.Sprintf("schedstat of its threads over %v, the language's own waking up included",
				used.elapsed.Round(time.Second))})
	}
	return rows, o.document("region.md", "register", rowsTable(rows))
}

// runtimeCost is what a program takes once it is ready.
func runtimeCost(ctx context.Context, command []string) (used *processUse, err error) {
	const look = 20 * time.Second
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close(), cmd.Wait()) }()
	for lines := bufio.NewScanner(out); lines.Text() != "ready"; {
		if !lines.Scan() {
			return nil, fmt.Errorf("%v has ended: %w", command, lines.Err())
		}
	}
	return usedBy(ctx, cmd.Process.Pid, func() error { return sleep(ctx, look) })
}
