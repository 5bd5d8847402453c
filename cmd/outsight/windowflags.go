package main

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"outsight/internal/graph"
)

// windowFlags are those of commands that show the edges of a window by a grouping: of this host, or of a server.
type windowFlags struct {
	watchFlags
	output string
	length time.Duration
	// groupBy is what an end of an edge stands for, as it was typed; by is the same, once it was checked.
	groupBy string
	by      graph.Grouping
	remote  remoteFlags
}

// add adds the flags. what is shown is "map" or "matrix", of which an end is called so.
func (f *windowFlags) add(c *cobra.Command, what, end string) {
	f.watchFlags.add(c)
	c.Flags().DurationVar(&f.length, "for", 5*time.Second, "time to look at")
	c.Flags().StringVar(&f.groupBy, "group-by", string(graph.ByContainer),
		end+": container, pod, process, workload, namespace or host")
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "by" { // as the page and the API call it
			name = "group-by"
		}
		return pflag.NormalizedName(name)
	})
	f.remote.add(c.Flags(), what)
}

func (f *windowFlags) check() (err error) {
	if f.by, err = graph.ParseGrouping(f.groupBy); err != nil {
		return usagef("--group-by: %v", err)
	}
	if f.length < time.Second {
		return usagef("--for is %v, want at least 1s", f.length)
	}
	return f.remote.check(f.output)
}
