package main

import (
	"fmt"
	"io"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"outsight/internal/predict"
)

// runOutAnswer is what a server answers.
type runOutAnswer struct {
	From           time.Time         `json:"from"`
	To             time.Time         `json:"to"`
	StepSeconds    float64           `json:"step_seconds"`
	HorizonSeconds float64           `json:"horizon_seconds"`
	Resources      []predict.Bounded `json:"resources"`
}

func newRunOut() *cobra.Command {
	var output, points string
	remote := remoteFlags{outputs: []string{"text", "json"}}
	c := &cobra.Command{
		Use:   "runout",
		Short: "When memory, CPU time, disks, connections and others will be used up, if they go on as they do",
		Long: `Show of each container with a limit of memory, CPU time, threads or open files, of its queues of connections to be
accepted and its pools of connections, of the memory, the CPUs and the filesystems of each host, and of how many requests can
be served, whether its use grows, and when it is used up if it goes on so: with the bounds between which
that is in nine of ten cases. Growth is told from a pattern that comes again each day in windows of two days and more,
and from what filled up and stays. Looks as far ahead as back, twice. Asks a server or outsight up.`,
		Example: `  outsight runout
  outsight runout --from now-7d --points 168
  outsight runout --server https://outsight.example:8470 --output json | jq '.resources[0]'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			query := url.Values{}
			if points != "" {
				query.Set("points", points)
			}
			return remote.show(c, "runout", query, output, &runOutAnswer{})
		},
	}
	remote.add(c.Flags(), "past")
	remote.server = upAddress
	c.Flags().Lookup("server").DefValue = upAddress
	c.Flags().Lookup("from").Usage = "begin of the window there, as a time or as in now-7d (default: a day before --to)"
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	c.Flags().StringVar(&points, "points", "", "in how many stretches the window is looked at (default 60)")
	return c
}

func (a *runOutAnswer) write(out io.Writer) error {
	if len(a.Resources) == 0 {
		_, err := fmt.Fprintln(out, "No host was seen, and no container with a limit.")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RESOURCE\tHOST\tUSED\tOF\tGROWS A DAY\tUSED UP\t\tCOURSE")
	for i := range a.Resources {
		r := &a.Resources[i]
		name := string(r.Kind) + " of " + r.Name
		switch {
		case r.Kind == predict.FileSystem:
			name = string(r.Kind) + " " + r.Name
		case r.Kind == predict.Requests:
			name = "requests, limited by " + r.By
		case r.Node == "":
			name = string(r.Kind) + " of the host"
		}
		if r.Course == nil {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t–\t–\t\t%s\n", name, r.Host, amountText(r.Kind, r.Used), amountText(r.Kind, r.Capacity), r.Unknown)
			continue
		}
		grows := "–"
		switch r.Course.Kind {
		case predict.Grows, predict.GrowsInWaves:
			grows = amountText(r.Kind, r.Course.PerDay.Value)
		case predict.Falls:
			grows = "-" + amountText(r.Kind, -r.Course.PerDay.Value)
		}
		course := string(r.Course.Kind)
		if r.Course.Daily > 0 {
			course += fmt.Sprintf(" (up and down by %s)", amountText(r.Kind, r.Course.Daily))
		}
		when, bounds := a.when(r.RunsOut)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, r.Host, amountText(r.Kind, r.Used), amountText(r.Kind, r.Capacity), grows, when, bounds,
			course)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nLearnt from %v in stretches of %v; looked %v ahead.\n", ahead(a.To.Sub(a.From)),
		time.Duration(a.StepSeconds*float64(time.Second)), ahead(time.Duration(a.HorizonSeconds*float64(time.Second))))
	return err
}

// amountText is an amount of a resource of this kind.
func amountText(kind predict.BoundedKind, v float64) string {
	switch kind {
	case predict.Memory, predict.FileSystem:
		return bytesText(v)
	case predict.Threads, predict.OpenFiles, predict.AcceptQueue:
		return fmt.Sprintf("%.0f", v)
	case predict.Connections, predict.RequestsAtATime:
		return fmt.Sprintf("%.1f", v)
	case predict.Requests:
		return fmt.Sprintf("%.4g/s", v)
	}
	return fmt.Sprintf("%.2f cores", v)
}

// when says in how long it is used up, and between what that is.
func (a *runOutAnswer) when(r *predict.RunOut) (when, bounds string) {
	if r == nil {
		return "not in sight", ""
	}
	earliest := ahead(r.Earliest.Sub(a.To))
	switch {
	case r.At == nil:
		return "perhaps", "(in " + earliest + " or later)"
	case r.Latest == nil:
		bounds = "(" + earliest + " or later)"
	default:
		bounds = "(" + earliest + " to " + ahead(r.Latest.Sub(a.To)) + ")"
	}
	return "in " + ahead(r.At.Sub(a.To)), bounds
}

// ahead is a length of time in its two largest units.
func ahead(d time.Duration) string {
	d = max(d, 0)
	switch days := int(d / (24 * time.Hour)); {
	case days > 0:
		return fmt.Sprintf("%d d %d h", days, int(d.Hours())%24)
	case d >= time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	}
}
