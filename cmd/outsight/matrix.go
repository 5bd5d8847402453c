package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"outsight/internal/fleet"
	"outsight/internal/frame"
	"outsight/internal/graph"
)

type matrixOptions struct {
	windowFlags
	// numbers are their keys; the table has the first.
	numbers []string
	top     int
}

func newMatrix() *cobra.Command {
	o := matrixOptions{windowFlags: windowFlags{remote: remoteFlags{outputs: []string{"json", "csv"}}}}
	c := &cobra.Command{
		Use:   "matrix",
		Short: "Who sends how much to whom, as a table of clients and servers",
		Long: `Show what clients (rows) and servers (columns) had to do with one another, with the sums of both: bytes,
requests, latencies, round trips, retransmissions, failures, packets, delay, jitter and loss, and each other number of
edges; by host also what agents measure between the two, by container the capacity that somebody measured last. Sums are
exact: what has no row or column of its own is summed in the last one. Asks the agent that runs on this host, or loads
the kernel programs for the time being, which needs root.`,
		Example: `  sudo outsight matrix
  sudo outsight matrix --by host --number p99
  sudo outsight matrix --packets --number delay_there_p99
  sudo outsight matrix --for 30s --output csv > matrix.csv
  outsight matrix --server http://127.0.0.1:8470 --from now-1h --by workload --output csv --number bytes,retransmits`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if o.remote.server != "" {
				query := url.Values{"by": {string(o.by)}, "format": {o.output}, "top": {strconv.Itoa(o.top)}}
				if len(o.numbers) > 0 {
					query.Set("numbers", strings.Join(o.numbers, ","))
				}
				return o.remote.print(c.Context(), "matrix", query, c.OutOrStdout())
			}
			log, err := logger(c)
			if err != nil {
				return err
			}
			s, err := openSource(c.Context(), o.watchFlags, log, c.ErrOrStderr())
			if err != nil {
				return err
			}
			defer s.close()
			w, err := watchFor(c.Context(), s, o.length, c.ErrOrStderr())
			if err != nil {
				return err
			}
			return o.write(c.OutOrStdout(), w)
		},
	}
	o.add(c, "matrix", "what a row and a column are")
	c.Flags().StringVarP(&o.output, "output", "o", "text", "text, json or csv")
	c.Flags().StringSliceVar(&o.numbers, "number", nil,
		"number to show, as in bytes_per_second (the default of text), p99 or retransmits; several for json and csv, whose "+
			"default is all")
	c.Flags().IntVar(&o.top, "top", 50, "rows and columns that are not summed up as others, 1 to 100")
	return c
}

func (o *matrixOptions) check() error {
	if err := oneOf("output", o.output, "text", "json", "csv"); err != nil {
		return err
	}
	if _, err := graph.FindMatrixNumbers(o.numbers, o.by); err != nil {
		var known []string
		for _, n := range graph.MatrixNumbers {
			known = append(known, n.Key)
		}
		return usagef("--number: %v, want one of %s", err, strings.Join(known, ", "))
	}
	if o.top < 1 || o.top > graph.MaxMatrixEnds {
		return usagef("--top is %d, want 1 to %d", o.top, graph.MaxMatrixEnds)
	}
	return o.windowFlags.check()
}

// write writes the matrix of a window. A table for people has as many columns as there is room for.
func (o *matrixOptions) write(out io.Writer, w *frame.Window) error {
	of := graph.MatrixOptions{By: o.by, Numbers: o.numbers, Rows: o.top, Columns: o.top}
	if o.output == "text" {
		of.Columns = min(of.Columns, graph.MatrixColumns(columnsOf(out)))
		if len(of.Numbers) == 0 {
			of.Numbers = []string{graph.MatrixNumbers[0].Key}
		}
	}
	probes := fleet.Probes(w)
	of.Between, of.Containers = fleet.Between(probes), fleet.BetweenContainers(w, probes)
	m, err := graph.MatrixFromFrames(w, of)
	if err != nil {
		return err
	}
	switch o.output {
	case "csv":
		return m.WriteCSV(out)
	case "json":
		b, err := json.MarshalIndent(m, "", "  ")
		if err == nil {
			_, err = fmt.Fprintf(out, "%s\n", b)
		}
		return err
	}
	numbers, err := graph.FindMatrixNumbers(of.Numbers, of.By)
	if err != nil {
		return err
	}
	f := newest(w)
	_, err = fmt.Fprintf(out, "%s · %s, clients in rows, servers in columns · the %.0f s to %s\n\n%s", graph.Clean(f.Host),
		numbers[0].Title, m.CoveredSeconds, f.Time.Local().Format(time.TimeOnly), m.Text(numbers[0].Key))
	return err
}
