package graph

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Sizes of the picture in pixels.
const (
	boxWidth, boxLeast, boxMost  = 168, 40, 132
	columnGap, rowGap, margin    = 120, 22, 24
	borderLeast, borderMost      = 1, 9
	edgeLeast, edgeMost          = 1, 12
	legendHeight, namesInPicture = 44, 22
	pixelsPerInch                = 72
)

// box is a node in the picture.
type box struct {
	node                *Node
	column              int
	x, y, height, width float64
	border              float64
}

// SVG is the graph as a picture of what runs where and what it costs (paper 001, figure 7): a node's height
// grows with its memory and its border with its CPU time, an edge's width with its bytes per second. Who is called
// stands right of its callers. Names are cleaned and escaped; the picture has no script and refers to nothing.
func SVG(g *Graph) string {
	boxes, width, height := layout(g)
	most := largest(g)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="system-ui, sans-serif">`+"\n",
		width, height, width, height)
	b.WriteString("<style>rect{fill:#fff;stroke:#35507a}.outside rect{stroke:#8a93a3;stroke-dasharray:4 3}path{fill:none;stroke:#5b8bd0;stroke-opacity:.55}" +
		".udp{stroke-dasharray:6 4}text{fill:#1c2633;font-size:13px}.small{fill:#5a6575;font-size:11px}svg{background:#fff}" +
		"@media(prefers-color-scheme:dark){svg{background:#14181f}rect{fill:#1d232d;stroke:#8fb3ea}text{fill:#e8ecf2}.small{fill:#a3adbb}}</style>\n")
	for _, e := range g.Edges {
		from, to := boxes[e.Client], boxes[e.Server]
		if from == nil || to == nil {
			continue
		}
		kind := ""
		if e.Transport == "udp" {
			kind = ` class="udp"`
		}
		fmt.Fprintf(&b, `<path%s d="%s" stroke-width="%.1f"><title>%s</title></path>`+"\n", kind, curve(from, to),
			edgeWidth(e, most),
			escapeXML(Clean(from.node.Name)+" → "+Clean(to.node.Name)+": "+label(e)))
	}
	for _, n := range g.Nodes {
		writeBox(&b, boxes[n.ID])
	}
	fmt.Fprintf(&b, `<text class="small" x="%d" y="%.0f">%s</text>`+"\n</svg>\n", margin, height-margin/2,
		escapeXML(most.legend()))
	return b.String()
}

func writeBox(b *strings.Builder, x *box) {
	class := ""
	if x.node.Kind == KindOutside {
		class = ` class="outside"`
	}
	fmt.Fprintf(b, `<g%s><title>%s</title><rect x="%.1f" y="%.1f" width="%.0f" height="%.1f" rx="6" stroke-width="%.1f"/>`,
		class, escapeXML(Clean(x.node.Name)), x.x, x.y, x.width, x.height, x.border)
	middle := x.y + x.height/2
	cost := costOf(x.node)
	if cost == "" {
		middle += 8
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f">%s</text>`, x.x+12, middle-3,
		escapeXML(cut(Clean(x.node.Name), namesInPicture)))
	if cost != "" {
		fmt.Fprintf(b, `<text class="small" x="%.1f" y="%.1f">%s</text>`, x.x+12, middle+13, escapeXML(cost))
	}
	b.WriteString("</g>\n")
}

func costOf(n *Node) string {
	var parts []string
	if n.Usage != nil && n.Usage.CPUCores != nil {
		parts = append(parts, fmt.Sprintf("%.3g cores", *n.Usage.CPUCores))
	}
	if n.Usage != nil && n.Usage.MemoryBytes != nil {
		parts = append(parts, Bytes(n.Usage.MemoryBytes))
	}
	return strings.Join(parts, " · ")
}

// extent has the largest numbers of a picture: all sizes are shares of them.
type extent struct{ cpu, memory, bytes float64 }

