package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"outsight/bench/cluster"
	"outsight/internal/place"
)

const (
	// placeRuns are those of a job on each placement.
	placeRuns = 3
	// placeMemory is what a host has, of what all containers take: two hosts are needed.
	placeMemory = 0.6
	// placeIdle is how long nothing goes on before a run whose map is read, so that a frame is from before it.
	placeIdle = 3 * time.Second
	// geneticTime is what the genetic algorithm gets.
	geneticTime = time.Second
	// placeLength bounds all of it.
	placeLength = 4 * time.Minute
	// placeOff is how far a prediction may be off, in percent.
	placeOff = 10
)

// placeJobs are like those of paper 001: one mostly reads the data, the other mostly passes rows between workers.
var placeJobs = []cluster.Job{
	{Name: "scan-heavy", Scan: 32 << 20, Shuffle: 1 << 20},
	{Name: "shuffle-heavy", Scan: 4 << 20, Shuffle: 24 << 20},
}

// placeCluster has uplinks of 100 Mbit/s.
var placeCluster = cluster.Options{Hosts: 4, Data: 4, Workers: 4, Partition: 64 << 20, Rows: 24 << 20, Rate: 100e6 / 8}

// placement is one for a job, by who found it.
type placement struct {
	name string
	at   []int
}

// placed is a job as it was measured where it ran first.
type placed struct {
	cluster.Job
	problem *place.Problem
	// seconds are those that the problem's rates are over.
	seconds    float64
	first      []cluster.Run
	placements []placement
	// best is the placement with the least traffic.
	best []int
}

// measurePlacement runs jobs where Kubernetes' default scoring puts the containers, and where they are placed by what was
// seen of these runs, and holds the bytes between hosts that were predicted against the counters of the hosts'
// interfaces (paper 001, tables 2 and 3).
func measurePlacement(ctx context.Context, o options) (rows []row, err error) {
	ctx, stop := context.WithTimeout(ctx, placeLength)
	defer stop()
	data, err := os.MkdirTemp("", "outsight-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(data)
	server, err := startAgent(ctx, o, "outsight up --data "+data)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	progress("starting the containers of a data cluster")
	placeCluster.Name, placeCluster.Label = fmt.Sprintf("outsight-bench-%d-cluster", os.Getpid()), benchLabel
	c, err := cluster.Start(ctx, placeCluster)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	url := "http://" + server.address
	if err := c.Known(ctx, url); err != nil {
		return nil, err
	}
	jobs, err := runFirst(ctx, c, url)
	if err != nil {
		return nil, err
	}
	lines := [][]string{{"job", "placement", "hosts", "predicted", "interfaces", "off by", "with headers", "completion"}}
	for i, j := range jobs {
		other := jobs[(i+1)%len(jobs)]
		j.placements = append(j.placements, placement{"least-traffic, of the other job", other.best})
		cell := j.Name
		for k, to := range j.placements {
			runs := j.first
			if k > 0 {
				if runs, err = runPlaced(ctx, c, j.Job, to.at); err != nil {
					return nil, err
				}
			}
			line, more := j.compare(to, runs)
			lines = append(lines, append([]string{cell}, line...))
			rows = append(rows, more...)
			cell = ""
		}
	}
	return rows, o.document("place.md", "placement-run", markdown(lines))
}

// runFirst runs the jobs on the default placement, and finds the others by what the server has seen.
func runFirst(ctx context.Context, c *cluster.Cluster, server string) (jobs []*placed, err error) {
	present := c.Spread()
	if err := c.Deploy(present); err != nil {
		return nil, err
	}
	for _, job := range placeJobs {
		if err := sleep(ctx, placeIdle); err != nil {
			return nil, err
		}
		first, err := c.Run(job)
		if err != nil {
			return nil, err
		}
		j := &placed{Job: job, first: []cluster.Run{first}}
		if j.problem, j.seconds, err = c.Problem(ctx, server, first, present, placeMemory); err != nil {
			return nil, err
		}
		more, err := runs(ctx, c, job, placeRuns-1)
		if err != nil {
			return nil, err
		}
		j.first = append(j.first, more...)
		j.placements = []placement{{"default spreading", present},
			{"genetic algorithm", genetic(j.problem, geneticTime)}}
		for _, preset := range []string{"fewest-hosts", "least-traffic"} {
			result, err := place.Solve(ctx, j.problem, place.Options{Weights: place.Presets[preset], Seed: 1})
			if err != nil {
				return nil, fmt.Errorf("placing for the %s job: %w", job.Name, err)
			}
			j.placements = append(j.placements, placement{"outsight --" + preset, result.Placement})
			j.best = result.Placement
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func runPlaced(ctx context.Context, c *cluster.Cluster, job cluster.Job, at []int) ([]cluster.Run, error) {
	if err := c.Deploy(at); err != nil {
		return nil, err
	}
	return runs(ctx, c, job, placeRuns)
}

func runs(ctx context.Context, c *cluster.Cluster, job cluster.Job, count int) (all []cluster.Run, err error) {
	for range count {
		r, err := c.Run(job)
		if err != nil {
			return nil, err
		}
		progress("%s: %d bytes between hosts with headers, %v", job.Name, r.Sent.Bytes, r.Took.Round(time.Millisecond))
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// compare is the prediction of a placement beside its runs.
func (j *placed) compare(to placement, runs []cluster.Run) (line []string, rows []row) {
	f, _ := place.Measure(j.problem, to.at, place.Options{})
	predicted := f.CrossBytes * j.seconds
	var payload, wire, took []float64
	for _, r := range runs {
		payload, wire, took = append(payload, r.Sent.Payload()), append(wire, float64(r.Sent.Bytes)),
			append(took, r.Took.Seconds())
	}
	off := 100 * (predicted/median(payload) - 1)
	name := j.Name + ", " + to.name
	rows = []row{
		{what: name + ": bytes between hosts, prediction off by", value: math.Abs(off), unit: "%", budget: placeOff},
		{what: name + ": completion", value: median(took), unit: "s", low: quartile(took, 1), high: quartile(took, 3)},
	}
	return []string{to.name, fmt.Sprint(f.HostsInUse), megabytes(predicted), megabytes(median(payload)),
		fmt.Sprintf("%.2f %%", math.Abs(off)), megabytes(median(wire)), fmt.Sprintf("%.2f s", median(took))}, rows
}

func megabytes(n float64) string { return fmt.Sprintf("%.2f MB", n/1e6) }
