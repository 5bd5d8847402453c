package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"outsight/internal/agent"
	"outsight/internal/fleet"
	"outsight/internal/graph"
)

// probesWindow is how long a running agent is looked at.
const probesWindow = 3 * time.Second

// probesAnswer is what a server answers; of this host there is no window.
type probesAnswer struct {
	From   time.Time     `json:"from"`
	To     time.Time     `json:"to"`
	Probes []fleet.Probe `json:"probes"`
}

// list shows what is measured now: of this host, or of a server's.
func (o *probeOptions) list(ctx context.Context, args []string, out, errOut io.Writer) error {
	if o.remote.server != "" {
		query := url.Values{}
		if len(args) == 1 {
			if _, err := netip.ParseAddr(args[0]); err != nil {
				return usagef("probe --server wants the address of a host or of a container, as in 192.0.2.7, got %q", args[0])
			}
			query.Set("address", args[0])
		}
		if o.remote.from == "" {
			query.Set("from", "now-1m")
		}
		var text bytes.Buffer
		if err := o.remote.print(ctx, "probes", query, &text); err != nil {
			return err
		}
		var a probesAnswer
		if err := json.Unmarshal(text.Bytes(), &a); err != nil {
			return fmt.Errorf("reading the server's answer: %w", err)
		}
		return writeProbes(out, &a, o.output)
	}
	client := agent.NewClient(o.socket)
	defer client.Close()
	if _, err := client.Fetch(ctx); errors.Is(err, agent.ErrNoAgent) {
		return fmt.Errorf("%w: it is the agent that measures all the time; to measure once, name two places, as in \"outsight "+
			"probe shop-web shop-db\"", err)
	} else if err != nil {
		return withRoot(err)
	}
	length := probesWindow
	say(errOut, "Looking at the agent for %v …", length)
	w, err := gather(ctx, &source{latest: client.Fetch}, length)
	say(errOut, "\r\x1b[K")
	if err != nil {
		return err
	}
	return writeProbes(out, &probesAnswer{w.From, w.To, fleet.Probes(w)}, o.output)
}

func writeProbes(out io.Writer, a *probesAnswer, output string) error {
	if output == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(a)
	}
	if len(a.Probes) == 0 {
		_, err := fmt.Fprintln(out, "No network between hosts is measured: an agent measures it to the hosts with which its "+
			"containers talk, if a server says so or --probe-peer.")
		return err
	}
	end := func(container, host string) string {
		if container == "" {
			return graph.Clean(host)
		}
		return graph.Clean(container) + " on " + graph.Clean(host)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FROM\tTO\tNOW\tSENT\tLOST\tTHERE\tBACK\tP50\tP99\tJITTER\tONE WAY P50\tABOVE LEAST P99\tHOPS")
	for i := range a.Probes {
		p := &a.Probes[i]
		state := "ended"
		switch {
		case p.Running && p.Answered:
			state = "each " + (time.Duration(*p.IntervalSeconds * float64(time.Second))).String()
		case p.Running && p.Sent == 0:
			state = "begins"
		case p.Running:
			state = "not answered"
		}
		loss, p50, p99, jitter, way, above, hops := "–", "–", "–", "–", "–", "–", "–"
		if p.LossRatio != nil {
			loss = fmt.Sprintf("%d (%.3g %%)", p.Lost, 100**p.LossRatio)
		}
		if p.RoundTrip != nil {
			p50, p99 = shortTime(p.RoundTrip.P50), shortTime(p.RoundTrip.P99)
		}
		if p.JitterSeconds != nil {
			jitter = shortTime(*p.JitterSeconds)
		}
		if p.There != nil && p.Back != nil && p.ClockErrorSeconds != nil {
			way = fmt.Sprintf("%s / %s ± %s", shortTime(p.There.P50), shortTime(p.Back.P50), shortTime(*p.ClockErrorSeconds))
		}
		if p.AboveThere != nil && p.AboveBack != nil {
			above = shortTime(p.AboveThere.P99) + " / " + shortTime(p.AboveBack.P99)
		}
		if p.Hops > 0 {
			hops = strconv.Itoa(p.Hops)
		}
		if p.RouteChanges > 0 {
			hops += fmt.Sprintf(" (%d changes)", p.RouteChanges)
		}
		to := end(p.Server, p.To)
		if p.DSCP != 0 {
			to += fmt.Sprintf(" (DSCP %d)", p.DSCP)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", end(p.Client, p.From), to, state,
			p.Sent, loss, p.LostThere, p.LostBack, p50, p99, jitter, way, above, hops)
	}
	return w.Flush()
}
