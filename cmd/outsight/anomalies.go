package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"outsight/internal/agent"
	"outsight/internal/graph"
	"outsight/internal/recorder"
	findings "outsight/internal/report"
)

// anomaliesIn says what an agent keeps, in a directory of its data or, without, in memory alone.
func anomaliesIn(data string) recorder.AnomalyOptions {
	o := recorder.AnomalyOptions{Detect: findings.Anomalies}
	if data != "" {
		o.Directory = filepath.Join(data, "anomalies")
	}
	return o
}

// listAnomalies writes what the agent has kept, oldest first.
func listAnomalies(ctx context.Context, socket string, each bool, out io.Writer) error {
	client := agent.NewClient(socket)
	defer client.Close()
	a, err := client.FetchAnomalies(ctx)
	if err != nil {
		return keptError("anomalies", err)
	}
	return writeAnomalies(out, a, each, time.Local)
}

const anomalyTime = "2006-01-02 15:04:05.000"

func writeAnomalies(out io.Writer, a *recorder.Anomalies, each bool, zone *time.Location) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	at := func(t time.Time) string { return t.In(zone).Format(anomalyTime) }
	switch {
	case len(a.List) == 0:
		fmt.Fprintln(out, "No anomaly has been kept.")
	case each:
		fmt.Fprintln(w, "N\tTIME\tCONTAINER\tRESOURCE\tTOOK\tWAITED\tWHAT")
		for _, k := range a.List {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%.0f ms\t%s\n", k.Number, at(k.From), graph.Clean(k.Container), k.Resource,
				took(k), k.WaitedMS, whatWaited(k))
		}
	default:
		fmt.Fprintln(w, "TIMES\tFIRST\tLAST\tCONTAINER\tRESOURCE\tLONGEST\tWAITED\tN\tWHAT, WHEN THE MOST WAITED")
		for _, alike := range recorder.AlikeOf(a.List) {
			k := alike.List[alike.MostWaited]
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%.0f ms\t%d\t%s\n", len(alike.List), at(alike.First()), at(alike.Last()),
				graph.Clean(k.Container), k.Resource, took(alike.List[alike.Longest]), alike.WaitedMS, k.Number, whatWaited(k))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if !each && len(a.List) > 0 {
		fmt.Fprintln(out, "--each lists each of them.")
	}
	if a.Dropped > 0 {
		fmt.Fprintf(out, "%d more had to make room.\n", a.Dropped)
	}
	if a.Problem != "" {
		fmt.Fprintf(out, "Not all are on the disk: %s\n", graph.Clean(a.Problem))
	}
	return nil
}

func took(k recorder.KeptAnomaly) string {
	return fmt.Sprintf("%.0f ms", float64(k.To.Sub(k.From))/1e6)
}

func whatWaited(k recorder.KeptAnomaly) string {
	what := k.Effects
	if len(what) == 0 {
		what = []string{k.Text}
	}
	return graph.Clean(strings.Join(what, "; "))
}
