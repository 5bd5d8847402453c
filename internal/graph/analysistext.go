package graph

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Text is the analysis and the critical path, nil for none, for a terminal. Names are cleaned.
func (a *Analysis) Text(p *Path) string {
	var b strings.Builder
	if len(a.Entries) == 0 {
		return "No requests came in from outside of the containers.\n"
	}
	for _, e := range a.Entries {
		rate := e.ArrivalRate
		fmt.Fprintf(&b, "Requests come in at %s: %s.\n", Clean(e.Name), PerSecond(&rate))
	}
	a.saturation(&b)
	a.table(&b)
	if p != nil {
		p.text(&b)
	}
	return b.String()
}

func (a *Analysis) saturation(b *strings.Builder) {
	if a.SaturationRate == nil {
		return
	}
	r := a.Resources[0]
	fmt.Fprintf(b, "The first limit is %s (%s), at about %s, %.1f times what comes in now.\n", Clean(r.Name), r.Limit(),
		PerSecond(a.SaturationRate), *a.Extrapolation)
	if *a.Extrapolation > 4 {
		b.WriteString("That is far away: the estimate takes for granted that CPU time grows as requests do. Look again under more load.\n")
	}
}

func (a *Analysis) table(b *strings.Builder) {
	b.WriteByte('\n')
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "resource\tused\tof\tserves\tcould serve\tCPU per request at the entry\tanswers in\t")
	for _, r := range a.Resources {
		demand := "-"
		if r.Demand != nil {
			cpu := Seconds(r.CPUCores / a.ArrivalRate)
			demand = Duration(&cpu)
		}
		fmt.Fprintf(w, "%s\t%.1f %%\t%s\t%s\t%s\t%s\t%s\t\n", Clean(r.Name), 100*r.Utilisation, r.Limit(),
			PerSecond(r.ArrivalRate), PerSecond(r.MaxArrivalRate), demand, Duration(r.Latency))
	}
	w.Flush()
}

func (p *Path) text(b *strings.Builder) {
	if p.Statistic == Mean {
		p.meanText(b)
		return
	}
	fmt.Fprintf(b, "\nCritical path by %s: a request to %s takes %s at %s. Those of several calls do not add up; the parts of the mean do (--percentile mean).\n\n",
		p.Statistic, Clean(p.Hops[0].Name), Duration(p.Whole), p.Statistic)
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  hop\tits call takes, %s\tanswers all in, %s\t\n", p.Statistic, p.Statistic)
	for i, h := range p.Hops {
		fmt.Fprintf(w, "  %s\t%s\t%s\t\n", h.branch(i), Duration(h.Weight), Duration(h.Served))
	}
	w.Flush()
}

// meanText has the parts of each hop, and their sum.
func (p *Path) meanText(b *strings.Builder) {
	fmt.Fprintf(b, "\nCritical path by the mean: a request to %s takes %s, of which\n\n", Clean(p.Hops[0].Name),
		Duration(p.Whole))
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  hop\tcalls\ta call takes\tnetwork\tof it own\tother servers\ttogether\t")
	whole := 0.0
	for i, h := range p.Hops {
		o := h.OfRequest
		if o == nil {
			continue
		}
		own := seconds(o.Own)
		if h.Concurrent {
			own = "calls at a time"
		}
		fmt.Fprintf(w, "  %s\t%.3g\t%s\t%s\t%s\t%s\t%s\t\n", h.branch(i), o.Calls, Duration(h.Weight),
			seconds(o.Network), own, seconds(o.Others), seconds(o.Seconds()))
		whole += o.Seconds()
	}
	fmt.Fprintf(w, "  sum\t\t\t\t\t\t%s\t\n", seconds(whole))
	w.Flush()
}

func seconds(v float64) string {
	if v == 0 {
		return "0"
	}
	s := Seconds(v)
	return Duration(&s)
}

// branch is the hop's name, below the hop before.
func (h *Hop) branch(i int) string {
	if i == 0 {
		return Clean(h.Name)
	}
	return strings.Repeat("   ", i-1) + "└─▶ " + Clean(h.Name)
}
