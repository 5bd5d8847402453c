package graph

import (
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"

	"outsight/internal/model"
)

// attribute is a number or a text of a node or an edge for other programs; a text is "" and a number
// nil where there is none.
type attribute struct {
	name   string
	text   string
	number *float64
}

func (n *Node) attributes() []attribute {
	all := []attribute{{name: "name", text: Clean(n.Name)}, {name: "kind", text: string(n.Kind)},
		{name: "host", text: Clean(n.Host)},
		{name: "image", text: Clean(n.Image)}, {name: "namespace", text: Clean(n.PodNamespace)},
		{name: "pod", text: Clean(n.PodName)}}
	if u := n.Usage; u != nil {
		all = append(all, attribute{name: "cpu_cores", number: u.CPUCores},
			attribute{name: "memory_bytes", number: u.MemoryBytes},
			attribute{name: "run_queue_p99_seconds", number: finite(u.RunQueueP99)})
	}
	return all
}

func (e *Edge) attributes() []attribute {
	s := e.Best()
	failures, retransmits := s.Failures(), s.Of(Retransmits)
	return []attribute{{name: "transport", text: e.Transport}, {name: "services", text: strings.Join(e.Services, " ")},
		{name: "confidence", text: e.Confidence},
		{name: "requests_per_second", number: s.TransactionsPerSecond},
		{name: "request_bytes_per_second", number: s.RequestBytesPerSecond},
		{name: "response_bytes_per_second", number: s.ResponseBytesPerSecond}, {name: "p50_seconds", number: finite(s.P50)},
		{name: "p90_seconds", number: finite(s.P90)}, {name: "p99_seconds", number: finite(s.P99)},
		{name: "failures", number: &failures},
		{name: "retransmits", number: &retransmits}}
}

// there leaves the attributes that have a value.
func there(all []attribute) []attribute {
	var some []attribute
	for _, a := range all {
		if a.text != "" || a.number != nil && !math.IsNaN(*a.number) && !math.IsInf(*a.number, 0) {
			some = append(some, a)
		}
	}
	return some
}

func (a *attribute) value() string {
	if a.number != nil {
		return strconv.FormatFloat(*a.number, 'g', -1, 64)
	}
	return a.text
}

type graphML struct {
	XMLName xml.Name      `xml:"http://graphml.graphdrawing.org/xmlns graphml"`
	Keys    []graphMLKey  `xml:"key"`
	Nodes   []graphMLItem `xml:"graph>node"`
	Edges   []graphMLItem `xml:"graph>edge"`
}

type graphMLKey struct {
	ID   string `xml:"id,attr"`
	For  string `xml:"for,attr"`
	Name string `xml:"attr.name,attr"`
	Type string `xml:"attr.type,attr"`
}

type graphMLItem struct {
	ID     string        `xml:"id,attr"`
	Source string        `xml:"source,attr,omitempty"`
	Target string        `xml:"target,attr,omitempty"`
	Data   []graphMLData `xml:"data"`
}

type graphMLData struct {
	Key  string `xml:"key,attr"`
	Text string `xml:",chardata"`
}

// GraphML is the graph for programs such as Gephi, yEd and NetworkX. Names are cleaned.
func GraphML(g *Graph) (string, error) {
	var doc graphML
	known := map[string]bool{}
	data := func(of string, all []attribute) (items []graphMLData) {
		for _, a := range there(all) {
			key := graphMLKey{of[:1] + "_" + a.name, of, a.name, "string"}
			if a.number != nil {
				key.Type = "double"
			}
			if !known[key.ID] {
				known[key.ID] = true
				doc.Keys = append(doc.Keys, key)
			}
			items = append(items, graphMLData{key.ID, a.value()})
		}
		return items
	}
	for _, n := range g.Nodes {
		doc.Nodes = append(doc.Nodes, graphMLItem{ID: Clean(n.ID), Data: data("node", n.attributes())})
	}
	for _, e := range g.Edges {
		doc.Edges = append(doc.Edges, graphMLItem{ID: Clean(e.ID), Source: Clean(e.Client), Target: Clean(e.Server),
			Data: data("edge", e.attributes())})
	}
	text, err := xml.MarshalIndent(doc, "", "  ")
	if err != nil {
		return "", fmt.Errorf("writing GraphML: %w", err)
	}
	// Without edgedefault the format is not valid, and a path of names has no room for it.
	body := strings.Replace(string(text), "<graph>", `<graph edgedefault="directed">`, 1)
	return xml.Header + body + "\n", nil
}

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
	index := make(map[string]int, len(g.Nodes))
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
