// Command bench measures what Outsight costs the host that it watches: throughput lost and latency
// added while edges are counted, the agent's own CPU time and memory, and nanoseconds per event of
// every kernel program. It also compares what Outsight counts with what is true: percentiles with
// the log of single transactions, requests and bytes with the books of the programs. It prints a
// table beside the budgets of the design, writes it as CSV, and rewrites the tables of the pages.
//
// It needs root, Docker and the packages of `scripts/install bench`, and the binaries that
// `make build` makes. Run it on a quiet machine: with and without the agent take turns, so a slow
// drift cancels, but the noise of other work does not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if work := os.Getenv(switchWork); work != "" {
		workSwitching(work)
		return
	}
	if work := os.Getenv(workVariable); work != "" {
		os.Exit(doWork(work))
	}
	options := options{}
	flag.StringVar(&options.binaries, "binaries", "bin", "directory with outsight and outsight-agent")
	flag.StringVar(&options.results, "results", "bench/results", "directory for the CSV file")
	flag.IntVar(&options.pairs, "pairs", 7, "pairs of runs with and without the agent")
	flag.DurationVar(&options.run, "run", 3*time.Second, "length of one iperf3 run")
	flag.DurationVar(&options.events, "events", time.Minute, "length of the run at the highest rate of events")
	flag.StringVar(&options.docs, "docs", "",
		"directory with accuracy.md, overhead.md, recorder.md, server.md and others, whose tables are rewritten")
	flag.IntVar(&options.containers, "containers", 50, "containers for the agent's own cost")
	flag.DurationVar(&options.recorder, "recorder", 80*time.Second,
		"length of each of the two longest measurements of the recorder; the others follow it")
	flag.Float64Var(&options.churn, "churn", benchChurn, "share of the edges that ends each minute, in the rows with churn")
	only := flag.String("only", "throughput,agent,known,programs",
		"which parts to measure, separated by commas: "+partNames())
	fleet := flag.String("fleet", "1000,2500,5000,7500,10000", "numbers of agents of the part fleet")
	flag.IntVar(&options.reads, "reads", 1000, "reads of each round of latency of the part region")
	flag.StringVar(&options.apps, "apps", "", "measure limits only of applications whose name contains this")
	flag.DurationVar(&options.look, "look", 20*time.Second, "how long an application is watched at a rate in the parts saturation, limits and whatif")
	flag.StringVar(&options.save, "save", "", "directory to which the parts saturation, limits and whatif save what they saw")
	flag.StringVar(&options.replay, "replay", "", "judge what was saved to this directory again, in the place of measuring")
	flag.StringVar(&options.loads, "loads", "", "measure throughput and contention only of loads whose name contains this")
	flag.Parse()
	options.only = strings.Split(*only, ",")
	for _, text := range strings.Split(*fleet, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			fmt.Fprintf(os.Stderr, "bench: -fleet is %q, want numbers with commas between them\n", *fleet)
			os.Exit(2)
		}
		options.fleet = append(options.fleet, n)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, options); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	binaries, results, docs string
	pairs, containers       int
	reads                   int
	run, events, recorder   time.Duration
	churn                   float64
	only                    []string
	loads, apps             string
	save, replay            string
	look                    time.Duration
	fleet                   []int
}

// part is one group of measurements.
type part struct {
	name    string
	measure func(context.Context, options) ([]row, error)
}

var parts = []part{
	{"accuracy", measureAccuracy},
	{"counts", measureCounts},
	{"events", measureEvents},
	{"throughput", measureThroughput},
	{"agent", measureAgent},
	{"known", measureKnown},
	{"programs", measurePrograms},
	{"contention", measureContention},
	{"recorder", measureRecorder},
	{"saturation", measureSaturation},
	{"limits", measureLimits},
	{"whatif", measureWhatif},
	{"foreseen", countForeseen},
	{"server", measureServer},
	{"frames", measureAllFrames},
	{"fleet", measureFleet},
	{"memory", measureMemory},
	{"disk", measureDisk},
	{"counters", measureCounters},
	{"kernels", measureKernels},
	{"whole", measureWhole},
	{"netprobe", measureNetprobe},
	{"netprobe-curve", measureProbeCurve},
	{"place", measurePlace},
	{"region", measureRegion},
	{"takeover", measureTakeover},
	{"region-edges", measureRegionEdges},
	{"region-scale", measureRegionScale},
	{"region-agent", measureRegionAgent},
	{"region-asleep", measureRegionAsleep},
	{"region-redis", measureRegionRedis},
	{"region-register", measureRegionRegister},
	{"appmetrics", measureAppmetrics},
	{"placement-run", measurePlacement},
	{"incast", measureIncast},
}

func partNames() string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// costParts are those of docs/cost.md, which are measured together.
var costParts = []string{"contention", "disk", "counters", "kernels", "whole"}

func measure(ctx context.Context, o options) error {
	if os.Geteuid() != 0 {
		return errors.New("the agent loads kernel programs: run it as root (make bench)")
	}
	var rows, costs []row
	for _, p := range parts {
		if !slices.Contains(o.only, p.name) {
			continue
		}
		measured, err := p.measure(ctx, o)
		if err != nil {
			return fmt.Errorf("measuring %s: %w", p.name, err)
		}
		rows = append(rows, measured...)
		if slices.Contains(costParts, p.name) {
			costs = append(costs, measured...)
		}
	}
	if len(costs) > 0 {
		if err := o.document("cost.md", "cost", rowsTable(costs)); err != nil {
			return err
		}
	}
	printTable(os.Stdout, rows)
	path := filepath.Join(o.results, time.Now().UTC().Format("20060102T150405Z")+".csv")
	if err := writeCSV(path, rows); err != nil {
		return err
	}
	fmt.Printf("\nwritten to %s\n", path)
	return nil
}
