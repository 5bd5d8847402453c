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
	fmt.Fprintf(&b, "%s\n\n%s, %s (%d may move), %s that talk\n\n", r.Verdict(), several(len(p.Hosts), "host"),
		several(len(p.Containers), "container"), p.movable(), several(len(p.Traffic), "pair"))
	row := func(name string, of func(f *Figures) string) {
		fmt.Fprintf(&b, "%-34s %14s %14s\n", name, of(&r.Before), of(&r.After))
	}
	fmt.Fprintf(&b, "%-34s %14s %14s\n", "", "now", "after all")
	row("bytes between hosts", func(f *Figures) string { return graph.BytesPerSecond(&f.CrossBytes) })
	row("of all bytes between containers", func(f *Figures) string { return percent(f.CrossBytesShare) })
	row("busiest host's, with others", func(f *Figures) string { return graph.BytesPerSecond(&f.BusiestUplink) })
	row("urgent requests between hosts", func(f *Figures) string { return percent(f.CrossRequestsShare) })
	row("hosts in use", func(f *Figures) string { return fmt.Sprint(f.HostsInUse) })
	row("highest CPU of a host, at peaks", func(f *Figures) string { return percent(f.HighestCPU) })
	row("highest memory of a host, at peaks", func(f *Figures) string { return percent(f.HighestMemory) })
	row("standard deviation of hosts' CPU", func(f *Figures) string { return percent(f.CPUDeviation) })
	row("cost", func(f *Figures) string { return fmt.Sprintf("%.4f", f.Cost) })
	if r.Before.Watts != nil && r.After.Watts != nil {
		row("power", func(f *Figures) string { return fmt.Sprintf("%.1f W", *f.Watts) })
	}
	fmt.Fprintf(&b, "\nNo placement that keeps the rules can cost less than %.4f", r.Bound)
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
	for _, problem := range r.BrokenAfter {
		fmt.Fprintf(&b, "Broken then: %s.\n", problem)
	}
	r.writeMoves(&b)
	r.writeKept(&b)
	return b.String()
}

func (r *Result) writeMoves(b *strings.Builder) {
	switch {
	case len(r.Moves) == 0:
		return
	case r.Search == Chosen:
		b.WriteString("\nThe moves that were chosen, in this order:\n")
	default:
		b.WriteString("\nMoves in this order, each useful with those before it alone:\n")
	}
	before := r.Before
	for n, s := range r.Moves[:min(maxTextMoves, len(r.Moves))] {
		var names []string
		for _, m := range s.Moves {
			names = append(names, fmt.Sprintf("%s: %s → %s", m.Name, m.From, m.To))
		}
		fmt.Fprintf(b, "%3d. %s", n+1, strings.Join(names, ", "))
		if s.After != nil {
			fmt.Fprintf(b, "   %s", s.After.Since(&before))
			before = *s.After
		}
		if s.Gain < 0 && r.Search != Chosen {
			b.WriteString(" (for the sake of a later one)")
		}
		b.WriteByte('\n')
	}
	if more := len(r.Moves) - maxTextMoves; more > 0 {
		fmt.Fprintf(b, "and %d more.\n", more)
	}
}

// maxTextKept bounds the containers of which it is written for people what keeps them.
const maxTextKept = 10

func (r *Result) writeKept(b *strings.Builder) {
	if len(r.Kept) > 0 {
		b.WriteString("\nKept where they are by rules, although another host would be better:\n")
	}
	for _, k := range r.Kept[:min(maxTextKept, len(r.Kept))] {
		fmt.Fprintf(b, "  %s on %s: it %s (cost on %s: %+.4f)\n", k.Name, k.Host, k.Rule, k.To, -k.Gain)
	}
	if more := len(r.Kept) + r.KeptOmitted - maxTextKept; more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
}

func (p *Problem) movable() (n int) {
	for _, c := range p.Containers {
		if c.Pinned == "" {
			n++
		}
	}
	return n
}

func several(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// Verdict says in a sentence what to do first and what that gains, or that there is nothing to do.
func (r *Result) Verdict() string {
	switch {
	case len(r.Moves) == 0 && len(r.HostsBefore) == 1:
		return "There is one host: nothing can move."
	case len(r.Moves) == 0 && r.Search == Chosen:
		return "No move is chosen."
	case len(r.Moves) == 0 && len(r.Broken) > 0:
		return "The rules are broken, and no move that helps was found."
	case len(r.Moves) == 0:
		return "Nothing that moves is worth it."
	}
	first := r.Moves[0]
	var names []string
	for _, m := range first.Moves[:min(maxNamed, len(first.Moves))] {
		names = append(names, fmt.Sprintf("%s to %s", m.Name, m.To))
	}
	text := "Move " + strings.Join(names, ", ")
	if more := len(first.Moves) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if first.After != nil {
		text += ": " + first.After.Since(&r.Before)
	}
	if n := len(r.Moves); n > 1 {
		text += fmt.Sprintf(". All %d moves: %s", n, r.After.Since(&r.Before))
	}
	return text + "."
}

// maxNamed is how many containers the verdict names.
const maxNamed = 3

// noticed is from which change on a share is told.
const noticed = 5e-4

// Since says what has changed: the bytes and urgent requests between hosts as shares of what they were, the hosts in use, the
// CPU deviation and the power; the cost where none of these did.
func (f *Figures) Since(before *Figures) string {
	after := f
	var parts []string
	for _, s := range []struct {
		before, after float64
		what          string
	}{{before.CrossBytes, after.CrossBytes, "bytes"}, {before.CrossRequestsShare, after.CrossRequestsShare, "urgent requests"}} {
		switch d := s.after/s.before - 1; {
		case s.before > 0 && (d > noticed || d < -noticed):
			parts = append(parts, fmt.Sprintf("%+.1f %% of %s between hosts", 100*d, s.what))
		case s.before == 0 && s.after > 0:
			parts = append(parts, s.what+" between hosts, where there were none")
		}
	}
	if d := after.HostsInUse - before.HostsInUse; d != 0 {
		parts = append(parts, fmt.Sprintf("%+d hosts in use", d))
	}
	if d := after.CPUDeviation - before.CPUDeviation; d > noticed || d < -noticed {
		parts = append(parts, fmt.Sprintf("%+.1f %% CPU deviation", 100*d))
	}
	if before.Watts != nil && after.Watts != nil {
		if d := *after.Watts - *before.Watts; d >= 0.05 || d <= -0.05 {
			parts = append(parts, fmt.Sprintf("%+.1f W", d))
		}
	}
	if len(parts) == 0 {
		return fmt.Sprintf("cost %+.4f", after.Cost-before.Cost)
	}
	return strings.Join(parts, ", ")
}
