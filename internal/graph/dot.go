package graph

import (
	"fmt"
	"strings"

	"outsight/internal/model"
)

// DOT is the graph in the language of Graphviz, with the sizes of SVG: height for memory, border for CPU, width
// of lines for bytes. Names are cleaned and quoted.
func DOT(g *Graph) string {
	var b strings.Builder
	b.WriteString("digraph outsight {\n  rankdir=LR;\n  node [shape=box, style=rounded];\n")
	index, most := nodeIndex(g), largest(g)
	for i, n := range g.Nodes {
		shape := ""
		if n.Kind == KindOutside {
			shape = ", shape=ellipse"
		}
		text := Clean(n.Name)
		if cost := costOf(n); cost != "" {
			text += "\n" + cost
		}
		fmt.Fprintf(&b, "  n%d [label=%s, height=%.2f, penwidth=%.1f%s];\n", i, quoteDOT(text),
			nodeHeight(n, most)/pixelsPerInch, nodeBorder(n, most), shape)
	}
	for _, e := range g.Edges {
		style := ""
		if e.Transport != model.TCP.String() {
			style = ", style=dashed"
		}
		fmt.Fprintf(&b, "  n%d -> n%d [label=%s, penwidth=%.1f%s];\n", index[e.Client], index[e.Server],
			quoteDOT(label(e)), edgeWidth(e, most), style)
	}
	b.WriteString("}\n")
	return b.String()
}

// Mermaid is the graph as a Mermaid flowchart. Names are cleaned and escaped.
func Mermaid(g *Graph) string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	index := nodeIndex(g)
	for i, n := range g.Nodes {
		open, end := "[", "]"
		if n.Kind == KindOutside {
			open, end = "([", "])"
		}
		fmt.Fprintf(&b, "  n%d%s\"%s\"%s\n", i, open, escapeMermaid(Clean(n.Name)), end)
	}
	for _, e := range g.Edges {
		fmt.Fprintf(&b, "  n%d -->|\"%s\"| n%d\n", index[e.Client], escapeMermaid(label(e)), index[e.Server])
	}
	return b.String()
}

func label(e *Edge) string {
	s := e.Best()
	return PerSecond(s.TransactionsPerSecond) + " · p99 " + Duration(s.P99) + " · " +
		BytesPerSecond(s.bytesPerSecond()) + mark(e)
}

func nodeIndex(g *Graph) map[string]int {
	index := map[string]int{}
	for i, n := range g.Nodes {
		index[n.ID] = i
	}
	return index
}

func quoteDOT(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

// escapeMermaid writes all but letters, digits and a few marks as character codes, because a
// label of Mermaid is Markdown and HTML.
func escapeMermaid(s string) string {
	var b strings.Builder
	for _, r := range s {
		plain := r >= 0x80 || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' ||
			strings.ContainsRune(" -./:", r)
		if plain {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "#%d;", r)
		}
	}
	return b.String()
}
