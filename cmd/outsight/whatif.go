package main

import (
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"outsight/internal/graph"
	"outsight/internal/predict"
)

// upAddress is where `outsight up` listens by default.
const upAddress = "http://127.0.0.1:8470"

// whatifAnswer is what a server answers.
type whatifAnswer struct {
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	StepSeconds float64   `json:"step_seconds"`
	predict.Prediction
}

func newWhatif() *cobra.Command {
	var load, output string
	var replicas, quota, move, down []string
	remote := remoteFlags{outputs: []string{"text", "json"}}
	c := &cobra.Command{
		Use:   "whatif",
		Short: "What would be used up, and how long requests would take, if more came or containers were others",
		Long: `Show how full each container and each host's CPUs would be at another load, with more replicas or another
CPU quota, and which is used up first. What each takes without requests and for each of them is learnt from the past, at
the rates that there were; each number has the bounds between which the truth is in nine of ten cases, if all goes on as
it did. How long requests would take at the entries follows from queues at what is used: of two models the one that was
nearer on the window's own past is shown, with how far off it was. Where a container waits much for what is not seen (a
lock, a disk), or always has the same number of connections to another, it is said that the limit may be there, and not
told; connections of which there were no more when more were needed are told as the limit. Asks a server or outsight up.`,
		Example: `  outsight whatif --load 2x
  outsight whatif --load 400/s --from now-6h
  outsight whatif --load 3x --replicas shop-cart:3 --quota shop-payment:2
  outsight whatif --move shop-payment:host-2
  outsight whatif --load 1.5x --down host-1
  outsight whatif --server https://outsight.example:8470 --load 2x --output json | jq .limit`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			query := url.Values{"load": {load}, "replicas": replicas, "quota": quota, "move": move, "down": down}
			return remote.show(c, "whatif", query, output, &whatifAnswer{})
		},
	}
	remote.add(c.Flags(), "past")
	remote.server = upAddress
	c.Flags().Lookup("server").DefValue = upAddress
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	c.Flags().StringVar(&load, "load", "1x", "requests at the entries: so many times the mean of the window, or as in 400/s")
	c.Flags().StringArrayVar(&replicas, "replicas", nil, "how many containers of a name share its requests, as in cart:3")
	c.Flags().StringArrayVar(&quota, "quota", nil, "how many cores each container of a name may use, as in cart:2")
	c.Flags().StringArrayVar(&move, "move", nil, "to which host the containers of a name go, as in cart:host-2")
	c.Flags().StringArrayVar(&down, "down", nil,
		"host that is no more: replicas elsewhere get its requests, the rest is started where most cores are left")
	return c
}

