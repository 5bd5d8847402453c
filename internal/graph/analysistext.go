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
	fmt.Fprintf(b, "The first limit is %s (%s), at about %s, %.1f times what comes in now.\n", Clean(r.Name), r.Limit(), PerSecond(a.SaturationRate), *a.Extrapolation)
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
	fmt.Fprintf(b, "\nCritical path by %s, and where the mean time goes:\n\n", p.Percentile)
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  hop\t%s\tanswers in\tof it own\twaits for the next\tfor others\t\n", p.Percentile)
	for i, h := range p.Hops {
		branch := ""
		if i > 0 {
			branch = strings.Repeat("   ", i-1) + "└─▶ "
		}
		own := Seconds(h.Own)
		ownText := Duration(&own)
		if h.Concurrent {
			ownText = "calls at a time"
		}
		next, others := Seconds(h.Next), Seconds(h.Others)
		fmt.Fprintf(w, "  %s%s\t%s\t%s\t%s\t%s\t%s\t\n", branch, Clean(h.Name), Duration(h.Weight), Duration(h.Served), ownText, Duration(&next), Duration(&others))
	}
	w.Flush()
}
