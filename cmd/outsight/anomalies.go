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
func listAnomalies(ctx context.Context, socket string, out io.Writer) error {
	client := agent.NewClient(socket)
	defer client.Close()
	a, err := client.FetchAnomalies(ctx)
	if err != nil {
		return keptError("anomalies", err)
	}
	return writeAnomalies(out, a, time.Local)
}

func writeAnomalies(out io.Writer, a *recorder.Anomalies, zone *time.Location) error {
	if len(a.List) == 0 {
		fmt.Fprintln(out, "No anomaly has been kept.")
	} else {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "N\tTIME\tCONTAINER\tRESOURCE\tTOOK\tWAITED\tWHAT")
		for _, k := range a.List {
			what := k.Effects
			if len(what) == 0 {
				what = []string{k.Text}
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%.0f ms\t%.0f ms\t%s\n", k.Number, k.From.In(zone).Format("2006-01-02 15:04:05.000"),
				graph.Clean(k.Container), k.Resource, float64(k.To.Sub(k.From))/1e6, k.WaitedMS, graph.Clean(strings.Join(what, "; ")))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if a.Dropped > 0 {
		fmt.Fprintf(out, "%d more had to make room.\n", a.Dropped)
	}
	if a.Problem != "" {
		fmt.Fprintf(out, "Not all are on the disk: %s\n", graph.Clean(a.Problem))
	}
	return nil
}
