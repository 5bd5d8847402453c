package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"outsight/bench/truth"
	"outsight/internal/container"
	"outsight/internal/kernel"
)

// knownBudget is in milliseconds.
const knownBudget = 100

// measureKnown takes the time from a container's start, as Docker tells it, to the moment at which
// its name is known.
func measureKnown(ctx context.Context, o options) ([]row, error) {
	const rounds = 20
	defer removeContainers()
	if err := startContainers(ctx, 1); err != nil {
		return nil, err
	}
	layout, err := container.Detect(container.Options{})
	if err != nil {
		return nil, err
	}
	p, err := truth.Open(kernel.Options{})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	r, err := container.New(layout, container.Options{})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	defer func() { stop(); <-ended }()
	go func() {
		for e := range p.Events() {
			r.HandleEvent(e)
		}
	}()
	<-r.Named()
	var took []float64
	for i := range rounds {
		ms, err := knownAfter(ctx, r, fmt.Sprintf("outsight-bench-%d-known-%d", os.Getpid(), i))
		if err != nil {
			return nil, err
		}
		took = append(took, ms)
	}
	return []row{{what: "a new container is known by its name", value: median(took), unit: "ms after its start",
		budget: knownBudget,
		low:    slices.Min(took), high: slices.Max(took),
		detail: fmt.Sprintf("%d containers, from Docker's own time of the start; %.3g to %.3g ms", rounds,
			slices.Min(took), slices.Max(took))}}, nil
}

func knownAfter(ctx context.Context, r *container.Registry, name string) (float64, error) {
	seen := make(chan time.Time, 1)
	waiting, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	go func() {
		for waiting.Err() == nil {
			for _, c := range r.Containers() {
				if c.Name == name {
					seen <- time.Now()
					return
				}
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := output(ctx, "docker", "run", "-d", "--label", benchLabel, "--name", name, benchImage, "/busybox",
		"sleep", "60"); err != nil {
		return 0, err
	}
	told, err := output(ctx, "docker", "inspect", "--format", "{{json .State.StartedAt}}", name)
	if err != nil {
		return 0, err
	}
	var started time.Time
	if err := json.Unmarshal([]byte(strings.TrimSpace(string(told))), &started); err != nil {
		return 0, fmt.Errorf("reading when %s started: %w", name, err)
	}
	select {
	case at := <-seen:
		return float64(at.Sub(started).Microseconds()) / 1000, nil
	case <-waiting.Done():
		return 0, fmt.Errorf("%s is not known after 30 s", name)
	}
}