func (a *whatifAnswer) write(out io.Writer) error {
	if a.Stretches == 0 {
		_, err := fmt.Fprintln(out, "No requests came in: there is nothing to learn from.")
		return err
	}
	rate := func(v float64) string { return graph.PerSecond(&v) }
	fmt.Fprintf(out, "At %s (mean %s; learnt from %d stretches of %v at %s to %s)\n\n", rate(a.Rate), rate(a.MeanRate),
		a.Stretches, time.Duration(a.StepSeconds*float64(time.Second)), rate(a.LeastRate), rate(a.GreatestRate))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := "RESOURCE\tNOW\tTHEN\t\tFULL AT\t\tOF\tWITHOUT REQUESTS\tPER REQUEST\n"
	unknown, reasons := map[string][]string{}, []string(nil)
	for i := range a.Resources {
		r := &a.Resources[i]
		if r.Unknown != "" {
			if unknown[r.Unknown] == nil {
				reasons = append(reasons, r.Unknown)
			}
			unknown[r.Unknown] = append(unknown[r.Unknown], r.Name)
			continue
		}
		fmt.Fprint(w, head)
		head = ""
		perRequest, now := "–", "–"
		if d := graph.Seconds(*r.PerRequest); d > 0 { // or it takes no more where more requests come
			perRequest = graph.Duration(&d)
		}
		if r.Before != nil {
			now = share(r.Before.Value)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%.2f by %s\t%.3f cores\t%s\n", r.Name, now,
			share(r.Utilisation.Value), bounds(r.Utilisation, share), limitText(r.Limit, rate), limitBounds(r.Limit, rate),
			r.Parallel, r.ParallelBy, max(*r.Base, 0), perRequest)
	}
	for i := range a.Pools {
		p := &a.Pools[i]
		if !p.Fixed {
			continue
		}
		fmt.Fprint(w, head)
		head = ""
		then, what, of := p.Busy.Over(p.Open), "connections", fmt.Sprintf("%.0f connections", p.Open)
		switch {
		case p.Ceiling:
			what, of = "requests at a time", p.Number()+" at a time"
		case p.Waited:
			of += ", waited for"
		}
		fmt.Fprintf(w, "%s of %s\t%s\t%s\t%s\t%s\t%s\t%s\t–\t–\n", what, p.Name, share(p.Before.Value/p.Open),
			share(then.Value), bounds(&then, share), limitText(p.Limit, rate), limitBounds(p.Limit, rate), of)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, reason := range reasons {
		fmt.Fprintf(out, "Not known of %s: %s.\n", strings.Join(unknown[reason], ", "), reason)
	}
	for i := range a.Resources {
		r := &a.Resources[i]
		for k, d := range r.PerEndpoint {
			if k == 0 {
				fmt.Fprintf(out, "A request takes of %s:", r.Name)
			}
			seconds := graph.Seconds(max(d.PerRequest, 0))
			fmt.Fprintf(out, " %s %s (%s of all);", d.Endpoint, graph.Duration(&seconds), share(d.Share))
		}
		if len(r.PerEndpoint) > 0 {
			fmt.Fprintln(out)
		}
	}
	for i := range a.Resources {
		if r := &a.Resources[i]; r.Polling != nil {
			of, part := graph.Seconds(*r.PerRequest), graph.Seconds(*r.Polling)
			fmt.Fprintf(out, "Of the %s of %s, %s are of threads that look for something now and then (nanosleep), and %s.\n",
				graph.Duration(&of), r.Name, graph.Duration(&part), r.PollingGoes())
		}
	}
	for i := range a.Resources {
		if r := &a.Resources[i]; r.Alone != nil {
			fmt.Fprintf(out, "%s would be full at %s if its threads never waited for the CPUs of %s, where others run by then.\n", r.Name,
				rate(*r.Alone), r.Host)
		}
	}
	for i := range a.Resources {
		if r := &a.Resources[i]; r.MovedFrom != "" {
			fmt.Fprintf(out, "%s moves from %s to %s.\n", r.Name, r.MovedFrom, r.Host)
		}
	}
	if err := a.writeEntries(out, rate); err != nil {
		return err
	}
	if err := a.writePower(out); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "\n"+a.verdict(rate))
	return err
}

