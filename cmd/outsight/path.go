package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"outsight/internal/fleet"
	"outsight/internal/frame"
	"outsight/internal/graph"
)

func newPath() *cobra.Command {
	var flags watchFlags
	var output, percentile string
	var length time.Duration
	c := &cobra.Command{
		Use:   "path",
		Short: "Where the time of requests goes, and what will be the first limit",
		Long: `Show where requests come in, which container or host will be used up first when more come and at
which rate, and the critical path: the chain of calls on which requests take their time, with the time that each
container takes itself. By the mean, the parts add up to the whole request. Asks the agent that runs on this host, or
loads the kernel programs for the time being, which needs root.`,
		Example: `  sudo outsight path
  sudo outsight path --for 1m --percentile p50
  sudo outsight path --output json | jq .saturation_rate`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", output, "text", "json"); err != nil {
				return err
			}
			by, err := graph.ParseStatistic(percentile)
			if err != nil {
				return usagef("--percentile: %v", err)
			}
			if length < time.Second {
				return usagef("--for is %v, want at least 1s", length)
			}
			log, err := logger(c)
			if err != nil {
				return err
			}
			s, err := openSource(c.Context(), flags, log, c.ErrOrStderr())
			if err != nil {
				return err
			}
			defer s.close()
			w, err := watchFor(c.Context(), s, length, c.ErrOrStderr())
			if err != nil {
				return err
			}
			return writePath(c.OutOrStdout(), w, by, output)
		},
	}
	flags.add(c)
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	c.Flags().StringVar(&percentile, "percentile", string(graph.Mean),
		"statistic of response times that the critical path uses and shows: mean, p50, p75, p90 or p99")
	// The CPU time of threads is looked at every ten seconds.
	c.Flags().DurationVar(&length, "for", 15*time.Second, "time to look at")
	return c
}

func writePath(out io.Writer, w *frame.Window, by graph.Statistic, output string) error {
	g := graph.FromFrames(w, graph.Options{})
	host := fleet.Hosts(w)[0]
	a := g.Analyse(map[string]float64{host.Name: host.Cores})
	p := g.CriticalPath(by, a.Entries, nil)
	waits := graph.WaitsFromFrames(w)
	line := waits.Bottleneck(a, p)
	if output == "json" {
		text, err := json.MarshalIndent(struct {
			*graph.Analysis
			CriticalPath *graph.Path `json:"critical_path,omitempty"`
			// Contention is what the bottleneck waited for a CPU behind.
			Contention *graph.Wait `json:"contention,omitempty"`
		}{a, p, line}, "", "  ")
		if err == nil {
			_, err = fmt.Fprintf(out, "%s\n", text)
		}
		return err
	}
	text := a.Text(p)
	if line != nil {
		text += "\n" + line.Line + ".\n"
	}
	_, err := fmt.Fprintf(out, "%s\n\n%s", mapTitle(g, newest(w)), text)
	return err
}