func largest(g *Graph) (most extent) {
	for _, n := range g.Nodes {
		most.cpu, most.memory = max(most.cpu, cores(n)), max(most.memory, memory(n))
	}
	for _, e := range g.Edges {
		most.bytes = max(most.bytes, bytesPerSecond(e))
	}
	return most
}

func (most extent) legend() string {
	return fmt.Sprintf("height: memory, up to %s · border: CPU, up to %.3g cores · width of lines: bytes, up to %s · right: is called",
		Bytes(&most.memory), most.cpu, BytesPerSecond(&most.bytes))
}

func cores(n *Node) float64 {
	if n.Usage == nil || n.Usage.CPUCores == nil {
		return 0
	}
	return *n.Usage.CPUCores
}

func memory(n *Node) float64 {
	if n.Usage == nil || n.Usage.MemoryBytes == nil {
		return 0
	}
	return *n.Usage.MemoryBytes
}

func bytesPerSecond(e *Edge) float64 {
	if v := e.Best().bytesPerSecond(); v != nil {
		return *v
	}
	return 0
}

// between is the size of v where most has the size to; areas are compared better than lengths, hence the root.
func between(from, to, v, most float64) float64 {
	if !(v > 0) || !(most > 0) {
		return from
	}
	return from + (to-from)*math.Sqrt(min(1, v/most))
}

func edgeWidth(e *Edge, most extent) float64 {
	return between(edgeLeast, edgeMost, bytesPerSecond(e), most.bytes)
}

func nodeHeight(n *Node, most extent) float64 {
	return between(boxLeast, boxMost, memory(n), most.memory)
}

func nodeBorder(n *Node, most extent) float64 {
	return between(borderLeast, borderMost, cores(n), most.cpu)
}

// layout puts nodes into columns: one more than the last of their callers; nodes that call each other in
// a circle are in one. Within a column they are ordered by the heights of their callers.
func layout(g *Graph) (boxes map[string]*box, width, height float64) {
	most := largest(g)
	depth := g.calls().depths()
	callers := map[string][]*box{}
	boxes = map[string]*box{}
	var columns [][]*box
	for i, n := range g.Nodes {
		x := &box{node: n, column: depth[i], width: boxWidth, height: nodeHeight(n, most), border: nodeBorder(n, most)}
		boxes[n.ID] = x
		for len(columns) <= x.column {
			columns = append(columns, nil)
		}
		columns[x.column] = append(columns[x.column], x)
	}
	for _, e := range g.Edges {
		if from, to := boxes[e.Client], boxes[e.Server]; from != nil && to != nil && from.column < to.column {
			callers[to.node.ID] = append(callers[to.node.ID], from)
		}
	}
	for i, column := range columns {
		level := map[*box]float64{}
		for _, x := range column {
			for _, c := range callers[x.node.ID] {
				level[x] += (c.y + c.height/2) / float64(len(callers[x.node.ID]))
			}
		}
		slices.SortStableFunc(column, func(a, b *box) int {
			return cmp.Or(cmp.Compare(level[a], level[b]), cmp.Compare(a.node.ID, b.node.ID))
		})
		y := float64(margin)
		for _, x := range column {
			x.x, x.y = margin+float64(i)*(boxWidth+columnGap), y
			y += x.height + rowGap
		}
		height = max(height, y)
		width = max(width, margin+float64(i)*(boxWidth+columnGap)+boxWidth+margin)
	}
	return boxes, max(width, 720), height + legendHeight
}

// curve goes from the right of the client to the left of the server, or around where the server is not right of it.
func curve(from, to *box) string {
	x1, y1 := from.x+from.width, from.y+from.height/2
	x2, y2 := to.x, to.y+to.height/2
	bend := max(columnGap/2, (x2-x1)/2)
	if x2 <= x1 {
		x2 = to.x + to.width
		return fmt.Sprintf("M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f", x1, y1, x1+bend, y1, x2+bend, y2, x2, y2)
	}
	return fmt.Sprintf("M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f", x1, y1, x1+bend, y1, x2-bend, y2, x2, y2)
}

func escapeXML(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		panic("BUG: writing to a string failed: " + err.Error())
	}
	return b.String()
}