// writeEntries writes how long requests take at the entries.
func (a *whatifAnswer) writeEntries(out io.Writer, rate func(float64) string) error {
	if len(a.Entries) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ENTRY\tRATE\t\tNOW\tTHEN\t\tBY")
	for i := range a.Entries {
		e := &a.Entries[i]
		switch {
		case e.Saturated:
			fmt.Fprintf(w, "%s\t%s\tp99\t%s\t–\ta resource is used up: the queue has no end\t\n", e.Name, rate(e.Rate),
				latencyText(&e.Before.P99))
			continue
		case e.Then == nil:
			fmt.Fprintf(w, "%s\t%s\t\t–\t–\t%s\t\n", e.Name, rate(e.Rate), e.Unknown)
			continue
		}
		name, of, by := e.Name, rate(e.Rate), how(e)
		for _, q := range []struct {
			name         string
			before, then *predict.Interval
		}{{"p50", &e.Before.P50, &e.Then.P50}, {"p95", &e.Before.P95, &e.Then.P95}, {"p99", &e.Before.P99, &e.Then.P99}} {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, of, q.name, latencyText(q.before), latencyText(q.then),
				limitBounds(q.then, secondsText), by)
			name, of, by = "", "", ""
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i := range a.Entries {
		if e := &a.Entries[i]; len(e.Waits) > 0 {
			fmt.Fprintf(out, "p99 at %s is longer because requests wait for %s.\n", e.Name, waitsText(e.Waits))
		}
	}
	return nil
}

// waitsText says what requests wait longer for.
func waitsText(all []predict.Wait) string {
	texts := make([]string, len(all))
	for i, w := range all {
		texts[i] = fmt.Sprintf("%s (+%s)", w.For, secondsText(w.Longer))
	}
	return strings.Join(texts, ", ")
}

// writePower writes what hosts take, and of which that is not known.
func (a *whatifAnswer) writePower(out io.Writer) error {
	known := slices.ContainsFunc(a.Power, func(p predict.HostPower) bool { return p.Watts != nil })
	if !known {
		_, err := fmt.Fprintf(out, "\nEnergy is not known%s.\n", powerReason(a.Power))
		return err
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POWER\tNOW\tTHEN\t\tIDLE\tPER USED CORE")
	for _, p := range a.Power {
		if p.Watts == nil {
			fmt.Fprintf(w, "%s\t–\t–\t%s\t\t\n", p.Host, p.Unknown)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", p.Host, wattsText(p.Before.Value), wattsText(p.Watts.Value),
			bounds(p.Watts, wattsText), wattsText(max(*p.IdleWatts, 0)), wattsText(*p.WattsPerCore))
	}
	if a.Watts != nil {
		fmt.Fprintf(w, "all hosts\t%s\t%s\t%s\t\t\n", wattsText(a.BeforeWatts.Value), wattsText(a.Watts.Value),
			bounds(a.Watts, wattsText))
	}
	if a.JoulesPerRequest != nil {
		fmt.Fprintf(w, "for a request\t%s\t%s\t%s\t\t\n", joulesText(a.BeforeJoulesPerRequest.Value),
			joulesText(a.JoulesPerRequest.Value), bounds(a.JoulesPerRequest, joulesText))
	}
	return w.Flush()
}

// powerReason says why no host's power is known, where it is the same for all.
func powerReason(of []predict.HostPower) string {
	if len(of) == 0 || slices.ContainsFunc(of, func(p predict.HostPower) bool { return p.Unknown != of[0].Unknown }) {
		return ""
	}
	return ": of each host, " + of[0].Unknown
}

func wattsText(v float64) string { return fmt.Sprintf("%.1f W", v) }

func joulesText(v float64) string { return fmt.Sprintf("%.3g J", v) }

// how says by which model an entry's latencies were told, and what it was off on the past.
func how(e *predict.Entry) string {
	if e.Tested == nil {
		return string(e.Model) + ", too little of the past to test it on"
	}
	off := e.Tested.Queueing
	if e.Model == predict.Scalability {
		off = e.Tested.Scalability
	}
	return fmt.Sprintf("%s: off %s on the past, at up to %.1f times the load that it knew", e.Model, share(off), e.Tested.Times)
}

func latencyText(i *predict.Interval) string { return secondsText(i.Value) }

func secondsText(v float64) string {
	seconds := graph.Seconds(v)
	return graph.Duration(&seconds)
}

// verdict says what is used up first.
func (a *whatifAnswer) verdict(rate func(float64) string) string {
	if a.Limit == nil {
		return "Which of them is used up first is not known." + a.doubts()
	}
	if a.UpperBound {
		return fmt.Sprintf("The limit cannot be told. It is at most about %s, by %s.%s", rate(a.Limit.Value), a.CPUTimeOf(), a.doubts())
	}
	text := fmt.Sprintf("Used up first: %s, at %s %s", a.LimitName(), rate(a.Limit.Value), limitBounds(a.Limit, rate))
	if times := a.Limit.Value / a.GreatestRate; times > 1 {
		text += fmt.Sprintf(", %.1f times the greatest rate that there was", times)
	}
	if pool := a.LimitingPool(); pool != nil && pool.Ceiling {
		text += ", since no more were seen under way although there were others"
	}
	if len(a.Doubts) > 0 {
		return text + "." + a.doubts()
	}
	if a.AtMost != "" {
		return text + fmt.Sprintf(". That is the most: from %s on, %s.", rate(a.Limit.Low), a.AtMost)
	}
	return text + "."
}

// doubts are what may be used up before.
func (a *whatifAnswer) doubts() string {
	if len(a.Doubts) == 0 {
		return ""
	}
	text := "\nThis may be used up before:"
	if a.LimitingPool() != nil {
		text = "\nThe limit may be another one:"
	}
	for _, d := range a.Doubts {
		text += "\n  " + d.Text
	}
	return text
}

func share(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }

func bounds(i *predict.Interval, text func(float64) string) string {
	return "(" + text(i.Low) + " to " + text(*i.High) + ")"
}

func limitText(i *predict.Interval, rate func(float64) string) string {
	if i == nil {
		return "–"
	}
	return rate(i.Value)
}

func limitBounds(i *predict.Interval, rate func(float64) string) string {
	switch {
	case i == nil:
		return ""
	case i.High == nil:
		return "(" + rate(i.Low) + " or more)"
	}
	return bounds(i, rate)
}
