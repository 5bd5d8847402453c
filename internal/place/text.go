package place

import (
	"fmt"
	"strings"

	"outsight/internal/graph"
)

// maxTextMoves bounds the steps that are written for people.
const maxTextMoves = 50

// Text is the result for people.
func (r *Result) Text(p *Problem) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d hosts, %d containers (%d may move), %d pairs that talk\n\n", len(p.Hosts), len(p.Containers),
		p.movable(), len(p.Traffic))
	row := func(name string, of func(f *Figures) string) {
		fmt.Fprintf(&b, "%-34s %14s %14s\n", name, of(&r.Before), of(&r.After))
	}
	fmt.Fprintf(&b, "%-34s %14s %14s\n", "", "now", "after all")
	row("bytes between hosts", func(f *Figures) string { return graph.BytesPerSecond(&f.CrossBytes) })
	row("of all bytes between containers", func(f *Figures) string { return percent(f.CrossBytesShare) })
	row("urgent requests between hosts", func(f *Figures) string { return percent(f.CrossRequestsShare) })
	row("hosts in use", func(f *Figures) string { return fmt.Sprint(f.HostsInUse) })
	row("highest CPU of a host, at peaks", func(f *Figures) string { return percent(f.HighestCPU) })
	row("highest memory of a host, at peaks", func(f *Figures) string { return percent(f.HighestMemory) })
	row("standard deviation of hosts' CPU", func(f *Figures) string { return percent(f.CPUDeviation) })
	row("cost", func(f *Figures) string { return fmt.Sprintf("%.4f", f.Cost) })
	fmt.Fprintf(&b, "\nNo placement can cost less than %.4f", r.Bound)
	if r.Search == Exact && r.Gap < tolerance {
		b.WriteString(": this is the best, all were tried")
	}
	b.WriteString(".\n")
	if r.Full != "" {
		fmt.Fprintf(&b, "The headroom is not kept, and each host may stay as full as it is: %s.\n", r.Full)
	}
	for _, problem := range r.Broken {
		fmt.Fprintf(&b, "Broken now: %s.\n", problem)
	}
	if len(r.Moves) == 0 {
		b.WriteString("\nNothing that moves is worth it.\n")
		return b.String()
	}
	b.WriteString("\nMoves in this order, each useful with those before it alone:\n")
	before := r.Before
	for n, s := range r.Moves[:min(maxTextMoves, len(r.Moves))] {
		var names []string
		for _, m := range s.Moves {
			names = append(names, fmt.Sprintf("%s: %s → %s", m.Name, m.From, m.To))
		}
		fmt.Fprintf(&b, "%3d. %s", n+1, strings.Join(names, ", "))
		if s.After != nil {
			fmt.Fprintf(&b, "   %s", change(&before, s.After))
			before = *s.After
		}
		b.WriteByte('\n')
	}
	if more := len(r.Moves) - maxTextMoves; more > 0 {
		fmt.Fprintf(&b, "and %d more.\n", more)
	}
	return b.String()
}

func (p *Problem) movable() (n int) {
	for _, c := range p.Containers {
		if c.Pinned == "" {
			n++
		}
	}
	return n
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// change says what a step changes.
func change(before, after *Figures) string {
	var parts []string
	if before.CrossBytes > 0 {
		if d := after.CrossBytes/before.CrossBytes - 1; d > 5e-4 || d < -5e-4 {
			parts = append(parts, fmt.Sprintf("%+.1f %% of bytes between hosts", 100*d))
		}
	}
	if d := after.HostsInUse - before.HostsInUse; d != 0 {
		parts = append(parts, fmt.Sprintf("%+d hosts in use", d))
	}
	if d := after.CPUDeviation - before.CPUDeviation; d > 5e-4 || d < -5e-4 {
		parts = append(parts, fmt.Sprintf("%+.1f %% CPU deviation", 100*d))
	}
	return strings.Join(parts, ", ")
}
